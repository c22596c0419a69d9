"""Chunks applied to the text of a file."""

from __future__ import annotations

import pytest
from tests.tables import table

from clawkit.errors import ToolInputError
from clawkit.fs.edit.patch_apply import Applied, apply_chunks
from clawkit.fs.edit.patch_format import parse


def applied(text: str, patch: str) -> Applied:
    (section,) = parse(f"*** Begin Patch\n*** Update File: f\n{patch.lstrip()}\n*** End Patch")
    return apply_chunks(text, section.chunks, "f")


def patched(text: str, patch: str) -> str:
    return applied(text, patch).text


def refusal(text: str, patch: str) -> str:
    with pytest.raises(ToolInputError) as refused:
        applied(text, patch)
    return str(refused.value)


CLASSES = """\
class A:
    def run(self):
        x = 1
        return x

class B:
    def run(self):
        x = 1
        return x

class C:
    def run(self):
        x = 1
        return x
"""


def test_lines_go_stay_and_come() -> None:
    result = applied("a\nb\nc\nd\n", "@@\n a\n-b\n+B\n+BB\n c")
    assert result == Applied("a\nB\nBB\nc\nd\n", 2, 1)


def test_chunks_without_headers_and_without_change_are_fine() -> None:
    assert patched("a\nb\n", "-a\n+A") == "A\nb\n"
    assert patched("a\nb\n", "@@\n a\n b") == "a\nb\n"


# Line endings


@table(
    ("text", "patch", "expected"),
    [
        ("a\r\nb\r\nc\r\n", "@@\n-b\n+x\n+y", "a\r\nx\r\ny\r\nc\r\n"),
        ("a\nb\r\nc\n", "@@\n-a\n-b\n-c\n+A\n+B\n+C", "A\nB\r\nC\n"),
        ("a\nb\r\nc\n", "@@\n b\n+x", "a\nb\r\nx\r\nc\n"),
        ("a\r\nb\r\n", "@@\n+x\n a", "x\r\na\r\nb\r\n"),
        ("a\nb", "@@\n-b\n+x\n+y", "a\nx\ny"),
        ("a\nb", "@@\n+x\n*** End of File", "a\nb\nx"),
        ("a\r\nb", "@@\n b\n+x", "a\r\nb\r\nx"),
        ("a\r\nb", "@@\n-b", "a"),
        ("a\nb", "@@\n-a\n+x", "x\nb"),
        ("a\nb\n", "@@\n-a\n-b", ""),
        ("", "@@\n+x\n+y", "x\ny\n"),
        ("a", "@@\n-a\n+b", "b"),
        ("a\rb\nc\n", "@@\n-a\rb\n+x", "x\nc\n"),
    ],
)
def test_line_endings_stay_as_they_are_also_at_the_end(
    text: str, patch: str, expected: str
) -> None:
    assert patched(text, patch) == expected


# Where a chunk belongs


def test_a_chunk_that_fits_twice_is_refused_with_the_lines() -> None:
    words = refusal("x\na\nx\na\n", "@@\n-x\n+y")
    assert "'f': chunk 1 (line 3 of the patch) matches 2 places, at lines 1, 3 of the file" in words


def test_many_places_are_counted_up_to_a_limit() -> None:
    words = refusal("x\n" * 5_000, "@@\n-x")
    assert "1,000 or more places, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, … of the file" in words


def test_places_that_overlap_are_several() -> None:
    assert "matches 2 places" in refusal("x\nx\nx\n", "@@\n-x\n x")


def test_context_moves_the_place_down() -> None:
    assert patched("x\na\nx\n", "@@ a\n-x\n+y") == "x\na\ny\n"


def test_contexts_lead_inward_to_a_block() -> None:
    lines = patched(
        CLASSES, "@@ class B:\n@@ def run(self):\n-        x = 1\n+        x = 2"
    ).splitlines()
    assert [at for at, line in enumerate(lines, 1) if line.endswith("x = 2")] == [8]


def test_a_context_that_occurs_again_does_not_choose_among_places() -> None:
    words = refusal(CLASSES, "@@ def run(self):\n-        x = 1\n+        x = 2")
    assert "matches 3 places, at lines 3, 8, 13" in words
    # Two of them are in the block.
    assert "matches 2 places" in refusal("if x:\n  a\n  a\n", "@@ if x:\n-  a")


def test_below_a_line_that_opens_no_block_the_next_lines_are_meant() -> None:
    text = "[a]\non = 1\n[b]\non = 1\n[c]\non = 1\n"
    assert patched(text, "@@ [b]\n-on = 1\n+on = 0") == "[a]\non = 1\n[b]\non = 0\n[c]\non = 1\n"
    text = text.replace("]\n", "]\nx\n")
    assert "matches 2 places" in refusal(text, "@@ [b]\n-on = 1\n+on = 0")


