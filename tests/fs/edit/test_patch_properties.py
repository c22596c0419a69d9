"""Patches that somebody else made: from any file and any edits of its lines."""

from __future__ import annotations

import asyncio
import codecs
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clawkit.core.result import Result
from clawkit.errors import ToolInputError
from clawkit.fs.edit.patch_apply import apply_chunks
from clawkit.fs.edit.patch_format import parse, paths_of
from clawkit.testing import open_kit

NO_SERVERS = {"tools": {"fs": {"lsp": {"enabled": False}}}}
COMMON = ["", "}", "  x", "\treturn x", "@@ a", "*** End Patch", "-", "+y", "# “é” — 漢"]
LINES = st.sampled_from(COMMON) | st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff"), max_size=6
)


class Case(NamedTuple):
    """A file, what is to become of it, and a patch that says so."""

    before: str
    after: str
    body: str


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any edits, each in a chunk with as much around it as makes it the only place."""
    lines = draw(st.lists(LINES, max_size=25))
    new: list[list[str]] = [
        draw(st.lists(LINES, max_size=2)) if draw(st.integers(0, 5)) == 0 else [] for _ in lines
    ]
    new.append(draw(st.lists(LINES, max_size=2)))
    gone = [draw(st.integers(0, 5)) == 0 for _ in lines]
    touched = [at for at in range(len(lines) + 1) if new[at] or (at < len(lines) and gone[at])]
    assume(touched)
    patch: list[str] = []
    for start, stop, own in spread(lines, touched):
        patch.append("@@")
        assume(any(map(str.strip, lines[start:stop])) or not lines)  # blank lines are no place
        for at in range(start, stop + 1):
            patch += [f"+{line}" for line in new[at] if at in own]
            if at < stop:
                goes = gone[at] and at in own
                bare = not lines[at] and not goes and draw(st.booleans())
                patch.append("" if bare else f"{'-' if goes else ' '}{lines[at]}")
        if stop == len(lines) and draw(st.booleans()):
            patch.append("*** End of File")
    kept = [[*new[at], *([] if gone[at] else [lines[at]])] for at in range(len(lines))]
    after = [line for part in (*kept, new[-1]) for line in part]
    finished = draw(st.booleans()) or not lines or not lines[-1]
    # A file without a line ending says nothing about them.
    ending = draw(st.sampled_from(["\n", "\r\n"])) if len(lines) > 1 else "\n"
    return Case(join(lines, ending, finished), join(after, ending, finished), "\n".join(patch))


def join(lines: list[str], ending: str, finished: bool) -> str:
    return ending.join(lines) + (ending if finished and lines else "")


def spread(lines: list[str], touched: list[int]) -> list[tuple[int, int, set[int]]]:
    """The edits in groups, each with the lines around it that are found in the file but once.

    Groups may share lines that none of them changes before the other.
    """
    groups: list[tuple[int, int, set[int]]] = []
    for at in touched:
        start, stop, own = at, min(at + 1, len(lines)), {at}
        while True:
            while groups and start <= max(groups[-1][2]):
                first, last, others = groups.pop()
                start, stop, own = min(start, first), max(stop, last), own | others
            if (start, stop) == (0, len(lines)) or alone(lines, start, stop):
                break
            start, stop = max(0, start - 1), min(stop + 1, len(lines))
        groups.append((start, stop, own))
    return groups


def alone(lines: list[str], start: int, stop: int) -> bool:
    wanted = lines[start:stop]
    if not any(line.strip() for line in wanted):
        return False
    size = stop - start
    return sum(lines[at : at + size] == wanted for at in range(len(lines) - size + 1)) == 1


def update(body: str, name: str = "f") -> str:
    return f"*** Update File: {name}\n{body}"


def wrap(*sections: str) -> str:
    return "\n".join(("*** Begin Patch", *sections, "*** End Patch"))


@given(cases(), st.booleans())
def test_a_patch_gives_the_text_it_was_made_for(case: Case, crlf: bool) -> None:
    text = wrap(update(case.body))
    (section,) = parse(text.replace("\n", "\r\n") if crlf else text)
    assert apply_chunks(case.before, section.chunks, "f").text == case.after


@given(st.data())
def test_lines_found_in_spite_of_blanks_and_typography_stay_as_they_are(
    data: st.DataObject,
) -> None:
    names = [f'{n} "a" - b' for n in range(data.draw(st.integers(1, 12)))]
    disguise = st.builds(
        lambda lead, tail, curly: (lead, tail, curly),
        st.sampled_from(["", "  ", "\t", "\u00a0"]),
        st.sampled_from(["", " ", "\t "]),
        st.booleans(),
    )
    real = []
    for name in names:
        lead, tail, curly = data.draw(disguise)
        real.append(lead + (name.replace('"', "“").replace("-", "–") if curly else name) + tail)
    gone = [data.draw(st.booleans()) for _ in names]
    body = [f"{'-' if dead else ' '}{name}" for name, dead in zip(names, gone, strict=True)]
    (section,) = parse(wrap(update("\n".join(("@@", *body)))))
    result = apply_chunks("".join(f"{line}\n" for line in real), section.chunks, "f")
    kept = [line for line, dead in zip(real, gone, strict=True) if not dead]
    assert result.text == "".join(f"{line}\n" for line in kept)


@given(
    st.lists(
        st.sampled_from(
            [
                *("*** Begin Patch", "*** End Patch", "*** Add File: a", "*** Delete File: b"),
                *("*** Update File: c", "*** Move to: d", "*** End of File", "@@", "@@ x"),
                *("@@ -1,2 +1,2 @@ y", " x", "-y", "+z", "", "```", "<<EOF", "EOF", "\t", "\r"),
            ]
        )
        | st.text(max_size=5),
        max_size=12,
    ),
    st.text(max_size=20),
)
def test_any_text_is_a_patch_or_refused(lines: list[str], file: str) -> None:
    for text in ("\n".join(lines), wrap(*lines)):
        try:
            sections = parse(text)
            assert all(paths_of(sections))
            for section in sections:
                if section.kind == "Update":
                    apply_chunks(file, section.chunks, "c")
        except ToolInputError:
            continue


ENCODINGS = ["utf-8", "utf-8-sig", "utf-16-le"]


def as_bytes(text: str, encoding: str) -> bytes:
    mark = codecs.BOM_UTF16_LE if encoding == "utf-16-le" else b""
    return mark + text.encode(encoding)


async def apply_in(place: Path, patch: str) -> Result:
    async with open_kit(place, config=NO_SERVERS) as kit:
        return await kit.call("apply_patch", {"input": patch})


def snapshot(place: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in place.rglob("*") if each.is_file()}


@given(st.lists(st.tuples(cases(), st.sampled_from(ENCODINGS)), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_a_patch_of_several_files_leaves_each_with_the_bytes_it_was_made_for(
    files: list[tuple[Case, str]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for number, (case, encoding) in enumerate(files):
            (place / f"f{number}").write_bytes(as_bytes(case.before, encoding))
        sections = [update(case.body, f"f{n}") for n, (case, _) in enumerate(files)]
        result = asyncio.run(apply_in(place, wrap(*sections)))
        assert not result.is_error, result.as_text()
        found = [(place / f"f{number}").read_bytes() for number in range(len(files))]
        assert found == [as_bytes(case.after, encoding) for case, encoding in files]


@pytest.mark.parametrize("breakage", ["@@ no such line\n+x", "@@\n no such line\n+x", "nonsense"])
@given(files=st.lists(cases(), min_size=1, max_size=4), data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_patch_that_fails_anywhere_changes_no_byte(
    breakage: str, files: list[Case], data: st.DataObject
) -> None:
    failing = data.draw(st.integers(0, len(files) - 1))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sections = ["*** Add File: new/file\n+x", "*** Delete File: old"]
        (place / "old").write_text("old\n")
        for number, case in enumerate(files):
            (place / f"f{number}").write_text(case.before, newline="")
            broken = f"{case.body}\n{breakage}" if number == failing else case.body
            sections.append(update(broken, f"f{number}"))
        before = snapshot(place)
        result = asyncio.run(apply_in(place, wrap(*sections)))
        assert result.details["code"] == 400, result.as_text()
        assert snapshot(place) == before
        assert not (place / "new").exists()
