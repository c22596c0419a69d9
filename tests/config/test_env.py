from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawkit.config.sources import FromEnv, environment, parse_env_file, substitute

ENV = {"A": "alpha", "B_2": "beta", "_C": "gamma", "EMPTY": "", "lower": "x"}


def test_variables_are_put_into_strings(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("${A}", "alpha"),
        ("${A}-${B_2}${_C}", "alpha-betagamma"),
        ("$${A}", "${A}"),
        ("$${A} ${A}", "${A} alpha"),
        ("$A", "$A"),
        ("${lower}", "${lower}"),
        ("${2A}", "${2A}"),
        ("${A", "${A"),
        ("${}", "${}"),
        ("${A:-default}", "${A:-default}"),
        ("${MISSING}", "${MISSING}"),
        ("${EMPTY}", "${EMPTY}"),
        ("${MISSING} ${A}", "${MISSING} alpha"),
        ("$$${A}", "$${A}"),
    ]
    for text, expected in cases:
        with subtests.test(text=text, expected=expected):
            assert substitute(text, ENV) == expected


def test_only_replaced_text_is_marked_and_it_remembers_what_was_written() -> None:
    found = substitute("${A}/${GONE}/${EMPTY}/${GONE}", ENV)
    assert isinstance(found, FromEnv)
    assert found.template == "${A}/${GONE}/${EMPTY}/${GONE}"
    assert found.missing == ("GONE", "EMPTY")
    assert type(substitute("plain", ENV)) is str
    assert type(substitute("$${A}", ENV)) is str


def test_values_at_any_depth_are_replaced_and_keys_are_not() -> None:
    raw = {"${A}": ["${A}", {"x": "${B_2}", "n": 1, "t": True, "z": None}]}
    assert substitute(raw, ENV) == {"${A}": ["alpha", {"x": "beta", "n": 1, "t": True, "z": None}]}
    assert raw == {"${A}": ["${A}", {"x": "${B_2}", "n": 1, "t": True, "z": None}]}


def test_what_a_variable_holds_is_not_replaced_again() -> None:
    assert substitute("${X}", {"X": "${A}", "A": "secret"}) == "${A}"


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(alphabet="abc $}\\").map(str),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_values_without_references_stay_as_they_are(value: Any) -> None:
    assert substitute(value, ENV) == value


def test_names_that_are_set_are_never_overridden() -> None:
    merged = environment(
        {"FROM_PROCESS": "1", "BLANK": ""},
        {"FROM_PROCESS": "2", "FROM_FILE": "2", "BLANK": "2"},
        {"FROM_PROCESS": "3", "FROM_FILE": "3", "FROM_CONFIG": "3", "vars": {"NESTED": "4"}},
    )
    assert merged["FROM_PROCESS"] == "1"
    assert merged["FROM_FILE"] == merged["BLANK"] == "2"
    assert merged["FROM_CONFIG"] == "3"
    assert merged["NESTED"] == "4"


def test_the_env_section_may_refer_to_earlier_variables() -> None:
    declared = {"URL": "http://${HOST}:${PORT}", "PORT": "1", "vars": {"LATER": "${URL}/x"}}
    merged = environment({"HOST": "local", "PORT": "80"}, {}, declared)
    assert merged["URL"] == "http://local:80"
    assert merged["LATER"] == "http://local:80/x"


@pytest.mark.parametrize("declared", [None, [], "x", {"vars": 5, "N": 5, "shellEnv": {}}])
def test_what_is_not_a_string_is_left_for_the_check(declared: Any) -> None:
    assert environment({"A": "1"}, {}, declared) == {"A": "1"}


def test_an_environment_does_not_print_its_values() -> None:
    assert "hunter2" not in repr(environment({"PASSWORD": "hunter2"}, {}, {}))


def test_an_env_file_is_read_line_by_line() -> None:
    text = """
# a comment
PLAIN=value
  SPACED = two words   # said here
export EXPORTED=yes
DOUBLE="kept # as is ${PLAIN}"  # comment
SINGLE='it''s'
HASH=a#b
NOTHING=
ONLY_COMMENT= # nothing
UNCLOSED="half
EQUALS=a=b=c
not an assignment
1BAD=x
PLAIN=last wins
"""
    assert parse_env_file(text) == {
        "PLAIN": "last wins",
        "SPACED": "two words",
        "EXPORTED": "yes",
        "DOUBLE": "kept # as is ${PLAIN}",
        "SINGLE": "it",
        "HASH": "a#b",
        "NOTHING": "",
        "ONLY_COMMENT": "",
        "UNCLOSED": '"half',
        "EQUALS": "a=b=c",
    }


def test_an_env_file_of_spaces_is_read_in_linear_time() -> None:
    assert parse_env_file("A=b" + " " * 1_000_000 + "c") == {"A": "b" + " " * 1_000_000 + "c"}


@settings(deadline=None)
@given(st.text())
def test_no_text_breaks_the_env_file_reader(text: str) -> None:
    assert all(isinstance(value, str) for value in parse_env_file(text).values())
