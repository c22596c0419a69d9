"""Allowlist entries: patterns for programs and arguments, reading, storing and describing them.

In a program pattern, `*` matches any characters except a slash, `**` any characters, `?` one
character except a slash. All other characters are literal, including `[` (which is also a program
name). An argument pattern is a JavaScript regular expression, limited to what can be searched in
linear time and means the same in every engine: no look-around, back-references, flags, nested
classes or needless escapes.
"""

from __future__ import annotations

import hashlib
import os.path
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from clawkit.approvals.types import AllowlistEntry, Arg, ArgRule, Flags, Program
from clawkit.globs import Glob
from clawkit.net.host_rules import PACKAGES
from clawkit.process.protocols import NO_GRANTS, Grants
from clawkit.text import one_line, printable

MAX_CHARS = 4_096
"""Longest pattern or path that is compared: no longer path can be opened."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def matches_path(pattern: str, program: Program, home: str) -> bool:
    """Whether the pattern matches the program: without a slash, only one found in PATH, and the
    caller must check that its directory is trusted; `*` alone, every program."""
    subject = _Subject.of(program)
    return subject is not None and subject.matches(pattern, home)


def find_entries(
    entries: Sequence[AllowlistEntry], program: Program, home: str
) -> list[AllowlistEntry]:
    """The entries whose pattern matches the program; those with an argument pattern first."""
    subject = _Subject.of(program)
    if subject is None:
        return []
    texts = {"*", *subject.paths, subject.name} - {""}
    found = [
        entry
        for entry in entries
        if entry.pattern in texts
        or (
            (not is_fixed(entry.pattern) or entry.pattern.startswith("~"))
            and subject.matches(entry.pattern, home)
        )
    ]
    return sorted(found, key=lambda each: each.arg_pattern is None)


class _Subject(NamedTuple):
    """The texts that patterns are compared with: paths, and the name if found in PATH."""

    paths: tuple[str, ...]
    name: str

    @classmethod
    def of(cls, program: Program) -> _Subject | None:
        if not program.resolved:
            return None
        path, real = normalize_to(program.resolved, program.real), program.real
        name = program.resolved.rpartition("/")[2] if program.by_name else ""
        # A program may behave according to the name it is called by (`sh` and `ls` may be the same
        # file), so a link counts as its target only if both have the same name.
        is_real = real != path and is_same_name(program.resolved, real)
        return cls(tuple(filter(None, (path, real) if is_real else (path,))), name)

    def matches(self, pattern: str, home: str) -> bool:
        if pattern == "*" or pattern in self.paths:
            return True
        if not is_path_pattern(pattern):
            return bool(self.name) and _compile(pattern, "")(self.name)
        return _is_absolute(pattern, home) and any(map(_compile(pattern, home), self.paths))


def is_path_pattern(pattern: str) -> bool:
    """Whether a pattern is compared with the whole path, not only the name."""
    return "/" in pattern or pattern.startswith("~")


def is_literal(pattern: str) -> bool:
    """Whether a pattern can match only one file."""
    return is_path_pattern(pattern) and is_fixed(pattern)


def is_fixed(pattern: str) -> bool:
    """Whether a pattern has no wildcards."""
    return "*" not in pattern and "?" not in pattern


def literal_folder(pattern: str, home: str) -> str:
    """The directory that contains everything a pattern matches; empty if it could be any."""
    if not is_path_pattern(pattern) or not _is_absolute(pattern, home):
        return ""
    fixed = pattern.replace("?", "*").partition("*")[0].rpartition("/")[0]
    return f"{home.rstrip('/')}{fixed[1:]}" if fixed.startswith("~") else fixed


def is_same_name(path: str, other: str) -> bool:
    """Whether two files have the same name except for a version: `python3` and `python3.11`."""
    if path == other:
        return True
    name, real = os.path.basename(path), os.path.basename(other)
    return name == real or _stem(name) == _stem(real) != ""


def normalize_to(path: str, real: str) -> str:
    """A path without `.` and `..`; empty if that would be a file other than `real`."""
    if "/." not in path and "//" not in path:
        return path
    plain = os.path.normpath(path)
    # `..` after a link is not the directory that it seems to be.
    if "/.." in path and os.path.realpath(plain) != real:
        return ""
    return plain.removeprefix("/") if plain.startswith("//") else plain


def _stem(name: str) -> str:
    return name.rstrip("0123456789.").removesuffix("-")


def _is_absolute(pattern: str, home: str) -> bool:
    if pattern.startswith("~"):
        return home.startswith("/") and (pattern == "~" or pattern.startswith("~/"))
    return pattern.startswith(("/", "**"))


@lru_cache(maxsize=4096)
def _compile(pattern: str, home: str) -> Callable[[str], bool]:
    if len(pattern) > MAX_CHARS:
        return lambda _path: False
    prefix = home.rstrip("/") if pattern.startswith("~") else ""
    rest = pattern[1:] if pattern.startswith("~") else pattern
    if is_fixed(rest):
        return (prefix + rest).__eq__
    matches = Glob(rest, path=True).match

    def test(path: str) -> bool:
        # A path that is not valid UTF-8 never matches.
        return (
            len(path) <= MAX_CHARS
            and path.startswith(prefix)
            and matches(path[len(prefix) :])
            and (path.isascii() or not _LONE_SURROGATE.search(path))
        )

    return test


MAX_REGEX_CHARS = 10_000
EXACT = "sha256:cwd-argv:v1:"

_ESCAPE = r"\\(?:[dDwWsSnrtvf]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[\\^$.*+?()\[\]{}|/-])"
_TOKEN = re.compile(
    rf"""(?P<repeat>(?:[*+?]|\{{[0-9]{{1,4}}(?:,(?:[0-9]{{1,4}})?)?\}})\??)
    |(?P<open>\((?:\?:|\?<[A-Za-z_][A-Za-z0-9_]{{0,63}}>|(?!\?)))
    |(?P<edge>[\^$|]|\\[bB])
    |(?P<atom>\[\^?(?:(?!--|&&|~~)[^\[\]\\]|{_ESCAPE})+\]|{_ESCAPE}|[^\\\[(*+?{{])""",
    re.VERBOSE | re.DOTALL,
)
# In JavaScript, word characters are ASCII, and there are more line terminators.
_OTHERWISE = {
    ".": r"[^\n\r\u2028\u2029]",
    r"\b": r"(?-u:\b)",
    r"\B": r"(?-u:\B)",
    "]": r"\]",
    "}": r"\}",
}


def search_regex(pattern: str, text: str) -> bool | None:
    """Whether the pattern is found in a text; None if the pattern is invalid."""
    test = _compile_regex(pattern)
    if test is None:
        return None
    try:
        return test(text)
    except UnicodeEncodeError:
        # A lone surrogate is not valid text.
        return False


def arguments_match(pattern: str, program: Program) -> bool:
    """Whether an `argPattern` matches the arguments of a program, joined by single spaces."""
    arguments = program.argv[1:]
    if "\0" in pattern or any(each.glob for each in arguments):
        return False
    if pattern.startswith("sha256:"):
        return program.cwd is not None and pattern == hash_call(program.cwd, arguments)
    texts = [each.text for each in arguments]
    # Joined, `a b` and `'a b'` look alike, and so do no argument and `''`.
    if not all(texts) or any(char.isspace() for each in texts for char in each):
        return False
    return bool(search_regex(pattern, " ".join(texts)))


def hash_call(cwd: str, arguments: Iterable[Arg]) -> str:
    """Identifies one exact call of a program: these arguments in this directory."""
    texts = [each.text for each in arguments]
    parts: list[bytes] = []
    for text in (cwd, *texts):
        data = text.encode("utf-8", "surrogatepass")
        parts += b"%d" % len(data), data
    parts.insert(2, b"%d" % len(texts))
    whole = b"".join(part + b"\0" for part in parts)
    return f"{EXACT}{hashlib.sha256(whole).hexdigest()}"


@lru_cache(maxsize=1024)
def _compile_regex(pattern: str) -> Callable[[str], bool] | None:
    # An empty pattern would match everything, which is unlikely to be intended.
    translated = _translate(pattern) if 0 < len(pattern) <= MAX_REGEX_CHARS else None
    if translated is None:
        return None
    from clawkit.core.tool import make_pattern
    from clawkit.errors import SchemaError

    try:
        return make_pattern(translated)
    except SchemaError:
        return None


def _translate(pattern: str) -> str | None:
    """Translate from JavaScript; None for syntax that the other engine lacks or reads
    differently."""
    out: list[str] = []
    at, last = 0, "open"
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None or (found.lastgroup == "repeat" and last != "atom"):
            return None
        out.append(_OTHERWISE.get(found[0], found[0]))
        at, last = found.end(), found.lastgroup or ""
    return "".join(out)


_CONTENT = re.compile(r"sha256:[0-9a-f]{64}")
_FLAG = re.compile(r"--?[^\s=-][^\s=]*")
_KEYS = (
    *("id", "pattern", "argPattern", "args", "children", "source", "extent", "cwd", "content"),
    *("unconfined", "grants"),
)
_SHOWN = 200
_PACKAGES = f"the {len(PACKAGES)} hosts of package registries ({', '.join(PACKAGES[:3])}, …)"


class _GrantFields(msgspec.Struct, forbid_unknown_fields=True):
    network: bool = False
    sockets: bool = False
    hosts: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()


class _Granted(msgspec.Struct):
    grants: _GrantFields


_UNKNOWN_FIELD = re.compile("Object contains unknown field `(.*)`", re.DOTALL)
_FIELDS_OF: dict[str, Any] = {"args": ArgRule, "args.flags": Flags, "grants": _GrantFields}


def read_entry(value: object) -> AllowlistEntry:
    """Parse an entry of the document: an object, or just the pattern. Raises ValueError."""
    if isinstance(value, str):
        value = {"pattern": value}
    if not isinstance(value, Mapping):
        raise ValueError(f"an entry is {type(value).__name__}, not an object")
    for key in value:
        # Unknown keys are ignored, unless they are misspelt known ones.
        bare = str(key).replace("_", "").replace("-", "").lower()
        if key not in _KEYS and (meant := [each for each in _KEYS if each.lower() == bare]):
            raise ValueError(f"unknown key {key!r}; did you mean {meant[0]!r}?")
    fields = {key: value[key] for key in _KEYS if value.get(key) is not None}
    grants = fields.pop("grants", None)
    args = fields.get("args")
    if isinstance(args, Mapping) and isinstance(args.get("subcommand"), str):
        fields["args"] = {**args, "subcommand": [args["subcommand"]]}
    try:
        entry = msgspec.convert({"pattern": "", **fields}, AllowlistEntry)
        granted = None if grants is None else msgspec.convert({"grants": grants}, _Granted).grants
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$.")
        place = place.rstrip("`")
        if unknown := _UNKNOWN_FIELD.fullmatch(message):
            known = (field.encode_name for field in structs.fields(_FIELDS_OF[place]))
            message = f"unknown key {unknown[1]!r}; known: {', '.join(known)}"
        raise ValueError(f"{place}: {message[0].lower()}{message[1:]}") from None
    if granted is not None:
        _check_grants(granted)
        entry = structs.replace(entry, grants=Grants(*structs.astuple(granted)))
    _check_entry(entry, fields)
    return entry


def _check_entry(entry: AllowlistEntry, fields: Mapping[str, Any]) -> None:
    if entry.extent == "access":
        # It applies to every command, not to a program.
        for key in sorted(fields.keys() - {"id", "source", "extent"}):
            raise ValueError(f"{key} has no effect with the extent 'access'; remove it")
        if entry.grants is None:
            raise ValueError("grants is missing: the access that every command may request")
    elif not entry.pattern:
        raise ValueError("pattern is missing: the path or name of a program")
    if entry.unconfined and not (entry.arg_pattern or "").startswith(EXACT):
        raise ValueError(f"unconfined needs an argPattern of one exact call ({EXACT}…)")
    if entry.content and not _CONTENT.fullmatch(entry.content):
        raise ValueError(
            f"content is {entry.content!r}, not 'sha256:' and 64 lower-case hex digits"
        )
    if entry.cwd and not entry.cwd.startswith("/"):
        raise ValueError(f"cwd is {entry.cwd!r}, not an absolute path")
    if entry.args == "":
        raise ValueError("args is empty: remove it, or use 'any' or the name of a preset")
    if isinstance(entry.args, ArgRule):
        if entry.args.subcommand == ():
            raise ValueError("args.subcommand is empty: remove it, or name sub-commands")
        for each in entry.args.subcommand or ():
            if not each.split() or each.startswith("-"):
                raise ValueError(f"args.subcommand has {each!r}, which is not a sub-command")
        for each in (*(entry.args.flags.allow or ()), *entry.args.flags.deny):
            if not _FLAG.fullmatch(each):
                raise ValueError(
                    f"args.flags has {each!r}, which is not a flag such as '-v' or '--verbose'"
                )


def _check_grants(grants: _GrantFields) -> None:
    if grants.hosts:
        from clawkit.net.host_rules import check_host

        for problem in filter(None, map(check_host, grants.hosts)):
            raise ValueError(f"grants.hosts: {problem}")
    for path in (*grants.read, *grants.write):
        if not path.startswith(("/", "~/")) or ".." in path.split("/") or "\0" in path:
            raise ValueError(
                f"grants has the path {path!r}; it must be absolute or start with ~/, without '..'"
            )


def entry_to_json(entry: AllowlistEntry) -> dict[str, Any]:
    """The stored form of an entry, the inverse of `read_entry`."""
    found = _to_json(msgspec.to_builtins(structs.replace(entry, grants=None)))
    if entry.grants is not None:
        granted = entry.grants._asdict().items()
        found["grants"] = _to_json({key: each for key, each in granted if each})
    if entry.extent == "access":
        del found["pattern"]
    return {key: found[key] for key in _KEYS if key in found}


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_json(each) for key, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def describe_entry(entry: AllowlistEntry) -> str:
    """A one-line description."""
    if entry.extent == "access":
        granted = describe_grants(entry.grants or NO_GRANTS)
        return one_line(f"every command that requests it: {granted}", _SHOWN)
    # A preset defines its own programs.
    every = entry.pattern == "*" and isinstance(entry.args, str) and entry.args != "any"
    words = [f"the programs of the preset {entry.args!r}" if every else entry.pattern]
    if entry.arg_pattern is not None:
        like = f"with arguments matching /{entry.arg_pattern}/"
        words.append(
            "with exactly these arguments" if entry.arg_pattern.startswith(EXACT) else like
        )
    match entry.args:
        case ArgRule() as rule:
            words += _describe_rule(rule)
        case "any":
            words.append("with any arguments")
        case str(preset) if not every:
            words.append(f"with the arguments of the preset {preset!r}")
    if entry.cwd:
        words.append(f"in {entry.cwd}")
    if entry.content:
        words.append("as long as the file does not change")
    if entry.children == "named":
        words.append("without starting other programs")
    if entry.unconfined:
        words.append("even outside the sandbox")
    if entry.grants is not None:
        words.append(f"granted {describe_grants(entry.grants) or 'nothing beyond the sandbox'}")
    return one_line(printable(", ".join(words), keep=""), _SHOWN)


def describe_grants(grants: Grants) -> str:
    """A description of grants for people."""
    words = ["the whole network"] if grants.network else []
    words += ["unix sockets"] if grants.sockets else []
    words += [_PACKAGES if host == "packages" else f"the host {host}" for host in grants.hosts]
    words += [f"read access to {path}" for path in grants.read]
    words += [f"write access to {path}" for path in grants.write]
    return printable(", ".join(words), keep="")


def validate_pattern(pattern: str) -> str:
    """Why a new pattern is invalid; empty if it is valid."""
    if not pattern.strip():
        return "the pattern is empty: use the path or name of a program"
    if not pattern.isprintable():
        return f"the pattern {printable(pattern, keep='')} has invisible characters"
    if pattern != pattern.strip():
        return f"the pattern {pattern!r} has leading or trailing blanks"
    if len(pattern) > MAX_CHARS:
        return f"the pattern has {len(pattern):,} characters; at most {MAX_CHARS:,} are allowed"
    if not is_path_pattern(pattern):
        return ""
    if not pattern.startswith(("/", "~/", "**/")):
        return (
            f"the pattern {pattern!r} is a relative path: use an absolute path, one that starts "
            "with ~/, or only the name of a program in PATH"
        )
    if any(each in (".", "..") for each in pattern.split("/")) or "//" in pattern:
        return f"the pattern {pattern!r} contains '.', '..' or '//'; remove them"
    if pattern.endswith("/"):
        return f"the pattern {pattern!r} is a directory: add ** to match everything below it"
    return ""


def _describe_rule(rule: ArgRule) -> list[str]:
    words = []
    if rule.subcommand is not None:
        words.append(f"only {' or '.join(rule.subcommand)}")
    if rule.flags.allow is not None:
        allowed = " ".join(rule.flags.allow)
        words.append(f"no flags except {allowed}" if allowed else "no flags")
    if rule.flags.deny:
        words.append(f"not with {' '.join(rule.flags.deny)}")
    if rule.paths == "workspace":
        words.append("only files in the workspace")
    return words
