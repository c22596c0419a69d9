"""The JSON5 parser: what it reads, what it refuses, and what it says then."""

from __future__ import annotations

import inspect
import math
import random
import sys
from typing import Any

import pyjson5
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.config import json5
from clawkit.config.json5 import (
    MAX_DEPTH,
    Json5Error,
    Node,
    PathError,
    format_path,
    line_of,
    locate,
    parse,
    parse_path,
)


def complaint(text: str) -> str:
    with pytest.raises(Json5Error) as caught:
        parse(text)
    return str(caught.value)


def test_all_of_json5_is_read(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("{}", {}),
        ("{a: 1, 'b': 2, \"c\": 3,}", {"a": 1, "b": 2, "c": 3}),
        ("{$a_1: 1, é: 2, x‿y: 3}", {"$a_1": 1, "é": 2, "x‿y": 3}),
        ("{\\u0061b: 1}", {"ab": 1}),
        ("{a\u200cb: 1}", {"a\u200cb": 1}),
        ("{null: 1, true: 2}", {"null": 1, "true": 2}),
        ("[1, [2, [3,],],]", [1, [2, [3]]]),
        ("// one\n{ /* two */ a /**/ : /*/ */ 1 /***/ } // end", {"a": 1}),
        ("//\r1", 1),
        ("// x\u20281", 1),
        ("\ufeff\u00a0\u2028\u2029\u3000\v\f1\u1680", 1),
        ("'it\\'s \"so\"'", 'it\'s "so"'),
        (r'"\b\f\n\r\t\v\0\x41\u00e9\/\a\"\\"', '\b\f\n\r\t\v\0Aé/a"\\'),
        ('"one\\\ntwo\\\r\nthree\\\rfour\\\u2028five"', "onetwothreefourfive"),
        (r'"\ud83d\ude00"', "😀"),
        ('"tab\there, \x01, \u2028"', "tab\there, \x01, \u2028"),
        ("[+1, -1, 0x1F, -0XfF, +0x0]", [1, -1, 31, -255, 0]),
        ("[.5, 5., 1e3, 1.E-2, -.5e+1, 0.0]", [0.5, 5.0, 1000.0, 0.01, -5.0, 0.0]),
        (f"[{'9' * 400}, -{'9' * 399}]", [int("9" * 400), -int("9" * 399)]),
        ("true", True),
        (" null ", None),
    ]
    for text, value in cases:
        with subtests.test(text=text, value=value):
            found = parse(text).value
            assert repr(found) == repr(value)
            assert repr(found) == repr(pyjson5.decode(text))


def test_integers_and_floats_stay_apart() -> None:
    assert [type(item) for item in parse("[1, 1.0, 1e0, 0x1, true]").value] == [
        int,
        float,
        float,
        int,
        bool,
    ]


