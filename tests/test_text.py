from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.text import (
    cut,
    cut_start,
    fit,
    human_size,
    human_time,
    last_words,
    nearest,
    one_line,
    parse_time,
    printable,
    result_cap,
    weigh,
    weight_cap,
)

LINES = "".join(f"line {n} of the listing\n" for n in range(2_000))


def test_a_text_that_fits_is_returned_as_it_is() -> None:
    assert cut(LINES, len(LINES)) is LINES


def test_an_unimportant_end_is_dropped_with_a_notice_of_its_length() -> None:
    shown = cut(LINES, 5_000)
    head, _, notice = shown.rpartition("\n[")
    assert LINES.startswith(head)
    assert len(shown) <= 5_000
    assert f"{len(LINES) - len(head):,} more characters" in notice
    assert "Ask for less" in notice


def test_the_head_ends_at_a_line_end_when_one_is_near() -> None:
    head = cut(LINES, 5_000).partition("\n[…")[0]
    assert head.endswith("of the listing")


def test_a_text_without_line_ends_is_cut_where_the_budget_ends() -> None:
    shown = cut("x" * 9_000, 5_000)
    assert len(shown) == 5_000


def test_an_important_end_is_kept_and_the_middle_goes(subtests: pytest.Subtests) -> None:
    cases: Iterable[str] = [
        "Traceback (most recent call last):\n  boom\n",
        "ERROR: it broke",
        "2 failed, 3 passed",
        "exit code 3",
        "thread 'main' panicked",
        "Total 12",
        "summary: fine",
        "done",
        '  "last": 1\n}\n',
    ]
    for end in cases:
        with subtests.test(f"{end!r:.80}"):
            text = LINES + end
            shown = cut(text, 5_000)
            assert len(shown) <= 5_000
            assert shown.endswith(end)
            assert shown.startswith("line 0")
            assert "left out here" in shown


def test_words_that_only_contain_an_important_one_do_not_count() -> None:
    assert "left out here" not in cut(LINES + "abandoned subtotals", 5_000)


def test_the_kept_end_is_three_tenths_and_at_most_4000_characters() -> None:
    text = "x" * 99_000 + " error"
    small = cut(text, 10_000).partition("…]\n")[2]
    large = cut(text, 60_000).partition("…]\n")[2]
    assert (len(small), len(large)) == (3_000, 4_000)


def test_the_kept_end_begins_on_a_line_when_one_is_near() -> None:
    shown = cut(LINES + "error", 5_000)
    assert shown.partition("…]\n")[2].startswith("line ")


def test_the_marker_counts_what_is_missing_in_the_middle() -> None:
    text = "a" * 50_000 + " error"
    shown = cut(text, 5_000)
    kept = len(shown) - len(shown[shown.index("\n[…") : shown.index("…]\n") + 3])
    assert f"{len(text) - kept:,} characters" in shown


@table(("max_chars", "shown"), [(0, ""), (-5, ""), (1, "…"), (4, "abc…")])
def test_a_budget_too_small_for_a_notice_ends_in_an_ellipsis(max_chars: int, shown: str) -> None:
    assert cut("abcdefgh", max_chars) == shown


@table(
    "cluster",
    [
        "e\u0301\u0323",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\U0001f44d\U0001f3fd",
        "\U0001f1e9\U0001f1ea",
        "\u0928\u093f",
        "\ud83d\ude00",
        "\r\n",
    ],
)
def test_no_cut_tears_a_character_apart(cluster: str) -> None:
    text = "é" + cluster * 8
    for size in range(2, len(text)):
        kept = cut(text, size).removesuffix("…")
        assert kept in {text[: 1 + len(cluster) * n] for n in range(9)}


@pytest.mark.parametrize("cluster", ["e\u0301\u0323", "\U0001f44d\U0001f3fd"])
def test_a_kept_end_does_not_begin_inside_a_character(cluster: str) -> None:
    for shift in range(4):
        text = "x" * 3_000 + cluster * 2_000 + "y" * shift + " error"
        end = cut(text, 2_000).partition("…]\n")[2]
        assert end.startswith(cluster[0])


