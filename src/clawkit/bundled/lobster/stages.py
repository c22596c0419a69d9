"""The stages of pipelines. Items are JSON values; each stage gets the items of the previous one."""

from __future__ import annotations

import asyncio
import math
import re
import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from clawkit.bundled.lobster import values as v
from clawkit.bundled.lobster.pipeline import Stage
from clawkit.bundled.lobster.state import Halted
from clawkit.bundled.lobster.values import MISSING, PipelineError, Value
from clawkit.schema.choose import validator_for
from clawkit.text import nearest

if TYPE_CHECKING:
    from clawkit.bundled.lobster.host import PipelineHost

Items = list[Value]
MAX_ITEMS = 100_000
MAX_SUBJECT = 2_000
"""Maximum characters of the items in a request for input."""
_DECISION = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["approve", "reject", "redraft"]},
        "feedback": {"type": "string", "description": "Feedback for redraft"},
    },
    "required": ["decision"],
}


async def run_stages(stages: Sequence[Stage], items: Items, host: PipelineHost) -> Items | Halted:
    """Run stages up to the first gate. Raises `PipelineError`."""
    for number, stage in enumerate(stages, 1):
        command = COMMANDS.get(stage.name)
        if command is None:
            close = nearest(stage.name, tuple(COMMANDS), 1)
            hint = f"did you mean {close[0]}?" if close else "commands.list lists all"
            raise PipelineError(f"Unknown command: {stage.name}; {hint}")
        _check_options(stage, command.options)
        result = command.run(stage, items, host)
        result = result if isinstance(result, list | Halted) else await result
        if isinstance(result, Halted):
            return replace(result, stages=tuple(stages[number:]))
        if len(result) > MAX_ITEMS:
            raise PipelineError(f"{stage.name} produced more than {MAX_ITEMS:,} items")
        items = result
        await asyncio.sleep(0)  # so that a pipeline of fast stages can be cancelled
    return items


def _check_options(stage: Stage, known: str) -> None:
    """Refuse unknown and misused options: an ignored one, or one that takes a word of the command,
    would change what runs."""
    for name, value in stage.options.items():
        if name not in known.split() and (value is not True or f"{name}!" not in known.split()):
            hint = f"known: {known or 'none'} (! takes no value)"
            if stage.name == "exec":
                hint = "quote the whole command: exec --json --shell 'ls --all'"
            raise PipelineError(f"{stage.name}: cannot use --{name} like this; {hint}")


async def _exec(stage: Stage, items: Items, host: PipelineHost) -> Items:
    words, line = stage.words, stage.option("shell")
    if not words and not line:
        raise PipelineError("exec requires a command")
    is_line = "shell" in stage.options or (len(words) == 1 and re.search(r"\s", words[0]))
    command = (line or words[0]) if is_line else shlex.join(words)
    stdin = _encode(items, stage.option("stdin").lower()) if "stdin" in stage.options else None
    output = await host.run(command, stdin)
    if "json" not in stage.options:
        return [line for line in re.split(r"\r?\n", output) if line]
    value = v.parse_json(output.strip() or "null", "exec --json: stdout (with stderr)")
    return value if isinstance(value, list) else [value]


def _encode(items: Items, mode: str) -> str:
    if mode == "json":
        return v.to_json(items)
    if mode == "jsonl":
        return "".join(f"{v.to_json(item)}\n" for item in items)
    if mode == "raw":
        return "\n".join(item if isinstance(item, str) else v.to_json(item) for item in items)
    raise PipelineError(f"exec --stdin must be raw, json, or jsonl (got {mode or 'nothing'})")


def _head(stage: Stage, items: Items, _host: PipelineHost) -> Items:
    return items[: _count(stage, "n", 10)]


def _count(stage: Stage, name: str, default: int) -> int:
    count = v.to_number(stage.options.get(name, default))
    if not 0 <= count < math.inf:
        raise PipelineError(f"{stage.name} --{name} must be a non-negative number")
    return math.ceil(count)


def _where(stage: Stage, items: Items, _host: PipelineHost) -> Items:
    if not stage.words:
        raise PipelineError("where requires an expression (e.g. field=value)")
    found = re.match(r"([A-Za-z0-9_.]+)\s*(==|=|!=|<=|>=|<|>)\s*(.+)\Z", stage.words[0])
    if found is None:
        raise PipelineError(f"Invalid where expression: {stage.words[0]}")
    path, operator, wanted = found[1], found[2], v.read_word(found[3])
    return [item for item in items if v.compare(v.get_path(item, path), operator, wanted)]


