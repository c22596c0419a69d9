"""Replacements: where they are made, what stays as it is, and what is said when they cannot be."""

from __future__ import annotations

import pytest
from tests.tables import table

from clawkit.errors import ToolInputError
from clawkit.fs.edit.finder import find_shift
from clawkit.fs.edit.replace import Replaced, Replacement, apply, changed_lines


def replace(text: str, *edits: tuple[str, str] | tuple[str, str, bool]) -> Replaced:
    return apply(text, [Replacement(*edit) for edit in edits], path="a.py")


def refuse(text: str, *edits: tuple[str, str] | tuple[str, str, bool]) -> str:
    with pytest.raises(ToolInputError) as caught:
        replace(text, *edits)
    return str(caught.value)


def overlooked(outcome: Replaced) -> str:
    return ", ".join(dict.fromkeys(each.overlooked for each in outcome.found))


def test_all_texts_are_found_in_the_text_as_it_was() -> None:
    assert replace("a b c", ("a", "b"), ("b", "a"), ("c", "ab")).text == "b a ab"


def test_pieces_may_touch() -> None:
    assert replace("abcd", ("ab", "x"), ("cd", "y")).text == "xy"


@pytest.mark.parametrize("text", ["x=1\ny=2\nx=1\n", "aaxaa x=1x=1"])
def test_every_place_is_replaced_when_asked_for(text: str) -> None:
    assert replace(text, ("x=1", "z", True)).text == text.replace("x=1", "z")


def test_a_replacement_by_the_same_changes_nothing_but_is_checked() -> None:
    assert replace("a b", ("a", "a")) == Replaced("a b", ())
    assert replace("a b", ("a", "a"), ("b", "c")).text == "a c"
    assert "occurs 2 times" in refuse("a a", ("a", "a"))


def test_an_empty_file_can_be_filled() -> None:
    assert replace("", ("", "new\n")).text == "new\n"
    assert "use write" in refuse("x", ("", "new"))


LINE_ENDS = [
    ("a\r\nb\r\n", "a", "x\ny", "x\r\ny\r\nb\r\n"),
    ("a\nb\n", "a", "x\r\ny", "x\ny\nb\n"),
    ("a\nb\r\nc\n", "b", "x\ny", "a\nx\r\ny\r\nc\n"),
    ("a\r\nb", "b", "x\ny", "a\r\nx\r\ny"),
    ("a\r\nb", "\nb", "\nc", "a\r\nc"),
    ("a\r\nb", "\nb", "c", "ac"),
    ("a\r\nb\r\n", "a\r\nb", "a\nb", "a\nb\r\n"),
    ("ab", "b", "x\r\ny", "ax\r\ny"),
]


def test_new_text_gets_the_line_ends_of_its_place(subtests: pytest.Subtests) -> None:
    for text, old, new, expected in LINE_ENDS:
        with subtests.test(text=text):
            outcome = replace(text, (old, new))
            assert (outcome.text, overlooked(outcome)) == (expected, "")


OVERLOOKED = [
    ("a\r\nb\r\nc\r\n", "a\nb", "a\nx\nb", "a\r\nx\r\nb\r\nc\r\n", "line ends"),
    ("a\nb\nc\n", "a\r\nb", "a\r\nx", "a\nx\nc\n", "line ends"),
    ("a\r\nb\nc\n", "a\nb\nc", "a\nx\nc", "a\r\nx\r\nc\n", "line ends"),
    ("a\r\nb\r\nc\r\n", "\nb\nc", "c", "ac\r\n", "line ends"),
    ("a\r\nb \r\nc\r\n", "\nb\nc", "c", "ac\r\n", "trailing whitespace"),
    ("a\nlast", "last\n", "end\n", "a\nend", "the missing newline at the end of the file"),
    ("a  \nb\t\nc", "a\nb", "a\nx", "a  \nx\t\nc", "trailing whitespace"),
    ("a\nb\nc", "a  \nb\n", "x\nb\n", "x\nb\nc", "trailing whitespace"),
    ("f(“x”) – ok\nz", 'f("x") - ok\nz', 'f("x") - ok\ny', "f(“x”) – ok\ny", "look-alike"),
    ("x “a” y", '"a" y', '"b" y', 'x "b" y', "look-alike"),
    ("it’s\u00a0fine", "it's fine", "it's good", "it's good", "look-alike"),
    ('say "hi"', "say “hi”", "say “ho”", "say “ho”", "look-alike"),
    ("cafe\u0301 x", "café x", "tea", "tea", "look-alike"),
    ("a\u200bb c", "ab c", "x", "x", "look-alike"),
]