def test_an_endless_run_of_marks_is_cut_all_the_same() -> None:
    text = "a" + "\u0301" * 9_000
    assert len(cut(text, 1_000)) <= 1_000
    assert len(cut(text + " error", 1_000)) <= 1_000


@given(
    st.text(st.sampled_from("ab\n\r\u0301\u200d\U0001f600\ud83d\ude00 字")).map(lambda s: s * 40),
    st.integers(-5, 3_000),
    st.booleans(),
)
def test_a_cut_never_exceeds_its_budget_and_keeps_the_beginning(
    text: str, max_chars: int, important: bool
) -> None:
    text += " error" if important else ""
    shown = cut(text, max_chars)
    assert len(shown) <= max(0, max_chars)
    if len(text) <= max_chars:
        assert shown == text
    else:
        assert text.startswith(shown.partition("\n[…")[0].removesuffix("…"))


def test_the_cap_follows_the_context_window(subtests: pytest.Subtests) -> None:
    cases: Iterable[tuple[int | None, int]] = [
        (None, 64_000),
        (0, 64_000),
        (-1, 64_000),
        (1_000_000, 64_000),
        (200_000, 64_000),
        (199_999, 32_000),
        (100_000, 32_000),
        (99_999, 16_000),
        (13_334, 16_000),
        (13_330, 15_996),
        (8_192, 9_828),
        (1, 0),
    ]
    for window, cap in cases:
        with subtests.test(f"{window!r:.80}"):
            assert result_cap(window) == cap


@table(("window", "cap"), [(None, 200_000), (500, 1_024), (32_000, 32_000)])
def test_the_weight_cap_follows_the_context_window(window: int | None, cap: int) -> None:
    assert weight_cap(window) == cap


@table(
    ("text", "weight"),
    [
        ("", 0),
        ("abc", 3),
        ("é", 2),
        ("я", 2),
        ("字", 4),
        ("한", 4),
        ("\U0001f600", 12),
        ("\ud800", 4),
    ],
)
def test_each_kind_of_character_has_its_weight(text: str, weight: int) -> None:
    assert weigh(text) == weight
    assert weigh(f"a{text}я{text}") == 3 + 2 * weight


@given(st.text())
def test_weights_add_up(text: str) -> None:
    assert weigh(text) == sum(map(weigh, text))


def test_chinese_text_is_cut_earlier_than_english() -> None:
    english, chinese, rare = "a" * 99_000, "字" * 99_000, "\U00020000" * 99_000
    sizes = [
        len(fit(text, result_cap(32_000), weight_cap(32_000))) for text in (english, chinese, rare)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 16_000
    assert 7_000 < sizes[1] <= 8_100
    assert 2_000 < sizes[2] <= 2_800


@given(st.text(st.sampled_from("a字\U00020000\n"), min_size=1), st.integers(0, 500))
@example("\U00020000" * 40, 0)
def test_fitting_keeps_both_limits(text: str, limit: int) -> None:
    shown = fit(text * 20, 2 * limit, limit)
    assert len(shown) <= 2 * limit
    assert weigh(shown) <= limit


def test_one_line_joins_lines_and_drops_what_moves_the_cursor() -> None:
    assert one_line("  a\n\tb\x1b[2K\u202ec\u2028d  ", 80) == "a b [2K c d"


@table(
    ("text", "max_chars", "line"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
        ("", 5, ""),
        ("a" + " " * 5_000 + "b", 9, "a…"),
    ],
)
def test_one_line_ends_long_text_with_an_ellipsis(text: str, max_chars: int, line: str) -> None:
    assert one_line(text, max_chars) == line


@table(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_024, "1 KB"),
        (1_536, "1.5 KB"),
        (1_048_575, "1 MB"),
        (5 * 1024**2, "5 MB"),
        (3 * 1024**3 // 2, "1.5 GB"),
        (5_000 * 1024**4, "5000 TB"),
    ],
)
def test_sizes_read_naturally(size: int, shown: str) -> None:
    assert human_size(size) == shown


