"""Masks secrets in text and JSON values, including matches of the operator's own patterns."""

from __future__ import annotations

import binascii
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from clawkit.redact import masking
from clawkit.text import regex

WINDOW = 2_048
"""Characters that an operator's pattern sees at once, to limit the cost of a slow one."""

_ATOM = (
    r"\\(?P<escape>.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<again>\(\?P=)"
    r"|(?P<open>\((?:\?P?<\w+>)?)|(?P<close>\))|(?P<bar>\|)"
    r"|(?P<many>(?:[*+]|\{\d*,?\d*\})[?+]?)|(?P<other>.)"
)


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile an operator's pattern: `/expression/flags`, or a case-insensitive expression.

    Raises ValueError if it is invalid or could be very slow.
    """
    body, flags = pattern, re.IGNORECASE
    if delimited := re.fullmatch(r"/(.+)/([gims]*)", pattern, re.DOTALL):
        body, flags = delimited[1], re.RegexFlag(0)
        for letter, flag in (("i", re.IGNORECASE), ("m", re.MULTILINE), ("s", re.DOTALL)):
            flags |= flag if letter in delimited[2] else 0
    try:
        compiled = re.compile(body, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the pattern {pattern!r} is not a regular expression: {error}") from None
    if compiled.flags & re.VERBOSE or _repeats_a_repeat(body):
        raise ValueError(
            f"the pattern {pattern!r} could be very slow: it repeats a group that itself repeats "
            "or has alternatives, or uses a back-reference or (?x). Rewrite it without"
        )
    return compiled


def _mask_match(match: re.Match[str]) -> str:
    return masking.mask_group(match, masking.mask_unless_placeholder)


def _windows(text: str) -> Iterator[str]:
    """The text in pieces, split at line ends where possible."""
    start = 0
    while start < len(text):
        end = min(len(text), start + WINDOW)
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end


def _repeats_a_repeat(body: str) -> bool:
    """Whether a valid expression can backtrack without bound."""
    groups = [False]
    inside = False
    for atom in re.finditer(_ATOM, body, re.DOTALL):
        kind = atom.lastgroup
        if kind == "again" or (kind == "escape" and atom["escape"] in "123456789"):
            return True
        if kind == "many" and inside:
            return True
        if kind == "close":
            inside = groups.pop()
            groups[-1] |= inside
            continue
        inside = False
        if kind == "open":
            groups.append(False)
        elif kind in ("many", "bar"):
            groups[-1] = True
    return False


MIN_VALUE = 8
"""Shorter registered values would mask ordinary words."""

_SHORT = 64
_MAX_CLEAN = 4_096
_MAX_RECENT = 16
_MAX_DEPTH = 64
_NUMBERS = frozenset((bool, int, float, type(None)))
_TOO_DEEP = "[left out: nested too deeply]"
_PASSES = 4
"""Masking can join two pieces of text; repeated until nothing changes, up to this limit."""

# Invisible characters and terminal colours: inserting them into a token must not hide it. NUL is
# not included, because it separates lists of names and of variables.
_INVISIBLE = (
    "[\x01-\x08\x0e-\x1f\x7f\u00ad\u034f\u061c\u115f\u1160\u17b4"
    "\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_VISIBLE_ASCII = b"\0\t\n\v\f\r" + bytes(range(0x20, 0x7F))
_HIDDEN = f"\x1b\\[[0-9;:?]{{0,32}}[@-~]|{_INVISIBLE}"


class Redactor:
    """Masks everything that looks like a secret, and the exact values it was given."""

    def __init__(self, values: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        """`values` are resolved secrets. Raises ValueError for an invalid pattern."""
        self._learning = threading.Lock()
        self._values: set[str] = set()
        self._forms: tuple[str, ...] = ()
        self._patterns = tuple(compile_pattern(pattern) for pattern in patterns)
        self._clean: set[tuple[str, bool]] = set()
        """Short texts without secrets, such as names of details, which occur again and again."""
        self._recent: list[str] = []
        """The last longer texts returned by `text`. Text for the model is later logged and stored
        as the same object, and need not be searched again."""
        self.learn(values)

    def learn(self, values: Iterable[str]) -> None:
        """Also mask these values from now on."""
        with self._learning:
            new = set(values) - self._values
            if not new:
                return
            self._values |= new
            forms = {form for value in new for form in _forms(value)}.union(self._forms)
            self._forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))
            # Replaced, because a thread that still uses the old forms must not add to the new ones.
            self._clean = set()
            self._recent = []

    def text(self, text: str) -> str:
        """Redact text for a model. Plain `NAME=value` stays, so that code remains readable.

        Returns the same object if there is nothing to mask.
        """
        return self._masked(text, strict=False)

    def strict(self, text: str) -> str:
        """Redact text for a log, an event or a displayed `.env` file: also masks the values of
        secret-looking names."""
        return self._masked(text, strict=True)

    def data(self, value: Any, *, strict: bool = False) -> Any:
        """Redact a JSON value: fields with secret names, and secrets in strings.

        The value itself is never modified, and is returned if there is nothing to mask. Anything
        in it that is not JSON becomes text.
        """
        return self._walk(value, strict, hide=False, depth=0)

    def _walk(self, value: Any, strict: bool, *, hide: bool, depth: int) -> Any:
        if isinstance(value, str):
            return masking.conceal(value) if hide else self._masked(value, strict)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            return masking.MASK if hide else value
        if depth >= _MAX_DEPTH:
            return _TOO_DEEP
        if isinstance(value, (dict, Mapping)):
            # An object that only references a stored secret is shown.
            refers = "source" in value and value.keys() <= {"source", "provider", "id"}
            hide = hide and not refers
            depth = depth + 1
            masked: dict[Any, Any] = {}
            same = True
            for key, item in value.items():
                name = key if isinstance(key, str) else str(key)
                shown = name if len(name) < MIN_VALUE else self._masked(name, strict)
                hidden = hide or masking.is_secret_name(name)
                if not hidden and name == "auth" and isinstance(item, str):
                    hidden = masking.is_login(item)
                if hidden or type(item) not in _NUMBERS:
                    new = self._walk(item, strict, hide=hidden, depth=depth)
                else:
                    new = item
                same = same and new is item and shown is key
                masked[shown] = new
            return value if same else masked
        if isinstance(value, (list, tuple)):
            items = [self._walk(item, strict, hide=hide, depth=depth + 1) for item in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else items
        return masking.MASK if hide else self._masked(str(value), strict)

    def _masked(self, text: str, strict: bool) -> str:
        clean, recent = self._clean, self._recent
        if len(text) <= _SHORT:
            if len(text) < MIN_VALUE or (text, strict) in clean:
                return text
        elif any(each is text for each in recent) and not (
            strict and masking.mask_values(text, assignments=True) != text
        ):
            return text
        masked = self._masked_anew(text, strict)
        if len(text) > _SHORT and not strict:
            masked = text if masked == text else masked
            # Text with invisible characters may contain other secrets for a strict search.
            if not _has_invisible(masked):
                recent.append(masked)
                del recent[:-_MAX_RECENT]
        elif masked == text and len(text) <= _SHORT:
            if len(clean) >= _MAX_CLEAN:
                clean.clear()
            clean.add((text, strict))
        return masked

    def _masked_anew(self, text: str, strict: bool) -> str:
        if _has_invisible(text):
            # Tokens first, because only these characters may separate them.
            bare = regex(_HIDDEN).sub("", self._mask_tokens(text))
            masked = self._settled(bare, strict)
            if masked != regex(_HIDDEN).sub("", text):
                return masked
        return self._settled(text, strict)

    def _settled(self, text: str, strict: bool) -> str:
        for _ in range(_PASSES):
            masked = masking.mask_values(self._mask_tokens(text), assignments=strict)
            for pattern in self._patterns:
                masked = "".join(pattern.sub(_mask_match, part) for part in _windows(masked))
            if masked == text:
                break
            text = masked
        return text

    def _mask_tokens(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, masking.mask(form))
        return masking.mask_shapes(text)


def _has_invisible(text: str) -> bool:
    if text.isascii():  # faster than a regular expression
        return bool(text.encode("ascii").translate(None, _VISIBLE_ASCII))
    return regex(_INVISIBLE).search(text) is not None


def _forms(value: str) -> Iterator[str]:
    """A secret value and its common encodings."""
    value = value.strip()
    if len(value) < MIN_VALUE:
        return
    raw = value.encode("utf-8", "surrogatepass")
    yield value
    yield "".join(
        chr(byte) if regex(r"[A-Za-z0-9_.~-]").match(chr(byte)) else f"%{byte:02X}" for byte in raw
    )
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    # In a longer base64 text (`user:password`) the value may start at any of three offsets; the
    # characters at either end depend on its neighbours and are dropped.
    for shift, skip in ((0, 0), (1, 2), (2, 3)):
        encoded = binascii.b2a_base64(b"\0" * shift + raw, newline=False).decode()
        core = encoded[skip : (shift + len(raw)) * 8 // 6]
        yield core
        yield core.replace("+", "-").replace("/", "_")