def test_minor_differences_are_tolerated_and_reported(
    subtests: pytest.Subtests,
) -> None:
    for text, old, new, expected, what in OVERLOOKED:
        with subtests.test(text=text):
            outcome = replace(text, (old, new))
            assert outcome.text == expected
            assert overlooked(outcome).startswith(what)


@table(
    ("text", "old", "new", "expected"),
    [
        # Further in than given, further out, and what is new keeps its distance.
        ("c:\n    f:\n        1\n", "f:\n    1\n", "f:\n    if x:\n        2\n",
         "c:\n    f:\n        if x:\n            2\n"),
        ("f:\n  1\n", "    f:\n      1", "    f:\n      2\n    g", "f:\n  2\ng\n"),
        ("\tf\n\t\tg\n", "f\n\tg", "f\n\tg\n\n\th", "\tf\n\t\tg\n\n\t\th\n"),
        # Tabs for spaces and the other way round, two spaces for four.
        ("\tf:\n\t\t1\n", "    f:\n        1", "    f:\n        if x:\n            2",
         "\tf:\n\t\tif x:\n\t\t\t2\n"),
        ("    f:\n        1\n", "\tf:\n\t\t1", "\tf:\n\t\t1\n\t\t\t2",
         "    f:\n        1\n            2\n"),
        ("f:\n    g:\n        1\n", "f:\n  g:\n    1", "f:\n  g:\n    1\n      2",
         "f:\n    g:\n        1\n            2\n"),
        ("\tcall(a,\n\t\tb)\n", "    call(a,\n        b)", "    call(a,\n          b)",
         "\tcall(a,\n\t\t  b)\n"),
        # Blank lines have no indentation, and line ends do not matter either.
        ("  f\r\n   \r\n  g\r\n", "f\n\ng", "f\n\nh", "  f\r\n   \r\n  h\r\n"),
    ],
)  # fmt: skip
def test_whole_lines_are_found_with_another_indentation(
    text: str, old: str, new: str, expected: str
) -> None:
    outcome = replace(text, (old, new))
    assert (outcome.text, overlooked(outcome)) == (expected, "indentation")


@table(
    ("text", "old"),
    [
        ("  f\n    g\n", "f\n    g\n  h"),
        ("  f\n      g\n  h\n", "f\n  g\n h"),
        ("  fine\n", "   f"),
        ("  return x1\n", "    return x"),
        ("x\n  a\n    b\n", "a\nb"),
    ],
)
def test_lines_that_are_not_indented_alike_are_not_found(text: str, old: str) -> None:
    assert "is not in" in refuse(text, (old, "new"))


@pytest.mark.parametrize(
    "pairs",
    [
        [("", "  ")],
        [("\t a", "  a"), ("b", "    b")],
        [("  a", "\t\ta"), ("    b", "\tb")],
        [("   a", "\t\ta")],
        [("  a", "    a"), ("    b", "        b"), ("      c", "         c")],
    ],
    ids=["blank", "mixed", "falling", "odd", "uneven"],
)
def test_indentations_that_do_not_follow_from_those_given(pairs: list[tuple[str, str]]) -> None:
    assert find_shift(pairs) is None


def test_blanks_of_another_kind_stay_as_given() -> None:
    shift = find_shift([("    a", "\ta")])
    assert shift is not None
    assert [shift(line) for line in ("        b", "\tc", "", "   ")] == ["\t\tb", "\tc", "", "   "]


def test_tolerance_never_chooses_between_places() -> None:
    told = refuse("a \nb\n\na\t\nb\n", ("a\nb", "x"))
    assert "occurs 2 times in 'a.py' apart from trailing whitespace (lines 1, 4)" in told
    assert replace("a \nb\n\na\t\nb\n", ("a\nb", "x", True)).text == "x\n\nx\n"
    assert "apart from indentation" in refuse("  a\n    a\n", ("\ta", "b"))
    assert "apart from line ends" in refuse("a\r\nb\r\na\r\nb", ("a\nb", "x"))


