"""The JSON Schema of a struct with ordinary fields, as msgspec generates it, but three times as
fast: all built-in tools are declared at every start."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_origin

import msgspec

_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}
_LIMITS = {
    "string": {"max_length": "maxLength", "min_length": "minLength", "pattern": "pattern"},
    "array": {"max_length": "maxItems", "min_length": "minItems"},
    "integer": _BOUNDS,
    "number": _BOUNDS,
}


class _UnusualError(Exception):
    pass


def struct_schema(struct: type[msgspec.Struct]) -> dict[str, Any] | None:
    """The schema of a struct; None if a field is unusual and needs msgspec's generator."""
    parts: dict[type, dict[str, Any]] = {}
    try:
        schema = _of_struct(struct, parts)
    except _UnusualError:
        return None
    defs = {kind.__name__: part for kind, part in parts.items()}
    if len(defs) < len(parts):
        return None
    return schema | ({"$defs": defs} if defs else {})


def _of_struct(struct: type[msgspec.Struct], parts: dict[type, dict[str, Any]]) -> dict[str, Any]:
    config = struct.__struct_config__
    if config.tag is not None or config.array_like:
        raise _UnusualError
    properties: dict[str, Any] = {}
    required = []
    for field in msgspec.structs.fields(struct):
        part = properties[field.encode_name] = _of(field.type, parts)
        if field.required:
            required.append(field.encode_name)
        elif field.default is not msgspec.NODEFAULT:
            if field.default is not msgspec.UNSET:
                part["default"] = msgspec.to_builtins(field.default, str_keys=True)
        elif field.default_factory in (list, dict):
            part["default"] = field.default_factory()
        else:
            raise _UnusualError
    closed = {"additionalProperties": False} if config.forbid_unknown_fields else {}
    return {"type": "object", "properties": properties, "required": required, **closed}


def _of(kind: Any, parts: dict[type, dict[str, Any]]) -> dict[str, Any]:
    if name := _NAMES.get(kind) if isinstance(kind, type) else None:
        return {"type": name}
    origin = get_origin(kind)
    args: tuple[Any, ...] = getattr(kind, "__args__", ())
    if origin is Annotated:
        part = _of(kind.__origin__, parts)
        for meta in kind.__metadata__:
            part = _limit(part, meta)
        return part
    if origin in (Union, UnionType):
        # Null comes last, and what is merely unset is not part of JSON.
        kinds = sorted(args, key=lambda each: each is NoneType)
        options = [_of(each, parts) for each in kinds if each is not msgspec.UnsetType]
        return options[0] if len(options) == 1 else {"anyOf": options}
    if origin is Literal and all(isinstance(value, str) for value in args):
        return {"enum": sorted(args)}
    if origin is list or (origin is tuple and args[1:] == (...,)):
        items = _of(args[0], parts)
        return {"type": "array", **({"items": items} if items else {})}
    if origin is dict and args[0] is str:
        values = _of(args[1], parts)
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if origin is None and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind not in parts:
            parts[kind] = {}  # its place, which may be within itself
            parts[kind] |= _of_struct(kind, parts)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if kind is Any:
        return {}
    raise _UnusualError


def _limit(part: dict[str, Any], meta: object) -> dict[str, Any]:
    """The schema with the description and the constraints of its metadata."""
    if not isinstance(meta, msgspec.Meta):
        raise _UnusualError
    known = _LIMITS.get(part.get("type", ""), {})
    words: dict[str, Any] = {}
    for name, value in meta.__rich_repr__():
        if name == "description":
            words[name] = value
        elif name == "extra_json_schema":
            words |= value
        elif name in known:
            part[known[name]] = value
        else:
            raise _UnusualError  # a constraint on the members of a union, for instance
    return words | part
