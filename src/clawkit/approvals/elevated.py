"""Who may have a command run outside the sandbox."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from clawkit.config.model import Config
from clawkit.config.sections.shared import People
from clawkit.config.sections.tools import Elevated
from clawkit.core.context import Scope, Sender
from clawkit.errors import ToolAuthorizationError
from clawkit.policy.who import find_key, for_sender
from clawkit.text import one_line

Level = Literal["ask", "full"]
"""Whether a person is asked about the command, or the rest of the policy alone decides."""

_NUMBER = re.compile(r"\+[0-9]{3,15}")
_KINDS = ("id", "e164", "username", "name", "channel")


def check_elevated(config: Config, scope: Scope, *, local: bool) -> Level:
    """How far elevated goes for this sender, at the local terminal or not.

    Raises `ToolAuthorizationError` that names every setting in the way.
    """
    default = config.agents.defaults.elevated_default
    needed = list(_needed(config.tools.elevated, scope, local=local))
    ours = config.agents.get(scope.agent).tools.elevated
    if ours is not None:
        whose = f" of the agent {one_line(scope.agent, 64)!r}"
        needed += _needed(ours, scope, local=local, whose=whose)
    if default == "off":
        needed.append("agents.defaults.elevatedDefault must not be 'off'")
    if needed:
        raise ToolAuthorizationError(
            f"elevated is refused; to allow it, {' and '.join(needed)}", reason="elevated"
        )
    return "full" if default == "full" else "ask"


def _needed(elevated: Elevated, scope: Scope, *, local: bool, whose: str = "") -> Iterator[str]:
    """What would have to be otherwise; `whose` is an agent, who can only narrow the general."""
    if not elevated.enabled:
        yield f"tools.elevated.enabled{whose} must be true"
    no_limit = whose and elevated.allow_from is None
    at_home = local and scope.sender.owner and not scope.channel and not scope.group
    if no_limit or at_home:
        return
    lists = elevated.allow_from or {}
    channel = find_key(lists, scope.channel)
    if channel is not None and _is_listed(lists[channel], scope):
        return
    if scope.channel.strip():
        name = channel or one_line(scope.channel, 64)
        yield f"tools.elevated.allowFrom.{name}{whose} must list this sender"
    else:
        yield (
            "it must come from the owner at the local terminal, or through a channel from a sender "
            f"in tools.elevated.allowFrom{whose}"
        )


def _is_listed(people: People, scope: Scope) -> bool:
    return any(_is_about(entry, scope) for each in people for entry in _typed(str(each)))


def _typed(written: str) -> Iterator[str]:
    """The entry as policy writes it: without a kind it is an id or a whole phone number.

    What people can choose for themselves, such as a username, has to be said with its kind.
    """
    text = written.strip()
    kind, colon, name = text.partition(":")
    kind = kind.casefold()
    if text == "*" or (colon and kind in _KINDS):
        yield text
        return
    if colon and kind == "tag":
        return  # no sender has one
    if colon and kind == "from":
        text = name.strip()
    yield f"id:{text}"
    if _NUMBER.fullmatch(text):
        yield f"e164:{text}"


def _is_about(entry: str, scope: Scope) -> bool:
    name = entry.partition(":")[2].strip()
    sender = scope.sender
    certain = Sender(
        id=_certain(sender.id, name),
        e164=sender.e164 if _NUMBER.fullmatch(sender.e164) else "",
        username=_certain(sender.username, name),
        name=_certain(sender.name, name),
    )
    return for_sender({entry: True}, replace(scope, sender=certain), "") is not None


def _certain(value: str, name: str) -> str:
    """Policy ignores case and the blanks around names, which makes some foreign letters equal to
    plain ones: such a name counts only when it is spelled as in the entry."""
    plain = value.isascii() and value.isprintable() and value == value.strip()
    empty = not value.strip("@")
    return value if (plain or value == name) and not empty else ""