def test_a_chunk_below_the_context_of_the_one_before_may_repeat_it() -> None:
    text = CLASSES.replace("return x", "return y", 1)
    patch = """
@@ class A:
@@ def run(self):
-        x = 1
+        x = 2
@@ class A:
@@ def run(self):
-        return y
+        return z
"""
    expected = text.replace("x = 1", "x = 2", 1).replace("return y", "return z")
    assert patched(text, patch) == expected


def test_a_repeated_context_does_not_lead_past_the_block_it_was_meant_for() -> None:
    """The next `def run` is that of B; both it and A have the lines."""
    patch = "@@ class A:\n-        x = 1\n+        x = 2\n@@ def run(self):\n-        return x"
    assert "chunk 2 (line 6 of the patch) matches 3 places, at lines 4, 9, 14" in refusal(
        CLASSES, patch
    )


def test_chunks_go_down_the_file() -> None:
    words = refusal("a\nb\nc\n", "@@\n-c\n+C\n@@\n-a\n+A")
    assert "chunk 2 (line 6 of the patch) does not match: its lines are at line 1" in words
    assert "order of the file" in words


def test_a_chunk_may_begin_with_the_lines_the_one_before_ends_with() -> None:
    patch = "@@\n a\n-b\n+B\n c\n@@\n c\n-d\n+D"
    assert patched("a\nb\nc\nd\n", patch) == "a\nB\nc\nD\n"


def test_the_same_chunk_twice_is_not_applied_twice() -> None:
    assert "chunk 2" in refusal("a\nb\n", "@@\n+x\n a\n@@\n+x\n a")


def test_the_end_of_the_file_is_the_only_place_for_a_chunk_tied_to_it() -> None:
    assert patched("x\na\nx\n", "@@\n-x\n+y\n*** End of File") == "x\na\ny\n"
    words = refusal("x\na\n", "@@\n-x\n*** End of File")
    assert "its lines are at line 1 of the file, which is not its end" in words
    assert "not in the file at its end" in refusal("x\n", "@@\n-y\n*** End of File")


def test_empty_lines_that_part_chunks_need_not_be_in_the_file() -> None:
    assert patched("a\nb\nc\n", "@@\n-a\n+A\n\n\n@@\n-c\n+C\n\n") == "A\nb\nC\n"
    assert patched("a\n\nx\na\n", "@@\n-a\n+A\n\n") == "A\n\nx\na\n"


# Lines that only come


def test_lines_without_old_ones_go_below_their_context_or_to_the_end() -> None:
    assert patched("a\nb\n", "@@ a\n+x") == "a\nx\nb\n"
    assert patched("a\nb\n", "@@\n+x") == "a\nb\nx\n"
    assert patched("a\nb\n", "@@ a\n+x\n*** End of File") == "a\nb\nx\n"
    assert patched(CLASSES, "@@ class B:\n@@ def run(self):\n+        pass").count("pass") == 1


@table(
    "patch",
    [
        "@@ def run(self):\n+        pass",
        "@@ class A:\n@@ x = 1\n+        y\n@@ class A:\n+    z = 1",
        "@@     def run(self):\n@@ class C:\n@@ class B:\n+    z = 1",
    ],
)
def test_where_lines_come_with_no_old_ones_the_context_must_be_one_line(patch: str) -> None:
    assert "which may be several" in refusal(CLASSES, patch)


# Headers in the style of diff


def test_line_numbers_and_headings_of_diff_are_not_relied_on() -> None:
    assert "matches 2 places" in refusal("x\nb\nx\nb\n", "@@ -4,1 +4,1 @@\n-b\n+B")
    assert patched("a\nb\n", "@@ -77,1 +77,1 @@\n-b\n+B") == "a\nB\n"
    assert patched("a\nb\n", "@@ -1 +1 @@ cut off headi\n-a\n+A") == "A\nb\n"
    assert patched("a\nb\n", "@@ -1 +1 @@ b\n-a\n+A") == "A\nb\n"


def test_line_numbers_alone_do_not_locate_a_chunk() -> None:
    assert "has line numbers but no old lines" in refusal("a\nb\n", "@@ -1,0 +2 @@ a\n+x")
    assert patched("", "@@ -0,0 +1 @@\n+x") == "x\n"


# Lines that are almost as given


def test_spaces_at_line_ends_are_overlooked_and_kept() -> None:
    assert applied("a  \nb\t\nc\n", "@@\n a\n-b\n+x\n c") == Applied("a  \nx\nc\n", 1, 1)


