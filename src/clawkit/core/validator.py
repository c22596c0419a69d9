"""The checker behind every parameter schema and every `/pattern/` an operator writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from clawkit.errors import SchemaError

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator, RegexOptions


MAX_PATTERN_BYTES = 2 * 1024 * 1024
"""Most memory a compiled pattern takes: time is linear in the text, but also in the pattern."""


def _refuse_remote(uri: str) -> Any:
    raise ValueError(f"remote references are refused: {uri}")


def _pattern_options() -> RegexOptions:
    import jsonschema_rs

    return jsonschema_rs.RegexOptions(
        size_limit=MAX_PATTERN_BYTES, dfa_size_limit=MAX_PATTERN_BYTES
    )


def make_validator(schema: Mapping[str, Any], owner: str) -> Draft202012Validator:
    """A checker for a schema that may come from anybody: nothing fetched, linear-time patterns."""
    import jsonschema_rs

    try:
        return jsonschema_rs.Draft202012Validator(
            dict(schema), retriever=_refuse_remote, pattern_options=_pattern_options()
        )
    except (ValueError, TypeError, RecursionError) as error:
        first = str(error).partition("\n")[0]
        raise SchemaError(f"{owner}: the parameter schema cannot be used: {first}") from None


def make_pattern(pattern: str) -> Callable[[str], bool]:
    """A search for a regular expression in linear time: no look-around, no back-references."""
    import jsonschema_rs

    try:
        validator = jsonschema_rs.Draft202012Validator(
            {"type": "string", "pattern": pattern}, pattern_options=_pattern_options()
        )
    except ValueError:
        raise SchemaError(
            f"/{pattern}/ is not a usable pattern: check the brackets, and note that look-around, "
            "back-references and very large repeats are not available"
        ) from None
    return validator.is_valid
