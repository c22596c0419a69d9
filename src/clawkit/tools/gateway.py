"""gateway: restart the gateway that runs this session, and read or change its configuration."""

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, Protocol

import msgspec

from clawkit.config.model import Config
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolInputError
from clawkit.tools._params import doc

MAX_CHARS, MAX_RAW = 12_000, 100_000
DELAY_MS, MAX_DELAY_MS = 2_000, 60_000
NO_GATEWAY = (
    "it is for sessions of a gateway (clawkit gateway); elsewhere, the person can use: clawkit "
    "config"
)
NO_RESTART = (
    "restarting is disabled; the person can enable it with: clawkit config set commands.restart "
    "true"
)
NO_UPDATE = (
    "clawkit does not update itself; the person can update the package (for example with: pip "
    "install -U clawkit), and then run: clawkit gateway restart"
)


class GatewayControl(Protocol):
    """The gateway that runs a session, for the model of that session."""

    async def read_config(self) -> dict[str, Any]:
        """The configuration file, its settings and its hash, without secrets."""

    def look_up(self, path: str) -> dict[str, Any]:
        """What a setting is for. Raises `ToolInputError` for an unknown one."""

    async def write_config(
        self, raw: str, base_hash: str, *, patch: bool, note: str, delay_ms: int
    ) -> dict[str, Any]:
        """Change the file, as far as models may, and restart if that is needed; then the note is
        said here. Without a hash it is that of now. Raises `ToolInputError`."""

    def restart(self, note: str, delay_ms: int) -> dict[str, Any]:
        """Restart, and then say the note here. Raises `ToolInputError`."""


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
    note: Annotated[str, doc("Is said in this session after the restart", max_length=2_000)] = ""
    delay_ms: Annotated[
        int, doc("Milliseconds until the restart, so that you can answer", ge=0, le=MAX_DELAY_MS)
    ] = DELAY_MS


async def execute(params: Params, ctx: Context, *, may_restart: bool = False) -> Result:
    control = ctx.use(GatewayControl)
    match params.action:
        case "config.get":
            return _bounded(await _read(control, params.path))
        case "config.schema":
            return Result.json(_overview())
        case "config.schema.lookup":
            return _bounded(control.look_up(params.path))
        case "config.patch" | "config.apply":
            if not params.raw.strip():
                raise ToolInputError(f"'raw' is required for {params.action}")
            done = await control.write_config(
                params.raw,
                params.base_hash,
                patch=params.action == "config.patch",
                note=params.note,
                delay_ms=params.delay_ms,
            )
            return Result.json(done)
        case "restart":
            if not may_restart:
                raise ToolAuthorizationError(NO_RESTART, reason="restart-disabled")
            return Result.json(control.restart(params.note, params.delay_ms))
        case "update.run":
            raise ToolInputError(NO_UPDATE)


async def _read(control: GatewayControl, path: str) -> dict[str, Any]:
    from clawkit.config.json5 import PathError, parse_path
    from clawkit.config.schema import spelled, value_at

    found = await control.read_config()
    keys = ("path", "hash", "valid", "issues", "restartNeeded")
    shown = {key: found[key] for key in keys}
    if not path:
        return {**shown, "config": found["config"]}
    try:
        value = value_at(found["config"], spelled(parse_path(path), found["config"]))
    except PathError as error:
        raise ToolInputError(f"invalid path {path!r}: {error}") from None
    if value is None:
        raise NotFoundError(f"{path!r} is not set; see config.schema.lookup for its default")
    return {**shown, "value": value}


def _overview() -> dict[str, Any]:
    from clawkit.config.schema import explain
    from clawkit.config.section import layout_of

    sections = {key: explain((key,))[1] for key in layout_of(Config).shapes}
    return {"sections": sections, "next": "config.schema.lookup with a path describes the rest"}


def _bounded(shown: dict[str, Any]) -> Result:
    size = len(msgspec.json.encode(shown))
    if size > MAX_CHARS:
        raise ToolInputError(f"the answer has {size:,} characters; ask for a part with 'path'")
    return Result.json(shown)


def effects(params: Params, _ctx: Context) -> tuple[Effect, ...]:
    is_change = params.action in ("config.patch", "config.apply", "restart")
    return (Effect("write" if is_change else "read", "gateway:config"),)


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


def make_tool(config: Config, scope: Scope) -> Tool | str:
    if not scope.in_gateway:
        return NO_GATEWAY
    may_restart = config.commands is not None and config.commands.restart
    return replace(TOOL, execute=partial(execute, may_restart=may_restart))
