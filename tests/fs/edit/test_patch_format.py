"""The text of a patch."""

from __future__ import annotations

import pytest

from clawkit.errors import ToolInputError
from clawkit.fs.edit import patch_format as patch
from clawkit.fs.edit.patch_format import Chunk, FilePatch, parse, paths_of


def wrap(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


def chunks_of(*lines: str) -> tuple[Chunk, ...]:
    (section,) = parse(wrap("*** Update File: a", *lines))
    return section.chunks


def refusal(text: str) -> str:
    with pytest.raises(ToolInputError) as refused:
        parse(text)
    return str(refused.value)


def test_sections_come_in_order_with_their_lines() -> None:
    text = wrap(
        "*** Add File: new/a.txt",
        "+one",
        "+",
        "+two",
        "*** Delete File: b.txt",
        "*** Update File: c.py",
        "*** Move to: d.py",
        "@@ class C:",
        "@@ def f(self):",
        " keep",
        "-old",
        "+new",
        "*** End of File",
    )
    body = (" keep", "-old", "+new")
    chunk = Chunk(1, 9, ("class C:", "def f(self):"), body, at_end=True)
    assert parse(text) == (
        FilePatch("Add", "new/a.txt", 2, "one\n\ntwo\n"),
        FilePatch("Delete", "b.txt", 6),
        FilePatch("Update", "c.py", 7, chunks=(chunk,), move_to="d.py"),
    )
    assert paths_of(parse(text)) == ("new/a.txt", "b.txt", "c.py", "d.py")


PLAIN = wrap("*** Add File: a", "+x")


def test_wrapping_and_blank_lines_around_a_patch_do_not_matter(subtests: pytest.Subtests) -> None:
    for text in [
        f"\n  \n{PLAIN}\n\n",
        f"<<EOF\n{PLAIN}\nEOF",
        f"<<'EOF'\n{PLAIN}\nEOF\n",
        f'apply_patch <<"PATCH"\n{PLAIN}\nPATCH',
        f"```diff\n{PLAIN}\n```",
        f"```\napply_patch <<'EOF'\n{PLAIN}\nEOF\n```",
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("*** End Patch", "  *** End Patch  "),
        PLAIN.replace("a\n", "a  \n\n").replace("+x\n", "+x\n\n\n"),
    ]:
        with subtests.test(text=text):
            assert [each._replace(line=0) for each in parse(text)] == [
                FilePatch("Add", "a", 0, "x\n")
            ]


def test_an_invalid_patch_is_refused_with_its_line(subtests: pytest.Subtests) -> None:
    for text, words in [
        ("", "the patch is empty"),
        (" \n\t\n", "the patch is empty"),
        ("*** Begin Patch", "End Patch"),
        ("*** Begin Patch\n*** Add File: a\n+x", "seems to be cut off"),
        ("*** Add File: a\n+x\n*** End Patch", "line 1 of the patch is '*** Add File: a'"),
        ("here it is:\n" + PLAIN, "line 1 of the patch is 'here it is:'"),
        (PLAIN + "\ndone", "line 5 of the patch is 'done'"),
        (PLAIN + "\n" + PLAIN, "line 4 of the patch"),
        (f"<<EOF\n{PLAIN}\nOEF", "line 1 of the patch is '<<EOF'"),
        (f"cd sub && apply_patch <<EOF\n{PLAIN}\nEOF", "line 1 of the patch is 'cd sub"),
        (wrap(), "names no file"),
        (wrap("+x"), "line 2 of the patch"),
        (wrap("*** Rename File: a"), "line 2 of the patch is '*** Rename File: a'"),
        (wrap("*** Add File:  ", "+x"), "a path after the colon"),
        (wrap("*** Add File: a\0b", "+x"), "line 2 of the patch: "),
        (wrap("*** Add File: a", "+x", "y"), "line 4 of the patch is 'y'"),
        (wrap("*** Add File: a", " x"), "line 3 of the patch"),
        (wrap("*** Delete File: a", "-x"), "a deletion has no lines"),
        (wrap("*** Update File: a"), "lines after it that say what changes"),
        (wrap("*** Update File: a", "", ""), "lines after it that say what changes"),
        (wrap("*** Update File: a", "@@ def f"), "line 3 of the patch is '@@ def f'"),
        (wrap("*** Update File: a", "@@", " x", "@@ y"), "line 5 of the patch is '@@ y'"),
        (wrap("*** Update File: a", "*** End of File"), "line 3 of the patch"),
        (wrap("*** Update File: a", "@@x", "-y"), "a space after '@@'"),
        (wrap("*** Update File: a", "@@", "x"), "line 4 of the patch is 'x'"),
        (wrap("*** Update File: a", "@@", "-x", "*** Move to: b"), "line 5 of the patch"),
        (wrap("*** Update File: a", "*** Move to:"), "a path after the colon"),
        (
            wrap("*** Update File: a", "-x", "*** End of File", "-y"),
            "line 5 of the patch is '-y', but must have '@@'",
        ),
    ]:
        with subtests.test(text=text):
            assert words in refusal(text)


def test_the_first_chunk_needs_no_header_and_empty_lines_are_blank_context() -> None:
    assert chunks_of("-a", "", "+b", " c") == (Chunk(1, 3, (), ("-a", " ", "+b", " c")),)


def test_blank_lines_before_and_between_headers_are_ignored() -> None:
    assert chunks_of("", "@@ class A", "", "@@ def f", "-x") == (
        Chunk(1, 4, ("class A", "def f"), ("-x",)),
    )


def test_empty_lines_at_the_end_of_a_chunk_may_only_part_it_from_the_next() -> None:
    first, second = chunks_of("@@", "-a", "", "", "@@", "+b", "")
    assert (first.body, first.loose) == (("-a", " ", " "), 2)
    assert (second.body, second.loose) == (("+b",), 0)


def test_an_unmarked_empty_line_between_added_ones_is_refused() -> None:
    """It would be the only old line, and the next blank line of the file the place."""
    words = refusal(wrap("*** Update File: a", "@@ x", "+a", "", "+b"))
    assert "line 5 of the patch is ''" in words
    assert "'+' at the start" in words


def test_a_line_of_context_that_lost_its_mark_before_a_tab_is_understood() -> None:
    assert chunks_of("\ta", "-\tb")[0].body == (" \ta", "-\tb")


def test_headers_in_the_style_of_diff_are_understood(subtests: pytest.Subtests) -> None:
    for header, context, is_numbered in [
        ("@@ -3,4 +3,5 @@", (), True),
        ("@@ -12 +12 @@ def f():", (), True),
        ("@@ - a list item", ("- a list item",), False),
        ("@@ ", (), False),
        ("@@     indented", ("    indented",), False),
    ]:
        with subtests.test(header=header):
            (chunk,) = chunks_of(header, "-x", "\\ No newline at end of file")
            found = (chunk.context, chunk.is_numbered, chunk.body)
            assert found == (context, is_numbered, ("-x",))


def test_markers_inside_a_body_are_text() -> None:
    (chunk,) = chunks_of("@@", " *** End Patch", "-*** Update File: b", "+*** Begin Patch")
    assert chunk.body == (" *** End Patch", "-*** Update File: b", "+*** Begin Patch")


def test_carriage_returns_belong_to_a_patch_that_has_them_everywhere_and_else_to_a_new_file() -> (
    None
):
    everywhere = wrap("*** Add File: a.bat", "+x", "+y").replace("\n", "\r\n")
    assert parse(everywhere)[0] == FilePatch("Add", "a.bat", 2, "x\ny\n")
    assert parse(wrap("*** Add File: a.bat", "+x\r", "+y\r"))[0] == FilePatch(
        "Add", "a.bat", 2, "x\r\ny\r\n"
    )
    assert chunks_of("@@\r", " a\r", "-b\r", "\r", "+c\r")[0].body == (" a", "-b", " ", "+c")


def test_paths_are_plain_ones_so_that_everybody_reads_them_alike() -> None:
    text = wrap("*** Delete File: file:///tmp/a%20b", "*** Delete File: ~x")
    assert paths_of(parse(text)) == ("/tmp/a b", "./~x")


def test_exceeded_limits_are_errors() -> None:
    assert "larger than 8 MB" in refusal("x" * (patch.MAX_CHARS + 1))
    assert "more than 500,000 lines" in refusal("\n" * patch.MAX_LINES)
    many = [f"*** Delete File: {n}" for n in range(patch.MAX_FILES + 1)]
    assert "more than 1,000 sections" in refusal(wrap(*many))
    chunks = ["@@", "+x"] * (patch.MAX_CHUNKS + 1)
    assert "more than 20,000 chunks" in refusal(wrap("*** Update File: a", *chunks))


@pytest.mark.parametrize(
    "text", ["--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "diff --git a/x b/x\n"]
)
def test_a_unified_diff_is_recognized(text: str) -> None:
    assert "this is a unified diff" in refusal(text)
