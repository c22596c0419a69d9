"""Edits to a configuration text: the value changes, the rest stays as it was written."""

from __future__ import annotations

import copy
import math
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.config.json5 import Json5Error, locate, parse, skip_gap
from clawkit.config.text_edit import merge_patch, set_value, unset_value
from clawkit.errors import EditError

Path = tuple[str | int, ...]


def lines(*parts: str) -> str:
    return "".join(f"{part}\n" for part in parts)


FILE = lines(
    "// my settings",
    "{",
    "  tools: {",
    '    profile: "coding", // not full',
    "    /* no shell */",
    "    deny: ['exec'],",
    "  },",
    "",
    "  // last",
    "  port: 0x10 // in hex",
    "}",
)


@table(
    ("path", "value", "before", "after"),
    [
        (("tools", "profile"), "full", '"coding", // not full', '"full", // not full'),
        (("tools", "deny", 0), None, "['exec'],", "[null],"),
        (("tools", "deny", 1), "ls", "['exec'],", "['exec', \"ls\"],"),
        (("port",), 17, "0x10 // in hex", "17 // in hex"),
        (("port",), 1.5, "0x10 // in hex", "1.5 // in hex"),
        (("port",), True, "0x10 // in hex", "true // in hex"),
        (("tools", "deny"), ["exec", "ls"], "['exec'],", "['exec', \"ls\"],"),
        (("tools", "deny"), ["ls"], "['exec'],", '["ls"],'),
    ],
)
def test_one_line_changes(path: Path, value: Any, before: str, after: str) -> None:
    assert set_value(FILE, path, value) == FILE.replace(before, after)


@table(
    ("path", "value"),
    [((), parse(FILE).value), (("port",), 16), (("tools", "deny"), ("exec",)), (("tools",), {})],
)
def test_setting_the_present_value_changes_nothing(path: Path, value: Any) -> None:
    if value == {}:
        value = dict(reversed(parse(FILE).value["tools"].items()))
    assert set_value(FILE, path, value) == FILE


def test_new_text_looks_like_the_text_around_it(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("", ("a",), 1, lines("{", "  a: 1", "}")),
        ("\n \n", ("a",), 1, lines("{", "  a: 1", "}")),
        ("\ufeff", ("a",), 1, "\ufeff" + lines("{", "  a: 1", "}")),
        ("// note", ("a",), 1, lines("// note", "{", "  a: 1", "}")),
        ("/* note */\r\n", ("a",), 1, "/* note */\r\n{\r\n  a: 1\r\n}\r\n"),
        ("", (), {"a": []}, lines("{", "  a: []", "}")),
        ("{}", ("a", "b"), 1, "{\n  a: {\n    b: 1\n  }\n}"),
        ("{}", ("a", 0, "b-c"), 1, '{\n  a: [\n    {\n      "b-c": 1\n    }\n  ]\n}'),
        ("{ }", ("a",), 1, "{\n  a: 1\n}"),
        ("{ a: 1 }", ("b",), "x", '{ a: 1, b: "x" }'),
        ("{a: 1,}", ("b",), 2, "{a: 1, b: 2,}"),
        ("{ a: 1 /* one */ }", ("b",), 2, "{ a: 1, /* one */ b: 2 }"),
        ('{"a":1}', ("b", "c"), [1], '{"a":1, "b": { "c": [1] }}'),
        ("{ /* none */ }", ("a",), 1, "{ /* none */\n  a: 1\n}"),
        ("{\n  // none\n}", ("a",), 1, "{\n  // none\n  a: 1\n}"),
        ("{\n  a: 1 // note\n}", ("b",), 2, "{\n  a: 1, // note\n  b: 2\n}"),
        ("{\n  a: 1, // note\n}", ("b",), 2, "{\n  a: 1, // note\n  b: 2,\n}"),
        ("{\n  a: 1\n  // end\n}", ("b",), 2, "{\n  a: 1,\n  // end\n  b: 2\n}"),
        ("{\n  a: 1\n\n}", ("b",), 2, "{\n  a: 1,\n  b: 2\n\n}"),
        ("{ a: 1,\n  b: 2 }", ("c",), 3, "{ a: 1,\n  b: 2,\n  c: 3 }"),
        ("{\n\t'a': 1\n}", ("b", "c"), 2, '{\n\t\'a\': 1,\n\t"b": {\n\t\t"c": 2\n\t}\n}'),
        ("{\n    a: {}\n}", ("a", "b"), 2, "{\n    a: {\n        b: 2\n    }\n}"),
        (
            "{\r\n  a: 1\r\n}\r\n",
            ("b", "c"),
            2,
            "{\r\n  a: 1,\r\n  b: {\r\n    c: 2\r\n  }\r\n}\r\n",
        ),
        (
            "{\n  a: 1,\n}",
            ("b",),
            {"c": [{}]},
            "{\n  a: 1,\n  b: {\n    c: [\n      {},\n    ],\n  },\n}",
        ),
        ("[\n  1\n]", (1,), 2, "[\n  1,\n  2\n]"),
        ("{ a: [] }", ("a", 0), 1, "{ a: [1] }"),
        ("{\n  a: [ // none\n  ]\n}", ("a", 0), 1, "{\n  a: [ // none\n    1\n  ]\n}"),
        ("{a: 1 // x\u2028}", ("b",), 2, "{a: 1, // x\n  b: 2\u2028}"),
        ("{ ids: { a: 1 } }", ("ids", 7), 2, '{ ids: { a: 1, "7": 2 } }'),
        ("{ a: [1, 2] }", ("a", "1"), 3, "{ a: [1, 3] }"),
    ]
    for text, path, value, result in cases:
        with subtests.test(text=text, path=path, value=value, result=result):
            assert set_value(text, path, value) == result