def test_an_exact_place_wins_over_others_that_are_alike() -> None:
    outcome = replace('“a”\n"a"\n', ('"a"', "b"))
    assert (outcome.text, overlooked(outcome)) == ("“a”\nb\n", "")


def test_half_of_a_character_does_not_match() -> None:
    assert "is not in" in refuse("ﬁn", ("if", "x"), ("in", "y"))
    assert "is not in" in refuse("cafe\u0301", ("cafe\u0300", "x"))
    assert "is not in" in refuse("xﬁ", ("xf\u200b", "y"))


@table("old", ["   \n", "\n\n\n", "\t"])
def test_blanks_alone_are_taken_as_they_are(old: str) -> None:
    assert "is not in" in refuse("a\nb", (old, "x"))
    assert replace(f"a{old}b", (old, "-")).text == "a-b"


def test_several_places_are_counted_with_their_lines_and_advice() -> None:
    told = refuse("x\n" * 7, ("x", "y"))
    assert told == (
        "oldText occurs 7 times in 'a.py' (lines 1, 2, 3, 4, 5, …), so nothing was changed. "
        "Add more of the text around the right place, or set replaceAll"
    )


def test_places_that_overlap_themselves_are_several() -> None:
    assert "occurs 2 times in 'a.py' (line 1)" in refuse("aaa", ("aa", "b"))
    assert replace("aaa", ("aa", "b", True)).text == "ba"


def test_edits_that_overlap_are_named() -> None:
    told = refuse("a\nbcd\n", ("x", "x"), ("cd", "1"), ("bc", "2"))
    assert "edits[0].oldText is not in" in told
    told = refuse("a\nbcd\n", ("a", "x"), ("cd", "1"), ("bc", "2"))
    assert told.startswith("edits[1] and edits[2] overlap in line 2")


def test_all_edits_that_do_not_match_are_reported_at_once() -> None:
    told = refuse("aa b", ("z", "1"), ("a", "2"), ("b", "3"), ("y", "4"))
    assert [line.split()[0] for line in told.split("\n") if line.startswith("edits")] == [
        "edits[0].oldText",
        "edits[1].oldText",
        "edits[3].oldText",
    ]


def test_only_some_of_many_edits_that_do_not_match_are_reported() -> None:
    told = refuse("a", *((f"{n} is not there", "x") for n in range(1_000)))
    assert told.count("is not in 'a.py'") == 20


def test_a_result_that_would_be_huge_is_refused() -> None:
    assert "too large" in refuse("a" * 100_000, ("a", "b" * 1_000, True))
    assert "too large" in refuse("a\n" * 100_000, ("a", "\n" * 1_000, True))
    assert "too large" in refuse("a \n" * 100_000, ("a\n", "b" * 1_000, True))


CODE = "import os\n\n\ndef area(width, height):\n    return width * height\n\n\nprint(area(2, 3))\n"


@table(
    ("old", "kind"),
    [
        ("def area(width, height):\n   return width * height\n\n    pass", "line 7 differs"),
        ("  def area(width, height):\n      return width * height\nx", "line 6 differs"),
        ("def area(width,height):\n    return width*height", "whitespace"),
        ("def Area(Width, height):\n    return width * height", "upper and lower case"),
        ("def area(width, height):\n    return width * height\nprint(area(2, 3))", "line breaks"),
        ("def area(width,\n         height):\n    return width * height", "line breaks"),
        ("def area(width, height)\n    return width * height;", "punctuation"),
        ("def area(width, length):\n    return width * height",
         "line 4 differs: expected 'def area(width, length):', found 'def area(width, height):'"),
    ],
)  # fmt: skip
def test_the_error_shows_the_nearest_match_and_the_kind_of_difference(old: str, kind: str) -> None:
    told = refuse(CODE, (old, "x"))
    assert kind in told
    assert "The closest match is line 4" in told
    assert "5:     return width * height" in told


def test_other_kinds_of_difference_are_named() -> None:
    assert "in quotes" in refuse("name = 'some name'\n", ('name = "some name"', "x"))
    assert "in whitespace" in refuse("  aaaa\n    bbbb\n  cccc\n", ("aaaa\nbbbb\ncccc", "x"))


