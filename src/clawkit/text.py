"""Text helpers: truncation, one-line summaries, sizes and durations, "did you mean"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

UNKNOWN_WINDOW = 200_000
"""Assumed context window, in tokens, if the model's is unknown."""

TAIL_LOOK = 2_000
"""Characters of the end that are searched for signs that it is worth keeping."""
TAIL_MAX = 4_000

_MIDDLE = "\n[… {:,} characters left out here …]\n"
_BEFORE = "[… {:,} characters before this …]\n"
_SUFFIX = (
    "\n[… {:,} more characters left out. Ask for less: a narrower request, an offset, a limit.]"
)
_CLUSTER_MAX = 32
"""How far a cut moves to avoid splitting a grapheme cluster."""


@cache
def regex(pattern: str | bytes) -> re.Pattern[Any]:
    """Compile an expression on first use. Faster than the functions of `re`."""
    return re.compile(pattern)


def result_cap(context_window: int | None) -> int:
    """Maximum characters of one result, by the model's context window in tokens."""
    window = _window(context_window)
    cap = 64_000 if window >= 200_000 else 32_000 if window >= 100_000 else 16_000
    return min(cap, window * 3 // 10 * 4)


def weight_cap(context_window: int | None) -> int:
    """Maximum weight of one result (see `weigh`), by the model's context window in tokens."""
    return max(1_024, _window(context_window))


def _window(context_window: int | None) -> int:
    return context_window if context_window is not None and context_window > 0 else UNKNOWN_WINDOW


def weigh(text: str) -> int:
    """Approximate cost of a text for a model, in ASCII characters. ASCII weighs 1, other alphabets
    below U+0800 weigh 2, the rest of the basic plane (Chinese, Japanese, Korean) 4, everything
    beyond it 12."""
    if text.isascii():
        return len(text)
    # Encoders count at C speed: UTF-16 gives the characters beyond the basic plane, UTF-8 the rest.
    rare = len(text.encode("utf-16-le", "surrogatepass")) // 2 - len(text)
    plain = len(text.encode("ascii", "ignore"))
    others = len(text) - plain - rare
    wide = len(text.encode("utf-8", "surrogatepass")) - plain - 4 * rare - 2 * others
    return plain + 2 * (others - wide) + 4 * wide + 12 * rare


def fit(text: str, max_chars: int, max_weight: int) -> str:
    kept = cut(text, max_chars)
    while (weight := weigh(kept)) > max_weight:
        max_chars = min(max_chars, len(kept)) * max_weight // weight
        kept = cut(text, max_chars)
    return kept


def cut(text: str, max_chars: int) -> str:
    """Truncate a text to `max_chars`, including a notice that says how much is missing. The head is
    kept. If the end looks important (an error, a summary, a closing brace), part of it is kept too,
    and the middle is omitted. Cuts are at line ends if one is near."""
    if len(text) <= max_chars:
        return text
    suffix_room = len(_SUFFIX.format(len(text)))
    if max_chars < 2 * suffix_room:
        return f"{text[: _head_end(text, max_chars - 1)]}…" if max_chars > 0 else ""
    if not _end_matters(text):
        end = _head_end(text, max_chars - suffix_room)
        return text[:end] + _SUFFIX.format(len(text) - end)
    tail = min(max_chars * 3 // 10, TAIL_MAX)
    end = _head_end(text, max_chars - tail - len(_MIDDLE.format(len(text))))
    start = _tail_start(text, len(text) - tail)
    return text[:end] + _MIDDLE.format(start - end) + text[start:]


def cut_start(text: str, max_chars: int) -> str:
    """Keep the end of a text, `max_chars` including a notice that says how much is missing."""
    if len(text) <= max_chars:
        return text
    room = max(0, max_chars - len(_BEFORE.format(len(text))))
    start = _tail_start(text, len(text) - room) if room else len(text)
    return _BEFORE.format(start) + text[start:]


def _end_matters(text: str) -> bool:
    end = text[-TAIL_LOOK:]
    words = r"(?i)\b(?:error|exception|fail(?:ed|ures?)|fatal|traceback|panic|exit (?:code|status))"
    closing = r"(?i)\b(?:total|summary|done)\b|[}\])]\s*\Z"
    return bool(re.search(words, end) or re.search(closing, end))


def _head_end(text: str, end: int) -> int:
    """The best position for a cut at `end` or slightly before."""
    newline = text.rfind("\n", end - end // 5, end)
    if newline > 0:
        return newline - (text[newline - 1] == "\r")
    for at in range(end, max(0, end - _CLUSTER_MAX), -1):
        if not _joined(text, at):
            return at
    return end


def _tail_start(text: str, start: int) -> int:
    """The best position for a cut at `start` or slightly after."""
    newline = text.find("\n", start, start + (len(text) - start) // 5)
    if newline >= 0:
        return newline + 1
    for at in range(start, min(len(text), start + _CLUSTER_MAX)):
        if not _joined(text, at):
            return at
    return start


def _joined(text: str, at: int) -> bool:
    """Whether a cut at `at` would split a grapheme cluster."""
    before, after = text[at - 1], text[at]
    if before.isascii() and after.isascii():
        return before == "\r" and after == "\n"
    if "\u200d" in (before, after) or "\U0001f3fb" <= after <= "\U0001f3ff":
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    if "\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff":
        return True
    # Imported here: a megabyte of tables that only cuts in non-ASCII text need.
    import unicodedata

    return unicodedata.category(after).startswith("M")


def one_line(text: str, max_chars: int, *, whole_words: bool = False) -> str:
    """The text on one line, without control and bidi characters, truncated with `…`. `whole_words`
    is for text that is redacted later, which would not recognize half of a secret."""
    text = text.lstrip()
    # Bounds the work: a hostile text may be huge, and the rest cannot be shown anyway.
    head = text[: max_chars * 4 + 64]
    if not head.isprintable():
        controls = r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]+"
        head = re.sub(controls, " ", head)
    line = " ".join(head.split())
    if len(line) <= max_chars and len(text) <= max_chars * 4 + 64:
        return line
    kept = line[: max(0, max_chars - 1)]
    kept = kept.rpartition(" ")[0] if whole_words else kept
    return f"{kept}…" if max_chars > 0 else ""


def last_words(text: str, max_chars: int) -> str:
    """The end of a text, from the start of a word: half of a secret would not be redacted."""
    return text if len(text) <= max_chars else re.sub(r"\A\S*\s*", "", text[-max_chars:])


def quote(text: str) -> str:
    """Quote untrusted text: every line is marked, so that none can pass for one of ours."""
    return "\n".join(f"> {line}" for line in text.splitlines())


def unquote(text: str) -> str:
    """The quoted lines of a text, without their marks."""
    return "\n".join(line[2:] for line in text.splitlines() if line.startswith("> "))


def human_size(n: int) -> str:
    """Format a number of bytes: `512 B`, `1.5 KB`, `20 MB`."""
    size, unit = float(n), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        # From 1023.95 on, rounding would give 1024.0.
        if size < 1023.95:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f}".removesuffix(".0") + f" {unit}"


def parse_time(text: str) -> float:
    """Parse a duration such as `30s`, `1h30m` or `2 days` into seconds. Raises ValueError."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
    names = "ms|[smhdw]|(?:sec(?:ond)?|min(?:ute)?|hr|hour|day|week)s?"
    part = rf"\s*([0-9]{{1,15}}(?:\.[0-9]{{1,15}})?)\s*({names})(?![a-z])"
    if not re.fullmatch(f"(?:{part})+", text.strip().lower()):
        raise ValueError(f"invalid time {text!r}; use a duration such as 30s, 5m or 1h")
    found = re.findall(part, text.lower())
    return sum(float(number) * units[unit if unit == "ms" else unit[0]] for number, unit in found)


def human_time(seconds: float) -> str:
    """Format a duration: `0.4s`, `12s`, `1m 5s`, `2h 3m`, `3d 4h`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for size, unit, rest, part in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            more = whole % size // rest
            return f"{whole // size}{unit} {more}{part}" if more else f"{whole // size}{unit}"
    return f"{whole}s"


def nearest(name: str, known: Iterable[str], n: int = 3, limit: int | None = None) -> list[str]:
    """The known names closest to a misspelled one, best first; empty if none is close.

    `limit` is the maximum edit distance, by default one edit per three letters.
    """
    wanted = name[:64].casefold()
    limit = max(1, len(wanted) // 3) if limit is None else limit
    letters = set(wanted)
    found: list[tuple[int, str]] = []
    for candidate in known:
        folded = candidate.casefold()
        # Cheap bounds first: a directory may have thousands of names.
        if abs(len(folded) - len(wanted)) > limit or len(letters ^ set(folded)) > 2 * limit:
            continue
        distance = _distance(wanted, folded)
        if distance <= limit:
            found.append((distance, candidate))
    return [candidate for _, candidate in sorted(set(found))[:n]]


def _distance(a: str, b: str) -> int:
    """Edit distance, with a transposition of neighbours as one edit."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]


def printable(text: str, keep: str = "\n\t") -> str:
    """Escape control, invisible and bidi characters for output on a terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else f"\\u{{{ord(char):x}}}" for char in text
    )
