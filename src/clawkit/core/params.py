"""Reads parameters once, at the edge: names, repairs, validation, typed struct.

Whatever a model sends becomes either the canonical, validated form or one error that lists
everything missing or wrong. Nothing after this module sees another spelling.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

from clawkit.core.paths import plain_path, strip_mention
from clawkit.core.tool import Tool
from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.text import nearest, one_line, regex

MAX_DEPTH = 64
MAX_NODES = 200_000

_PLAIN = (str, bool, int, float, list, dict)
_ONE_LINE_KEYS = frozenset({"path", "command", "workdir", "host", "ask", "node"})
# Some models leak the closing tag of their own call format into the last string.
_LEAKED_TAG = r"(?<!\s)\s*+</arg_value>++\s*+\Z"
# Some invent Office file extensions.
_OFFICE = r"(?i)(?<=\.)(doc|ppt|xls)x?c?odex\Z"
_INDEX = r"\[\d+\]"
_NUMBER = r"-?(0|[1-9]\d{0,17})(\.\d{1,17})?([eE][+-]?\d{1,3})?\Z"


def read_params(
    tool: Tool, raw: object, workspace: str = "", cwd: str = ""
) -> tuple[dict[str, Any], Any]:
    """The canonical parameters, and the argument for `execute`: the struct, or the same dict.

    The workspace determines whether a path that starts with `@` is literal. With `cwd`, a directory
    below the workspace, relative paths are resolved there and become absolute, so that no later
    reader has to know it.
    """
    given = _as_object(tool, raw)
    _bound(tool, given)
    reader = _Reader(tool, workspace, cwd)
    params = reader.canonical(given, tool.schema)
    for name in tool.paths if cwd else ():
        if not params.get(name) and isinstance(default := tool.defaults.get(name), str):
            params[name] = os.path.normpath(os.path.join(workspace, cwd, default))
    problems = reader.problems
    action = params.get("action")
    if isinstance(action, str) and action in tool.off:
        raise ToolAuthorizationError(tool.off[action], reason="rule")
    refusal: list[str] = []
    if tool.struct is None:
        problems += _explain(tool, params)
    if not problems:
        # Two validators for the same schema: the struct is faster, the other explains errors.
        try:
            return params, tool.typed(params)
        except ValueError as error:
            refusal = [str(error)]
    if tool.struct is not None:
        problems += _explain(tool, params)
    raise ToolInputError(_complain(tool, problems or refusal, given))


def _as_object(tool: Tool, raw: object) -> dict[str, Any]:
    if raw is None or raw == "":
        return {}
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise ToolInputError(
                f"{tool.name}: the parameters are not valid JSON ({error}); send a JSON object"
            ) from None
    if not isinstance(raw, (dict, Mapping)):
        raise ToolInputError(f"{tool.name}: the parameters must be a JSON object, got {_kind(raw)}")
    return {str(key): value for key, value in raw.items()}


def _bound(tool: Tool, params: object) -> None:
    """Refuse what is not JSON, too deep or too large before anything recursive sees it."""
    level, depth, nodes = [params], 0, 0
    while level:
        nodes += len(level)
        for node in level:
            if not (node is None or isinstance(node, _PLAIN)):
                raise ToolInputError(
                    f"{tool.name}: the parameters are not plain JSON: they contain a {_kind(node)}"
                )
            if isinstance(node, float) and not math.isfinite(node):
                raise ToolInputError(
                    f"{tool.name}: the parameters contain {node}, which is not JSON"
                )
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            limit = f"{MAX_DEPTH} levels" if depth > MAX_DEPTH else f"{MAX_NODES} values"
            raise ToolInputError(
                f"{tool.name}: the parameters are nested too deeply or too large (over {limit})"
            )
        level = [
            child
            for node in level
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        depth += 1


class _Reader:
    def __init__(self, tool: Tool, workspace: str, cwd: str) -> None:
        self._tool = tool
        self._base = os.path.join(workspace, cwd) if cwd else workspace
        self._has_cwd = bool(cwd)
        self.problems: list[str] = []

    def canonical(
        self, params: Mapping[str, Any], schema: Mapping[str, Any], at: str = ""
    ) -> dict[str, Any]:
        """Known names in their advertised spelling, and values repaired if the repair is
        unambiguous."""
        tool = self._tool
        properties: Mapping[str, Any] = schema.get("properties", {})
        spellings = _spellings(tuple(properties))
        out: dict[str, Any] = {}
        origin: dict[str, str] = {}
        for key, value in params.items():
            name = key if key in properties else _resolve(key, spellings, tool.aliases)
            if name is None:
                if schema.get("additionalProperties") is False:
                    hint = "" if at else tool.unsupported.get(_snake(key), "")
                    self.problems.append(_unknown(at + key, tuple(properties), hint))
                else:
                    out[key] = value
                continue
            where = at + name
            if name in out:
                self.problems.append(
                    f"{where}: given twice, as {origin[name]!r} and {key!r}; send one"
                )
                continue
            origin[name] = key
            part = _follow(properties[name], tool.schema)
            if value is None and not _takes_null(part) and name not in schema.get("required", ()):
                continue
            value = self._repair(value, part, where)
            is_path = tool.paths and regex(_INDEX).sub("", where) in tool.paths
            out[name] = self._plain(value, where) if is_path else value
        return out

    def _repair(self, value: Any, schema: Mapping[str, Any], at: str) -> Any:
        wanted = schema.get("type")
        if isinstance(value, str):
            value = self._repair_string(value, wanted, schema, at)
        elif wanted == "integer" and isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, dict) and "properties" in schema:
            return self.canonical(value, schema, f"{at}.")
        if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
            items = _follow(schema["items"], self._tool.schema)
            return [self._repair(item, items, f"{at}[{n}]") for n, item in enumerate(value)]
        return value

    def _repair_string(self, value: str, wanted: Any, schema: Mapping[str, Any], at: str) -> Any:
        bare = value.strip()
        if wanted in ("integer", "number") and regex(_NUMBER).match(bare):
            number = json.loads(bare)
            return int(number) if wanted == "integer" and float(number).is_integer() else number
        if wanted == "boolean" and bare.lower() in ("true", "false"):
            return bare.lower() == "true"
        if wanted in ("array", "object") and bare[:1] in ("[", "{"):
            with contextlib.suppress(ValueError, RecursionError):
                parsed = json.loads(value)
                _bound(self._tool, parsed)
                if isinstance(parsed, list if wanted == "array" else dict):
                    return parsed
        if wanted == "array":
            items = _follow(schema.get("items", {}), self._tool.schema)
            return [value] if items.get("type") == "string" else value
        if at not in _ONE_LINE_KEYS:
            return value
        repaired = regex(_LEAKED_TAG).sub("", value)
        if at == "path":
            repaired = regex(_OFFICE).sub(r"\1x", repaired)
        if value and not repaired.strip() and repaired != value:
            self.problems.append(f"{at}: only a leaked closing tag was sent; send the real value")
        return repaired

    def _plain(self, value: Any, at: str) -> Any:
        """The one spelling of paths that rules, effects and the file system agree on."""
        if isinstance(value, list):
            return [self._plain(each, at) for each in value]
        if not isinstance(value, str):
            return value
        try:
            path = plain_path(strip_mention(value, self._base))
            is_fixed = not self._has_cwd or not path or path.startswith(("/", "~"))
            return path if is_fixed else os.path.join(self._base, path)
        except ToolInputError as error:
            self.problems.append(f"{at}: {error}")
            return value


def advertised(tool: Tool, name: str) -> str | None:
    """The parameter that a name in any accepted spelling refers to; None if there is none."""
    if name in tool.properties:
        return name
    return _resolve(name, _spellings(tuple(tool.properties)), tool.aliases)


def _resolve(key: str, spellings: Mapping[str, str], aliases: Mapping[str, str]) -> str | None:
    for candidate in (key, key.removeprefix("claude_")):
        alias = aliases.get(candidate) or aliases.get(_snake(candidate))
        found = spellings.get(_snake(alias or candidate))
        if found is not None:
            return found
    return None


@lru_cache(1024)
def _spellings(names: tuple[str, ...]) -> dict[str, str]:
    return {_snake(name): name for name in names}


def same_name(first: str, second: str) -> bool:
    return first == second or _snake(first) == _snake(second)


@lru_cache(4096)
def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).replace("-", "_").lower()


def _follow(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolve a local `$ref`; anything that is not an object schema becomes `{}`."""
    for _ in range(8):
        if not isinstance(schema, (dict, Mapping)):
            return {}
        ref = schema.get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#/$defs/"):
            return schema
        schema = root.get("$defs", {}).get(ref.removeprefix("#/$defs/"))
    return {}


