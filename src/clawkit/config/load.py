"""Loads a configuration: text in, typed `Config` out, all errors reported at once.

Keys that are probably misspelt are errors even in sections that allow unknown keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from clawkit.config import sources
from clawkit.config.json5 import Json5Error, format_path
from clawkit.config.lookup import ANYTHING, is_known
from clawkit.config.model import Config
from clawkit.config.paths import config_file, home, include_roots
from clawkit.config.section import (
    Layout,
    Section,
    Shape,
    allows,
    build,
    describe,
    layout_of,
    suggest,
)
from clawkit.errors import ConfigError, Issue
from clawkit.text import nearest


class Loaded(Struct, frozen=True):
    """A configuration and its sources."""

    config: Config
    file: str | None  # the main file; None if there is none and the defaults apply
    text: str  # text of the main file, without a byte order mark
    raw: dict[str, Any]  # as written, with included files merged; `${NAME}` is not replaced
    warnings: list[Issue]
    files: tuple[str, ...]  # the main file and all files it includes
    env: sources.Environment = (
        sources.Environment()
    )  # the variables that `${NAME}` and secrets refer to


def load(file: str | None = None, *, env: Mapping[str, str] | None = None) -> Loaded:
    """Load the configuration from `file`, or from the default location. Raises ConfigError.

    If the default file does not exist, the defaults apply; a file that is named here or in
    `CLAWKIT_CONFIG` must exist.
    """
    env = os.environ if env is None else env
    named = file is not None or bool(env.get("CLAWKIT_CONFIG"))
    path = config_file(env, file)
    if not named and not os.path.lexists(path):
        dotenv, warnings = _read_dotenv(env)
        merged = sources.environment(env, dotenv, {})
        return Loaded(Config(), None, "", {}, warnings, (), merged)
    return loads(sources.read_config(path), file=path, env=env)


def loads(
    text: str,
    *,
    file: str = "<config>",
    env: Mapping[str, str] | None = None,
    every_error: bool = False,
) -> Loaded:
    """Load the configuration from `text`, as if it were in `file`. Raises ConfigError.

    Includes are relative to `file`; a name in angle brackets cannot have any. If there are very
    many errors, only the first are reported, unless `every_error` is set.
    """
    env = os.environ if env is None else env
    if len(text) > sources.MAX_FILE_BYTES:
        raise ConfigError([Issue("", f"is larger than {sources.MAX_FILE_BYTES} characters", file)])
    try:
        tree = sources.ConfigTree(sources.ConfigFile(file, text), include_roots(env))
    except Json5Error as error:
        raise ConfigError([error.issue(file)]) from error
    raw = tree.value
    dotenv, warnings = _read_dotenv(env)
    merged = sources.environment(env, dotenv, raw.get("env") if isinstance(raw, dict) else None)
    try:
        config, found = check(sources.substitute(raw, merged), tree.locate, every_error=every_error)
    except ConfigError as error:
        raise ConfigError([*tree.issues, *error.issues]) from None
    if tree.issues:
        raise ConfigError(tree.issues)
    return Loaded(config, file, text, raw, [*warnings, *found], tuple(tree.files), merged)


def _read_dotenv(env: Mapping[str, str]) -> tuple[dict[str, str], list[Issue]]:
    path = os.path.join(home(env), ".env")
    if not os.path.lexists(path):
        return {}, []
    try:
        return sources.parse_env_file(sources.read_text(path)), []
    except sources.ReadError as error:
        return {}, [Issue("", f"{error}; its variables are not used", path)]


_MIN_LETTERS = 4
_LONG = 8
"""Names of at least this length still match with two mistakes."""
_POLICIES = {"tool", "tools", "toolbysender", "toolsbysender"}
_POLICY_KEYS = {"allow", "alsoallow", "deny"}


def meant(key: str, value: Any, layout: Layout) -> str | None:
    """The setting that an unknown key was most likely meant to be, or None.

    Case and underscores are ignored. If the key is only similar, its value must have a suitable
    type: `account: "+1555"` is not a misspelt map of accounts.
    """
    written = _folded(key)
    names = {name: name.casefold() for name in layout.shapes}
    same = [name for name, folded in names.items() if folded == written]
    near = (
        name
        for name, folded in names.items()
        if len(folded) >= _MIN_LETTERS
        and nearest(written, [folded], limit=2 if len(folded) >= _LONG else 1)
        and layout.shapes[name].is_kind_of(value)
    )
    return same[0] if same else next(near, None)


def is_tool_policy(key: str | int, value: dict[str, Any]) -> bool:
    name = _folded(str(key))
    if name not in _POLICIES:
        return False
    holders = [value, *value.values()] if name.endswith("sender") else [value]
    return any(
        isinstance(holder, dict) and not _POLICY_KEYS.isdisjoint(map(_folded, holder))
        for holder in holders
    )


def _folded(key: str) -> str:
    return key.replace("_", "").replace("-", "").casefold()


Path = tuple[str | int, ...]
Locate = Callable[[Path], tuple[str, int]]

MAX_SHOWN = 50
_MAX_PLACED = 4 * MAX_SHOWN
"""Errors beyond this number get no line and no suggestion, which would take too long."""
_MAX_VALUE_CHARS = 80
_MAX_REDACTED = 8192
"""Long enough to recognise a secret that starts within the characters shown."""
_MAX_LISTED = 20

_HIDDEN_NAME = (
    r"(?i)key$|token|secret|passw|passphrase|credential|cookie|authorization|^(?:env|vars|headers)$"
)
_MAX_FLOAT = 1.7976931348623157e308
_NUMERAL = r"[+-]?[0-9]{1,400}(\.[0-9]{1,400})?"
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


_BAD: Any = object()
"""Placeholder in the cleaned tree for a value that was reported as wrong."""


class _WrongValueError(Exception):
    """A section used a value that has been reported."""


class _Damaged(dict[str, Any]):
    """An object with wrong values; accessing one of them, or iterating, raises. So sections can
    still report conflicts among the values that are right."""

    def get(self, key: str, default: Any = None) -> Any:
        value = super().get(key, default)
        if value is _BAD:
            raise _WrongValueError
        return value

    def _all(self) -> Any:
        raise _WrongValueError

    __getitem__ = get
    __iter__ = keys = values = items = _all


def check(raw: Any, locate: Locate, *, every_error: bool = False) -> tuple[Config, list[Issue]]:
    """The typed configuration and the warnings. Raises ConfigError with all errors.

    Unless `every_error`, only the first of many are listed. `locate` returns file and line of a
    path, spelled as in `raw`; the last step may not exist there.
    """
    walk = _Walk(locate, every_error)
    clean = walk.section(Config, raw, ()) if isinstance(raw, dict) else _BAD
    if clean is _BAD:
        walk.error((), f"expected an object, found {_show(raw, ())}")
    if walk.errors:
        # By file in order of appearance, then by line; those without a file last.
        ranks: dict[str, int] = {}
        for issue in walk.errors:
            ranks.setdefault(issue.file, len(ranks))
        issues = sorted(walk.errors, key=lambda each: (not each.file, ranks[each.file], each.line))
        raise ConfigError(issues if every_error else cut_off(issues, walk.error_count))
    return build(Config, clean), [walk.issue(*found) for found in walk.all_warnings()]


def cut_off(issues: Sequence[Issue], count: int) -> list[Issue]:
    """The first issues, up to a readable number, and the number of others."""
    more = count - MAX_SHOWN
    rest = [Issue("", f"there are {more} more errors after these")] if more > 0 else []
    return [*issues[:MAX_SHOWN], *rest]


Found = tuple[Path, str, str]
"""The path, the message, and a hint."""


class _Walk:
    """One pass over a configuration. Methods return the cleaned value, or _BAD."""

    def __init__(self, locate: Locate, every_error: bool) -> None:
        self.locate = locate
        self.most_errors = float("inf") if every_error else _MAX_PLACED
        self.errors: list[Issue] = []
        self.error_count = 0
        self.warnings: list[Found] = []
        self.unread_policies: list[Found] = []
        self.unused: list[Path] = []

    def issue(self, path: Path, message: str, hint: str) -> Issue:
        file, line = self.locate(path) if len(self.errors) < _MAX_PLACED else ("", 0)
        return Issue(_path_text(path), message, file, line, hint)

    def all_warnings(self) -> list[Found]:
        found = [*self.unread_policies, *self.warnings]
        if len(found) > MAX_SHOWN:
            more = len(found) - MAX_SHOWN
            found[MAX_SHOWN:] = [((), f"there are {more} more warnings like these", "")]
        if self.unused:
            names = ", ".join(_path_text(path) for path in self.unused[:_MAX_LISTED])
            more = len(self.unused) - _MAX_LISTED
            listed = f"{names} and {more} more" if more > 0 else names
            found.append((self.unused[0], f"clawkit does not use these settings: {listed}", ""))
        return found

    @property
    def is_full(self) -> bool:
        return len(self.errors) >= self.most_errors

    def error(self, path: Path, message: str, hint: str = "") -> None:
        self.error_count += 1
        if not self.is_full:
            self.errors.append(self.issue(path, message, hint))

    def wrong(self, path: Path, shape: Shape, value: Any) -> Any:
        if self.is_full:
            self.error_count += 1
        elif isinstance(value, sources.FromEnv) and value.missing:
            unset = " and ".join(value.missing)
            self.error(
                path,
                f"expected {describe(shape)}, but the environment variable {unset} is not set",
                f"Set {unset}, or write the value into the file",
            )
        else:
            found = _show(value, path)
            self.error(path, f"expected {describe(shape)}, found {found}", _advise(shape, value))
        return _BAD

    def section(self, cls: type[Section], raw: dict[str, Any], path: Path) -> Any:
        layout = layout_of(cls)
        spelled: dict[str, str] = {}
        clean: dict[str, Any] = {}
        for key, value in raw.items():
            name = layout.names.get(key)
            if name is None and cls.is_open() and not meant(key, value, layout):
                clean[key] = self.value(ANYTHING, value, (*path, key))
            elif name is None:
                self.unknown(layout, (*path, key))
            elif name in spelled:
                self.error(
                    (*path, key),
                    f"sets the same thing as {spelled[name]!r} in this object",
                    f"Keep one of the two; {name!r} is the documented name",
                )
            else:
                spelled[name] = key
                clean[name] = self.value(layout.shapes[name], value, (*path, key))
        for name in layout.required:
            if name not in spelled:
                clean[name] = _BAD
                expected = describe(layout.shapes[name])
                self.error(path, f"the setting {name!r} is missing here, expected {expected}")
        if any(value is _BAD for value in clean.values()):
            clean = _Damaged(clean)
        with suppress(_WrongValueError):
            for where, message, hint in cls.conflicts(clean):
                below = where if isinstance(where, tuple) else (spelled.get(where, where),)
                self.error((*path, *below), message, hint)
        return clean

    def unknown(self, layout: Layout, path: Path) -> None:
        if is_known(path):
            self.unused.append(path)
            return
        names = () if len(self.errors) >= _MAX_PLACED else tuple(layout.shapes)
        self.error(path, "unknown setting", suggest(str(path[-1]), names, "Settings here"))

    def value(self, shape: Shape, value: Any, path: Path) -> Any:
        if isinstance(value, sources.FromEnv) and value.missing and (shape.text or shape.anything):
            message = f"the environment variable {' and '.join(value.missing)} is not set"
            self.warnings.append((path, message, "The setting will fail when it is used"))
        if shape.anything and not isinstance(value, dict | list):
            return str(value) if isinstance(value, sources.FromEnv) else value
        if isinstance(value, str):
            return self.string(shape, value, path)
        if isinstance(value, bool):
            return value if shape.boolean else self.wrong(path, shape, value)
        if isinstance(value, int | float):
            return self.number(shape, value, path)
        if isinstance(value, list) and (shape.anything or shape.items is not None):
            return self.items(shape, value, path)
        if isinstance(value, dict) and (shape.anything or shape.is_object):
            return self.mapping(shape, value, path)
        return self.wrong(path, shape, value)

    def string(self, shape: Shape, value: str, path: Path) -> Any:
        plain = str(value)
        if plain in shape.words or (shape.text and allows(shape.text_limits, len(plain))):
            return plain
        if isinstance(value, sources.FromEnv) and not shape.text:
            if shape.boolean and plain in _BOOLEANS:
                return _BOOLEANS[plain]
            if (shape.whole or shape.number) and re.fullmatch(_NUMERAL, plain):
                number = float(plain) if "." in plain else int(plain)
                return self.number(shape, number, path, shown=value)
        return self.wrong(path, shape, value)

    def number(self, shape: Shape, value: float, path: Path, shown: Any = None) -> Any:
        number: float | None = None
        if shape.whole and value % 1 == 0:
            number = int(value)
        elif shape.number and abs(value) <= _MAX_FLOAT:
            number = float(value)
        if number is None or not allows(shape.number_limits, number):
            return self.wrong(path, shape, value if shown is None else shown)
        return number

    def items(self, shape: Shape, value: list[Any], path: Path) -> Any:
        if not allows(shape.item_limits, len(value)):
            return self.wrong(path, shape, value)
        item = shape.items or ANYTHING
        clean = [self.value(item, entry, (*path, index)) for index, entry in enumerate(value)]
        return _BAD if any(entry is _BAD for entry in clean) else clean

    def mapping(self, shape: Shape, value: dict[str, Any], path: Path) -> Any:
        if shape.sections:
            return self.section(shape.sections[0], value, path)
        if shape.anything and path[0] == "channels" and is_tool_policy(path[-1], value):
            applied = f"{_path_text(path[:2])}.groups.<id>.tools and .toolsBySender"
            message = "a tool policy has no effect here"
            self.unread_policies.append((path, message, f"Policies apply in {applied}"))
        inner = shape.values or ANYTHING
        clean = {key: self.value(inner, entry, (*path, key)) for key, entry in value.items()}
        return _BAD if any(entry is _BAD for entry in clean.values()) else clean


def _path_text(path: Path) -> str:
    return format_path([_shorten(step) if isinstance(step, str) else step for step in path])


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[: _MAX_VALUE_CHARS - 3]}..."


def _show(value: Any, path: Path) -> str:
    """A value for an error message: short, on one line, without secrets."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "an empty list" if not value else "a list"
    if isinstance(value, dict):
        return "an object"
    if any(isinstance(step, str) and re.search(_HIDDEN_NAME, step) for step in path):
        return "a string" if isinstance(value, str) else "a number"
    if isinstance(value, sources.FromEnv):
        return f"the value of {_without_secrets(value.template)!r}"
    if isinstance(value, str):
        return repr(_without_secrets(value))
    if isinstance(value, int) and value.bit_length() > 256:
        return "a number with too many digits"
    return _shorten(repr(value))


def _without_secrets(text: str) -> str:
    # Expensive to import, and only needed for wrong values.
    from clawkit.redact import Redactor

    return _shorten(Redactor().strict(text[:_MAX_REDACTED]))


def _advise(shape: Shape, value: Any) -> str:
    if isinstance(value, sources.FromEnv) or not isinstance(value, str):
        return ""
    bare = value.strip().lower()
    if (shape.boolean and bare in ("true", "false")) or (
        (shape.whole or shape.number) and re.fullmatch(_NUMERAL, bare) and len(bare) <= 20
    ):
        return f"Write {bare} without quotes"
    if shape.words and not shape.text:
        return suggest(value, shape.words)
    if shape.items is not None and shape.items.text:
        return """Put it in quotes and square brackets: ["…"], in a shell '["…"]'"""
    return ""
