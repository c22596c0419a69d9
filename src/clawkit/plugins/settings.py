"""The settings of plugins: `plugins.entries.<id>.config`, checked against the plugin's class."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from clawkit.config.json5 import format_path
from clawkit.config.section import suggest
from clawkit.errors import Issue, PluginError


def read_settings(kind: type[Any] | None, values: dict[str, Any], id_: str) -> Any:
    """The settings as an object of the plugin's class. Raises `PluginError` with all problems."""
    if kind is None:
        if values:
            raise PluginError(f"plugins.entries.{id_}.config: it has no settings")
        return {}
    above, issues = ("plugins", "entries", id_, "config"), []
    is_struct = issubclass(kind, msgspec.Struct)
    names = [each.encode_name for each in msgspec.structs.fields(kind)] if is_struct else [*values]
    for key in values:
        if key not in names:
            hint = suggest(key, names, "Settings here")
            issues.append(Issue(format_path((*above, key)), "unknown setting", hint=hint))
    known = {key: value for key, value in values.items() if key in names}
    try:
        made = msgspec.convert(known, kind) if is_struct else kind.model_validate(known)
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at `$")
        steps = re.findall(r"\.?([^.\[\]`]+)|\[(\d+)\]", where)
        below = [int(number) if number else name for name, number in steps]
        message = f"{said[:1].lower()}{said[1:]}".replace("`", "").replace(", got", ", found")
        issues.append(Issue(format_path((*above, *below)), message))
    except ValueError as error:
        pydantic: Any = error
        for each in pydantic.errors():
            issues.append(Issue(format_path((*above, *each["loc"])), str(each["msg"])))
    if issues:
        raise PluginError("; ".join(map(str, issues)))
    return made


def schema_of(kind: type[Any], id_: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON Schema of a plugin's settings, and the definitions that it refers to, by name."""
    if issubclass(kind, msgspec.Struct):
        refer = f"#/$defs/{id_}.{{name}}"
        (root,), parts = msgspec.json.schema_components((kind,), ref_template=refer)
        own = parts.pop(kind.__name__, root)
    else:
        own = kind.model_json_schema(ref_template=f"#/$defs/{id_}.{{model}}")
        parts = own.pop("$defs", {})
    return own, {f"{id_}.{name}": part for name, part in parts.items()}
