"""Selects the setting for a model, sender or group. Case is ignored throughout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clawkit.config.modelref import ModelRef, normalize_provider
from clawkit.core.context import Scope, Sender

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


def provider_warnings(entries: Mapping[str, Any] | None, key: str) -> Iterator[str]:
    """Warnings about keys that no model can match."""
    for written in entries or ():
        if "*" in written or written.strip().endswith("/") or not written.strip():
            yield f"{key}.{written} matches no model; a key is a provider or provider/model"


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
    """Warnings about keys with an unknown kind of name."""
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