def test_an_exact_place_comes_before_those_that_are_almost_so() -> None:
    assert patched("x \nx\n", "@@\n-x\n+y") == "x \ny\n"
    assert patched("  x\nx\n", "@@\n-x\n+y") == "  x\ny\n"
    assert "matches 2 places" in refusal("  x\n x\n", "@@\n-x\n+y")


def test_typography_is_overlooked_and_kept() -> None:
    text = "say “hello” — now\nend…\n"
    result = applied(text, '@@\n say "hello" - now\n-end...\n+the end')
    assert result == Applied("say “hello” — now\nthe end\n", 1, 1, (1,))


@table(
    ("text", "patch", "expected"),
    [
        (
            "  if x:\n    go()\n",
            "@@\n if x:\n-  go()\n+  stop()\n+  if y:\n+    wait()",
            "  if x:\n    stop()\n    if y:\n      wait()\n",
        ),
        ("go()\n", "@@\n-    go()\n+    stop()\n+\n+      x", "stop()\n\n  x\n"),
        (
            "if x:\n\tgo()\n",
            "@@\n if x:\n-    go()\n+    if y:\n+        go()",
            "if x:\n\tif y:\n\t\tgo()\n",
        ),
    ],
)
def test_new_lines_are_indented_as_the_file_is(text: str, patch: str, expected: str) -> None:
    result = applied(text, patch)
    assert (result.text, result.inexact) == (expected, (1,))


def test_lines_that_lost_the_mark_of_context_move_no_others() -> None:
    text = "def f():\n    a()\n    b()\n"
    patch = "@@\n def f():\n    a()\n    b()\n+    c()"
    assert patched(text, patch) == text + "    c()\n"
    patch = "@@\n    a()\n-    b()\n+    c()"
    assert patched(text, patch) == text.replace("b", "c")


def test_an_ambiguous_indentation_is_refused() -> None:
    words = refusal("  a\n      b\n", "@@\n a\n b\n+c")
    assert "only if indentation is ignored" in words
    assert "how to indent 'c' is unclear" in words
    assert patched("  a\n      b\n", "@@\n a\n-b") == "  a\n"


# What is told when nothing fits


def test_a_chunk_that_does_not_match_is_an_error_with_the_nearest_lines() -> None:
    text = "def foo():\n    return 1\n\ndef bar():\n    return 2\n"
    words = refusal(text, "@@ def bar():\n-    retrun 2\n+    return 3")
    assert "'f': chunk 1 (line 3 of the patch) does not match" in words
    assert "not in the file below line 4:\n  '    retrun 2'\n" in words
    assert "The closest match is line 5" in words
    assert "'    return 2'" in words


def test_missing_context_is_an_error_with_the_nearest_line() -> None:
    words = refusal("def foo():\n    pass\n", "@@ def fo():\n-    pass")
    assert "has the context 'def fo():', which is not a line of the file" in words
    assert "The closest match is line 1" in words


def test_errors_show_only_some_lines_and_cut_long_ones() -> None:
    words = refusal("a\n", "@@\n" + "\n".join(f"-{'y' * 500}{n}" for n in range(20)))
    assert "and 12 more" in words
    assert len(words) < 4_000


def test_quoted_lines_are_masked_by_the_caller() -> None:
    (section,) = parse("*** Begin Patch\n*** Update File: f\n-token=abd\n*** End Patch")
    with pytest.raises(ToolInputError) as refused:
        apply_chunks("token=abc\n", section.chunks, "f", show=lambda line: line.replace("c", "*"))
    assert "token=ab*" in str(refused.value)
    assert "token=abc" not in str(refused.value)


def test_a_mask_in_an_old_line_is_explained() -> None:
    assert "is a masked secret" in refusal("key=abcdef\nx\n", "@@\n-key=***\n+key=1")


def test_ten_thousand_chunks_find_their_places_in_a_long_file() -> None:
    lines = [f"    value_{n} = compute({n % 97})" if n % 5 else "" for n in range(100_000)]
    patch: list[str] = []
    expected = list(lines)
    for n in range(1, 100_000, 10):
        patch += ["@@", f" {lines[n]}", f"-{lines[n + 1]}", f"+new {n}", f" {lines[n + 2]}"]
        expected[n + 1] = f"new {n}"
    assert len(patch) == 50_000
    assert patched("\n".join(lines), "\n".join(patch)) == "\n".join(expected)


def test_patches_that_would_take_too_long_are_refused() -> None:
    assert "has 2,000,002 lines" in refusal("\n" * 2_000_001, "@@\n-x")
    many = "\n".join(f"@@ {n}" for n in range(40_000))
    assert "too many for a patch" in refusal("\n" * 1_000_000, f"{many}\n-x")
