"""Entries of an allowlist, as they stand in the approvals document and as people read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

from clawkit.approvals.allow.patterns import MAX_CHARS, names_place
from clawkit.approvals.allow.regex import EXACT
from clawkit.approvals.base import ArgRule, Children, Entry, Flags
from clawkit.core.approval import Extent
from clawkit.text import one_line, printable

_CONTENT = re.compile(r"sha256:[0-9a-f]{64}")
_FLAG = re.compile(r"--?[^\s=-][^\s=]*")
_KEYS = ("id", "pattern", "argPattern", "args", "children", "source", "extent", "cwd", "content")
_RULE_KEYS = ("subcommand", "flags", "paths")
_FLAG_KEYS = ("allow", "deny")
_SHOWN = 200


def read_entry(value: object) -> Entry:
    """An entry from the document: an object, or only the pattern. Raises ValueError."""
    if isinstance(value, str):
        value = {"pattern": value}
    fields = _object(value, "an entry")
    for key in fields:
        _check_spelling(key)
    pattern = _text(fields, "pattern")
    if not pattern:
        raise ValueError("pattern is missing: it is the path or the name of a program")
    content = _text(fields, "content")
    if content and not _CONTENT.fullmatch(content):
        raise ValueError(f"content is {content!r}, not 'sha256:' and 64 lower-case hex digits")
    cwd = _text(fields, "cwd")
    if cwd and not cwd.startswith("/"):
        raise ValueError(f"cwd is {cwd!r}, not an absolute path")
    return Entry(
        pattern,
        id=_text(fields, "id"),
        arg_pattern=None if fields.get("argPattern") is None else _text(fields, "argPattern"),
        args=_read_args(fields.get("args")),
        children=_one_of(fields, "children", get_args(Children)),
        source=_text(fields, "source"),
        extent=_one_of(fields, "extent", get_args(Extent)),
        cwd=cwd,
        content=content,
    )


def entry_to_json(entry: Entry) -> dict[str, Any]:
    """What stands in the document for an entry; `read_entry` makes the same of it."""
    rule = entry.args
    values = {
        "id": entry.id,
        "pattern": entry.pattern,
        "argPattern": entry.arg_pattern,
        "args": _rule_to_json(rule) if isinstance(rule, ArgRule) else rule,
        "children": entry.children,
        "source": entry.source,
        "extent": entry.extent,
        "cwd": entry.cwd,
        "content": entry.content,
    }
    # An empty argPattern fits nothing, none at all everything.
    return {
        key: each
        for key, each in values.items()
        if each is not None and (each != "" or key == "argPattern")
    }


def describe_entry(entry: Entry) -> str:
    """One line in words."""
    words = [entry.pattern]
    if entry.arg_pattern is not None:
        exact = entry.arg_pattern.startswith(EXACT)
        words.append(
            "with the very same arguments"
            if exact
            else f"with arguments like /{entry.arg_pattern}/"
        )
    match entry.args:
        case ArgRule() as rule:
            words += _describe_rule(rule)
        case "any":
            words.append("with whatever arguments")
        case str(preset):
            words.append(f"with the arguments of the preset {preset!r}")
    if entry.cwd:
        words.append(f"in {entry.cwd}")
    if entry.content:
        words.append("as long as the file does not change")
    if entry.children == "named":
        words.append("without starting other programs")
    return one_line(printable(", ".join(words), keep=""), _SHOWN)


def validate_pattern(pattern: str) -> str:
    """What is wrong with a pattern that somebody wants to add; empty when nothing is."""
    if not pattern.strip():
        return "the pattern is empty: give the path or the name of a program"
    if not pattern.isprintable():
        return f"the pattern {printable(pattern, keep='')} has invisible characters"
    if pattern != pattern.strip():
        return f"the pattern {pattern!r} has blanks around it"
    if len(pattern) > MAX_CHARS:
        return f"the pattern has {len(pattern):,} characters; {MAX_CHARS:,} are the most"
    if not names_place(pattern):
        return ""
    if not pattern.startswith(("/", "~/", "**/")):
        return (
            f"the pattern {pattern!r} is a relative path: give an absolute one, one that begins "
            "with ~/, or only the name of a program in PATH"
        )
    if any(each in (".", "..") for each in pattern.split("/")) or "//" in pattern:
        return f"the pattern {pattern!r} has '.', '..' or nothing between slashes; leave that out"
    if pattern.endswith("/"):
        return f"the pattern {pattern!r} is a directory: add ** to mean everything below it"
    return ""


def _read_args(value: object) -> ArgRule | str | None:
    if value is None or isinstance(value, str):
        if value == "":
            raise ValueError("args is empty: leave it out, or write 'any' or the name of a preset")
        return value
    fields = _object(value, "args", _RULE_KEYS)
    flags = _object(fields.get("flags", {}), "args.flags", _FLAG_KEYS)
    subcommand = fields.get("subcommand")
    paths = fields.get("paths", "any")
    if paths not in ("workspace", "any"):
        raise ValueError(f"args.paths is {paths!r}, not 'workspace' or 'any'")
    allow = flags.get("allow")
    return ArgRule(
        subcommand=None if subcommand is None else _read_subcommands(subcommand),
        flags=Flags(
            allow=None if allow is None else _read_flags(allow, "args.flags.allow"),
            deny=_read_flags(flags.get("deny", []), "args.flags.deny"),
        ),
        paths=paths,
    )


def _read_subcommands(value: object) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not given:
        raise ValueError("args.subcommand is neither a text nor a list of some")
    for each in given:
        if not isinstance(each, str) or not each.split() or each.startswith("-"):
            raise ValueError(f"args.subcommand has {each!r}, which is no sub-command")
    return tuple(given)


def _read_flags(value: object, key: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{key} is not a list")
    for each in value:
        if not isinstance(each, str) or not _FLAG.fullmatch(each):
            raise ValueError(f"{key} has {each!r}, which is no flag such as '-v' or '--verbose'")
    return tuple(value)


def _rule_to_json(rule: ArgRule) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rule.subcommand is not None:
        found["subcommand"] = list(rule.subcommand)
    flags: dict[str, Any] = {}
    if rule.flags.allow is not None:
        flags["allow"] = list(rule.flags.allow)
    if rule.flags.deny:
        flags["deny"] = list(rule.flags.deny)
    if flags:
        found["flags"] = flags
    if rule.paths != "any":
        found["paths"] = rule.paths
    return found


def _describe_rule(rule: ArgRule) -> list[str]:
    words = []
    if rule.subcommand is not None:
        words.append(f"only {' or '.join(rule.subcommand)}")
    if rule.flags.allow is not None:
        allowed = " ".join(rule.flags.allow)
        words.append(f"no flags but {allowed}" if allowed else "no flags")
    if rule.flags.deny:
        words.append(f"not with {' '.join(rule.flags.deny)}")
    if rule.paths == "workspace":
        words.append("only files in the workspace")
    return words


def _object(value: object, what: str, known: tuple[str, ...] | None = None) -> Mapping[str, Any]:
    """An object. Where every key narrows what is allowed, an unknown one is an error: left out, it
    would allow more than was meant."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is {type(value).__name__}, not an object")
    for key in value:
        if known is not None and key not in known:
            raise ValueError(f"{what} has the unknown key {key!r}; known are {', '.join(known)}")
    return value


def _check_spelling(key: object) -> None:
    """Unknown keys are for others, but not those that are known ones written in another way."""
    bare = str(key).replace("_", "").replace("-", "").lower()
    for known in _KEYS:
        if bare == known.lower() and key != known:
            raise ValueError(f"the key {key!r} is written {known!r}")


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}, not a text")
    return value


def _one_of(fields: Mapping[str, Any], key: str, allowed: tuple[Any, ...]) -> Any:
    value = fields.get(key)
    if value is not None and value not in allowed:
        raise ValueError(f"{key} is {value!r}, not one of {', '.join(allowed)}")
    return value