def _takes_null(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type")
    if kinds is None:
        return "const" not in schema or schema["const"] is None
    return "null" in (kinds if isinstance(kinds, list) else [kinds])


def _explain(tool: Tool, params: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    try:
        for error in chain.from_iterable(map(_causes, tool.validator.iter_errors(params))):
            parts = (f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.instance_path)
            at = "".join(parts).lstrip(".")
            if error.kind.name == "required":
                at = f"{at}.{error.kind.property}" if at else error.kind.property
                lines.append(f"{at}: missing{_describe(tool, at)}")
            else:
                words = one_line(error.message, 200)
                lines.append(f"{at or 'parameters'}: {words}{_describe(tool, at)}")
    except ValueError as error:
        return [f"the parameters are not plain JSON ({error})"]
    return lines


def _causes(error: Any) -> list[Any]:
    """The errors of a nullable value: those of its only other type."""
    branches = error.kind.context if error.kind.name == "anyOf" else []
    null = [["null"]]
    others = [each for each in branches if [getattr(e.kind, "types", 0) for e in each] != null]
    return (others[0] if len(others) == 1 else []) or [error]


def _describe(tool: Tool, name: str) -> str:
    part = _follow(tool.properties.get(name, {}), tool.schema)
    words = [str(word) for word in (part.get("type"), part.get("description")) if word]
    return f" ({': '.join(words)})" if words else ""


def _unknown(name: str, known: tuple[str, ...], unsupported: str) -> str:
    if unsupported:
        return f"{name}: not supported; {unsupported}"
    close = nearest(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
    return f"{name}: unknown parameter; {hint}"


def _complain(tool: Tool, problems: list[str], params: Mapping[str, Any]) -> str:
    if len(problems) == 1:
        head = f"{tool.name}: invalid parameters: {problems[0]}"
    else:
        lines = "".join(f"\n- {problem}" for problem in problems[:20])
        more = f"\n- and {len(problems) - 20} more" if len(problems) > 20 else ""
        head = f"{tool.name}: invalid parameters:{lines}{more}"
    received = ", ".join(f"{key}={_show(value)}" for key, value in list(params.items())[:20])
    return f"{head}\nReceived: {received or 'nothing'}"


def _show(value: object) -> str:
    if value == "":
        return "<empty string>"
    if isinstance(value, int) and value.bit_length() > 1024:
        return "<very large number>"
    if isinstance(value, (str, int, float)) or value is None:
        return one_line(json.dumps(value, ensure_ascii=False), 60)
    return f"<{_kind(value)}>"


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "object"
    return "array" if isinstance(value, (list, tuple)) else type(value).__name__