def test_a_line_that_would_be_too_long_is_opened_up() -> None:
    long = "x" * 90
    assert set_value("{ a: { 'b': 0x1, /* c */ c: [1] } }", ("a", "d"), long) == (
        f"{{ a: {{\n  'b': 0x1, /* c */\n  c: [1],\n  d: \"{long}\"\n}} }}"
    )
    opened = merge_patch("{ a: { b: { c: 1 } } }", {"a": {"b": {"d": long}, "e": long}})
    assert opened == (f'{{ a: {{\n  b: {{\n    c: 1,\n    d: "{long}"\n  }},\n  e: "{long}"\n}} }}')


def test_a_line_that_is_too_long_already_stays_a_line() -> None:
    text = "{" + ", ".join(f"key{i}: {i}" for i in range(40)) + "}"
    assert set_value(text, ("z",), {"y": 1}) == text[:-1] + ", z: { y: 1 }}"


def test_a_long_list_takes_a_line_per_item() -> None:
    names = [f"tool-number-{i}" for i in range(8)]
    written = set_value("", ("deny",), names)
    assert written == lines(
        "{", "  deny: [", *(f'    "{n}",' for n in names[:-1]), f'    "{names[-1]}"', "  ]", "}"
    )


@table(
    ("value", "written"),
    [
        ('tab\t, "quote", \\, \x00, \u2028 é', '"tab\\t, \\"quote\\", \\\\, \\u0000, \\u2028 é"'),
        (1e22, "1e+22"),
        (-0.5, "-0.5"),
        (10**300, "1" + "0" * 300),
        (None, "null"),
        (False, "false"),
        ({}, "{}"),
        ((), "[]"),
        ([[], {}], "[\n    [],\n    {}\n  ]"),
    ],
)
def test_values_are_written_plainly(value: Any, written: str) -> None:
    assert set_value("{ }", ("a",), value) == f"{{\n  a: {written}\n}}"


def test_a_text_of_another_class_is_written_as_text() -> None:
    class Special(str):
        __slots__ = ()

        def __str__(self) -> str:
            return str.__str__(self)

    assert set_value("{}", ("a",), [Special("x")]) == '{\n  a: ["x"]\n}'


def test_edits_that_make_no_sense_are_refused(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("{a: 1}", ("a", "b"), 1, "cannot set 'a.b': 'a' is neither an object nor a list"),
        ("1", ("a",), 1, "cannot set 'a': 'the file' is neither an object nor a list"),
        ("{a: [1]}", ("a", 2), 1, "cannot set 'a[2]': the next free index is 1"),
        ("{a: [1]}", ("a", "b"), 1, "cannot set 'a.b': the next free index is 1"),
        ("{}", ("a", 1), 1, "cannot set 'a[1]': a new list starts with [0]"),
        ("{}", ("__proto__", "x"), 1, "the key '__proto__' is not allowed"),
        ("{}", ("a",), {"b": {"constructor": 1}}, "the key 'constructor' is not allowed"),
        ("{}", ("a",), {"\udc80": 2}, "a lone surrogate"),
        ("{}", ("a",), "\udc80", "a lone surrogate"),
        ("{}", ("a",), [math.nan], "cannot be written: Out of range float"),
        ("{}", ("a",), -math.inf, "cannot be written: Out of range float"),
        ("{}", ("a",), 10**500, "a number of more than 400 characters"),
        ("{}", ("a",), {1, 2}, "cannot be written: Object of type set"),
        ("{}", ("a",) * 129, 1, "more than 128 levels of nesting"),
        ("{}", ("a",) * 128, {}, "more than 128 levels of nesting"),
        ("{}", ("a",) * 127, [[]], "more than 128 levels of nesting"),
    ]
    for text, path, value, message in cases:
        with subtests.test(text=text, path=path, value=value, message=message):
            with pytest.raises(EditError) as caught:
                set_value(text, path, value)
            assert message in str(caught.value)


