"""clawkit: the tool layer between an AI agent and a real machine."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from clawkit.version import __version__

if TYPE_CHECKING:
    from clawkit.agent_session import Agent
    from clawkit.content import Image, Text
    from clawkit.core.approval import Answer, Approver, Ask, Deny, Question
    from clawkit.core.call import CallRequest
    from clawkit.core.context import Context, Sender
    from clawkit.core.hooks import Call, Hooks, Rewrite
    from clawkit.core.result import Result
    from clawkit.core.tool import Effect, Tool, tool
    from clawkit.errors import (
        OutputError,
        ToolAuthorizationError,
        ToolError,
        ToolInputError,
        TurnError,
    )
    from clawkit.models.protocols import Model, ModelError
    from clawkit.runtime import Toolkit

# Loaded on first use: `import clawkit` costs next to nothing.
_HOME = {
    "Agent": "clawkit.agent_session",
    "Answer": "clawkit.core.approval",
    "Approver": "clawkit.core.approval",
    "Ask": "clawkit.core.approval",
    "Call": "clawkit.core.hooks",
    "CallRequest": "clawkit.core.call",
    "Context": "clawkit.core.context",
    "Deny": "clawkit.core.approval",
    "Effect": "clawkit.core.tool",
    "Hooks": "clawkit.core.hooks",
    "Image": "clawkit.content",
    "Model": "clawkit.models.protocols",
    "ModelError": "clawkit.models.protocols",
    "OutputError": "clawkit.errors",
    "Question": "clawkit.core.approval",
    "Result": "clawkit.core.result",
    "Rewrite": "clawkit.core.hooks",
    "Sender": "clawkit.core.context",
    "Text": "clawkit.content",
    "Tool": "clawkit.core.tool",
    "ToolAuthorizationError": "clawkit.errors",
    "ToolError": "clawkit.errors",
    "ToolInputError": "clawkit.errors",
    "Toolkit": "clawkit.runtime",
    "TurnError": "clawkit.errors",
    "tool": "clawkit.core.tool",
}

__all__ = [
    "Agent",
    "Answer",
    "Approver",
    "Ask",
    "Call",
    "CallRequest",
    "Context",
    "Deny",
    "Effect",
    "Hooks",
    "Image",
    "Model",
    "ModelError",
    "OutputError",
    "Question",
    "Result",
    "Rewrite",
    "Sender",
    "Text",
    "Tool",
    "ToolAuthorizationError",
    "ToolError",
    "ToolInputError",
    "Toolkit",
    "TurnError",
    "__version__",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'clawkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
