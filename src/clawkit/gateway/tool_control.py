"""What the tool `gateway` may do. A model asks, so most settings are closed to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from clawkit.config.json5 import format_path
from clawkit.core.tasks import in_thread, unbroken
from clawkit.errors import ConflictError, ToolAuthorizationError, ToolError, ToolInputError
from clawkit.gateway.config_text import Path
from clawkit.gateway.methods.config import Apply, ConfigPatch, look_up, read_config, write_config
from clawkit.gateway.protocol import GatewayError

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

_ENTRIES = ("agents", "entries")
_AGENT_ID = re.compile("[A-Za-z0-9_-]+")
_ANY_AGENT = ("agents.defaults", "agents.entries.*")
MODELS_MAY_CHANGE = (
    *(f"{agent}.model" for agent in _ANY_AGENT),
    *(f"{agent}.model.primary" for agent in _ANY_AGENT),
    *(f"{agent}.model.fallbacks" for agent in _ANY_AGENT),
    *(f"{agent}.thinkingDefault" for agent in _ANY_AGENT),
    "agents.defaults.userTimezone",
    "messages.queue.mode",
    "messages.queue.cap",
)
"""All settings that a model may change. None of them gives it more rights, reaches other people, or
becomes part of a prompt."""


def protected_changes(before: Any, after: Any) -> list[str]:
    """The changed settings that are not a model's to change."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    agents = _agents(old) & _agents(new)
    changed = [path for path in {**old, **new} if old.get(path, old) != new.get(path, old)]
    groups = _groups(old) & _groups(new)  # judged by what is in them
    return [
        format_path(path)
        for path in changed
        if path not in groups and not (_is_of(path, agents) and _may_change(path, new.get(path)))
    ]


def _agents(leaves: dict[Path, Any]) -> set[str]:
    found = {str(path[2]) for path in leaves if path[:2] == _ENTRIES and len(path) > 2}
    return set(filter(_AGENT_ID.fullmatch, found))


def _is_of(path: Path, agents: set[str]) -> bool:
    """Whether this is no setting of an agent, or one of these: a new agent would have none of the
    limits of its maker, and without its entry an agent would have those of others."""
    return path[:2] != _ENTRIES or (len(path) > 2 and path[2] in agents)


def _groups(leaves: dict[Path, Any]) -> set[Path]:
    above = {path[:end] for path in leaves for end in range(len(path))}
    return above | {path for path, value in leaves.items() if value == {}}


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(each, (*path, key))
    else:
        yield path, value


def _may_change(path: Path, value: Any) -> bool:
    parts = [str(part) for part in path]
    is_plain = not any("." in part or part.startswith(("$", "_")) for part in parts)
    name = ".".join(parts)
    is_open = any(
        fnmatchcase(name, each) and each.count(".") == len(parts) - 1 for each in MODELS_MAY_CHANGE
    )
    values = value if isinstance(value, list) else [value]
    # A variable in a text would be replaced by its value, which may be a secret.
    is_simple = all(isinstance(each, str | int | None) and "$" not in str(each) for each in values)
    return is_plain and is_open and is_simple


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

    async def read_config(self) -> dict[str, Any]:
        return await in_thread(read_config, self._gateway)  # type: ignore[no-any-return]

    def look_up(self, path: str) -> dict[str, Any]:
        try:
            return look_up(path)
        except GatewayError as error:
            raise ToolInputError(f"{error.message}: {path!r}") from None

    async def write_config(
        self, raw: str, base_hash: str, *, patch: bool, note: str, delay_ms: int
    ) -> dict[str, Any]:
        self._count()
        hash_ = base_hash or (await self.read_config())["hash"]
        kind, method = (ConfigPatch, "config-patch") if patch else (Apply, "config-apply")
        params = kind(raw, hash_, session_key=self._session, note=note, restart_delay_ms=delay_ms)
        commands = self._gateway.loaded.config.commands
        may_restart = commands is not None and commands.restart
        work = write_config(self._gateway, params, method, _guard, may_restart=may_restart)
        try:
            return await unbroken(work)  # type: ignore[no-any-return]
        except GatewayError as error:
            raise ToolInputError(error.message) from None

    def restart(self, note: str, delay_ms: int) -> dict[str, Any]:
        self._count()
        why = "its agent asked for it"
        done = self._gateway.request_restart(why, delay_ms / 1000, self._session, note)
        if not done["ok"]:
            raise ToolError(f"the gateway cannot restart itself: {done['reason']}")
        return done

    def _count(self) -> None:
        """Models may get stuck: only a few changes a minute, by all of them together."""
        if wait_s := self._gateway.model_writes.take("", "gateway"):
            raise ConflictError(f"too many changes of the gateway; try again in {wait_s:.0f} s")
