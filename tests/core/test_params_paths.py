"""Parameters that name files, and what only looks like JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.tables import table

from clawkit.core.context import Context
from clawkit.core.params import read_params
from clawkit.core.tool import Tool
from clawkit.errors import ToolInputError


async def nothing(_params: Any, _ctx: Context) -> None:
    return None


TOOL = Tool(
    "probe",
    "Probe.",
    {
        "properties": {
            "path": {"type": "string"},
            "many": {"type": "array", "items": {"type": "string"}},
            "loose": {"type": "array"},
            "edits": {"type": "array", "items": {"properties": {"file": {"type": "string"}}}},
            "text": {"type": "string"},
            "command": {"type": "string"},
            "numbers": {"type": "array", "items": {"type": "integer"}},
            "any": {},
        },
        "additionalProperties": False,
    },
    nothing,
    aliases={"file_path": "path"},
    paths=("path", "many", "loose", "edits.file"),
)


def read(raw: object) -> dict[str, Any]:
    return read_params(TOOL, raw)[0]


def test_paths_have_one_spelling_before_anything_compares_them(subtests: pytest.Subtests) -> None:
    cases: Iterable[tuple[object, dict[str, Any]]] = [
        ({"path": "file:///a/%62"}, {"path": "/a/b"}),
        ({"file_path": "FILE:a"}, {"path": "a"}),
        ({"claude_path": "file:file:a"}, {"path": "./file:a"}),
        ({"path": "~root/a"}, {"path": "./~root/a"}),
        ({"path": "~/a"}, {"path": "~/a"}),
        ({"many": ["file:a", "b"]}, {"many": ["a", "b"]}),
        ({"many": "file:a"}, {"many": ["a"]}),
        ({"many": '["file:a"]'}, {"many": ["a"]}),
        ({"loose": ["file:a", ["file:b"], 5]}, {"loose": ["a", ["b"], 5]}),
        ({"edits": [{"file": "file:a"}]}, {"edits": [{"file": "a"}]}),
        ({"text": "file:a", "any": "~root"}, {"text": "file:a", "any": "~root"}),
        ({"path": "file:a</arg_value>"}, {"path": "a"}),
    ]
    for raw, expected in cases:
        with subtests.test(f"{raw!r:.80}"):
            assert read(raw) == expected
            assert read(read(raw)) == expected


@pytest.mark.parametrize("key", ["path", "many", "loose"])
@pytest.mark.parametrize("path", ["a\0b", "\ud800", "file://server/a", "x" * 5_000])
def test_an_unusable_path_is_an_input_error(key: str, path: str) -> None:
    with pytest.raises(ToolInputError, match=f"{key}: .* is not a"):
        read({key: path if key == "path" else [path]})


@table("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_have_are_refused(number: float) -> None:
    with pytest.raises(ToolInputError, match="which is not JSON"):
        read({"any": [number]})
    with pytest.raises(ToolInputError, match="which is not JSON"):
        read('{"any": NaN}')


@table(
    ("raw", "words"),
    [
        ({"path": {1: 2}}, "not plain JSON"),
        ({"path": 10**5000}, "Received: path=<very large number>"),
        ({"numbers": '{"a": 1}'}, "numbers"),
        ({"command": "</arg_value>"}, "only a leaked closing tag"),
    ],
)
def test_parameters_that_cannot_be_repaired_are_refused(raw: object, words: str) -> None:
    with pytest.raises(ToolInputError, match=words):
        read(raw)


def test_a_leaked_tag_is_removed_from_a_command() -> None:
    assert read({"command": "ls</arg_value>"}) == {"command": "ls"}


def test_a_long_run_of_spaces_is_read_in_linear_time() -> None:
    command = " " * 1_000_000 + "x"
    assert read({"command": command}) == {"command": command}