def test_at_most_three_matches_are_listed_and_long_lines_cut() -> None:
    text = "".join(f"value_{n} = {'compute ' * 30}\n" for n in range(50))
    told = refuse(text, (f"value_x = {'compute ' * 29}", "x"))
    shown = [line for line in told.split("\n") if line[:1].isdigit()]
    assert told.count("Also similar") == 1
    assert 3 <= len(shown) <= 5
    assert all(len(line) <= 130 for line in shown)


def test_a_text_unlike_anything_in_the_file_is_an_error() -> None:
    assert "Nothing in it is similar" in refuse(CODE, ("zzzz qqqq", "x"))


def test_quoted_lines_go_through_the_filter() -> None:
    def show(line: str) -> str:
        return line.replace("hunter2", "***")

    text = "user = me\npassword = hunter2\nhost = there\n"
    edit = Replacement("user = me\npassword = hunter3\nhost = there", "x")
    with pytest.raises(ToolInputError) as caught:
        apply(text, [edit], path="p", show=show)
    assert "hunter2" not in str(caught.value)
    assert "password = ***" in str(caught.value)


def test_a_mask_in_the_old_text_is_explained() -> None:
    told = refuse("a\nkey = sk-abcdefghijklmnop\n", ("key = sk-abc…mnop", "x"))
    assert "'sk-abc…mnop'" in told
    assert "is a masked secret" in told
    assert "leave that part out" in told


def test_lines_of_private_keys_are_not_quoted() -> None:
    body = "MIIEpAIBAAKCAQEA1234567890"
    text = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----\n"
    told = refuse(text, (f"-----BEGIN RSA PRIVATE KEY-----\n{body[:-4]}x", "x"))
    assert "The closest match is line 1" in told
    assert f"found '{body}" not in told
    assert "2: ***" in told


def test_control_characters_of_the_file_are_spelled_out() -> None:
    assert "\x1b" not in refuse("some \x1b[31mred text\nb", ("some red text here", "x"))


def test_replaced_lines_are_numbered_as_they_are_afterwards() -> None:
    text = "".join(f"<{n}>\n" for n in range(1, 31))
    assert changed_lines(replace(text, ("<3>", "a\nb"), ("<9>", "c"))) == "lines 3-4, 10"
    assert changed_lines(replace(text, ("<3>\n", "c\n"))) == "line 3"
    many = replace(text, (">", "]", True))
    assert changed_lines(many) == "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 20 more places"


M, K = 1_000_000, 100_000


@pytest.mark.parametrize(
    ("text", "old"),
    [
        (" " * M, " " * K + "x"),
        ("a\n" * (M // 2), " a\n" * (K // 3)),
        (" a\n  b\n" * (M // 8), "a\nb\n" * (K // 4)),
        ("a" * M, "   " + "a" * K),
        ("ﬃ" * (M // 3), "fiffif" * (K // 6)),
        ("“" * (M // 3), '"' * K + "x"),
        ("ab\n" * (M // 3), "ba \n" * (K // 4)),
        ("\\" * M, "\\" * K + "x"),
        ("\n" * M, "x\n" + "\n" * K),
    ],
    ids=[
        "blanks",
        "lines",
        "uneven lines",
        "letters",
        "ligatures",
        "quotes",
        "alike",
        "escapes",
        "empty lines",
    ],
)
def test_hostile_texts_are_given_up_in_bounded_time(text: str, old: str) -> None:
    assert "is not in" in refuse(text, (old, "x"))


@table(
    ("text", "old"),
    [
        ("return xyz\n", "return x "),
        ("a = foobar", "a = foo \t"),
        ("“hi”; x\n", '"hi" '),
        ("if a:\n  bcd\n", "if a:\n  b "),
    ],
)
def test_blanks_at_the_end_of_a_text_do_not_fit_inside_of_a_line(text: str, old: str) -> None:
    assert "is not in 'a.py'" in refuse(text, (old, "new "))


def test_blanks_at_the_end_of_a_text_fit_at_the_end_of_a_line() -> None:
    assert replace("a\nreturn x\nb\n", ("return x ", "return y")).text == "a\nreturn y\nb\n"
