"""What the adapters of all APIs share."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawkit.config.modelref import ModelRef
from clawkit.config.sections.models import Cost
from clawkit.content import Message, Summary, Text, Usage, User
from clawkit.models.protocols import Endpoint, ModelError, Request, ToolSpec
from clawkit.models.wire.answer import (
    MAX_ALL_ARGUMENTS,
    MAX_ARGUMENTS,
    MAX_CALLS,
    MAX_INNER,
    MAX_TEXT,
    decode,
    priced,
    read_arguments,
    said,
)
from clawkit.models.wire.completions import CompletionsDecoder, CompletionsWire
from clawkit.models.wire.request import (
    Piece,
    Pieces,
    as_object,
    blocks_of,
    clean,
    encode,
    max_tokens_param,
    merge_params,
    short_id,
    tokens,
)
from clawkit.models.wire.responses import ResponsesWire

ENDPOINT = Endpoint(ModelRef("a", "m"), "openai-completions", "http://localhost")
DEEP = '{"a":' * 150 + "1" + "}" * 150


def test_arguments_are_repaired_only_where_they_can_mean_one_thing(
    subtests: pytest.Subtests,
) -> None:
    cases: list[Any] = [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        (" \n", {}),
        ("null", {}),
        ('""', {}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('```\n{"a": 1}```', {"a": 1}),
        ('{"a": "x\ty\nz"}', {"a": "x\ty\nz"}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        ('{"a": "\\ud83d"}', {"a": "\ufffd"}),
        ('{"a": [1]', {"a": [1]}),
        ("{", {}),
        ('{"a": [1', '{"a": [1'),
        ('{"a": "x', '{"a": "x'),
        ('{"a": 1,}', '{"a": 1,}'),
        ("{'a': 1}", "{'a': 1}"),
        ('{"a": NaN}', '{"a": NaN}'),
        ("[1]", "[1]"),
        ('"text"', '"text"'),
        ('"[1]"', '"[1]"'),
        ("1", "1"),
        (DEEP, DEEP),
        ("[" * 100_000, "[" * 100_000),
        ('{"a":' * 100_000, '{"a":' * 100_000),
    ]
    for text, expected in cases:
        with subtests.test(text=text, expected=expected):
            assert read_arguments(text) == expected


def test_endless_fences_are_read_at_once(subtests: pytest.Subtests) -> None:
    end_cases: list[Any] = ["x", "```", "x```"]
    cases: list[Any] = [" ", "\t", "\n", "`", "```", "\n```"]
    for end in end_cases:
        for inner in cases:
            with subtests.test(inner=inner, end=end):
                text = f"```json\n{inner * 500_000}{end}"
                assert read_arguments(text) in (text, {})


def test_a_missing_brace_is_not_added_to_an_answer_that_was_cut() -> None:
    assert read_arguments('{"command": "rm -r /tmp/x"', is_complete=False) == (
        '{"command": "rm -r /tmp/x"'
    )


@given(st.text(alphabet=st.characters() | st.sampled_from('{}[]",:\\\ud800\udc00 `')))
def test_any_text_gives_arguments_that_can_be_sent_again(text: str) -> None:
    msgspec.json.decode(encode(as_object(read_arguments(text))))


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x), max_leaves=5))
def test_what_is_an_object_is_read_as_json_says(value: Any) -> None:
    text = json.dumps({"a": value})
    assert read_arguments(text) == {"a": json.loads(json.dumps(value).encode())}


def test_many_small_values_are_not_taken_apart() -> None:
    many = '{"a": [' + ",".join(["[]"] * (MAX_INNER + 1)) + "]}"
    assert read_arguments(many) == many
    few = '{"a": "' + "," * 2_000_000 + '"}'
    assert read_arguments(few) == {"a": "," * 2_000_000}


def test_the_arguments_of_all_calls_together_are_bounded() -> None:
    answer = CompletionsDecoder(ENDPOINT)
    piece = "x" * (MAX_ALL_ARGUMENTS // 8)
    for _ in range(8):
        answer.add(answer.call("", "f"), piece)
    last = answer.call("", "f")
    with pytest.raises(ModelError, match="arguments of its calls exceed"):
        answer.add(last, "x")


def test_unreadable_and_deep_arguments_still_make_an_object() -> None:
    deep: dict[str, Any] = {}
    for _ in range(150):
        deep = {"a": deep}
    assert as_object("{oops") == {"unreadable": "{oops"}
    assert as_object(deep) == {"unreadable": "nested too deeply"}


def test_halves_of_pairs_are_joined_or_replaced(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("plain", "plain"),
        ("😀", "😀"),
        ("a\ud83d\ude00b", "a😀b"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("é\udc80", "é\ufffd"),
    ]
    for text, expected in cases:
        with subtests.test(text=text, expected=expected):
            assert clean(text) == expected


def test_what_is_not_unicode_is_encoded_all_the_same() -> None:
    value = {"\ud800": ["\ud83d\ude00", ("x\udfff", 1)], "n": 2**80}
    assert msgspec.json.decode(encode(value)) == {"\ufffd": ["😀", ["x\ufffd", 1]], "n": 2**80}


def test_what_is_not_json_is_a_value_error(subtests: pytest.Subtests) -> None:
    cases: list[Any] = ["{", '{"a": Infinity}', "[" * 100_000, "9" * 5_000, "\ud800"]
    for text in cases:
        with subtests.test(text=text), pytest.raises(ValueError):  # noqa: PT011  # any will do
            decode(text)


def test_a_message_is_encoded_once_while_it_is_part_of_the_conversation() -> None:
    made: list[Message] = []

    def make(message: Message) -> Piece:
        made.append(message)
        return Piece(str(len(made)))

    pieces = Pieces(make)

    def numbers(*messages: Message) -> list[int]:
        return [int(piece.role) for piece in pieces.of(messages)]

    first, second, third = (User((Text(name),)) for name in "abc")
    assert numbers(first, second) == [1, 2]
    assert numbers(first, second, third) == [1, 2, 3]
    assert made == [first, second, third]
    assert numbers(third) == [3]
    assert numbers(first, third) == [4, 3]


def test_a_new_message_in_the_place_of_an_old_one_gets_its_own_encoding() -> None:
    pieces = Pieces(lambda message: Piece(repr(message)))
    for number in range(200):
        message = User((Text(str(number)),))  # the last one is gone, and so is its id
        assert pieces.of([message]) == [Piece(repr(message))]


def test_an_answer_without_end_is_refused() -> None:
    answer = CompletionsDecoder(ENDPOINT)
    words = answer.begin("text")
    answer.add(words, "x" * MAX_TEXT)
    with pytest.raises(ModelError, match="longer than 8,388,608 characters") as caught:
        answer.add(words, "x")
    assert caught.value.kind == "malformed"
    calls = [answer.call("", "f") for _ in range(MAX_CALLS)]
    with pytest.raises(ModelError, match="more than 512 calls"):
        answer.call("", "f")
    answer.add(calls[0], "x" * MAX_ARGUMENTS)
    answer.add(calls[1], "x" * MAX_ARGUMENTS)
    with pytest.raises(ModelError, match="exceed 4,194,304 characters"):
        answer.add(calls[0], "x")


def test_a_number_of_tokens_is_trusted_only_where_it_can_be_one(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (5, 5),
        (5.9, 5),
        (0, 0),
        (-1, 0),
        (True, 0),
        ("5", 0),
        (None, 0),
        (10**30, 0),
        ([], 0),
    ]
    for value, expected in cases:
        with subtests.test(value=value, expected=expected):
            assert tokens(value) == expected


def test_tokens_cost_what_a_million_of_them_costs() -> None:
    usage = Usage(1_000_000, 500_000, 2_000_000, 100_000)
    cost = Cost(input=3, output=15, cache_read=0.3, cache_write=3.75)
    found = priced(usage, cost)
    assert found.cost == pytest.approx(3 + 7.5 + 0.6 + 0.375)
    assert found == msgspec.structs.replace(usage, cost=found.cost)
    assert priced(found, Cost()) == found


def test_parameters_change_everything_but_the_conversation(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ([], {"model": "m", "reasoning": {"effort": "low"}}),
        ([{"seed": 1}, {"seed": 2}], {"model": "m", "reasoning": {"effort": "low"}, "seed": 2}),
        ([{"reasoning": None}], {"model": "m"}),
        (
            [{"reasoning": {"summary": "auto"}}],
            {"model": "m", "reasoning": {"effort": "low", "summary": "auto"}},
        ),
        ([{"reasoning": 1}], {"model": "m", "reasoning": 1}),
        (
            [{"extra_body": {"top_k": 5}}],
            {"model": "m", "reasoning": {"effort": "low"}, "top_k": 5},
        ),
        (
            [{"messages": [], "input": 1, "contents": 2, "stream": False, "tools": []}],
            {"model": "m", "reasoning": {"effort": "low"}},
        ),
        (
            [{"extraBody": {"tools": [1]}, "fastMode": True, "cacheRetention": "long"}],
            {"model": "m", "reasoning": {"effort": "low"}},
        ),
    ]
    for params, expected in cases:
        with subtests.test(params=params, expected=expected):
            before = msgspec.json.encode(params)
            assert merge_params({"model": "m", "reasoning": {"effort": "low"}}, *params) == expected
            assert msgspec.json.encode(params) == before


def test_parameters_that_follow_each_other_leave_the_configuration_alone() -> None:
    first, second = {"a": {"b": {"c": 1}}}, {"a": {"b": {"d": 2}}}
    assert merge_params({}, first, second) == {"a": {"b": {"c": 1, "d": 2}}}
    assert first == {"a": {"b": {"c": 1}}}


def test_the_last_limit_of_the_configuration_counts() -> None:
    assert max_tokens_param({"maxTokens": 5}, {"maxTokens": 7}, {"maxTokens": "many"}) == 7
    assert max_tokens_param({}, {}) is None


def test_small_texts_say_what_they_should() -> None:
    assert blocks_of(Summary("We met.")) == [
        Text("The conversation before this was summarised:\n\nWe met.")
    ]
    assert said("a\nb\x1b[0m\ud800" + "x" * 1_000).startswith("a b [0m\ufffdx")
    assert len(said("x" * 1_000)) == 300
    assert said(None) == ""
    assert short_id("\ud800") == short_id("\ud800") != short_id("\ud801")
    assert len(short_id("x")) == 40


@pytest.mark.parametrize("wire", [CompletionsWire, ResponsesWire])
def test_what_one_request_leaves_behind_is_in_no_later_one(wire: Any) -> None:
    first = Request("be kind", (User((Text("hi"),)),), session="s", tokens=5)
    tool = ToolSpec("read", "Read a file", {"type": "object", "properties": {}})
    changes: list[dict[str, Any]] = [
        {"system": "be brief"},
        {"system": ""},
        {"tools": (tool,)},
        {"thinking": "high"},
        {"max_tokens": 7},
        {"session": "t"},
        {"params": {"temperature": 1, "metadata": {"a": "b"}}},
        {"tokens": 90_000},
        {"messages": (User((Text("more"),)),)},
    ]
    facts = msgspec.structs.replace(
        ENDPOINT.facts, context_window=100_000, max_tokens=50_000, reasoning=True, is_capped=True
    )
    endpoint = msgspec.structs.replace(ENDPOINT, facts=facts)
    used = wire(endpoint)
    for change in changes:
        for request in (first, msgspec.structs.replace(first, **change), first):
            assert used.write(request) == wire(endpoint).write(request), change
