"""clawkit: the tool layer between an AI agent and a real machine."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from clawkit.version import __version__

if TYPE_CHECKING:
    from clawkit.core.approval import Answer, Ask, Block, Request
    from clawkit.core.call import CallRequest
    from clawkit.core.context import Context, Sender
    from clawkit.core.effects import Effect
    from clawkit.core.hooks import Call, Hooks, Rewrite
    from clawkit.core.result import Result
    from clawkit.core.tool import Tool, tool
    from clawkit.runtime import Toolkit

# Loaded on first use: `import clawkit` costs next to nothing.
_HOME = {
    "Answer": "clawkit.core.approval",
    "Ask": "clawkit.core.approval",
    "Block": "clawkit.core.approval",
    "Call": "clawkit.core.hooks",
    "CallRequest": "clawkit.core.call",
    "Context": "clawkit.core.context",
    "Effect": "clawkit.core.effects",
    "Hooks": "clawkit.core.hooks",
    "Request": "clawkit.core.approval",
    "Result": "clawkit.core.result",
    "Rewrite": "clawkit.core.hooks",
    "Sender": "clawkit.core.context",
    "Tool": "clawkit.core.tool",
    "Toolkit": "clawkit.runtime",
    "tool": "clawkit.core.tool",
}

__all__ = [
    "Answer",
    "Ask",
    "Block",
    "Call",
    "CallRequest",
    "Context",
    "Effect",
    "Hooks",
    "Request",
    "Result",
    "Rewrite",
    "Sender",
    "Tool",
    "Toolkit",
    "__version__",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'clawkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
