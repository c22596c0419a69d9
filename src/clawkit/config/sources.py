"""The sources of settings: files, `$include`, `.env`, and environment variables."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from clawkit.config.json5 import MAX_DEPTH, Json5Error, Member, Node, format_path, line_of, parse
from clawkit.errors import ConfigError, Issue

MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_INCLUDE_DEPTH = 10
MAX_INCLUDES = 200
"""Maximum includes per load: files that include others twice grow exponentially."""
MAX_PATH_CHARS = 4096
INCLUDE = "$include"

Path = tuple[str | int, ...]

MAPPING = "<mapping>"
"""The file name of a configuration that is a Python mapping."""


class ReadError(ValueError):
    """A file cannot be read as configuration text; the message says why."""


def read_text(path: str) -> str:
    """The text of a regular UTF-8 file of at most 2 MiB. Raises ReadError.

    Never blocks: pipes and devices are refused before and after they are opened.
    """
    try:
        _require_regular(os.stat(path))
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            _require_regular(os.fstat(file.fileno()))
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ReadError("does not exist") from None
    except OSError as error:
        raise ReadError(f"cannot be read: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ReadError(_TOO_LARGE)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = error.start
        line = data.count(b"\n", 0, at) + 1
        raise ReadError(
            f"is not UTF-8 text: byte 0x{data[at]:02x} at offset {at}, on line {line}"
        ) from None


def read_config(file: str) -> str:
    """Like `read_text`, but raises ConfigError."""
    try:
        return read_text(file)
    except ReadError as error:
        raise ConfigError([Issue("", str(error), file)]) from error


_TOO_LARGE = f"is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB"


def _require_regular(info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise ReadError("is a directory, not a file")
    if not stat.S_ISREG(info.st_mode):
        raise ReadError("is not a regular file")
    if info.st_size > MAX_FILE_BYTES:
        raise ReadError(_TOO_LARGE)


class ConfigFile(msgspec.Struct, frozen=True):
    """One file that was read. `file` is absolute, or a name in angle brackets."""

    file: str
    text: str


class ConfigTree:
    """A configuration merged from its files, with the position of each value."""

    def __init__(self, source: ConfigFile, roots: Sequence[str]) -> None:
        """Raises Json5Error for the main file; errors in included files are in `issues`.

        Files may be included from the directory of the main file and from `roots`.
        """
        self.issues: list[Issue] = []
        self.files = [source.file]
        self._includes = 0
        self._roots = [os.path.realpath(root) for root in (*roots, os.path.dirname(source.file))]
        self._root = self._join(parse(source.text, source), (), (os.path.realpath(source.file),))
        self.value: Any = self._root.value

    def locate(self, path: Sequence[str | int]) -> tuple[str, int]:
        """File and line of a setting, or of the nearest value around it that exists."""
        node = self._root
        source, offset = node.source, node.start
        for step in path:
            if isinstance(step, str) and step in node.members:
                member = node.members[step]
                node = member.node
                # The content of an included file is not in the file that has the key.
                is_included = node.source is not member.source
                offset = node.start if is_included else member.key_start
            elif isinstance(step, int) and step < len(node.items):
                node = node.items[step]
                offset = node.start
            else:
                break
            source = node.source
        # A mapping has no lines.
        return source.file, 0 if source.file == MAPPING else line_of(source.text, offset)

    def _join(self, node: Node, path: Path, chain: tuple[str, ...]) -> Node:
        """`node` with all includes below it merged in; `node` itself if there are none. `path` is
        its path in the merged configuration, `chain` the files that include each other up to it."""
        if len(path) > MAX_DEPTH:
            self._report(node, path, f"more than {MAX_DEPTH} levels of nesting")
            return node
        if node.items:
            items = [self._join(item, (*path, i), chain) for i, item in enumerate(node.items)]
            return node if items == node.items else _array(node, items)
        members = {
            key: msgspec.structs.replace(member, node=self._join(member.node, (*path, key), chain))
            for key, member in node.members.items()
            if key != INCLUDE
        }
        own = node if members == node.members else _object(node, members)
        if INCLUDE not in node.members:
            return own
        include = node.members[INCLUDE].node
        joined: Node | None = None
        for entry in include.items if isinstance(include.value, list) else (include,):
            part = self._fetch(entry, path, chain)
            if part is not None:
                joined = part if joined is None else _merge(joined, part)
        if joined is None:
            return own
        if not own.members:
            return joined
        if not isinstance(joined.value, dict):
            problem = "the included file must contain an object here"
            self._report(include, (*path, INCLUDE), problem)
            return own
        return _merge(joined, own)

    def _fetch(self, entry: Node, path: Path, chain: tuple[str, ...]) -> Node | None:
        """The merged content of one included file, or None after reporting an issue."""
        try:
            file = self._resolve(entry, chain)
            source = ConfigFile(file, read_text(file))
        except ReadError as error:
            # If it is not a string, it could contain anything, including secrets.
            name = repr(entry.value) if isinstance(entry.value, str) else "this"
            name = name if len(name) <= 80 else f"{name[:77]}..."
            self._report(entry, (*path, INCLUDE), f"cannot include {name}: {error}")
            return None
        if file not in self.files:
            self.files.append(file)
        try:
            root = parse(source.text, source)
        except Json5Error as error:
            self.issues.append(error.issue(file))
            return None
        return self._join(root, path, (*chain, file))

    def _resolve(self, entry: Node, chain: tuple[str, ...]) -> str:
        """The real path of an included file, if it may be included. Raises ReadError."""
        name, includer = entry.value, entry.source.file
        if not isinstance(name, str) or not name:
            raise ReadError("expected a file name or a list of file names")
        if len(name) >= MAX_PATH_CHARS or "\0" in name:
            raise ReadError("invalid file name")
        if includer.startswith("<"):
            raise ReadError("this text was not read from a file")
        self._includes += 1
        if self._includes > MAX_INCLUDES:
            raise ReadError(f"there are more than {MAX_INCLUDES} includes")
        file = os.path.realpath(os.path.join(os.path.dirname(includer), name))
        if not any(os.path.commonpath((file, root)) == root for root in self._roots):
            raise ReadError(
                f"it is outside {self._roots[-1]!r}; name its directory in CLAWKIT_INCLUDE_ROOTS"
            )
        if file in chain:
            raise ReadError(f"it includes itself: {' -> '.join((*chain, file))}")
        if len(chain) > MAX_INCLUDE_DEPTH:
            raise ReadError(f"includes are nested more than {MAX_INCLUDE_DEPTH} deep")
        return file

    def _report(self, node: Node, path: Path, message: str) -> None:
        file, line = node.source.file, line_of(node.source.text, node.start)
        self.issues.append(Issue(format_path(path), message, file, line))


def _merge(under: Node, over: Node) -> Node:
    """Objects merge by key, lists are joined, anything else is replaced by `over`."""
    if isinstance(under.value, dict) and isinstance(over.value, dict):
        members = dict(under.members)
        for key, member in over.members.items():
            if key in members:
                member = msgspec.structs.replace(
                    member, node=_merge(members[key].node, member.node)
                )
            members[key] = member
        return _object(over, members)
    if isinstance(under.value, list) and isinstance(over.value, list):
        return _array(over, [*under.items, *over.items])
    return over


def _object(like: Node, members: dict[str, Member]) -> Node:
    value = {key: member.node.value for key, member in members.items()}
    return Node(value, like.start, like.end, like.source, members)


def _array(like: Node, items: list[Node]) -> Node:
    return Node([item.value for item in items], like.start, like.end, like.source, items=items)


_REFERENCE = r"\$(\$?)\{([A-Z_][A-Z0-9_]*)\}"
_ENV_FILE_LINE = r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)"


class FromEnv(str):
    """A string with environment variables substituted.

    It may represent a number or a boolean, and it may be a secret: messages show `template`, the
    text in the file, never the result.
    """

    template: str
    missing: tuple[str, ...]
    """Variables that are unset or empty; their `${NAME}` is left in the string."""

    def __new__(cls, text: str, template: str, missing: tuple[str, ...]) -> FromEnv:
        self = super().__new__(cls, text)
        self.template = template
        self.missing = missing
        return self


class Environment(dict[str, str]):
    """Variables by name. The repr shows no values, because some are secrets."""

    def __repr__(self) -> str:
        return f"<{len(self)} environment variables>"


def substitute(value: Any, env: Mapping[str, str]) -> Any:
    """A copy of `value` with `${NAME}` replaced in every string, but not in keys.

    `$${NAME}` is a literal `${NAME}`. An unset or empty variable is not replaced, but listed in
    `FromEnv.missing`.
    """
    if isinstance(value, str):
        return _substitute_text(value, env) if "${" in value else value
    if isinstance(value, dict):
        return {key: substitute(item, env) for key, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, env) for item in value]
    return value


def _substitute_text(text: str, env: Mapping[str, str]) -> str:
    names = [name for escaped, name in re.findall(_REFERENCE, text) if not escaped]
    result = re.sub(
        _REFERENCE, lambda found: found[0][1:] if found[1] else env.get(found[2]) or found[0], text
    )
    missing = dict.fromkeys(name for name in names if not env.get(name))
    return FromEnv(result, text, tuple(missing)) if names else result


def environment(base: Mapping[str, str], dotenv: Mapping[str, str], declared: Any) -> Environment:
    """All variables that `${NAME}` may refer to. A variable that is already set is not overridden.

    In this order: `base`, the process environment; the state directory's `.env`; the `env` section
    as written in the file. A `.env` in the current directory is not read: a workspace could plant
    one.
    """
    merged = Environment(dotenv)
    merged.update((name, text) for name, text in base.items() if text)
    # Values that are not strings are reported by the check.
    entries = declared if isinstance(declared, dict) else {}
    nested = entries.get("vars")
    for name, text in (entries | (nested if isinstance(nested, dict) else {})).items():
        if isinstance(text, str) and not merged.get(name):
            merged[name] = str(substitute(text, merged))
    return merged


def parse_env_file(text: str) -> dict[str, str]:
    """Variables of a `.env` file: `NAME=value` lines, `export` and quotes allowed.

    Nothing is expanded. Comments start with `#`; after a value, a space must come before it. Other
    lines are skipped.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = re.fullmatch(_ENV_FILE_LINE, line)
        if match:
            found[match[1]] = _unquote(match[2].strip())
    return found


def _unquote(text: str) -> str:
    if quoted := re.match(r"(\"|')(.*?)\1", text):
        return quoted[2]
    return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].rstrip()
