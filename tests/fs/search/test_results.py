"""Reading what a search program prints."""

from __future__ import annotations

import pytest

from clawkit.errors import ToolError
from clawkit.fs.protocols import FileHits, Line, Output
from clawkit.fs.search.results import MAX_HELD, Gathering, ResultFilter

WARNING = (
    b': WARNING: stopped searching binary file after match (found "\\0" byte around offset 5)\n'
)


class Everything(ResultFilter):
    """Lets all files through but those whose path is in `refused`."""

    def __init__(self, *refused: str, there: tuple[str, ...] = ()) -> None:
        self.refused = refused
        self.there = there

    def admits(self, path: str) -> bool:
        return path not in self.refused

    def is_there(self, path: str) -> bool:
        return path in self.there

    def shown(self, path: str) -> str:
        return path


def gather(
    data: bytes,
    output: Output = "content",
    gate: Everything | None = None,
    *,
    enough: int = 1_000,
    limit: int = 1_000,
    size: int = 0,
) -> list[FileHits]:
    gathering = Gathering(output, gate or Everything(), enough)
    for at in range(0, len(data), size or len(data)):
        if not gathering.feed(data[at : at + (size or len(data))]):
            break
    return list(gathering.first(limit))


CONTENT = (
    b"./b.txt\x002-before\n./b.txt\x003:hit\n--\n./b.txt\x009:x:1:y\n--\n"
    b"./a\nodd:1: name\x001:\n--\n./c\xff\x0010:text\r\n"
)


def test_records_are_read_however_the_output_is_cut() -> None:
    expected = [
        FileHits("a\nodd:1: name", (Line(1, True, b""),), 1),
        FileHits(
            "b.txt",
            (Line(2, False, b"before"), Line(3, True, b"hit"), Line(9, True, b"x:1:y")),
            2,
        ),
        FileHits("c\udcff", (Line(10, True, b"text\r"),), 1),
    ]
    for size in range(1, len(CONTENT) + 1):
        assert gather(CONTENT, size=size) == expected, size


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_counts_and_names_are_read(end: bytes) -> None:
    counts = b"./b\x0012" + end + b"./a\nb\x001" + end
    assert gather(counts, "count", size=3) == [FileHits("a\nb", (), 1), FileHits("b", (), 12)]
    assert gather(b"./b\x00./a\x00./half", "files", size=3) == [FileHits("a"), FileHits("b")]


def test_a_line_may_hold_nul_without_being_taken_for_two() -> None:
    assert gather(b"./a\x001:one\x00./b\x002:two\n") == [
        FileHits("a", (Line(1, True, b"one\x00./b\x002:two"),), 1)
    ]


@pytest.mark.parametrize("between", [b"", b"--\n"])
def test_the_warning_about_binary_files_is_not_part_of_the_next_path(between: bytes) -> None:
    data = b"./a\x001:one\n./a" + WARNING + between + b"./b\x001:two\n./b" + WARNING
    assert [each.path for each in gather(data)] == ["a", "b"]


def test_a_directory_that_is_called_like_the_warning_is_still_a_directory() -> None:
    path = "a" + WARNING.decode() + "./b"
    data = b"./a\x001:one\n./" + path.encode() + b"\x001:two\n"
    there = gather(data, gate=Everything(there=(path,)))
    assert [each.path for each in there] == ["a", path]
    refused = gather(data, gate=Everything(path, there=(path,)))
    assert [each.path for each in refused] == ["a"]


def test_lines_that_are_not_admitted_leave_no_trace() -> None:
    gathering = Gathering("content", Everything("a"), 2)
    assert gathering.feed(b"".join(b"./a\x00%d:secret\n" % n for n in range(1, 100)))
    assert gathering.total == 0
    assert gathering.feed(b"./b\x001:one\n")
    assert not gathering.feed(b"./b\x002:two\n./b\x003:three\n")
    assert [each.path for each in gathering.first(10)] == ["b"]
    assert gathering.total == 2


def test_the_limit_counts_matching_lines_and_keeps_the_lines_around_the_last() -> None:
    data = (
        b"./b\x001:one\n./b\x002-two\n./b\x003:three\n./b\x004-four\n--\n"
        b"./b\x008-eight\n./b\x009:nine\n--\n./a\x001:first\n"
    )
    numbers = [[line.number for line in each.lines] for each in gather(data, limit=3)]
    assert numbers == [[1], [1, 2, 3, 4]]
    assert [each.matches for each in gather(data, limit=3)] == [1, 3]


def test_an_endless_line_is_kept_in_part() -> None:
    gathering = Gathering("content", Everything(), 1_000)
    assert gathering.feed(b"./a\x001:")
    for _ in range(50):
        assert gathering.feed(b"x" * 100_000)
    assert gathering.feed(b"\n./b\x001:after\n")
    first, second = gathering.first(10)
    assert first.lines[0].text.startswith(b"x" * 2_000)
    assert len(first.lines[0].text) < 3_000
    assert second == FileHits("b", (Line(1, True, b"after"),), 1)


def test_output_without_sense_is_not_kept() -> None:
    with pytest.raises(ToolError, match="invalid output"):
        gather(b"x" * 100_000)


def test_much_text_is_enough_however_few_matches_it_has() -> None:
    gathering = Gathering("content", Everything(), 1_000)
    piece = b"".join(b"./a\x00%d-" % n + b"x" * 1_900 + b"\n" for n in range(1, 500))
    taken = 0
    while gathering.feed(piece):
        taken += len(piece)
    assert MAX_HELD // 2 < taken <= MAX_HELD