def test_the_deepest_text_that_can_be_read_can_be_written() -> None:
    path = ("a",) * 128
    written = set_value("", path, 1)
    assert set_value(written, path, 2) == written.replace("1", "2")
    assert parse(unset_value(written, path)).value == parse(set_value("", path[:-1], {})).value


def test_a_broken_text_is_not_edited() -> None:
    with pytest.raises(Json5Error, match="never closed"):
        set_value("{a: 1", ("a",), 1)
    with pytest.raises(Json5Error, match="never closed"):
        unset_value("{a: 1", ("a",))
    with pytest.raises(Json5Error, match="never closed"):
        merge_patch("{a: 1", {"a": 1})


def test_a_part_goes_with_its_comma_and_its_line(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        (FILE, ("tools",), lines(*FILE.split("\n")[:2], *FILE.split("\n")[7:-1])),
        (FILE, ("port",), FILE.replace("  port: 0x10 // in hex\n", "").replace("},\n\n", "}\n\n")),
        (FILE, ("tools", "profile"), FILE.replace('    profile: "coding", // not full\n', "")),
        (FILE, ("tools", "deny", 0), FILE.replace("'exec'", "")),
        ("{ a: 1, b: 2, c: 3 }", ("a",), "{ b: 2, c: 3 }"),
        ("{ a: 1, b: 2, c: 3 }", ("b",), "{ a: 1, c: 3 }"),
        ("{ a: 1, b: 2, c: 3 }", ("c",), "{ a: 1, b: 2 }"),
        ("{ a: 1, b: 2, }", ("b",), "{ a: 1, }"),
        ("{a: 1}", ("a",), "{}"),
        ("{\n  a: 1, // note\n}", ("a",), "{}"),
        ("{\n  // keep\n  a: 1 // note\n}", ("a",), "{\n  // keep\n}"),
        ("{ a: 1, /* b */ b: 2 }", ("b",), "{ a: 1 /* b */ }"),
        ("{\n  a: 1, // note\n  b: 2 /* x */ // y\n}", ("b",), "{\n  a: 1 // note\n}"),
        ("{\r\n  a: 1,\r\n  b: 2\r\n}", ("a",), "{\r\n  b: 2\r\n}"),
        ("{\n  a: {\n    x: 1,\n  },\n  b: 2,\n}", ("a",), "{\n  b: 2,\n}"),
        ("{\n  a: 1, b: 2,\n  c: 3,\n}", ("b",), "{\n  a: 1,\n  c: 3,\n}"),
        ("[1, 2, 3]", (1,), "[1, 3]"),
        ("[1, 1]", ("0",), "[1]"),
        ("{\n  a: 1, /* more\n  */ b: 2\n}", ("a",), "{\n  /* more\n  */ b: 2\n}"),
    ]
    for text, path, result in cases:
        with subtests.test(text=text, path=path, result=result):
            assert unset_value(text, path) == result


@table(
    ("text", "path"),
    [
        ("", ("a",)),
        ("{a: 1}", ("b",)),
        ("{a: 1}", ("a", "b")),
        ("[1]", (1,)),
        ("[1]", (-1,)),
    ],
)
def test_a_missing_key_cannot_be_removed(text: str, path: Path) -> None:
    with pytest.raises(EditError, match="is not set"):
        unset_value(text, path)


def test_the_whole_file_cannot_be_removed() -> None:
    with pytest.raises(EditError, match="the whole file"):
        unset_value("{}", ())


def test_a_patch_merges_objects_replaces_lists_and_deletes_nulls() -> None:
    patch = {
        "tools": {"profile": None, "deny": ["ls"], "exec": {"ask": "off", "gone": None}},
        "port": None,
        "absent": None,
        "mode": "local",
    }
    assert merge_patch(FILE, patch) == lines(
        "// my settings",
        "{",
        "  tools: {",
        "    /* no shell */",
        '    deny: ["ls"],',
        "    exec: {",
        '      ask: "off",',
        "    },",
        "  },",
        "",
        "  // last",
        '  mode: "local"',
        "}",
    )


