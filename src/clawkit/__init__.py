"""An agent with tools, policy and a sandbox, and the tool layer underneath.

    from clawkit import Agent, tool

    @tool
    async def stock(tea: str) -> str:
        \"\"\"Say how many tins of a tea are left.\"\"\"
        return "12 tins"

    with Agent.open(tools=[stock]) as agent:
        print(agent.run_sync("How much Assam is left?"))

`Agent` is a conversation with a model, `Toolkit` only the tools. `clawkit.agent.events` has the
events of a turn, `clawkit.errors` all exceptions, `clawkit.testing` models for tests, and
`clawkit.plugins` what plugins import.
"""

from __future__ import annotations

from clawkit.version import __version__ as __version__

TYPE_CHECKING = False  # not from typing, whose import is slow
if TYPE_CHECKING:
    from typing import Any

    from clawkit.agent_session import Agent as Agent
    from clawkit.content import Image as Image
    from clawkit.content import Text as Text
    from clawkit.core.approval import Answer as Answer
    from clawkit.core.approval import Approver as Approver
    from clawkit.core.approval import Ask as Ask
    from clawkit.core.approval import Deny as Deny
    from clawkit.core.approval import Question as Question
    from clawkit.core.call import CallRequest as CallRequest
    from clawkit.core.context import Context as Context
    from clawkit.core.context import Sender as Sender
    from clawkit.core.hooks import Call as Call
    from clawkit.core.hooks import Hooks as Hooks
    from clawkit.core.hooks import Rewrite as Rewrite
    from clawkit.core.result import Result as Result
    from clawkit.core.tool import Effect as Effect
    from clawkit.core.tool import Tool as Tool
    from clawkit.core.tool import tool as tool
    from clawkit.errors import OutputError as OutputError
    from clawkit.errors import ToolAuthorizationError as ToolAuthorizationError
    from clawkit.errors import ToolError as ToolError
    from clawkit.errors import ToolInputError as ToolInputError
    from clawkit.errors import TurnError as TurnError
    from clawkit.models.protocols import Model as Model
    from clawkit.models.protocols import ModelError as ModelError
    from clawkit.runtime import Toolkit as Toolkit

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

__all__ = ("__version__", *_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        import importlib

        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'clawkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
