"""gateway: restart the gateway that runs this session, and read or change its configuration."""

from typing import Annotated, Any, Literal, Protocol

import msgspec

from clawkit.config.model import Config
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import ToolInputError
from clawkit.tools._params import doc

MAX_CHARS, MAX_RAW = 12_000, 100_000
DELAY_MS, MAX_DELAY_MS = 2_000, 60_000
NO_GATEWAY = (
    "it is for sessions of a gateway (clawkit gateway); elsewhere, the person can use: clawkit "
    "config"
)


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    action: Annotated[
        Literal[
            "restart",
            "config.get",
            "config.schema",
            "config.schema.lookup",
            "config.patch",
            "config.apply",
            "update.run",
        ],
        doc("What to do"),
    ]
    path: Annotated[str, doc("config.get, config.schema.lookup: a setting, as 'tools.exec'")] = ""
    raw: Annotated[
        str,
        doc(
            "config.patch: JSON5 to merge, null removes; config.apply: the whole file",
            max_length=MAX_RAW,
        ),
    ] = ""
    base_hash: Annotated[str, doc("config.patch, config.apply: hash of config.get")] = ""
    note: Annotated[str, doc("Posted in this session after the restart", max_length=2_000)] = ""
    delay_ms: Annotated[
        int, doc("Milliseconds until the restart, so that you can answer", ge=0, le=MAX_DELAY_MS)
    ] = DELAY_MS


class GatewayControl(Protocol):
    """The gateway that runs a session, for the model of that session."""

    async def run(self, params: Params) -> dict[str, Any]:
        """Do what a model requests, if models may do it. Raises `ToolError`."""


_CHANGES = ("config.patch", "config.apply", "restart")


async def execute(params: Params, ctx: Context) -> Result:
    shown = await ctx.use(GatewayControl).run(params)
    size = len(msgspec.json.encode(shown))
    if size > MAX_CHARS and params.action not in _CHANGES:
        raise ToolInputError(f"the result has {size:,} characters; request a part with 'path'")
    return Result.json(shown)


def effects(params: Params, _ctx: Context) -> tuple[Effect, ...]:
    return (Effect("write" if params.action in _CHANGES else "read", "gateway:config"),)


TOOL = Tool(
    name="gateway",
    label="Gateway",
    description=(
        "Restart the gateway that runs this session, or read, look up and change its settings. "
        "Settings that protect the person, such as those of tools, cannot be changed."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
    owner_only=True,
    aliases={"restartDelayMs": "delayMs", "reason": "note"},
)


def make_tool(_config: Config, scope: Scope) -> Tool | str:
    return TOOL if scope.in_gateway else NO_GATEWAY
