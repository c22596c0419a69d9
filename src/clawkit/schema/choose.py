"""One schema, the right form for a provider, and a tool as each model API wants it declared.

Everything here is a pure function of its input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, get_args

import msgspec

from clawkit.errors import SchemaError
from clawkit.schema.clean import clean, inline
from clawkit.schema.merge import object_root, values_of
from clawkit.schema.providers import anthropic, google, openai
from clawkit.schema.providers import strict as strict_openai
from clawkit.schema.walk import Schema, fingerprint

Target = Literal["anthropic", "openai", "google"]

_FORMS: dict[str, Callable[[Schema], Schema]] = {
    "anthropic": anthropic,
    "openai": openai,
    "google": google,
}


def adapt(schema: Mapping[str, Any], target: Target, *, strict: bool = False) -> dict[str, Any]:
    """The schema as `target` accepts it, a new object each time.

    Does not refuse what the original accepts, except with `strict`, which asks for OpenAI's strict
    subset and means nothing to the others. Raises `SchemaError` for what cannot be adapted:
    recursion, references elsewhere, no object at the root, too large, not JSON.
    """
    source = msgspec.json.encode(inline(schema))
    adapted: dict[str, Any] = msgspec.json.decode(_adapt(source, target, strict))
    return adapted


@lru_cache(maxsize=2048)
def _adapt(source: bytes, target: Target, strict: bool) -> bytes:
    """Bytes in, bytes out: what is cached cannot be changed by a caller."""
    schema = _FORMS[target](object_root(clean(msgspec.json.decode(source))))
    return msgspec.json.encode(strict_openai(schema) if strict and target == "openai" else schema)


def openai_strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema for an OpenAI function with `strict: true`."""
    return adapt(schema, "openai", strict=True)


def is_strict_ready(schema: Mapping[str, Any]) -> bool:
    """Whether OpenAI takes the schema with `strict: true` as it stands.

    It does when the strict form changes nothing and the documented limits are kept: 10 levels,
    5,000 properties, 1,000 literals, 120,000 characters of names and literals.
    """
    try:
        form = openai_strict(schema)
    except SchemaError:
        return False
    if fingerprint(inline(schema)) != fingerprint(form):
        return False
    todo: list[tuple[Schema, int]] = [(form, 1)]
    for node, level in todo:
        todo += [(child, level + 1) for child in node.get("properties", {}).values()]
        todo += [(child, level) for child in node.get("anyOf", ())]
        todo += [(node["items"], level)] if "items" in node else []
    found = [name for node, _ in todo for name in node.get("properties", ())]
    literals = [value for node, _ in todo for value in values_of(node) or ()]
    chars = sum(len(text) for text in (*found, *literals) if isinstance(text, str))
    deep = max(level for _, level in todo)
    return deep <= 10 and len(found) <= 5_000 and len(literals) <= 1_000 and chars <= 120_000


def target_for(provider: str | None, model_id: str | None = None, api: str | None = None) -> Target:
    """Whose rules the tools of a request follow.

    The protocol decides where it is known: through an Anthropic endpoint even a Gemini model gets
    Anthropic's form, while a relay that speaks OpenAI's protocol passes schemas on to Gemini.
    """
    who, model, protocol = (text.lower() for text in (provider or "", model_id or "", api or ""))
    if "anthropic" in (protocol or who):
        return "anthropic"
    if any(word in text for text in (who, model, protocol) for word in ("google", "gemini")):
        return "google"
    return "anthropic" if "claude" in model and "openai" not in protocol else "openai"


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
