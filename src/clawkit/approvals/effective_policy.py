"""The policy in force for one call: security, ask, host, and who may leave the sandbox.

The strictest of settings, approvals file and call wins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Literal, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from clawkit.config.model import Config
from clawkit.config.sections.shared import People
from clawkit.config.sections.tools import Ask, Elevated, Exec, Host, Security
from clawkit.core.context import Scope, Sender
from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.policy.selectors import find_key, for_sender
from clawkit.text import one_line, regex

if TYPE_CHECKING:
    from clawkit.approvals.file import DocPolicy
    from clawkit.approvals.types import Policy

_STRICTEST_FIRST: tuple[Security, ...] = get_args(Security)
_MOST_ASKING_LAST: tuple[Ask, ...] = get_args(Ask)


def strictest(a: Security, b: Security | None) -> Security:
    """The more restrictive one. Raises ValueError for unknown values."""
    return a if b is None else min(a, b, key=_STRICTEST_FIRST.index)


def most_asking(a: Ask, b: Ask | None) -> Ask:
    """The one that asks more often. Raises ValueError for unknown values."""
    return a if b is None else max(a, b, key=_MOST_ASKING_LAST.index)


def combine(
    settings: Exec,
    document: DocPolicy,
    *,
    security: Security | None = None,
    ask: Ask | None = None,
    key: str = "tools.exec",
    where: str = "exec-approvals.json",
) -> Policy:
    """The policy for one call, which can only tighten it; `key` and `where` are for messages."""
    configured = settings.policy()
    security_now = strictest(strictest(configured[0], document.security), security)
    ask_now = most_asking(most_asking(configured[1], document.ask), ask)
    sources: dict[str, None] = {}
    for source in range(3):
        for name, now, given in (
            ("security", security_now, (configured[0], document.security, security)),
            ("ask", ask_now, (configured[1], document.ask, ask)),
        ):
            # The first source that asks for the value in force.
            if given.index(now) == source:
                wanted = f"{name} is {now!r}"
                if source == 0 and settings.mode is not None:
                    words = f"{key}.mode is {settings.mode!r}"
                elif source == 0:
                    by_default = "" if getattr(settings, name) is not None else " by default"
                    words = f"{key}.{wanted}{by_default}"
                elif source == 1:
                    left_out = f", because {name} is left out," if name in document.left_out else ""
                    words = f"{wanted}{left_out} in {where}"
                else:
                    words = f"this call requested {name} {now!r}"
                sources[words] = None
    from clawkit.approvals.types import Policy  # imported late: not needed by tools

    to_loosen = ""
    if configured[0] == "deny" and "deny" not in (document.security, security):
        name = "mode ask" if settings.mode else "security allowlist"
        import shlex  # slow to import

        to_loosen = f"clawkit config set {shlex.quote(key)}.{name}"
    return Policy(security_now, ask_now, document.fallback, tuple(sources), to_loosen)


HostName = Literal["sandbox", "gateway", "node"]

_MISSING: dict[HostName, str] = {
    "sandbox": "there is no sandbox here",
    "gateway": "this machine does not run commands",
    "node": "commands of agents cannot run on nodes",
}


class ExecTarget(Struct, frozen=True):
    """Where a call wants its command to run."""

    wanted: Literal["auto", "sandbox", "host"]
    """`auto`: in the sandbox unless an allowlist entry grants more."""
    leaves: bool = False

    @property
    def host(self) -> HostName:
        """The host that will most likely run it."""
        return "gateway" if self.wanted == "host" else "sandbox"


def resolve_host(
    configured: Host,
    requested: str | None,
    *,
    sandboxed: bool,
    elevated: bool,
    available: Collection[str],
    node: str | None,
) -> ExecTarget:
    """Where the command of a call runs; a missing host is never replaced by another one.

    `sandboxed` sessions always use the sandbox; others follow the configuration, by default the
    sandbox if there is one. `elevated` is a right that was already granted: it leaves the sandbox,
    and has no effect elsewhere. Raises `ToolInputError` for a contradictory request and
    `ToolAuthorizationError` for one that is not allowed or not available.
    """
    if requested is not None and requested not in get_args(Host):
        known = ", ".join(get_args(Host))
        raise ToolInputError(f"host: unknown host {one_line(requested, 40)!r}; use one of {known}")
    wanted = None if requested == "auto" else cast("HostName | None", requested)
    usual: HostName = "sandbox" if sandboxed or "sandbox" in available else "gateway"
    place, leaves = usual if configured == "auto" else configured, False
    if place == "sandbox" and elevated:
        if wanted == "sandbox":
            raise ToolInputError(
                "host: 'sandbox' and elevated contradict each other, because elevated leaves the "
                "sandbox; send only one of them"
            )
        place, leaves = "gateway", True
    if wanted is not None and wanted != place:
        raise _refuse(configured, wanted, place, sandboxed=sandboxed)
    if node and place != "node":
        raise ToolInputError(
            f"node: the command would run on the host {place!r}, not on a node; "
            "leave node out, or choose the host 'node'"
        )
    # Commands of agents cannot run on nodes, and no other host may replace a node.
    if place not in available or place == "node":
        raise ToolAuthorizationError(
            f"the command cannot run on the host {place!r}: {_MISSING[place]}. No other host is "
            f"used in its place; tools.exec.host is {configured!r}",
            reason="host",
        )
    if place == "gateway":
        return ExecTarget("host", leaves)
    only = sandboxed or wanted == "sandbox" or configured == "sandbox"
    return ExecTarget("sandbox" if only else "auto")


def _refuse(
    configured: Host, wanted: HostName, place: HostName, *, sandboxed: bool
) -> ToolAuthorizationError:
    setting = f"tools.exec.host is {configured!r}"
    hint = "Leave host out, or ask the person to change tools.exec.host"
    if wanted != "gateway" and configured == "auto" and not (sandboxed and wanted == "node"):
        why = f"{_MISSING[wanted]}; {setting}"
    elif place == "sandbox":
        why = "commands run in the sandbox here"
        hint = "Leave host out, or send elevated: true to ask for the host"
    else:
        why = f"{setting}, which allows only {place!r}"
    return ToolAuthorizationError(f"the host {wanted!r} is refused: {why}. {hint}", reason="host")


Level = Literal["ask", "full"]
"""Whether a person is asked about the command, or only the rest of the policy decides."""

_NUMBER = r"\+[0-9]{3,15}"
_KINDS = ("id", "e164", "username", "name", "channel")


def check_elevated(config: Config, scope: Scope, *, local: bool) -> Level:
    """The elevated level for this sender, `local` at the terminal. Raises `ToolAuthorizationError`
    that names every setting that prevents it."""
    default = config.agents.defaults.elevated_default
    needed = list(_needed(config.tools.elevated, scope, local=local))
    ours = config.agents.get(scope.agent).tools.elevated
    if ours is not None:
        whose = f" of the agent {one_line(scope.agent, 64)!r}"
        needed += _needed(ours, scope, local=local, suffix=whose)
    if default == "off":
        needed.append("agents.defaults.elevatedDefault must not be 'off'")
    if needed:
        why = f"elevated is refused; to allow it, {' and '.join(needed)}"
        raise ToolAuthorizationError(why, reason="elevated")
    return "full" if default == "full" else "ask"


def _needed(elevated: Elevated, scope: Scope, *, local: bool, suffix: str = "") -> Iterator[str]:
    """The conditions that are not met; `suffix` names an agent, which can only restrict further."""
    if not elevated.enabled:
        yield f"tools.elevated.enabled{suffix} must be true"
    no_limit = suffix and elevated.allow_from is None
    at_home = local and scope.sender.owner and not scope.channel and not scope.group
    if no_limit or at_home:
        return
    lists = elevated.allow_from or {}
    channel = find_key(lists, scope.channel)
    people: People = [] if channel is None else lists[channel]
    if any(_is_about(entry, scope) for each in people for entry in _typed(str(each))):
        return
    if scope.channel.strip():
        name = channel or one_line(scope.channel, 64)
        yield f"tools.elevated.allowFrom.{name}{suffix} must list this sender"
    else:
        yield (
            "it must come from the owner at the local terminal, or through a channel from a sender "
            f"in tools.elevated.allowFrom{suffix}"
        )


def _typed(written: str) -> Iterator[str]:
    """The entry with its kind: without one, it is an id or a complete phone number. What people can
    choose themselves, such as a username, requires an explicit kind."""
    text = written.strip()
    kind, colon, name = text.partition(":")
    kind = kind.casefold()
    if text == "*" or (colon and kind in _KINDS):
        yield text
        return
    if colon and kind == "tag":
        return  # senders have no such field
    if colon and kind == "from":
        text = name.strip()
    yield f"id:{text}"
    if regex(_NUMBER).fullmatch(text):
        yield f"e164:{text}"


def _is_about(entry: str, scope: Scope) -> bool:
    name = entry.partition(":")[2].strip()
    sender = scope.sender
    certain = Sender(
        id=_certain(sender.id, name),
        e164=sender.e164 if regex(_NUMBER).fullmatch(sender.e164) else "",
        username=_certain(sender.username, name),
        name=_certain(sender.name, name),
    )
    return for_sender({entry: True}, replace(scope, sender=certain), "") is not None


def _certain(value: str, name: str) -> str:
    """Policy ignores case and surrounding blanks, which makes some non-ASCII letters equal to
    ASCII ones; such a value counts only if it is spelled exactly as in the entry."""
    plain = value.isascii() and value.isprintable() and value == value.strip()
    empty = not value.strip("@")
    return value if (plain or value == name) and not empty else ""