def test_mistakes_are_named_with_their_place(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("", "line 1, column 1: the text is empty: expected a value, such as {}"),
        ("// only this", "line 1, column 1: the text is empty: expected a value, such as {}"),
        (
            '{\n  profile: "coding"\n  deny: []\n}',
            "line 2, column 20: expected ',' or '}' after the value of 'profile', "
            "found a word on line 3: is a comma or a quote missing?",
        ),
        (
            "{a: [1\n  2]}",
            "line 1, column 7: expected ',' or ']' after item 1 of the list, "
            "found a word on line 2: is a comma missing?",
        ),
        (
            '{a: "it"s"}',
            "line 1, column 9: expected ',' or '}' after the value of 'a', "
            "found a word on line 1: is a comma or a quote missing?",
        ),
        (
            "{a: [1, 2}",
            "line 1, column 10: expected ',' or ']' after item 2 of the list, found '}': "
            "the '[' of line 1 is still open",
        ),
        (
            "{a: 1; b: 2}",
            "line 1, column 6: expected ',' or '}' after the value of 'a', found ';': "
            "use ',' between entries",
        ),
        (
            "{a: 1: 2}",
            "line 1, column 6: expected ',' or '}' after the value of 'a', found ':'",
        ),
        (
            "{ask = 'off'}",
            "line 1, column 6: expected ':' after the key 'ask', found '=': "
            "use ':' between a key and its value",
        ),
        ('{"a", b: 1}', "line 1, column 5: expected ':' after the key 'a', found ','"),
        ("{a}", "line 1, column 3: expected ':' after the key 'a', found '}'"),
        ("{my-key: 1}", "line 1, column 2: the key 'my-key' needs quotes"),
        ("{gpt-5.2: 1}", "line 1, column 2: the key 'gpt-5.2' needs quotes"),
        ("{5: 1}", "line 1, column 2: the key '5' needs quotes"),
        ("{-100: 1}", "line 1, column 2: the key '-100' needs quotes"),
        ("{\\u0031: 1}", "line 1, column 2: the key '\\\\u0031' needs quotes"),
        ("{a: 1,, b: 2}", "line 1, column 7: expected a key or '}', found ','"),
        ("{[", "line 1, column 2: expected a key or '}', found '['"),
        (
            "{# note\n}",
            "line 1, column 2: expected a key or '}', found '#': comments start with //",
        ),
        ("{a: }", "line 1, column 5: expected a value after the key 'a', found '}'"),
        ("[1,,2]", "line 1, column 4: expected a value, found ','"),
        ("{a: /x/}", "line 1, column 5: expected a value after the key 'a', found '/'"),
        (
            "{a: “x”}",
            "line 1, column 5: expected a value after the key 'a', found '“': "
            'use the plain " for quotes',
        ),
        ("{a: coding}", "line 1, column 5: invalid value: text needs quotes"),
        ("{a: True}", "line 1, column 5: invalid value: write true"),
        ("{a: None}", "line 1, column 5: invalid value: write null"),
        ("{a: 1.2.3}", "line 1, column 5: invalid value: text needs quotes"),
        (
            "{a: -007}",
            "line 1, column 5: invalid value: a number cannot start with 0, and text needs quotes",
        ),
        ("{a: 0x}", "line 1, column 5: invalid value: text needs quotes"),
        ("{a: +}", "line 1, column 5: invalid value: text needs quotes"),
        ("NaN", "line 1, column 1: invalid value: numbers must be finite"),
        ("-Infinity", "line 1, column 1: invalid value: numbers must be finite"),
        ("1e400", "line 1, column 1: this number is too large"),
        ("9" * 401, "line 1, column 1: a number of more than 400 characters"),
        (
            "tools: {}",
            "line 1, column 1: invalid value: keys must be between '{' and '}'",
        ),
        (
            '"tools": {}',
            "line 1, column 8: expected the end of the file, found ':': "
            "keys must be between '{' and '}'",
        ),
        ("{} {}", "line 1, column 4: expected the end of the file, found '{'"),
        ("{}\n}", "line 2, column 1: unmatched '}': is a bracket missing above?"),
        (
            '{\n  a: "x,\n}',
            'line 2, column 6: the string that starts here has no closing " on its line',
        ),
        (
            "{\r\n  a: 'x",
            "line 2, column 6: the string that starts here has no closing ' on its line",
        ),
        ('"x\\', 'line 1, column 1: the string that starts here has no closing " on its line'),
        (r'"\x4"', "line 1, column 2: expected two hexadecimal digits after '\\x'"),
        (r'"\u{41}"', "line 1, column 2: expected four hexadecimal digits after '\\u'"),
        (r'"\1"', "line 1, column 2: invalid escape '\\1': write '\\\\' for a backslash"),
        (r'"\01"', "line 1, column 2: invalid escape '\\0': write '\\\\' for a backslash"),
        (r'"\ud83d"', "line 1, column 2: '\\ud83d' is a lone surrogate"),
        (r'"\ude00\ud83d"', "line 1, column 2: '\\ude00' is a lone surrogate"),
        (r'"\ud83d\u0041"', "line 1, column 2: '\\ud83d' is a lone surrogate"),
        ("['a\udcff']", "line 1, column 4: this character is a lone surrogate"),
        ("{\n /* open", "line 2, column 2: the comment that starts here is never closed with '*/'"),
        ("{a: 1,\n\n a: 2}", "line 3, column 2: the key 'a' is already set on line 1"),
        ("{'__proto__': 1}", "line 1, column 2: the key '__proto__' is not allowed"),
        ("{constructor: 1}", "line 1, column 2: the key 'constructor' is not allowed"),
        ("{\\u0070rototype: 1}", "line 1, column 2: the key 'prototype' is not allowed"),
        ("{\n  a: [\n    1,", "line 2, column 6: this '[' is never closed"),
        ("{", "line 1, column 1: this '{' is never closed"),
        ("{a", "line 1, column 1: this '{' is never closed"),
        ("{a:", "line 1, column 1: this '{' is never closed"),
        ("{a: 1", "line 1, column 1: this '{' is never closed"),
    ]
    for text, message in cases:
        with subtests.test(text=text, message=message):
            assert complaint(text) == message


