"""Whatever the text and the edits are: the result is what was asked for, or nothing happened."""

from __future__ import annotations

import asyncio
import codecs
import re
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from clawkit.core.result import Result
from clawkit.errors import ToolInputError
from clawkit.fs.edit.replace import Replacement, apply
from clawkit.testing import open_kit

CHARS = st.characters(codec="utf-8", exclude_characters="\r\n<>\0")
WORDS = st.text(CHARS, max_size=8)
ENDS = st.sampled_from(["\n", "\r\n"])
MESSY = st.text(st.sampled_from(list("ab \t\n\r\"'“”–-é\u00a0\\n")), max_size=60)


@st.composite
def segments(draw: st.DrawFn) -> tuple[list[str], list[tuple[int, str]], str]:
    """Parts of a text, each there once, some of them to be replaced, and the line end in use."""
    end = draw(ENDS)
    words = draw(st.lists(WORDS, min_size=1, max_size=12))
    parts = [f"<{number}{word}{end if number % 2 else ''}>" for number, word in enumerate(words)]
    chosen = draw(st.lists(st.integers(0, len(parts) - 1), unique=True, max_size=6))
    news = [draw(st.lists(WORDS, max_size=3)) for _ in chosen]
    return parts, [(at, end.join(new)) for at, new in zip(chosen, news, strict=True)], end


@given(segments())
def test_disjoint_replacements_are_made_at_once(
    case: tuple[list[str], list[tuple[int, str]], str],
) -> None:
    parts, changes, end = case
    text = end + end.join(parts)
    expected = dict(enumerate(parts)) | dict(changes)
    edits = [Replacement(parts[at], new) for at, new in changes]
    outcome = apply(text, edits, path="p")
    assert outcome.text == end + end.join(expected.values())
    assert not any(each.overlooked for each in outcome.found)


@given(segments())
def test_line_ends_of_the_caller_do_not_matter(
    case: tuple[list[str], list[tuple[int, str]], str],
) -> None:
    parts, changes, end = case
    text = end + end.join(parts)
    expected = dict(enumerate(parts)) | dict(changes)
    edits = [
        Replacement(parts[at].replace("\r\n", "\n"), new.replace("\r\n", "\n"))
        for at, new in changes
    ]
    assert apply(text, edits, path="p").text == end + end.join(expected.values())


@given(MESSY, MESSY, MESSY, st.booleans())
def test_nothing_outside_the_replaced_ranges_changes(
    text: str, old: str, new: str, every: bool
) -> None:
    try:
        outcome = apply(text, [Replacement(old, new, every)], path="p")
    except ToolInputError:
        return
    at = shift = 0
    for start, end, put, *_ in outcome.found:
        assert outcome.text[at + shift : start + shift] == text[at:start]
        assert outcome.text[start + shift : start + shift + len(put)] == put
        at, shift = end, shift + len(put) - (end - start)
    assert outcome.text[at + shift :] == text[at:]


@given(
    st.lists(st.text("abc ", min_size=1, max_size=6), min_size=2, max_size=12),
    st.data(),
)
def test_blanks_at_line_ends_stay_where_nothing_was_changed(
    lines: list[str], data: st.DataObject
) -> None:
    words = [f"{line.rstrip()}{number}." for number, line in enumerate(lines)]
    tails = data.draw(st.lists(st.sampled_from(["", " ", "\t ", " \r"]), min_size=len(words)))
    file = [word + tail for word, tail in zip(words, tails, strict=False)]
    first = data.draw(st.integers(0, len(words) - 2))
    last = data.draw(st.integers(first + 1, len(words) - 1))
    changed = data.draw(st.integers(first, last))
    old = "\n".join(words[first : last + 1])
    new = "\n".join("new" if at == changed else words[at] for at in range(first, last + 1))
    outcome = apply("\n".join(file), [Replacement(old, new)], path="p")
    after = outcome.text.split("\n")
    assert after[changed].startswith("new")
    assert [*after[:changed], *after[changed + 1 :]] == [*file[:changed], *file[changed + 1 :]]


@given(
    st.lists(st.sampled_from(["f(x):", "y = 1", "", "return z"]), min_size=1, max_size=8),
    st.lists(st.integers(0, 3), min_size=8, max_size=8),
    st.integers(1, 3),
    st.sampled_from(["\t", "  ", "    "]),
    st.sampled_from(["\t", "  ", "    "]),
)
def test_indentation_is_given_back_as_the_file_has_it(
    lines: list[str], depths: list[int], deeper: int, theirs: str, ours: str
) -> None:
    def indent(unit: str, base: int) -> list[str]:
        return [
            f"{unit * (depth + base)}{line}#{number}" if line else ""
            for number, (line, depth) in enumerate(zip(lines, depths, strict=False))
        ]

    file = "top\n" + "\n".join(indent(theirs, deeper)) + "\nend\n"
    # All of it is given, and one more line at the depth of the last.
    old, wanted = indent(ours, 0), indent(theirs, deeper)
    if not any(old):
        return
    last = max(number for number, line in enumerate(old) if line)
    extra = re.sub(r"\S.*", "more", old[last])
    try:
        outcome = apply(file, [Replacement("\n".join(old), "\n".join([*old, extra]))], path="p")
    except ToolInputError:
        assert theirs != ours  # a single depth does not tell how wide an indentation is
        return
    if outcome.found[0].overlooked == "indentation":
        extra = re.sub(r"\S.*", "more", wanted[last])
        assert outcome.text == file.replace("\nend\n", f"\n{extra}\nend\n")


ENCODINGS = st.sampled_from(
    [("utf-8", b""), ("utf-8", codecs.BOM_UTF8), ("utf-16-le", codecs.BOM_UTF16_LE)]
)


@given(segments(), ENCODINGS)
@settings(max_examples=25, deadline=None)
def test_files_keep_their_encoding_and_mark(
    case: tuple[list[str], list[tuple[int, str]], str], encoding: tuple[str, bytes]
) -> None:
    parts, changes, end = case
    name, mark = encoding
    text = "start" + end + end.join(parts)
    expected = "start" + end + end.join((dict(enumerate(parts)) | dict(changes)).values())
    edits = [{"oldText": parts[at], "newText": new} for at, new in changes]
    if not edits:
        return
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "file.txt")
        file.write_bytes(mark + text.encode(name))
        result = asyncio.run(_edit(place, edits))
        assert not result.is_error, result.as_text()
        assert file.read_bytes() == mark + expected.encode(name)
        assert result.details["changed"] == (text != expected)


@given(st.binary(max_size=60), MESSY, st.lists(st.tuples(MESSY, MESSY), min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_failing_edits_change_no_bytes(raw: bytes, text: str, edits: list[tuple[str, str]]) -> None:
    before = text.encode() + raw
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "file.txt")
        file.write_bytes(before)
        result = asyncio.run(_edit(place, [{"oldText": old, "newText": new} for old, new in edits]))
        if result.is_error or not result.details["changed"]:
            assert file.read_bytes() == before
            assert sorted(each.name for each in Path(place).iterdir()) == ["file.txt"]
        else:
            assert file.read_bytes() != before


async def _edit(place: str, edits: list[dict[str, str]]) -> Result:
    async with open_kit(place) as kit:
        return await kit.call("edit", {"path": "file.txt", "edits": edits})