def test_members_side_by_side_go_together() -> None:
    text = "{\n  a: 1, b: 2,\n  c: 3, d: 4, e: 5\n}"
    assert merge_patch(text, {"a": None, "b": None}) == "{\n  c: 3, d: 4, e: 5\n}"
    assert merge_patch(text, {"d": None, "e": None}) == "{\n  a: 1, b: 2,\n  c: 3\n}"
    assert merge_patch(text, dict.fromkeys("abcde")) == "{}"
    assert merge_patch(text, {**dict.fromkeys("abcde"), "z": 1}) == "{\n  z: 1\n}"


def test_an_object_set_over_an_object_keeps_what_did_not_change() -> None:
    value = {"tools": {"deny": ["exec"], "allow": []}, "port": 16}
    assert set_value(FILE, (), value) == FILE.replace(
        '    profile: "coding", // not full\n', ""
    ).replace("    deny: ['exec'],\n", "    deny: ['exec'],\n    allow: [],\n")


def test_only_an_object_can_be_patched() -> None:
    with pytest.raises(EditError, match="does not contain an object"):
        merge_patch("[]", {"a": 1})
    with pytest.raises(EditError, match="is not allowed"):
        merge_patch("{}", {"a": {"prototype": 1}})
    assert merge_patch("", {"a": {"b": None}}) == lines("{", "  a: {}", "}")


def test_many_changes_to_a_long_file_are_made_in_one_go() -> None:
    text = lines("{", *(f"  key{i}: {i}, // note {i}" for i in range(5_000)), "}")
    changed = merge_patch(text, {f"key{i}": None if i % 3 else -i for i in range(0, 5_000, 2)})
    kept = {f"key{i}": i if i % 2 else -i for i in range(5_000) if i % 2 or i % 3 == 0}
    assert parse(changed).value == kept
    assert all(line in text for line in changed.splitlines() if "-" not in line)


NAMES = ["a", "b", "my-key", "$x", "tools", "x.y"]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    | st.sampled_from(["", "x, // y", "/*", "it's"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=10,
)
DOCUMENTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5)