def test_long_words_are_cut_in_messages() -> None:
    assert len(complaint("{a: " + "x" * 10_000 + "}")) < 100
    assert len(complaint("{" + "x" * 10_000 + "}")) < 120
    assert len(complaint("{" + "x" * 10_000 + "-: 1}")) < 120


def test_a_secret_without_quotes_is_not_repeated() -> None:
    secret = "sk-live-0123456789abcdefghij"
    for text in (f"{{note: {secret}}}", f'{{note: "" {secret}}}', f"{{}} {secret}"):
        assert secret[:4] not in complaint(text)


@table(
    "text",
    [
        "{gateway:{auth:{token: hunter2hunter2x}}}",
        "{token:\n  hunter2hunter2x}",
        "{'api-key' : hunter2}",
        '{"password":hunter2,}',
        "{pass: /* mine */ hunter2}",
        "{credentials: [hunter2]}",
        "{token hunter2}",
        "{secret = hunter2}",
        '{password: "abc"hunter2"}',
        '{password: "a:b,c"hunter2"}',
    ],
)
def test_a_word_after_the_name_of_a_secret_is_not_repeated_at_all(text: str) -> None:
    assert "unter2" not in complaint(text)


def test_the_error_carries_its_parts() -> None:
    with pytest.raises(Json5Error) as caught:
        parse("{\n  a: ?\n}")
    error = caught.value
    assert (error.line, error.column) == (2, 6)
    assert error.message == "expected a value after the key 'a', found '?'"


@pytest.mark.parametrize(("opener", "closer"), [("[", "]"), ("{a:", "}")])
def test_depth_has_a_limit_and_costs_no_python_frames(opener: str, closer: str) -> None:
    deepest = f"{opener * MAX_DEPTH}0{closer * MAX_DEPTH}".replace("[0]", "[]")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 25)
    try:
        node = parse(deepest)
        with pytest.raises(Json5Error) as caught:
            parse(opener + deepest + closer)
    finally:
        sys.setrecursionlimit(limit)
    assert (node.start, node.end) == (0, len(deepest))
    assert caught.value.message == "more than 128 levels of nesting"


class CountedSteps:
    """Counts the lines of the parser that run, a measure of work that no busy machine can change.

    Lines elsewhere do not count: an expression is compiled in Python when it is first needed.
    """

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: Any, event: str, argument: Any) -> CountedSteps | None:
        if frame.f_code.co_filename != json5.__file__:
            return None
        self.count += event == "line"
        return self

    def of_parsing(self, text: str) -> int:
        self.count = 0
        before = sys.gettrace()
        sys.settrace(self)
        try:
            parse(text)
        except Json5Error:
            pass
        finally:
            sys.settrace(before)
        return self.count


