"""Old spellings in a configuration, and the edits that bring them up to date. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from clawkit.config.json5 import locate, parse, quote
from clawkit.config.schema import ROOT, Path, below
from clawkit.config.section import Section, Shape, layout_of
from clawkit.config.sections.media import MediaModel
from clawkit.config.sections.web import BrowserProfile
from clawkit.config.text_edit import Edit, apply, set_value, unset_value

_INPUT = re.compile(r"(?<!\{)\{input\}(?!\})")
_SENDER = re.compile(r"(?i)(?:channel|id|e164|username|name):|\*$")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_COMMANDS = {"allowCommands": "allow", "denyCommands": "deny"}


class Migration(NamedTuple):
    """One setting in an old spelling, and what it becomes."""

    path: Path
    """Where it is, as spelled in the file."""
    to: Path
    """Where it goes; the same when only its value changes."""
    before: Any
    after: Any
    why: str


def migrations(raw: Any) -> list[Migration]:
    """What is out of date in the content of a file, valid or not."""
    return list(_walk(raw, ROOT, ()))


def apply_migrations(text: str, found: Sequence[Migration]) -> str:
    """`text` brought up to date; comments and formatting stay. `found` are its migrations."""
    if not found:
        return text
    in_place = [each for each in found if _stays(each)]
    text = apply(text, _edits(text, in_place))
    for each in found:
        if not _stays(each):
            text = unset_value(set_value(text, each.to, each.after), each.path)
    return text


def _stays(migration: Migration) -> bool:
    """Whether only a key or only a value is written anew."""
    path, to, before, after, _ = migration
    return path == to or (path[:-1] == to[:-1] and before == after)


def _edits(text: str, found: Sequence[Migration]) -> Iterator[Edit]:
    """New keys and new texts in place of the old ones, all at once: there may be thousands."""
    root = parse(text)
    taken: set[Path] = set()
    for each in found:
        holder, node = locate(root, each.path[:-1]), locate(root, each.path)
        if holder is None or node is None:
            continue
        if each.path == each.to:
            yield node.start, node.end, quote(each.after)
        elif each.to not in taken and each.to[-1] not in holder.members:
            taken.add(each.to)
            member, name = holder.members[str(each.path[-1])], str(each.to[-1])
            bare = text[member.key_start] not in "\"'" and _NAME.fullmatch(name)
            yield member.key_start, member.key_end, name if bare else quote(name)


def _walk(value: Any, shape: Shape, path: Path) -> Iterator[Migration]:
    if isinstance(value, dict):
        if shape.sections:
            yield from _in_section(value, shape.sections[0], path)
        for key, item in value.items():
            yield from _walk(item, below(shape, key)[1], (*path, key))
    elif isinstance(value, list) and shape.items is not None:
        for index, item in enumerate(value):
            yield from _walk(item, shape.items, (*path, index))


def _in_section(value: dict[str, Any], cls: type[Section], path: Path) -> Iterator[Migration]:
    names = layout_of(cls).names
    written = Counter(names.get(key) for key in value)
    for key, item in value.items():
        name, where = names.get(key), (*path, key)
        if name is None or written[name] > 1:
            continue  # twice in one object: which of the two is meant is for a person to say
        if name == "toolsBySender" and isinstance(item, dict):
            yield from _senders(item, where)
        elif name == "args" and cls is MediaModel and isinstance(item, list):
            yield from _placeholders(item, where)
        elif name == "driver" and cls is BrowserProfile and item == "clawd":
            why = "the driver has a new name"
            yield Migration(where, where, item, "openclaw", why)
        elif key in ("enableNoVnc", "enable_no_vnc") and name == "noVncEnabled":
            why = "the setting has a new name"
            yield Migration(where, (*path, "noVncEnabled"), item, item, why)
        elif name in _COMMANDS and isinstance(item, list):
            yield from _commands(value, item, _COMMANDS[name], path, where)
        elif name == "allowCrossContextSend" and isinstance(item, bool):
            yield from _cross_context(value, item, path, where)


def _senders(senders: dict[str, Any], path: Path) -> Iterator[Migration]:
    taken = {key.strip().lower() for key in senders}
    for key, policy in senders.items():
        written = key.strip()
        if written and not _SENDER.match(written) and f"id:{written.lower()}" not in taken:
            why = "a sender needs to say what kind of name it is"
            yield Migration((*path, key), (*path, f"id:{written}"), policy, policy, why)


def _placeholders(args: list[Any], path: Path) -> Iterator[Migration]:
    for index, arg in enumerate(args):
        if isinstance(arg, str) and _INPUT.search(arg):
            new = _INPUT.sub("{{MediaPath}}", arg)
            where = (*path, index)
            yield Migration(where, where, arg, new, "the placeholder has a new name")


def _commands(
    nodes: dict[str, Any], old: list[Any], list_name: str, path: Path, where: Path
) -> Iterator[Migration]:
    commands = nodes.get("commands", {})
    listed = commands.get(list_name, []) if isinstance(commands, dict) else None
    if isinstance(listed, list):
        joined = [*listed, *(each for each in old if each not in listed)]
        why = "both lists of commands are in `commands` now"
        yield Migration(where, (*path, "commands", list_name), old, joined, why)


def _cross_context(
    tool: dict[str, Any], allowed: bool, path: Path, where: Path
) -> Iterator[Migration]:
    if not {"crossContext", "cross_context"} & tool.keys():
        both = {"allowWithinProvider": allowed, "allowAcrossProviders": allowed}
        why = "there are two settings for this now"
        yield Migration(where, (*path, "crossContext"), allowed, both, why)
