"""Whether a command may run: the stricter of what is configured and what the call asks for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

from clawkit.config.sections.exec import Ask, Exec, Security

_STRICTEST_FIRST: tuple[Security, ...] = get_args(Security)
_MOST_ASKING_LAST: tuple[Ask, ...] = get_args(Ask)
_FREE: tuple[Security, Ask] = ("full", "off")


class Decision(NamedTuple):
    """What becomes of a command, and why."""

    verdict: Literal["allow", "ask", "deny"]
    security: Security
    """In force for this call, as is `ask`."""
    ask: Ask
    reason: str
    """For the person and the model, without a full stop."""
    to_allow: str
    """What to do to have it allowed; empty when it is."""


def strictest(a: Security, b: Security | None) -> Security:
    """The one that lets less through. Raises ValueError for what is neither."""
    return a if b is None else min(a, b, key=_STRICTEST_FIRST.index)


def most_asking(a: Ask, b: Ask | None) -> Ask:
    """The one that asks a person more often. Raises ValueError for what is neither."""
    return a if b is None else max(a, b, key=_MOST_ASKING_LAST.index)


def decide(
    settings: Exec,
    *,
    security: Security | None,
    ask: Ask | None,
    host: str,
    key: str = "tools.exec",
) -> Decision:
    """Judge a command by the settings, which its own `security` and `ask` can only tighten.

    `key` is where the settings come from, for the words. There is no list of allowed commands and
    nobody to ask, so that whatever is not free is refused.
    """
    configured = settings.policy()
    security_now = strictest(configured[0], security)
    ask_now = most_asking(configured[1], ask)
    if (security_now, ask_now) == _FREE:
        reason = "security is 'full' and ask is 'off': every command runs unasked"
        return Decision("allow", security_now, ask_now, reason, "")
    tightened: dict[str, str] = {}
    if security_now != configured[0]:
        tightened["security"] = security_now
    if ask_now != configured[1]:
        tightened["ask"] = ask_now
    unset = settings.mode is None and settings.security is None and settings.ask is None
    causes = [] if configured == _FREE or unset else list(_set(settings, key))
    if tightened:
        asked = " and ".join(f"{name} {value!r}" for name, value in tightened.items())
        causes.append(f"this call asked for {asked}")
    why = f" ({', '.join(causes)})" if causes else ""
    reason = (
        f"commands on the host {host!r} are refused{' by default' if unset else ''}: "
        f"security is {security_now!r} and ask is {ask_now!r}{why}; "
        "only with security 'full' and ask 'off' do they run, and then every one of them unasked"
    )
    steps = [] if configured == _FREE else [_command(settings, key)]
    if tightened:
        steps.append(f"call it without {' and '.join(tightened)}")
    return Decision("deny", security_now, ask_now, reason, ", and ".join(steps))


def _set(settings: Exec, key: str) -> Iterator[str]:
    """The settings that stand in the way, where something is set at all."""
    if settings.mode is not None:
        yield f"{key}.mode is {settings.mode!r}"
        return
    for name in _in_the_way(settings):
        value = getattr(settings, name)
        yield f"{key}.{name} is {'not set' if value is None else repr(value)}"


def _in_the_way(settings: Exec) -> dict[str, str]:
    """Of security and ask those that keep commands from running, and what would let them."""
    pairs = zip(("security", "ask"), settings.policy(), _FREE, strict=True)
    return {name: free for name, value, free in pairs if value != free}


def _command(settings: Exec, key: str) -> str:
    """`mode` is the shortest way, but goes with neither `security` nor `ask` beside it."""
    if settings.security is None and settings.ask is None:
        changes = {"mode": "full"}
    else:
        changes = _in_the_way(settings)
    return " && ".join(
        f"clawkit config set {shlex.quote(f'{key}.{name}')} {value}"
        for name, value in changes.items()
    )