@table(
    "make",
    [
        lambda n: '"' + "a" * n + '"',
        lambda n: '"' + "a" * n,
        lambda n: "1" * n,
        lambda n: " " * n,
        lambda n: "/*" * n,
        lambda n: "{" + "a" * n + ":1}",
        lambda n: "[" + "-" * n,
        lambda n: "{a:" + ":" * n,
    ],
)
def test_a_megabyte_of_one_thing_is_a_handful_of_steps(make: Any) -> None:
    assert CountedSteps().of_parsing(make(1_000_000)) < 200


@pytest.mark.parametrize(
    "make",
    [
        lambda n: '"' + "\\n" * n + '"',
        lambda n: "[" + '"\\"",' * n + "]",
        lambda n: "[" * 100 + "[]," * n,
        lambda n: "[" + ("[" * 100 + "]" * 100 + ",") * (n // 100) + "]",
        lambda n: "{" + ",".join(f"k{i}: {i}" for i in range(n)) + "}",
        lambda n: "/**/" * n + "1",
        lambda n: "[" + "// x\n1," * n + "]",
        lambda n: "{a: [\n" + "  [\n]," * n,
    ],
)
def test_steps_grow_with_the_text_and_not_with_its_square(make: Any) -> None:
    few, many = (CountedSteps().of_parsing(make(size)) for size in (1_000, 4_000))
    assert many <= 4.2 * few


@pytest.mark.parametrize(
    "text", ["[" * 100 + "[]," * 100_000, '["a",' + '"b\\n",' * 60_000 + "1 2]"]
)
def test_a_fault_at_the_end_of_a_long_text_is_found_without_rereading_it(text: str) -> None:
    assert "never closed" in complaint(text) or "is a comma missing?" in complaint(text)


def test_spans_cover_exactly_what_was_written() -> None:
    text = "{ a: [1, 'x\\n'], \"b\" : {c : null} } // end"
    root = parse(text)
    written = {
        format_path(path): text[node.start : node.end]
        for path, node in [((), root), *_walk(root, ())]
    }
    assert written == {
        "": "{ a: [1, 'x\\n'], \"b\" : {c : null} }",
        "a": "[1, 'x\\n']",
        "a[0]": "1",
        "a[1]": "'x\\n'",
        "b": "{c : null}",
        "b.c": "null",
    }
    member = root.members["b"]
    assert text[member.key_start : member.key_end] == '"b"'
    assert text[root.members["a"].key_start : root.members["a"].key_end] == "a"


def _walk(node: Node, path: tuple[str | int, ...]) -> list[tuple[tuple[str | int, ...], Node]]:
    below: list[tuple[tuple[str | int, ...], Node]] = []
    for key, member in node.members.items():
        below += [((*path, key), member.node), *_walk(member.node, (*path, key))]
    for index, item in enumerate(node.items):
        below += [((*path, index), item), *_walk(item, (*path, index))]
    return below


def test_a_part_is_found_by_its_path() -> None:
    root = parse('{a: [{b: 1}, 2], "7": "seven"}')
    for path, value in [
        ((), root.value),
        (("a", 0, "b"), 1),
        (("a", "1"), 2),
        (("7",), "seven"),
        ((7,), "seven"),
    ]:
        found = locate(root, path)
        assert found is not None
        assert found.value == value
    for path in [
        ("x",),
        ("a", 2),
        ("a", -1),
        ("a", "-1"),
        ("a", "b"),
        ("a", 0, "b", "c"),
        ("a", "²"),
    ]:
        assert locate(root, path) is None


@table(
    ("text", "lines"),
    [
        ("a\nb\nc", [1, 2, 3]),
        ("a\r\nb\r\nc", [1, 2, 3]),
        ("a\rb\rc", [1, 2, 3]),
        ("abc", [1, 1, 1]),
    ],
)
def test_lines_are_counted_as_editors_do(text: str, lines: list[int]) -> None:
    assert [line_of(text, text.index(letter)) for letter in "abc"] == lines


def test_paths_are_read(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("tools", ("tools",)),
        ("tools.exec.ask", ("tools", "exec", "ask")),
        ("agents.list[0].id", ("agents", "list", 0, "id")),
        ('models["openai/gpt-5.2"].alias', ("models", "openai/gpt-5.2", "alias")),
        ("models['it\\'s'][12]", ("models", "it's", 12)),
        ("models[openai/gpt-5.2]", ("models", "openai/gpt-5.2")),
        ("guilds[123456789012345678]", ("guilds", "123456789012345678")),
        ("groups.-100.x", ("groups", "-100", "x")),
        ("a.0", ("a", "0")),
        ("a[007]", ("a", "007")),
        ('["a.b"]["c]d"]', ("a.b", "c]d")),
        ("tools.byProvider.z-ai/*", ("tools", "byProvider", "z-ai/*")),
    ]
    for text, path in cases:
        with subtests.test(text=text, path=path):
            assert parse_path(text) == path
            assert parse_path(format_path(path)) == path


def test_wrong_paths_say_where(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("", "invalid path '', at character 1: expected .name, [number] or [\"key\"]"),
        (".a", "character 1: expected .name"),
        ("a..b", "character 2: expected .name"),
        ("a.", "character 2: expected .name"),
        ("a b", "character 2: expected .name"),
        ("a[", "character 2: expected .name"),
        ("a[]", "character 2: expected .name"),
        ("a[1", "character 2: expected .name"),
        ('a["b]', 'character 3: the string that starts here has no closing "'),
        ('a["b"', "character 6: expected ']'"),
        ('a["b"c]', "character 6: expected ']'"),
        ("a]b", "character 2: expected .name"),
        ("a[0]b", "character 5: expected .name"),
        ("a.__proto__", "character 2: the key '__proto__' is not allowed"),
        ('a["constructor"]', "character 2: the key 'constructor' is not allowed"),
        (".".join("a" * 129), "more than 128 keys"),
    ]
    for text, message in cases:
        with subtests.test(text=text, message=message):
            with pytest.raises(PathError) as caught:
                parse_path(text)
            assert message in str(caught.value)


KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(
    lambda key: key not in {"__proto__", "constructor", "prototype"}
)


@given(st.lists(KEYS | st.integers(0, 999_999_999), min_size=1, max_size=6).map(tuple))
def test_formatting_a_path_and_reading_it_gives_it_back(path: tuple[str | int, ...]) -> None:
    assert parse_path(format_path(path)) == path


WORDS = ["a", "$b", "_c1", "été", "null", "x\u200dy", "tools", "byProvider"]
GAPS = [
    "",
    "",
    "",
    " ",
    "\n",
    "\t",
    "\r\n",
    "\ufeff",
    "\u00a0",
    "\u2029",
    "// c } \" '\n",
    "/* ] , */",
]


class Writer:
    """Writes a value as JSON5, choosing among all the ways to do so."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def gap(self) -> str:
        return self.rng.choice(GAPS) + self.rng.choice(GAPS)

    def value(self, value: Any) -> str:
        if isinstance(value, dict):
            members = [self.key(key) + self.gap() + ":" + self.value(value[key]) for key in value]
            return self.gap() + self.joined("{", members, "}") + self.gap()
        if isinstance(value, list):
            return self.gap() + self.joined("[", list(map(self.value, value)), "]") + self.gap()
        if isinstance(value, str):
            return self.gap() + self.string(value) + self.gap()
        if isinstance(value, bool) or value is None:
            return self.gap() + {None: "null", True: "true", False: "false"}[value] + self.gap()
        return self.gap() + self.number(value) + self.gap()

    def joined(self, opener: str, parts: list[str], closer: str) -> str:
        trailing = self.rng.choice(["", ","]) if parts else ""
        return opener + self.gap() + ",".join(parts) + trailing + self.gap() + closer

    def key(self, key: str) -> str:
        plain = key in WORDS and self.rng.random() < 0.7
        return self.gap() + (key if plain else self.string(key))

    def string(self, text: str) -> str:
        mark = self.rng.choice("\"'")
        return mark + "".join(self.char(char, mark) for char in text) + mark

    def char(self, char: str, mark: str) -> str:
        must = char in (mark, "\\", "\n", "\r")
        if not must and self.rng.random() < 0.8:
            return char
        code = ord(char)
        ways = [f"\\{char}"] if char in "\"'\\%&q" else []
        if code < 256:
            ways.append(f"\\x{code:02x}")
        if code < 0x10000:
            ways.append(f"\\u{code:04X}")
        else:
            pair = divmod(code - 0x10000, 0x400)
            ways.append(f"\\u{0xD800 + pair[0]:04x}\\u{0xDC00 + pair[1]:04x}")
        return self.rng.choice(["", "", "\\\n", "\\\r\n"]) + self.rng.choice(ways)

    def number(self, value: int | float) -> str:
        sign = "-" if math.copysign(1, value) < 0 else self.rng.choice(["", "+"])
        size = abs(value)
        if isinstance(size, int):
            return sign + self.rng.choice(
                [str(size), hex(size), hex(size).upper().replace("0X", "0x")]
            )
        written = repr(size)
        if written.startswith("0.") and self.rng.random() < 0.5:
            written = written[1:]
        elif written.endswith(".0") and self.rng.random() < 0.5:
            written = written[:-1]
        return sign + written


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(WORDS) | KEYS, inner, max_size=4)
    ),
    max_leaves=15,
)


@given(VALUES, st.integers(0, 2**32))
def test_a_value_written_in_any_way_is_read_back(value: Any, seed: int) -> None:
    text = Writer(random.Random(seed)).value(value)
    assert repr(parse(text).value) == repr(value)
    assert pyjson5.decode(text) == value


SAMPLES = [
    '{ // top\n  tools: { profile: "coding", deny: [\'exec\', "a\\nb",], n: +1.5e3, h: 0x1F },\n}',
    "[{a:1,'b':null},[],{},-.5,5.,true,\"\\u00e9\\x41\\\n\"]",
    '/* c */ {"$include": ["./a.json5"], b: {c: {d: [[1],[2,3]]}}, é: "’"} // end',
]
PIECES = [
    *"{}[]:,'\"\\/*\n\r\t +-.0123456789eExXaubntrflsN$_=é\u00a0\u2028\ufeff😀",
    "//",
    "/*",
    "*/",
]
PIECES += ["null", "\\u00", "\\ud83d", "\\\n", "0x", "a:", "{}", "[]", "NaN"]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(SAMPLES))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 3)))
        text = (
            text[:start] + "".join(draw(st.lists(st.sampled_from(PIECES), max_size=2))) + text[end:]
        )
    return text


@given(mutated() | st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_what_is_accepted_is_json5_and_means_the_same(text: str) -> None:
    try:
        found = parse(text).value
    except Json5Error as error:
        line, column = error.line, error.column
    else:
        assert repr(found) == repr(pyjson5.decode(text))
        return
    assert 1 <= line <= text.count("\n") + text.count("\r") + 1
    assert 1 <= column <= len(text) + 1


REFUSED_ON_PURPOSE = (
    "is already set",
    "not allowed",
    "must be finite",
    "lone surrogate",
    "needs quotes",
    "invalid escape",
    "too large",
)


@given(mutated())
def test_what_is_refused_is_not_json5_or_refused_on_purpose(text: str) -> None:
    try:
        parse(text)
        assume(False)
    except Json5Error as error:
        if any(reason in error.message for reason in REFUSED_ON_PURPOSE):
            return
    with pytest.raises(pyjson5.Json5Exception):
        pyjson5.decode(text)