@table(
    ("name", "best"),
    [
        ("raed", "read"),
        ("Exec", "exec"),
        ("aply_patch", "apply_patch"),
        ("sesion_status", "session_status"),
        ("exe", "exec"),
    ],
)
def test_a_misspelt_name_is_recognised(name: str, best: str) -> None:
    assert nearest(name, ["read", "exec", "apply_patch", "session_status", "ls"])[0] == best


def test_nothing_is_suggested_when_nothing_is_close() -> None:
    assert nearest("frobnicate", ["read", "write", "exec"]) == []
    assert nearest("", ["read"]) == []
    assert nearest("abcdef", ["fedcba"]) == []


def test_the_best_suggestions_come_first_and_once() -> None:
    assert nearest("grop", ["group", "grep", "drop", "grep", "crop"], 2) == ["crop", "drop"]
    assert nearest("color", ["colour", "color", "colon"], 1) == ["color"]


def test_characters_that_deceive_are_spelled_out() -> None:
    text = "rm\u202e -rf\x1b[2J\u200b ok é\n"
    assert printable(text) == "rm\\u{202e} -rf\\u{1b}[2J\\u{200b} ok é\n"
    assert printable("a\nb", "") == "a\\u{a}b"


def test_durations_have_two_units_at_most(subtests: pytest.Subtests) -> None:
    cases: Iterable[tuple[float, str]] = [
        (-1, "0s"),
        (0, "0s"),
        (0.44, "0.4s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.4, "59s"),
        (59.6, "1m"),
        (65, "1m 5s"),
        (7_379, "2h 2m"),
        (7_200, "2h"),
        (273_700, "3d 4h"),
    ]
    for seconds, expected in cases:
        with subtests.test(f"{seconds!r:.80}"):
            assert human_time(seconds) == expected


@table(
    ("text", "value"),
    [
        ("30s", 30),
        ("5m", 300),
        ("1.5h", 5_400),
        ("250ms", 0.25),
        ("1h30m", 5_400),
        ("5 minutes", 300),
        ("1 day 2 Hours", 93_600),
        ("2w", 1_209_600),
    ],
)
def test_times(text: str, value: float) -> None:
    assert parse_time(text) == value


@table("text", ["", "5", "m", "5 months", "1h30", "-5m", "1.2.3s"])
def test_invalid_times(text: str) -> None:
    with pytest.raises(ValueError, match="invalid time"):
        parse_time(text)


@table(
    ("text", "size", "kept"),
    [
        ("short", 10, "short"),
        ("x" * 50 + "\n" + "y" * 30, 65, "[… 51 characters before this …]\n" + "y" * 30),
        ("x" * 100, 60, "[… 73 characters before this …]\n" + "x" * 27),
        ("x" * 100, 10, "[… 100 characters before this …]\n"),
    ],
)
def test_cut_start_keeps_the_end_of_a_text(text: str, size: int, kept: str) -> None:
    assert cut_start(text, size) == kept


@table(
    ("text", "size", "first", "last"),
    [
        ("all of it", 9, "all of it", "all of it"),
        ("the key is s3cr3t", 13, "the key is…", "is s3cr3t"),
        ("s3cr3t is the key", 12, "s3cr3t is…", "is the key"),
        ("s3cr3t", 4, "…", ""),
        ("s3cr3t" + " " * 99, 7, "…", ""),
    ],
)
def test_half_a_word_of_a_text_that_is_redacted_later_is_not_kept(
    text: str, size: int, first: str, last: str
) -> None:
    assert one_line(text, size, whole_words=True) == first
    assert last_words(text, size) == last
