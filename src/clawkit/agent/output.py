"""Structured output: the schema given to the model, and parsing of its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from clawkit.core.tool import make_validator, why_no_schema
from clawkit.text import one_line

AGAIN = (
    "Your last message cannot be used: {}. Answer again with the JSON value alone, as the "
    "instructions about the final answer say."
)
MAX_VALUE = 256 * 1024
MAX_DEPTH = 32


def schema_of(output_type: Any) -> str:
    """The JSON Schema of a type. Raises TypeError for a type that JSON cannot express."""
    try:
        if _is_model(output_type):
            schema = output_type.model_json_schema()
        elif _is_made_of_models(output_type):
            schema = _adapter(output_type).json_schema()
        else:
            schema = msgspec.json.schema(output_type)
    except (TypeError, RuntimeError) as error:  # pydantic's are RuntimeErrors
        raise TypeError(f"output_type: {why_no_schema(error)}") from None
    return msgspec.json.encode(schema).decode()


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_json_schema")


def _is_made_of_models(kind: Any) -> bool:
    return any(_is_model(part) or _is_made_of_models(part) for part in get_args(kind))


def _adapter(output_type: Any) -> Any:
    """What pydantic makes of a type such as `list[City]`, if `City` is a model."""
    from pydantic import TypeAdapter

    return TypeAdapter(output_type)


def unfenced(text: str) -> str:
    """The content of a fenced Markdown block, if the text ends with one and no JSON precedes it;
    else all of the text."""
    before, _, block = text.strip().partition("```")
    if not block.endswith("```") or not {"{", "["}.isdisjoint(before):
        return text.strip()
    body = block.removesuffix("```")
    return (body[4:] if body[:4].lower() == "json" else body).strip()


def read_output(output_type: Any, text: str) -> Any:
    """Parse an answer as an object of the type. Raises a ValueError that explains the problem."""
    body = unfenced(text)
    try:
        if _is_model(output_type):
            return output_type.model_validate_json(body)
        if _is_made_of_models(output_type):
            return _adapter(output_type).validate_json(body)
        return msgspec.json.decode(body, type=output_type)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(one_line(_reason(error), 500)) from None


def _reason(error: Any) -> str:
    """What is wrong; pydantic's own text has several lines, and URLs."""
    if not hasattr(error, "errors"):
        return str(error)
    found = ((".".join(map(str, each["loc"])), each["msg"]) for each in error.errors())
    return "; ".join(f"{place}: {said}" if place else said for place, said in found)


def name_of(output_type: Any) -> str:
    """The name of a type in messages, without modules."""
    if isinstance(output_type, type):
        return output_type.__name__
    return re.sub(r"(\w+\.)+", "", str(output_type))


def read_value(schema: Mapping[str, Any], text: str) -> Any:
    """Parse an answer as a value that matches the schema. Raises ValueError like `read_output`."""
    if len(text) > MAX_VALUE:
        raise ValueError(f"it is longer than {MAX_VALUE} characters")
    value = read_output(Any, text)
    if _depth(value) > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    for error in make_validator(schema, "the schema").iter_errors(value):
        where = "/".join(map(str, error.instance_path))
        raise ValueError(one_line(f"{where}: {error.message}" if where else error.message, 300))
    return value


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level := [
        child
        for node in level
        if isinstance(node, (dict, list))
        for child in (node.values() if isinstance(node, dict) else node)
    ]:
        depth += 1
    return depth
