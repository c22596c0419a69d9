"""Parameters: names, repair, and one error that lists everything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta
from tests.tables import table

from clawkit.core.context import Context
from clawkit.core.params import read_params
from clawkit.core.tool import Tool
from clawkit.errors import SchemaError, ToolInputError


async def nothing(_params: Any, _ctx: Context) -> None:
    return None


class Place(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    under: str = "docs"
    other: str | None = None


@table(
    ("given", "path", "under"),
    [
        ({"path": "a"}, "/w/sub/a", "/w/sub/docs"),
        ({"path": "../a", "under": "x"}, "/w/sub/../a", "/w/sub/x"),
        ({"path": "/a", "under": "~/x"}, "/a", "~/x"),
        ({"path": "~b", "under": ""}, "/w/sub/./~b", "/w/sub/docs"),
        ({"path": "@a", "under": "file:///x"}, "/w/sub/a", "/x"),
        ({"path": "", "under": "."}, "", "/w/sub/."),
    ],
)
def test_relative_paths_begin_in_the_directory_of_the_run(
    given: dict[str, str], path: str, under: str
) -> None:
    tool = Tool(
        name="t",
        description="",
        parameters=Place,
        execute=nothing,
        paths=("path", "under", "other"),
    )
    _, found = read_params(tool, given, "/w", "sub")
    assert (found.path, found.under, found.other) == (path, under, None)
    _, found = read_params(tool, {"path": "a"}, "/w")
    assert (found.path, found.under) == ("a", "docs")


def test_unsupported_parameters_are_refused_with_the_alternative() -> None:
    tool = Tool(
        name="t",
        description="",
        parameters=Place,
        execute=nothing,
        unsupported={"reply_to": "use message"},
    )
    for name in ("replyTo", "reply_to"):
        with pytest.raises(ToolInputError, match=f"{name}: not supported; use message"):
            read_params(tool, {"path": "a", name: 1})


class Item(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    old_text: str
    new_text: str = ""


class Params(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    path: Annotated[str, Meta(description="The file", min_length=1)]
    max_lines: Annotated[int, Meta(ge=1)] = 10
    ratio: float = 0.5
    deep: bool = False
    tags: list[str] = []
    edits: list[Item] = []
    mode: Literal["fast", "slow"] = "fast"
    env: dict[str, str] = {}
    note: str | None = None


STRUCT = Tool(
    "probe",
    "Probe.",
    Params,
    nothing,
    aliases={"file_path": "path", "old": "edits"},
)
SCHEMA = Tool(
    "probe",
    "Probe.",
    {
        "properties": {
            "path": {"type": "string", "minLength": 1, "description": "The file"},
            "maxLines": {"type": "integer", "minimum": 1},
            "any": {},
            "fixed": {"const": 1},
            "maybe": {"type": ["string", "null"]},
            "list": {"type": "array"},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    nothing,
)


def read(tool: Tool, raw: object) -> dict[str, Any]:
    return read_params(tool, raw)[0]


def test_other_spellings_and_certain_repairs_become_the_advertised_form(
    subtests: pytest.Subtests,
) -> None:
    cases: Iterable[tuple[object, dict[str, Any]]] = [
        ({"path": "a", "maxLines": 3}, {"path": "a", "maxLines": 3}),
        ({"path": "a", "max_lines": 3}, {"path": "a", "maxLines": 3}),
        ({"path": "a", "max-lines": 3}, {"path": "a", "maxLines": 3}),
        ({"file_path": "a"}, {"path": "a"}),
        ({"filePath": "a"}, {"path": "a"}),
        ({"claude_path": "a"}, {"path": "a"}),
        ({"claude_file_path": "a", "claude_maxLines": 2}, {"path": "a", "maxLines": 2}),
        ({"path": "a", "maxLines": "3"}, {"path": "a", "maxLines": 3}),
        ({"path": "a", "maxLines": 3.0}, {"path": "a", "maxLines": 3}),
        ({"path": "a", "maxLines": "3.0"}, {"path": "a", "maxLines": 3}),
        ({"path": "a", "ratio": "0.25"}, {"path": "a", "ratio": 0.25}),
        ({"path": "a", "ratio": "1e-2"}, {"path": "a", "ratio": 0.01}),
        ({"path": "a", "deep": "True"}, {"path": "a", "deep": True}),
        ({"path": "a", "tags": "x"}, {"path": "a", "tags": ["x"]}),
        ({"path": "a", "tags": '["x", "y"]'}, {"path": "a", "tags": ["x", "y"]}),
        ({"path": "a", "tags": "[not json"}, {"path": "a", "tags": ["[not json"]}),
        ({"path": "a", "env": '{"K": "v"}'}, {"path": "a", "env": {"K": "v"}}),
        ({"path": "a", "maxLines": None}, {"path": "a"}),
        ({"path": "a", "note": None}, {"path": "a", "note": None}),
        (
            {"path": "a", "edits": [{"old_text": "x", "newText": "y"}]},
            {"path": "a", "edits": [{"oldText": "x", "newText": "y"}]},
        ),
        ({"path": "a.docxodex"}, {"path": "a.docx"}),
        ({"path": "a.xlsodex"}, {"path": "a.xlsx"}),
        ({"path": "a.txt</arg_value>"}, {"path": "a.txt"}),
        ({"path": "a.txt</arg_value>>\n"}, {"path": "a.txt"}),
        ('{"path": "a"}', {"path": "a"}),
    ]
    for given_params, expected in cases:
        with subtests.test(f"{given_params!r:.80}"):
            params, typed = read_params(STRUCT, given_params)
            assert params == expected
            assert isinstance(typed, Params)


def test_a_schema_tool_is_given_the_checked_dict() -> None:
    params, given_to_tool = read_params(SCHEMA, {"path": "a", "max_lines": "2", "any": [1]})
    assert params == given_to_tool == {"path": "a", "maxLines": 2, "any": [1]}
    assert read(SCHEMA, {"path": "a", "any": None, "maybe": None, "fixed": None}) == {
        "path": "a",
        "any": None,
        "maybe": None,
    }
    assert read(SCHEMA, {"path": "a", "list": "[1]"}) == {"path": "a", "list": [1]}


@table("raw", [None, "", {}])
def test_missing_parameters_are_an_empty_object(raw: object) -> None:
    tool = Tool("free", "Free.", {"properties": {"x": {"type": "string"}}}, nothing)
    assert read(tool, raw) == {}
    assert read(tool, {"other": 1}) == {"other": 1}


@pytest.mark.parametrize("tool", [STRUCT, SCHEMA])
def test_one_error_lists_everything_that_is_missing_or_wrong(tool: Tool) -> None:
    with pytest.raises(ToolInputError) as caught:
        read(tool, {"maxLines": "many", "pth": "a", "zzz": {}})
    text = str(caught.value)
    assert "path: missing (string: The file)" in text
    assert "maxLines" in text
    assert "pth: unknown parameter; did you mean 'path'?" in text
    assert "zzz: unknown parameter" in text
    assert 'Received: maxLines="many", pth="a", zzz=<object>' in text
    assert caught.value.status == 400


def test_bad_parameters_are_refused_in_plain_words(subtests: pytest.Subtests) -> None:
    cases: Iterable[tuple[object, str]] = [
        ({"path": "a", "file_path": "b"}, "given twice, as 'path' and 'file_path'"),
        ({"path": "a", "filePath": "/etc/passwd"}, "given twice"),
        ({"maxLines": 1, "max_lines": 2, "path": "a"}, "given twice"),
        ({"path": ""}, "path"),
        ({"path": "</arg_value>"}, "leaked closing tag"),
        ({"path": "a", "maxLines": 0}, "maxLines"),
        ({"path": "a", "mode": "quick"}, "mode"),
        ({"path": "a", "edits": [{"old": 1}]}, "edits[0].old: unknown parameter"),
        ({"path": "a", "edits": [{}]}, "edits[0].oldText: missing"),
        ({"path": None}, "path"),
        ([1], "must be a JSON object, got array"),
        (5, "must be a JSON object, got int"),
        ("{broken", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ({"path": {1, 2}}, "not plain JSON: they contain a set"),
        ({"path": "a", "ratio": 10**400}, "ratio"),
    ]
    for raw, words in cases:
        with subtests.test(f"{raw!r:.80}"):
            with pytest.raises(ToolInputError) as caught:
                read(STRUCT, raw)
            assert words in str(caught.value)


def test_errors_in_nullable_values_refer_to_the_other_type() -> None:
    some = {"type": "object", "required": ["z"], "properties": {"n": {"type": "integer"}}}
    number, null = {"type": "integer", "maximum": 10}, {"type": "null"}
    kinds = {"count": [number, null], "other": [number, {"type": "object"}], "some": [some, null]}
    schema = {"type": "object", "properties": {k: {"anyOf": v} for k, v in kinds.items()}}
    tool = Tool("probe", "Probe.", schema, nothing)
    with pytest.raises(ToolInputError) as caught:
        read(tool, {"count": 20, "other": "x", "some": {"n": "y"}})
    text = str(caught.value)
    assert "count: 20 is greater than the maximum of 10" in text
    assert 'other: "x" is not valid under any' in text
    assert "some.z: missing" in text
    assert 'some.n: "y" is not of type' in text


def test_a_schema_tool_refuses_what_is_not_json() -> None:
    with pytest.raises(ToolInputError, match="not plain JSON"):
        read(SCHEMA, {"path": "a", "any": {1, 2}})


def test_only_the_first_twenty_problems_are_shown() -> None:
    with pytest.raises(ToolInputError, match="and 11 more"):
        read(SCHEMA, {f"k{i}": 1 for i in range(30)})


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_deep_or_huge_parameters_are_refused_before_anything_recursive() -> None:
    for raw in ({"any": nested(5_000)}, {"any": [[1] * 1000] * 300}):
        with pytest.raises(ToolInputError, match="too deeply or too large"):
            read(SCHEMA, {"path": "a", **raw})
    with pytest.raises(ToolInputError, match="too deeply"):
        read(STRUCT, {"path": "a", "tags": "[" * 500 + "]" * 500})


def test_a_string_too_deep_for_the_json_reader_stays_a_string() -> None:
    assert read(STRUCT, {"path": "a", "tags": "[" * 100_000})["tags"] == ["[" * 100_000]


def test_a_reference_cycle_in_a_schema_does_not_hang() -> None:
    loop = {"$ref": "#/$defs/a"}
    tool = Tool("loop", "Loop.", {"properties": {"x": loop}, "$defs": {"a": loop}}, nothing)
    assert read(tool, {"x": {"y": 1}}) == {"x": {"y": 1}}
    odd = Tool("odd", "Odd.", {"properties": {"x": {"$ref": "#/$defs/no"}, "y": True}}, nothing)
    with pytest.raises(SchemaError):
        read(odd, {"x": 1, "y": None})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(["path", "file_path", "maxLines", "max_lines", "tags", "edits", "x", "env"])


@given(st.dictionaries(KEYS, JSON, max_size=5))
def test_any_input_is_either_typed_or_refused(raw: dict[str, Any]) -> None:
    try:
        params, typed = read_params(STRUCT, raw)
    except ToolInputError:
        return
    assert isinstance(typed, Params)
    assert read(STRUCT, params) == params
