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
_MODULES = {
    "clawkit.agent_session": "Agent",
    "clawkit.content": "Image Text",
    "clawkit.core.approval": "Answer Approver Ask Deny Question",
    "clawkit.core.call": "CallRequest",
    "clawkit.core.context": "Context Sender",
    "clawkit.core.hooks": "Call Hooks Rewrite",
    "clawkit.core.result": "Result",
    "clawkit.core.tool": "Effect Tool tool",
    "clawkit.errors": "OutputError ToolAuthorizationError ToolError ToolInputError TurnError",
    "clawkit.models.protocols": "Model ModelError",
    "clawkit.runtime": "Toolkit",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

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
