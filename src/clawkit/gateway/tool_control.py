"""The rights of the tool `gateway`. A model uses it, so most settings are off limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from clawkit.config.file_edit import leaves
from clawkit.config.json5 import PathError, format_path, parse_path
from clawkit.config.lookup import Path, explain, spelled, value_at
from clawkit.config.model import Config
from clawkit.config.section import layout_of
from clawkit.core.tasks import in_thread, unbroken
from clawkit.errors import (
    ConflictError,
    NotFoundError,
    ToolAuthorizationError,
    ToolError,
    ToolInputError,
)
from clawkit.gateway.methods import config as methods
from clawkit.gateway.protocol import GatewayError
from clawkit.gateway.reload import covers
from clawkit.tools.gateway import Params

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

NO_RESTART = (
    "restarting is disabled; the person can enable it with: clawkit config set commands.restart "
    "true"
)
_ENTRIES = ("agents", "entries")
_AGENT_ID = re.compile("[A-Za-z0-9_-]+")
_OF_AGENTS = ("model", "model.primary", "model.fallbacks", "thinkingDefault")
MODELS_MAY_CHANGE = (
    *(
        f"{agent}.{name}"
        for name in _OF_AGENTS
        for agent in ("agents.defaults", "agents.entries.*")
    ),
    *("agents.defaults.userTimezone", "messages.queue.mode", "messages.queue.cap"),
)
"""All settings that a model may change. None of them extends its rights, affects other people, or
becomes part of a prompt."""


def protected_changes(before: Any, after: Any) -> list[str]:
    """The changed settings that a model may not change."""
    old, new = dict(leaves(before)), dict(leaves(after))
    agents = _agents(old) & _agents(new)
    changed = [path for path in {**old, **new} if old.get(path, old) != new.get(path, old)]
    groups = _groups(old) & _groups(new)  # judged by their content
    return [
        format_path(path)
        for path in changed
        if path not in groups and not (_is_of(path, agents) and _may_change(path, new.get(path)))
    ]


def _agents(leaves: dict[Path, Any]) -> set[str]:
    found = {str(path[2]) for path in leaves if path[:2] == _ENTRIES and len(path) > 2}
    return set(filter(_AGENT_ID.fullmatch, found))


def _is_of(path: Path, agents: set[str]) -> bool:
    """Whether this is not an agent's setting, or belongs to one of these agents: a new agent would
    lack the limits of its creator, and an agent without an entry would get the defaults."""
    return path[:2] != _ENTRIES or (len(path) > 2 and path[2] in agents)


def _groups(leaves: dict[Path, Any]) -> set[Path]:
    above = {path[:end] for path in leaves for end in range(len(path))}
    return above | {path for path, value in leaves.items() if value == {}}


def _may_change(path: Path, value: Any) -> bool:
    patterns = (each.split(".") for each in MODELS_MAY_CHANGE)
    is_open = any(len(each) == len(path) and covers(each, path) for each in patterns)
    values = value if isinstance(value, list) else [value]
    # A variable reference in a text would be replaced by its value, which may be a secret.
    is_simple = all(isinstance(each, str | int | None) and "$" not in str(each) for each in values)
    return is_open and is_simple


def _guard(before: Any, after: Any) -> None:
    if names := protected_changes(before, after):
        raise ToolAuthorizationError(
            f"a model may not change {', '.join(names[:6])}; ask the person to do it with: clawkit "
            "config set",
            reason="protected-setting",
        )


class SessionControl:
    """The gateway, for the model of one session."""

    def __init__(self, gateway: Gateway, session: str) -> None:
        self._gateway = gateway
        self._session = session

    async def run(self, params: Params) -> dict[str, Any]:
        try:
            match params.action:
                case "config.get":
                    return _part(await in_thread(methods.read_config, self._gateway), params.path)
                case "config.schema":
                    sections = {key: explain((key,))[1] for key in layout_of(Config).shapes}
                    rest = "config.schema.lookup with a path describes the rest"
                    return {"sections": sections, "next": rest}
                case "config.schema.lookup":
                    return methods.look_up(params.path)
                case "restart":
                    return self._restart(params)
                case "update.run":
                    return methods.explain_update(self._gateway)
            return await unbroken(self._write(params))  # type: ignore[no-any-return]
        except GatewayError as error:
            where = f": {params.path!r}" if params.path else ""
            raise ToolInputError(f"{error.message}{where}") from None

    @property
    def _may_restart(self) -> bool:
        commands = self._gateway.loaded.config.commands
        return commands is not None and commands.restart

    async def _write(self, params: Params) -> dict[str, Any]:
        if not params.raw.strip():
            raise ToolInputError(f"'raw' is required for {params.action}")
        self._count()
        hash_ = params.base_hash or (await in_thread(methods.read_config, self._gateway))["hash"]
        kind = methods.ConfigPatch if params.action == "config.patch" else methods.Apply
        given = kind(params.raw, hash_, False, self._session, params.note, params.delay_ms)
        how = params.action.replace(".", "-"), _guard
        return await methods.write_config(self._gateway, given, *how, may_restart=self._may_restart)

    def _restart(self, params: Params) -> dict[str, Any]:
        if not self._may_restart:
            raise ToolAuthorizationError(NO_RESTART, reason="restart-disabled")
        self._count()
        delay_s, note = params.delay_ms / 1000, params.note
        done = self._gateway.request_restart("its agent requested it", delay_s, self._session, note)
        if not done["ok"]:
            raise ToolError(f"the gateway cannot restart itself: {done['reason']}")
        return done

    def _count(self) -> None:
        """Limit changes per minute by all models together, because models may get stuck."""
        if wait_s := self._gateway.model_writes.take("", "gateway"):
            raise ConflictError(f"too many changes of the gateway; try again in {wait_s:.0f} s")


def _part(document: dict[str, Any], path: str) -> dict[str, Any]:
    """The configuration, or one setting, and which settings are not in force."""
    shown = {key: document[key] for key in ("path", "hash", "valid", "issues", "restartNeeded")}
    config = document["config"]
    if not path:
        return {**shown, "config": config}
    try:
        value = value_at(config, spelled(parse_path(path), config))
    except PathError as error:
        raise ToolInputError(f"invalid path {path!r}: {error}") from None
    if value is None:
        raise NotFoundError(f"{path!r} is not set; see config.schema.lookup for its default")
    return {**shown, "value": value}
