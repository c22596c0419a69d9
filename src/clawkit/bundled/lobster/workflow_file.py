"""Workflow files as typed data: JSON, or YAML that is equivalent to JSON."""

from __future__ import annotations

import json
import os
import random
import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from clawkit.bundled.lobster.values import PipelineError, Value
from clawkit.schema.choose import validator_for

ENDINGS = (".lobster", ".yaml", ".yml", ".json")
_Text = str | int | float | bool
_Ms = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_SCALARS = [
    (f"tag:yaml.org,2002:{name}", re.compile(rf"(?:{pattern})\Z"))
    for name, pattern in {
        "bool": "true|True|TRUE|false|False|FALSE",
        "null": "~|null|Null|NULL|",
        "int": "[-+]?(?:0|[1-9][0-9]*)",
        "float": r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?",
    }.items()
]
"""The plain scalars of YAML 1.2 that are not strings; `yes` and dates are strings."""
_KINDS = ("run", "command", "pipeline", "workflow", "parallel", "for_each")


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    max: Annotated[int, Meta(ge=1, le=100)] = 1
    backoff: Literal["fixed", "exponential"] = "fixed"
    delay_ms: _Ms = 1_000
    max_delay_ms: _Ms = 30_000
    jitter: bool = False

    def delay_s(self, attempt: int) -> float:
        delay_ms = self.delay_ms * (2.0**attempt if self.backoff == "exponential" else 1.0)
        delay_ms *= random.uniform(0.9, 1.1) if self.jitter else 1.0  # noqa: S311
        return min(delay_ms, self.max_delay_ms) / 1000


class Approval(Struct, frozen=True, forbid_unknown_fields=True):
    """The text of an approval step, and who may answer it."""

    prompt: str = ""
    items: list[Value] | None = None
    preview: str = ""
    required_approver: str = ""
    require_different_approver: bool = False
    initiated_by: str = ""


class Input(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    prompt: str
    response_schema: dict[str, Value]


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,100}$")]
    description: str = ""
    run: str = ""
    command: str = ""
    pipeline: str = ""
    workflow: str = ""
    workflow_args: dict[str, Value] = {}
    parallel: Parallel | None = None
    for_each: str = ""
    steps: list[Step] = []
    item_var: str = "item"
    index_var: str = "index"
    batch_size: Annotated[int, Meta(ge=1)] = 1
    pause_ms: _Ms = 0
    approval: bool | str | Approval | None = None
    input: Input | None = None
    cwd: str = ""
    env: dict[str, _Text] = {}
    stdin: Value = None
    when: str | bool | None = None
    condition: str | bool | None = None
    retry: Retry = Retry()
    timeout_ms: _Ms | None = None
    on_error: Literal["stop", "continue", "skip_rest"] = "stop"

    @property
    def inner(self) -> list[Step]:
        """The steps inside this one, which share its variables and directory."""
        inside = self.parallel.branches if self.parallel else self.steps
        return [replace(s, env=self.env | s.env, cwd=s.cwd or self.cwd) for s in inside]


class Parallel(Struct, frozen=True, forbid_unknown_fields=True):
    branches: Annotated[list[Step], Meta(min_length=1, max_length=64)]
    wait: Literal["all", "any"] = "all"
    timeout_ms: _Ms | None = None


class CostLimit(Struct, frozen=True, forbid_unknown_fields=True):
    max_usd: Annotated[float, Meta(ge=0)]
    action: Literal["warn", "stop"] = "stop"


class Workflow(Struct, frozen=True, forbid_unknown_fields=True):
    steps: Annotated[list[Step], Meta(min_length=1, max_length=200)]
    name: str = ""
    description: str = ""
    args: dict[str, dict[Literal["default"], Value] | None] = {}
    env: dict[str, _Text] = {}
    cwd: str = ""
    cost_limit: CostLimit | None = None


def load(text: str, path: str) -> Workflow:
    """Parse and check a workflow. Raises `PipelineError`."""
    try:
        data = text if path.endswith(".json") else _yaml_to_json(text)
        found = msgspec.json.decode(data, type=Workflow)
    except (TypeError, ValueError, RecursionError) as error:
        raise PipelineError(f"{os.path.basename(path)}: {error}") from None
    seen: set[str] = set()
    pairs = ((outer, step) for outer in found.steps for step in (outer, *outer.inner))
    for outer, step in pairs:
        if problem := _find_problem(step, is_inner=step is not outer):
            raise PipelineError(f"Workflow step {step.id} {problem}")
        if step.id in seen:
            raise PipelineError(f"Duplicate workflow step id: {step.id}")
        seen.add(step.id)
        if step.input:
            validator_for(step.input.response_schema, f"step {step.id}: input.responseSchema")
    return found


def _find_problem(step: Step, *, is_inner: bool) -> str:
    kinds, is_gate = [name for name in _KINDS if getattr(step, name)], step.approval or step.input
    one_of, is_outer = ", ".join(_KINDS), is_gate or {*kinds}.difference(_KINDS[:3])
    names = [step.item_var, step.index_var, *(each.id for each in step.steps)]
    checks = (
        (len(kinds) > 1, f"can only define one of {one_of}"),
        (not kinds and not is_gate, f"requires one of {one_of}, approval, input"),
        (step.input and (kinds or step.approval), f"cannot have both input and {one_of}, approval"),
        (is_inner and is_outer, "cannot be inside for_each or parallel"),
        (bool(step.for_each) != bool(step.steps), "needs both for_each and steps, or neither"),
        (len({*names}) < len(names), "item_var, index_var and steps need different names"),
        (step.for_each and is_gate, "cannot have both for_each and a gate"),
    )
    return next((why for is_wrong, why in checks if is_wrong), "")


def _yaml_to_json(text: str) -> str:
    """Convert YAML to JSON. Raises ValueError or TypeError for features that JSON lacks: aliases,
    sets, bytes. Dates are strings, unless they are tagged."""
    try:
        import yaml
    except ModuleNotFoundError:
        from clawkit.installation import how_to_add

        raise ValueError(f"YAML needs `{how_to_add('workflows')}`, JSON does not") from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # it has no types
        yaml_implicit_resolvers = {None: _SCALARS}  # noqa: RUF012  # whatever they start with

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("aliases are not supported")
            return super().compose_node(parent, index)

    try:
        return json.dumps(yaml.load(text, Loader=Loader), allow_nan=False)  # noqa: S506  # safe
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # without the quoted text
        where = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{where}{getattr(error, 'problem', None) or 'invalid YAML'}") from None