class Typist:
    """Writes a document the way a person might: untidily, and with numbered comments."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.newline = rng.choice(["\n", "\r\n", "\r", "\u2028"])
        self.comments = 0

    def gap(self, indent: str) -> str:
        """Between two tokens: nothing, a space, a line break, a comment of either kind."""
        kind = self.rng.random()
        if kind < 0.5:
            return self.rng.choice(["", " "])
        if kind < 0.7:
            return self.newline + indent
        self.comments += 1
        if kind < 0.85:
            return f" /* c{self.comments}, */ "
        return f" // c{self.comments} }}{self.newline}{indent}"

    def write(self, value: Any, indent: str = "") -> str:
        inner = indent + self.rng.choice(["  ", "\t", ""])
        if isinstance(value, dict):
            parts = [
                f"{self.key(key)}{self.rare_gap(inner)}:{self.gap(inner)}{self.write(item, inner)}"
                for key, item in value.items()
            ]
            opener, closer = "{}"
        elif isinstance(value, list):
            parts = [self.write(item, inner) for item in value]
            opener, closer = "[]"
        elif isinstance(value, str):
            return "'" + value.replace("'", "\\'") + "'"
        else:
            return "null" if value is None else str(value).lower()
        text = opener
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            comma = "" if last and self.rng.random() < 0.6 else self.rare_gap(inner) + ","
            text += self.gap(inner) + part + comma
        return text + self.gap(indent) + closer

    def rare_gap(self, indent: str) -> str:
        return self.gap(indent) if self.rng.random() < 0.1 else ""

    def key(self, key: str) -> str:
        plain = re.fullmatch(r"[a-z$]+", key) and self.rng.random() < 0.7
        return key if plain else f'"{key}"'


def comments_in(text: str) -> set[str]:
    return set(re.findall(r"c\d+(?:,| \})", re.sub(r"'(?:[^'\\]|\\.)*'|\"[^\"]*\"", "", text)))


def paths_in(value: Any, path: Path = ()) -> list[Path]:
    below = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(found for key, item in below for found in paths_in(item, (*path, key)))]


def holder_of(value: Any, path: Path) -> Any:
    for part in path[:-1]:
        value = value[part]
    return value


@st.composite
def typed_documents(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    value = draw(DOCUMENTS)
    typist = Typist(random.Random(draw(st.integers(0, 2**32))))
    return value, typist.gap("") + typist.write(value) + typist.gap("")


@given(typed_documents(), VALUES, st.data())
def test_setting_any_value_equals_assigning_it(
    document: tuple[dict[str, Any], str], value: Any, data: st.DataObject
) -> None:
    before, text = document
    path = data.draw(st.sampled_from(paths_in(before)[1:] or [("new",)]))
    expected = copy.deepcopy(before)
    holder_of(expected, path)[path[-1]] = value
    after = set_value(text, path, value)
    assert repr_of(parse(after).value) == repr_of(expected)
    old = locate(parse(text), path)
    if old and not old.members and not old.items:
        assert after.startswith(text[: old.start])
        assert after.endswith(text[old.end :])


@given(typed_documents(), VALUES, st.data())
def test_adding_a_member_moves_nothing_but_space(
    document: tuple[dict[str, Any], str], value: Any, data: st.DataObject
) -> None:
    before, text = document
    objects = [
        path for path in paths_in(before) if isinstance(holder_of(before, (*path, "")), dict)
    ]
    path = (*data.draw(st.sampled_from(objects)), "new")
    expected = copy.deepcopy(before)
    holder_of(expected, path)["new"] = value
    after = set_value(text, path, value)
    assert repr_of(parse(after).value) == repr_of(expected)
    assert comments_in(after) == comments_in(text)
    assert squeeze(unset_value(after, path)) == squeeze(text)


@given(typed_documents(), st.data())
def test_removing_any_part_equals_deleting_it(
    document: tuple[dict[str, Any], str], data: st.DataObject
) -> None:
    before, text = document
    paths = paths_in(before)[1:]
    if not paths:
        return
    path = data.draw(st.sampled_from(paths))
    expected = copy.deepcopy(before)
    del holder_of(expected, path)[path[-1]]
    after = unset_value(text, path)
    assert repr_of(parse(after).value) == repr_of(expected)
    start, end = own_span(text, path)
    assert comments_in(text) - comments_in(after) <= comments_in(text[start:end])
    assert squeeze(after).startswith(squeeze(text[:start]))
    assert squeeze(after).endswith(squeeze(text[end:]))


@given(typed_documents(), DOCUMENTS)
def test_merging_any_patch_equals_merging_the_values(
    document: tuple[dict[str, Any], str], patch: dict[str, Any]
) -> None:
    before, text = document
    after = merge_patch(text, patch)
    assert repr_of(parse(after).value) == repr_of(merged(before, patch))
    assert merge_patch(after, patch) == after


def merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    old = old if isinstance(old, dict) else {}
    both = {**old, **{key: merged(old.get(key), item) for key, item in patch.items()}}
    return {key: item for key, item in both.items() if key not in patch or patch[key] is not None}


def own_span(text: str, path: Path) -> tuple[int, int]:
    """From the key to the end of the line on which the value, or its comma, ends."""
    root = parse(text)
    node, holder = locate(root, path), locate(root, path[:-1])
    assert node
    assert holder
    start = holder.members[str(path[-1])].key_start if holder.members else node.start
    stop = skip_gap(text, node.end)
    stop = stop + 1 if text[stop] == "," else node.end
    rest = re.compile(r"(?:[ \t]|/\*[^\n]*?\*/)*(?://.*)?").match(text, stop)
    return start, rest.end() if rest else stop


def squeeze(text: str) -> str:
    return re.sub(r"[\s,]+", "", text)


def repr_of(value: Any) -> str:
    """A text that tells 1 from True and ignores the order of keys."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{repr_of(value[key])}" for key in sorted(value)) + "}"
    return f"[{','.join(map(repr_of, value))}]" if isinstance(value, list) else repr(value)


def test_additions_at_all_levels_are_laid_out_as_if_they_came_one_after_another() -> None:
    text = "{\n  a: { b: { c: 1 } },\n  d: {\n    e: 1,\n  },\n}\n"
    long = "x" * 60
    patch = {"a": {"b": {"n": long, "m": [long]}, "o": 2 * long}, "d": {"f": {}}, "g": 2}
    assert merge_patch(text, patch) == (
        "{\n"
        "  a: {\n"
        "    b: {\n"
        "      c: 1,\n"
        f'      n: "{long}",\n'
        f'      m: ["{long}"]\n'
        "    },\n"
        f'    o: "{long}{long}"\n'
        "  },\n"
        "  d: {\n    e: 1,\n    f: {},\n  },\n"
        "  g: 2,\n"
        "}\n"
    )
