"""Selects the setting for a model, sender or group, ignoring case, and the agent for a message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from clawkit.config.model import Config
from clawkit.config.modelref import ModelRef, normalize_provider
from clawkit.core.context import Scope, Sender

if TYPE_CHECKING:
    from clawkit.config.sections.messaging import Binding, BindingMatch, Peer

Found = tuple[str, Any]
"""An entry and its configuration key."""

_KINDS = ("channel", "id", "e164", "username", "name")
_SUFFIXES = (":sender:", ":thread:", ":topic:")


def find_key(entries: Mapping[str, Any] | None, name: str) -> str | None:
    """The key for a name, as it is written."""
    if not entries or not name.strip():
        return None
    if name in entries:
        return name
    folded = name.strip().casefold()
    return next((key for key in entries if key.strip().casefold() == folded), None)


def for_model(entries: Mapping[str, Any] | None, model: ModelRef | None, key: str) -> Found | None:
    """The entry for `provider/model`, else for `provider`; an exact spelling wins over an alias.

    A model known only by its id matches the entry of any provider with that model id.
    """
    if not entries or model is None:
        return None
    provider, model_id = normalize_provider(model.provider), model.id.lower()
    for wanted in (f"{provider}/{model_id}", provider):
        fitting = [each for each in entries if _fits(each, wanted)]
        fitting.sort(key=lambda each: each.strip().lower() != wanted)
        if fitting:
            return f"{key}.{fitting[0]}", entries[fitting[0]]
    return None


def _fits(key: str, wanted: str) -> bool:
    provider, slash, model = key.strip().lower().partition("/")
    if wanted.startswith("/"):
        return slash + model == wanted
    return bool(wanted) and normalize_provider(provider) + slash + model == wanted


def for_sender(entries: Mapping[str, Any] | None, scope: Scope, key: str) -> Found | None:
    """The entry for this sender, most specific kind of name first, `*` last."""
    folded: dict[str, str] = {}
    for written in entries or ():
        folded.setdefault(_sender_key(written), written)
    for wanted in _sender_names(scope.channel, scope.sender):
        if entries and wanted in folded:
            return f"{key}.{folded[wanted]}", entries[folded[wanted]]
    return None


def _sender_key(written: str) -> str:
    """The normalized key: kind, colon, name; a key without a kind is an id."""
    text = written.strip().casefold()
    kind, colon, name = text.partition(":")
    if text == "*":
        return text
    return f"{kind}:{_plain_name(kind, name)}" if colon and kind in _KINDS else f"id:{text}"


def _plain_name(kind: str, name: str) -> str:
    name = name.strip()
    if kind == "e164":
        return "+" + "".join(filter(str.isdigit, name))
    return name.removeprefix("@") if kind == "username" else name


def sender_warnings(entries: Mapping[str, Any] | None, key: str) -> Iterator[str]:
    for written in entries or ():
        kind, colon, name = written.strip().partition(":")
        unknown = colon and kind.casefold() not in _KINDS
        short = kind.casefold() == "channel" and ":" not in name
        if unknown or short or written.strip().startswith("@"):
            kinds = "id:, e164:, username:, name:, channel:<channel>:<id> or *"
            yield f"{key}.{written} is read as a plain id; the kinds of names are {kinds}"


def _sender_names(channel: str, sender: Sender) -> Iterator[str]:
    if channel and sender.id:
        yield f"channel:{channel.strip()}:{sender.id.strip()}".casefold()
    for kind in ("id", "e164", "username", "name"):
        name = getattr(sender, kind).strip().casefold()
        if name:
            yield f"{kind}:{_plain_name(kind, name)}"
    yield "*"


def group_ids(group: str) -> Iterator[str]:
    """A group and the groups it is part of: a topic or thread belongs to its group."""
    yield group
    for suffix in _SUFFIXES:
        at = group.casefold().find(suffix)
        if at > 0:
            yield group[:at]


_ANY = "*"
_DEFAULT_ACCOUNTS = ("", "default")
_PEER, _ROLES, _GUILD, _TEAM, _ACCOUNT, _CHANNEL = range(6)
_ASSIGNED = r"^!|[0-9]"
"""Group ids that a platform assigns. Where people name groups, `ops:topic:x` need not be a topic
of `ops`."""


class Origin(Struct, frozen=True):
    """Where a message comes from; without a channel, this machine."""

    channel: str = ""
    account: str = ""  # empty for the channel's default account
    group: str = ""  # empty for a direct message
    sender: Sender = Sender()
    space: str = ""  # the server or team that the group belongs to


class AgentChoice(Struct, frozen=True):
    agent: str
    by: str = ""  # settings key of the binding; empty if none matched


def choose_agent(config: Config, named: str | None, origin: Origin) -> AgentChoice:
    """The named agent, else that of the most specific binding, else the default one.
    Raises `ConfigError` for an agent that is not among those configured."""
    if not named and (number := find_binding(config.bindings, origin)) is not None:
        agent = config.agents.choose(config.bindings[number].agent_id)
        return AgentChoice(agent, f"bindings[{number}]")
    return AgentChoice(config.agents.choose(named))


def find_binding(bindings: Sequence[Binding], origin: Origin) -> int | None:
    """Index of the most specific matching binding, the first of several; None if none matches."""
    if not origin.channel:
        return None
    ranked = [
        (rank, number)
        for number, binding in enumerate(bindings)
        if binding.type == "route" and (rank := _rank(binding.match, origin)) is not None
    ]
    return min(ranked)[1] if ranked else None


def _rank(match: BindingMatch, origin: Origin) -> tuple[int, int] | None:
    """How specific a binding is, the lowest being the most specific; None if it does not match.
    Everything that it names must match exactly: people can choose names that differ only in case or
    look alike."""
    account = match.account_id or ""
    accounts = (account,) if account else _DEFAULT_ACCOUNTS
    fits_account = account == _ANY or origin.account in accounts
    fits_roles = not match.roles or not {*match.roles}.isdisjoint(origin.sender.roles)
    fits_space = {match.guild_id, match.team_id} <= {None, "", origin.space}
    # Outside ASCII, case folding makes some different letters equal.
    fold = str.lower if origin.channel.isascii() else str
    fits_channel = fold(match.channel) == fold(origin.channel)
    if not (fits_channel and fits_account and fits_roles and fits_space):
        return None
    if match.peer is not None:
        distance = _distance(match.peer, origin)
        return None if distance is None else (_PEER, distance)
    if match.guild_id:
        return (_ROLES if match.roles else _GUILD), 0
    if match.team_id:
        return _TEAM, 0
    return (_CHANNEL if account == _ANY else _ACCOUNT), 0


def _distance(peer: Peer, origin: Origin) -> int | None:
    """0 for the peer itself, more for a group that contains the topic or thread."""
    is_group = peer.kind in ("group", "channel")
    if is_group != bool(origin.group):
        return None
    ids = [origin.group] if is_group else [origin.sender.id]
    if is_group and re.search(_ASSIGNED, str(peer.id)):
        ids = list(group_ids(origin.group))
    return next((n for n, each in enumerate(ids) if each and each == str(peer.id)), None)
