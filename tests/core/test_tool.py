"""Tools, and making one of a typed function."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import FrozenInstanceError, replace
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta
from tests.tables import table

from clawkit.core.call import CallRequest, Run, call
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import ANYTHING, Effect, Tool, is_tool_name, tool
from clawkit.errors import SchemaError

CTX = Context("1", Scope(), "/")


async def nothing(_params: Any, _ctx: Context) -> None:
    return None


async def run_tool(made: Tool, params: object = None) -> Result:
    return await call(Run({made.name.lower(): made}, "/ws"), CallRequest(made.name, params))


class Place(msgspec.Struct, rename="camel"):
    """A place on the map."""

    street_name: str
    number: int = 1


class Unknown:
    """A type that JSON Schema cannot describe."""


@tool
async def forecast(
    city: str,
    days: Annotated[int, Meta(ge=1, le=14)] = 3,
    unit: Literal["c", "f"] = "c",
    note: str | None = None,
    home: Place | None = None,
    tags: list[str] = [],  # noqa: B006  # what is under test
    *,
    ctx: Context,
) -> str:
    """Tell the weather.

    In plain words.

    Args:
        (all of them are plain words)
        city: Where,
            and which one.
        days (int): How many days.
        note: Anything:
            of interest: really
        nobody: Not a parameter.

    Returns:
        city: nothing of this is read
    """
    return json.dumps([city, days, unit, note, home and home.street_name, tags, ctx.workspace])


def test_name_and_description_come_from_the_function() -> None:
    assert repr(forecast) == "<Tool forecast>"
    assert forecast.name == "forecast"
    assert forecast.description == "Tell the weather.\n\nIn plain words."
    assert forecast.label == ""
    assert not forecast.owner_only


def test_the_schema_comes_from_signature_and_docstring() -> None:
    schema = forecast.schema
    assert schema["required"] == ["city"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["city"] == {"type": "string", "description": "Where, and which one."}
    assert properties["days"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 14,
        "description": "How many days.",
        "default": 3,
    }
    assert properties["unit"] == {"enum": ["c", "f"], "default": "c"}
    assert properties["note"]["description"] == "Anything: of interest: really"
    assert properties["note"]["default"] is None
    assert "ctx" not in properties
    assert properties["home"]["anyOf"][0]["properties"]["streetName"] == {"type": "string"}
    assert "description" not in properties["home"]["anyOf"][0]


async def test_the_function_gets_typed_arguments_and_the_context() -> None:
    result = await run_tool(
        forecast, {"city": "Oslo", "days": "2", "home": {"streetName": "x"}, "tags": "a"}
    )
    assert json.loads(result.as_text()) == ["Oslo", 2, "c", None, "x", ["a"], "/ws"]


async def test_defaults_apply_and_bad_values_are_refused() -> None:
    result = await run_tool(forecast, {"city": "Oslo"})
    assert json.loads(result.as_text()) == ["Oslo", 3, "c", None, None, [], "/ws"]
    for params in ({}, {"city": "Oslo", "days": 15}, {"city": "Oslo", "ctx": 1}):
        assert (await run_tool(forecast, params)).details["code"] == 400


def test_a_context_parameter_needs_no_annotation_when_it_is_called_ctx() -> None:
    def look(ctx, city: str) -> str:  # type: ignore[no-untyped-def]
        """Look."""
        return f"{ctx.workspace} {city}"

    assert list(tool(look).schema["properties"]) == ["city"]


async def test_a_plain_function_runs_in_its_own_thread() -> None:
    @tool
    def where(ctx: Context) -> list[object]:
        """Where."""
        return [threading.current_thread() is threading.main_thread(), ctx.workspace]

    result = await run_tool(where)
    assert result.details["value"] == [False, "/ws"]


async def test_a_plain_wrapper_around_an_async_function_is_awaited() -> None:
    def traced(func: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Awaitable[str]:
            return func(*args, **kwargs)

        return wrapper

    @tool
    @traced
    async def hello(name: str) -> str:
        """Say hello."""
        return f"hello {name}"

    assert (await run_tool(hello, {"name": "you"})).as_text() == "hello you"


def test_options_of_the_decorator() -> None:
    @tool(
        name="Send",
        label="Send it",
        owner_only=True,
        effects=[Effect("send", "mail:out")],
        aliases={"recipient": "to"},
        paths=["attachment"],
    )
    def send_mail(to: str, attachment: str = "") -> None:
        """Send a mail."""

    assert (send_mail.name, send_mail.label, send_mail.owner_only) == ("Send", "Send it", True)
    assert send_mail.effects(None, CTX) == (Effect("send", "mail:out"),)
    assert send_mail.aliases == {"recipient": "to"}
    assert send_mail.paths == ("attachment",)


def test_effects_may_depend_on_the_parameters_and_default_to_any() -> None:
    def effects_of(params: Any, _ctx: Context) -> list[Effect]:
        return [Effect("write", f"file:{params.path}")]

    @tool(effects=effects_of)
    def save(path: str) -> None:
        """Save."""

    @tool
    def other() -> None:
        """Other."""

    struct = save.struct
    assert struct is not None
    assert save.effects(struct(path="/x"), CTX) == [Effect("write", "file:/x")]
    assert other.effects(None, CTX) == ANYTHING


def no_docstring(city: str) -> None:
    pass


def no_description(city: str) -> None:
    """Args:
    city: Where.
    """


def no_annotation(city):  # type: ignore[no-untyped-def]
    """Look."""


def many(*cities: str) -> None:
    """Look."""


def open_ended(**cities: str) -> None:
    """Look."""


def positional(city: str, /) -> None:
    """Look."""


def indescribable(city: Unknown) -> None:
    """Look."""


def unresolvable(city: NotThere) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Look."""