def _pick(stage: Stage, items: Items, _host: PipelineHost) -> Items:
    if not stage.words:
        raise PipelineError("pick requires a comma-separated field list")
    names = [each.strip() for each in stage.words[0].split(",") if each.strip()]
    rows = ({} if isinstance(item, list) else item for item in items)
    return [
        {name: row[name] for name in names if name in row} if isinstance(row, dict) else row
        for row in rows
    ]


def _map(stage: Stage, items: Items, host: PipelineHost) -> Items:
    wrap, unwrap = stage.option("wrap"), stage.option("unwrap")
    if wrap and unwrap:
        raise PipelineError("map cannot use both --wrap and --unwrap")
    pairs = (word.partition("=") for word in stage.words)
    added = {name.strip(): value for name, equals, value in pairs if name.strip() and equals}

    def change(item: Value) -> Value:
        if unwrap:
            return item.get(unwrap) if isinstance(item, dict) else None
        made = {wrap: item} if wrap else item
        if added:
            made = made if isinstance(made, dict) else {"value": made}
            texts = ((name, v.fill_template(added[name], item, host.ledger)) for name in added)
            made = made | dict(texts)
        return made

    return [change(item) for item in items]


def _template(stage: Stage, items: Items, host: PipelineHost) -> Items:
    text = stage.option("text") or " ".join(stage.words)
    if not text:
        raise PipelineError("template requires --text (or positional text)")
    return [v.fill_template(text, item, host.ledger) for item in items]


def _sort(stage: Stage, items: Items, _host: PipelineHost) -> Items:
    def rank(item: Value) -> tuple[bool, bool, Any]:
        value = v.get_path(item, stage.option("key"))
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return value in v.NOTHING, not is_number, value if is_number else v.to_text(value)

    return sorted(items, key=rank, reverse="desc" in stage.options)


def _groups(items: Items, key: str) -> list[Items]:
    found: dict[str, Items] = {}
    for item in items:
        found.setdefault(v.identity(v.get_path(item, key)), []).append(item)
    return list(found.values())


def _dedupe(stage: Stage, items: Items, _host: PipelineHost) -> Items:
    return [members[0] for members in _groups(items, stage.option("key"))]


def _group(stage: Stage, items: Items, _host: PipelineHost) -> Items:
    if not (key := stage.option("key")):
        raise PipelineError("groupBy requires --key")
    found = [(v.get_path(each[0], key), each) for each in _groups(items, key)]
    return [
        ({} if value is MISSING else {"key": value}) | {"items": members, "count": len(members)}
        for value, members in found
    ]


def _table(_stage: Stage, items: Items, host: PipelineHost) -> Items:
    if not items:
        return ["(no results)\n"]
    if not all(isinstance(item, dict) for item in items[:20]):
        return ["".join(f"{v.to_text(item)}\n" for item in items)]
    names = list(dict.fromkeys(name for item in items[:20] for name in item))
    rows = [names, *([v.to_text(field(item, name)) for name in names] for item in items)]
    rows = [[cell.replace("\n", " ") for cell in row] for row in rows]
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    host.ledger.spend(sum(widths) * len(rows))
    rows.insert(1, ["-" * width for width in widths])
    return ["".join(f"{'  '.join(map(str.ljust, row, widths))}\n" for row in rows)]


def field(item: Value, name: str) -> Value:
    return item.get(name) if isinstance(item, dict) else None


def _approve(stage: Stage, items: Items, _host: PipelineHost) -> Halted:
    prompt = stage.option("prompt", "Approve?")
    request: dict[str, Value] = {"type": "approval_request", "prompt": prompt, "items": items}
    shown = items[: _count(stage, "limit", 5)]
    if "preview-from-stdin" in stage.options and shown:
        is_text = all(isinstance(item, str) for item in shown)
        request["preview"] = "\n".join(shown) if is_text else v.to_json(shown, indent=2)
    return Halted(request)


def _ask(stage: Stage, items: Items, _host: PipelineHost) -> Halted:
    schema = stage.object_option("schema") or _DECISION
    validator_for(schema, "ask --schema")
    prompt = stage.option("prompt", "Input required")
    request = {"type": "input_request", "prompt": prompt, "responseSchema": schema}
    if "subject-from-stdin" in stage.options and items:
        request["subject"] = {"text": _encode(items, "raw")[:MAX_SUBJECT]}
    return Halted(request)


