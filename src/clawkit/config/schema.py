"""The configuration as JSON Schema, for editors and for `clawkit config schema`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from clawkit.config.include import INCLUDE
from clawkit.config.model import Config
from clawkit.config.section import Section
from clawkit.config.shape import Shape, layout_of

_INCLUDE_SCHEMA = {
    "description": "Files whose content is merged in here, in order; keys beside it win.",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
}


def json_schema() -> dict[str, Any]:
    """A schema that accepts what the check accepts, but for contradictions between settings.

    It knows the documented names and the older ones, not the snake_case forms.
    """
    schema: dict[str, Any] = _without_null(msgspec.json.schema(Config))
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    for cls in all_sections():
        properties = schema["$defs"][cls.__name__]["properties"]
        keys = {name: key for key, name in layout_of(cls).fields.items()}
        for name, text in cls.descriptions().items():
            properties[keys[name]] = {"description": text, **properties[keys[name]]}
        for other, documented in cls.ALIASES.items():
            properties[other] = {**properties[documented], "deprecated": True}
        properties[INCLUDE] = _INCLUDE_SCHEMA
    return schema


def all_sections() -> Iterator[type[Section]]:
    """Every section class of the configuration, `Config` first, each once."""
    seen: dict[type[Section], None] = {Config: None}
    queue: list[type[Section]] = [Config]
    while queue:
        cls = queue.pop(0)
        yield cls
        for shape in layout_of(cls).shapes.values():
            for inner in _sections_in(shape):
                if inner not in seen:
                    seen[inner] = None
                    queue.append(inner)


def _sections_in(shape: Shape) -> Iterator[type[Section]]:
    yield from shape.sections
    for inner in (shape.items, shape.values):
        if inner is not None:
            yield from _sections_in(inner)


def _without_null(schema: Any) -> Any:
    """The same schema for a file, in which a setting is left out instead of being null."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {
        key: _without_null(value)
        for key, value in schema.items()
        if (key, value) != ("default", None)
    }
    if "anyOf" in schema:
        options = [option for option in schema.pop("anyOf") if option != {"type": "null"}]
        schema = {**(options[0] if len(options) == 1 else {"anyOf": options}), **schema}
    return schema
