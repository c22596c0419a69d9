"""Bindings: which agent answers a message, depending on its origin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from clawkit.config.model import Config
from clawkit.core.context import Sender
from clawkit.policy.selectors import group_ids

if TYPE_CHECKING:
    from clawkit.config.sections.messaging import Binding, BindingMatch, Peer

_ANY = "*"
_DEFAULT_ACCOUNTS = ("", "default")
_PEER, _ROLES, _GUILD, _TEAM, _ACCOUNT, _CHANNEL = range(6)
_NOBODY = Sender()


class Origin(NamedTuple):
    """Where a message comes from; without a channel, this machine."""

    channel: str = ""
    account: str = ""
    """Empty for the channel's default account."""
    group: str = ""
    """Empty for a direct message."""
    sender: Sender = _NOBODY
    space: str = ""
    """The server or team that the group belongs to."""


class Choice(NamedTuple):
    agent: str
    by: str = ""
    """Settings key of the binding; empty if none matched."""


def choose_agent(config: Config, named: str | None, origin: Origin) -> Choice:
    """The named agent, or else the one of the most specific binding, or the default agent.

    Raises `ConfigError` for a named agent that is not configured.
    """
    if not named and (number := find_binding(config.bindings, origin)) is not None:
        agent = config.agents.choose(config.bindings[number].agent_id).strip().lower()
        return Choice(agent, f"bindings[{number}]")
    return Choice(config.agents.choose(named))


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
    Everything that it names must match."""
    sender = origin.sender
    account = match.account_id or ""
    fits_account = (
        account == _ANY or _same(account, origin.account)
        if account
        else origin.account.casefold() in _DEFAULT_ACCOUNTS
    )
    fits_roles = not match.roles or any(_same(a, b) for a in match.roles for b in sender.roles)
    spaces = [each for each in (match.guild_id, match.team_id) if each]
    fits_space = all(_same(each, origin.space) for each in spaces)
    if not (_same(match.channel, origin.channel) and fits_account and fits_roles and fits_space):
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
    ids = list(group_ids(origin.group)) if is_group else [origin.sender.id]
    return next((n for n, each in enumerate(ids) if each and _same(str(peer.id), each)), None)


def _same(first: str, second: str) -> bool:
    return first.strip().casefold() == second.strip().casefold()