def _together(items: Items) -> Value:
    return items[0] if len(items) == 1 else items


def _state(stage: Stage, items: Items, host: PipelineHost) -> Items:
    if not 0 < len(key := stage.word("key")) <= 200:
        raise PipelineError(f"{stage.name} requires a key of at most 200 characters")
    before, after = host.store.load(key), _together(items)
    if stage.name == "state.get":
        return [before]
    host.store.save(key, after)
    changed = v.identity(before) != v.identity(after)
    about = {"kind": "diff.last", "key": key, "changed": changed, "before": before, "after": after}
    return [after] if stage.name == "state.set" else [about]


async def _invoke(stage: Stage, items: Items, host: PipelineHost) -> Items:
    tool, action = stage.option("tool"), stage.option("action")
    if not tool:
        raise PipelineError(f"{stage.name} requires --tool")
    calls = [stage.object_option("args-json") | ({"action": action} if action else {})]
    if "each" in stage.options:
        calls = [{**calls[0], stage.option("item-key", "item"): item} for item in items]
    if "dry-run" in stage.options:
        return [{"dryRun": True, "tool": tool, "args": each} for each in calls]
    return [await host.invoke(tool, each) for each in calls]


async def _llm(stage: Stage, items: Items, host: PipelineHost) -> Items:
    prompt = stage.option("prompt") or " ".join(stage.words)
    params: dict[str, Value] = {n: stage.option(n) for n in ("provider", "model", "thinking")}
    params["temperature"] = v.read_word(stage.option("temperature"))
    params["maxTokens"] = v.read_word(stage.option("max-output-tokens"))
    params |= {"schema": stage.object_option("output-schema"), "prompt": prompt}
    params |= {"input": _together(items)} if items else {}
    sent = {name: value for name, value in params.items() if value not in ("", {})}
    details = (await host.invoke("llm-task", sent))["details"]
    output = {"format": "json", "text": None, "data": details.get("json")}
    about = {"kind": stage.name, "prompt": prompt, "status": "completed", "output": output}
    return [{**about, "model": details.get("model"), "usage": details.get("usage")}]


def _list_commands(_stage: Stage, _items: Items, _host: PipelineHost) -> Items:
    rows = [(name, each.about, each.options) for name, each in sorted(COMMANDS.items())]
    return [dict(zip(("name", "description", "options"), row, strict=True)) for row in rows]


class StageKind(NamedTuple):
    run: Callable[[Stage, Items, PipelineHost], Items | Halted | Awaitable[Items]]
    options: str
    about: str


_CALL = StageKind(_invoke, "tool action args-json each! item-key dry-run!", "Call a tool")
_MODEL = "prompt provider model thinking output-schema temperature max-output-tokens"
_LLM = StageKind(_llm, _MODEL, "Ask a model for JSON about the items")
COMMANDS: dict[str, StageKind] = {
    "exec": StageKind(_exec, "json! shell stdin", "Run a command; an item per line, or JSON"),
    "where": StageKind(_where, "", "Keep items with field=value, field>=number, …"),
    "pick": StageKind(_pick, "", "Keep some fields: pick id,title"),
    "head": StageKind(_head, "n", "Keep the first items"),
    "map": StageKind(_map, "wrap unwrap", "Wrap or unwrap items, or add fields: name={{path}}"),
    "template": StageKind(_template, "text", "Turn items into text with {{path}}"),
    "sort": StageKind(_sort, "key desc!", "Sort items"),
    "groupBy": StageKind(_group, "key", "Group items by a field"),
    "dedupe": StageKind(_dedupe, "key", "Remove duplicates"),
    "json": StageKind(lambda _stage, items, _host: items, "", "Render the items as JSON"),
    "table": StageKind(_table, "", "Render the items as a table"),
    "approve": StageKind(_approve, "prompt preview-from-stdin! limit emit!", "Halt until approved"),
    "ask": StageKind(_ask, "prompt schema subject-from-stdin! emit!", "Halt until there is input"),
    "state.get": StageKind(_state, "", "Load a stored value"),
    "state.set": StageKind(_state, "", "Store the items"),
    "diff.last": StageKind(_state, "key", "Compare the items with those of the last run"),
    "openclaw.invoke": _CALL,
    "clawd.invoke": _CALL,
    "llm.invoke": _LLM,
    "llm_task.invoke": _LLM,
    "commands.list": StageKind(_list_commands, "", "List the commands"),
}
