"""A tool as each model API wants it declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from clawkit.errors import SchemaError
from clawkit.schema.choose import Target, adapt, is_strict_ready
from clawkit.schema.inline import inline

Provider = Literal["anthropic", "openai", "openai-responses", "google"]
PROVIDERS: tuple[Provider, ...] = get_args(Provider)
CHARS_PER_TOKEN = 4


def declare(
    name: str,
    description: str,
    schema: Mapping[str, Any],
    provider: Provider,
    *,
    strict: bool = False,
) -> dict[str, Any]:
    """One tool declaration, schema adapted. `strict` is for the OpenAI APIs."""
    target: Target = "openai" if provider == "openai-responses" else provider
    try:
        adapted = adapt(schema, target, strict=strict and target == "openai")
    except SchemaError as error:
        raise SchemaError(f"{name}: {error}") from None
    if provider == "anthropic":
        return {"name": name, "description": description, "input_schema": adapted}
    function: dict[str, Any] = {"name": name, "description": description, "parameters": adapted}
    if provider == "google":
        if not adapted["properties"]:
            del function["parameters"]  # an object without properties is refused
        return function
    if strict and is_strict_ready(adapted):
        function["strict"] = True  # else the API would refuse it: too large, too deep
    if provider == "openai-responses":
        return {"type": "function", **function}
    return {"type": "function", "function": function}


def check_schema(schema: Mapping[str, Any], name: str) -> None:
    """Raise `SchemaError` for a schema that is recursive, far too large, or refers elsewhere.

    Such a schema cannot be declared to any model; checking parameters against it could also take
    for ever.
    """
    try:
        inline(schema)
    except SchemaError as error:
        raise SchemaError(f"{name}: {error}") from None


def token_cost(name: str, description: str, schema: Mapping[str, Any], provider: Provider) -> int:
    """About how many tokens of every request the tool costs: characters of its declaration / 4."""
    import json

    text = json.dumps(declare(name, description, schema, provider), separators=(",", ":"))
    return -(-len(text) // CHARS_PER_TOKEN)