def shared_default(cities: list[str] = ["Oslo"]) -> None:  # noqa: B006
    """Look."""


@table(
    ("function", "words"),
    [
        (no_docstring, "no_docstring: a tool needs a docstring"),
        (no_description, "no_description: a tool needs a docstring"),
        (no_annotation, "'city' needs a type annotation"),
        (many, "'cities' must be an ordinary named parameter"),
        (open_ended, "'cities' must be an ordinary named parameter"),
        (positional, "'city' must be an ordinary named parameter"),
        (indescribable, "indescribable: the parameters have no schema: type .* is not supported$"),
        (unresolvable, "'NotThere' is not defined"),
        (shared_default, "shared_default: invalid parameters"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_an_error_with_the_reason(
    function: Callable[..., object], words: str
) -> None:
    with pytest.raises(SchemaError, match=words):
        tool(function)


@table("name", ["", "1st", "a b", "a.b", "é", "a\n", "-a", "a" * 65, "group:fs"])
def test_bad_names_are_refused(name: str) -> None:
    assert not is_tool_name(name)
    with pytest.raises(SchemaError, match="invalid tool name"):
        Tool(name, "A tool.", {}, nothing)


def test_a_tool_is_immutable_but_can_be_copied() -> None:
    made = Tool("a", "A tool.", {}, nothing)
    with pytest.raises(FrozenInstanceError):
        made.name = "b"  # type: ignore[misc]
    assert replace(made, name="b").name == "b"


def test_the_schema_of_a_mapping_is_an_object_and_a_copy() -> None:
    parameters = {"properties": {"a": {"type": "string"}}}
    made = Tool("a", "A tool.", parameters, nothing)
    assert made.schema == {"type": "object", **parameters}
    assert made.struct is None
    assert "type" not in parameters
    with pytest.raises(SchemaError, match="must be an object"):
        _ = Tool("a", "A tool.", {"type": "array"}, nothing).schema


@table(
    ("schema", "defaults"),
    [
        ({"properties": {"a": {"default": 1}, "b": {}, "c": True}}, {"a": 1}),
        ({"properties": []}, {}),
        ({}, {}),
    ],
)
def test_defaults_are_what_the_schema_says(schema: dict[str, Any], defaults: object) -> None:
    assert Tool("a", "A tool.", schema, nothing).defaults == defaults


@table(
    "schema",
    [
        {"properties": {"a": {"type": "nonsense"}}},
        {"$ref": "https://example.com/schema.json"},
        {"properties": {"a": {"pattern": "(?=x)"}}},
        {"properties": {"a": {"pattern": "(x)\\1"}}},
    ],
)
def test_an_unusable_schema_is_an_error_with_the_name_of_the_tool(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match=r"^probe: the parameter schema is invalid"):
        _ = Tool("probe", "A tool.", schema, nothing).validator


class Launch(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    command: str
    place: Place | None = None
    yield_ms: int = 10
    old_name: str = ""


HIDING = Tool("launch", "Launch.", Launch, nothing, hidden=frozenset({"place", "oldName"}))


def test_hidden_parameters_are_not_offered_but_part_of_the_schema() -> None:
    assert list(HIDING.offered["properties"]) == ["command", "yieldMs"]
    assert list(HIDING.schema["properties"]) == ["command", "place", "yieldMs", "oldName"]
    left_out: dict[str, Any] = {"properties": {}}
    assert HIDING.offered | left_out == HIDING.schema | left_out


def test_hidden_parameters_are_not_offered_as_required() -> None:
    schema = {"properties": {"a": {}, "b": {}, "c": {}}, "required": ["a", "b", "elsewhere"]}
    made = Tool("a", "A tool.", schema, nothing, hidden=frozenset({"b", "c"}))
    assert made.offered["required"] == ["a", "elsewhere"]
    assert made.offered["properties"] == {"a": {}}
    assert made.schema["required"] == ["a", "b", "elsewhere"]
    assert not made.validator.is_valid({"a": 1, "elsewhere": 1})


@pytest.mark.parametrize("required", [{}, {"required": None}])
def test_a_schema_without_required_parameters_stays_so(required: dict[str, Any]) -> None:
    schema = {"properties": {"a": {}, "b": {}}, **required}
    made = Tool("a", "A tool.", schema, nothing, hidden=frozenset({"b"}))
    assert made.offered == {"type": "object", "properties": {"a": {}}, **required}


@table(
    ("schema", "hidden"),
    [
        ({"properties": {"a": {}}}, set()),
        ({"properties": {"a": {}}}, {"b"}),
        ({"properties": []}, {"b"}),
        ({}, {"b"}),
    ],
)
def test_without_hidden_parameters_the_schema_itself_is_offered(
    schema: dict[str, Any], hidden: set[str]
) -> None:
    made = Tool("a", "A tool.", schema, nothing, hidden=frozenset(hidden))
    assert made.offered is made.schema


@pytest.mark.parametrize("name", ["oldName", "old_name"])
async def test_hidden_parameters_are_accepted_and_checked_like_others(name: str) -> None:
    async def show(params: Launch, _ctx: Context) -> str:
        return params.old_name

    shown = replace(HIDING, execute=show)
    assert (await run_tool(shown, {"command": "x", name: "here"})).as_text() == "here"
    assert (await run_tool(shown, {"command": "x", name: 7})).details["code"] == 400
