"""Old spellings in a configuration, and the edits that update them. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from clawkit.config.json5 import locate, parse, quote
from clawkit.config.lookup import ROOT, Path, below
from clawkit.config.section import Section, Shape, layout_of
from clawkit.config.sections.web import BrowserProfile, MediaModel
from clawkit.config.text_edit import Edit, apply, set_value, unset_value

_INPUT = re.compile(r"(?<!\{)\{input\}(?!\})")
_SENDER = re.compile(r"(?i)(?:channel|id|e164|username|name):|\*$")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_COMMANDS = {"allowCommands": "allow", "denyCommands": "deny"}


class Migration(NamedTuple):
    """One setting in an old spelling, and its new form."""

    path: Path  # as spelled in the file
    to: Path  # the new path; the same if only the value changes
    before: Any
    after: Any
    why: str


def migrations(raw: Any) -> list[Migration]:
    """The old spellings in the content of a file, valid or not."""
    return list(_walk(raw, ROOT, ()))


def apply_migrations(text: str, migrations: Sequence[Migration]) -> str:
    """`text` with its migrations applied; comments and formatting stay."""
    if not migrations:
        return text
    root, edits, moves = parse(text), dict[Path, Edit](), list[Migration]()
    for each in migrations:
        holder, node = locate(root, each.path[:-1]), locate(root, each.path)
        if holder is None or node is None:
            continue
        if each.path == each.to:
            edits[each.to] = (node.start, node.end, quote(each.after))
        elif each.path[:-1] != each.to[:-1] or each.before != each.after:
            moves.append(each)
        elif each.to[-1] not in holder.members:
            member, name = holder.members[str(each.path[-1])], str(each.to[-1])
            bare = text[member.key_start] not in "\"'" and _NAME.fullmatch(name)
            renamed = (member.key_start, member.key_end, name if bare else quote(name))
            edits.setdefault(each.to, renamed)
    text = apply(text, edits.values())
    for each in moves:
        text = unset_value(set_value(text, each.to, each.after), each.path)
    return text


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
    has_newer = "crossContext" in written
    for key, item in value.items():
        name, where = names.get(key), (*path, key)
        if name is None or written[name] > 1:
            continue  # twice in one object: a person has to decide which one is meant
        if name == "toolsBySender" and isinstance(item, dict):
            yield from _senders(item, where)
        elif name == "args" and cls is MediaModel and isinstance(item, list):
            for index, arg in enumerate(item):
                if isinstance(arg, str) and _INPUT.search(arg):
                    at, new = (*where, index), _INPUT.sub("{{MediaPath}}", arg)
                    yield Migration(at, at, arg, new, "the placeholder has a new name")
        elif name == "driver" and cls is BrowserProfile and item == "clawd":
            yield Migration(where, where, item, "openclaw", "the driver has a new name")
        elif key in ("enableNoVnc", "enable_no_vnc") and name == "noVncEnabled":
            to = (*path, "noVncEnabled")
            yield Migration(where, to, item, item, "the setting has a new name")
        elif name in _COMMANDS and isinstance(item, list):
            commands = value.get("commands", {})
            listed = commands.get(_COMMANDS[name], []) if isinstance(commands, dict) else None
            if isinstance(listed, list):
                joined = [*listed, *(each for each in item if each not in listed)]
                to = (*path, "commands", _COMMANDS[name])
                why = "both lists of commands are now in `commands`"
                yield Migration(where, to, item, joined, why)
        elif name == "allowCrossContextSend" and isinstance(item, bool) and not has_newer:
            both = {"allowWithinProvider": item, "allowAcrossProviders": item}
            to = (*path, "crossContext")
            yield Migration(where, to, item, both, "this is now two settings")


def _senders(senders: dict[str, Any], path: Path) -> Iterator[Migration]:
    taken = {key.strip().lower() for key in senders}
    for key, policy in senders.items():
        written = key.strip()
        if written and not _SENDER.match(written) and f"id:{written.lower()}" not in taken:
            why = "a sender needs the kind of its name, such as `id:`"
            yield Migration((*path, key), (*path, f"id:{written}"), policy, policy, why)
