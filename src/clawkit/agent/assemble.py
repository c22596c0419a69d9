"""The tool set of one run, in five steps: base, execution and native tools; permissions; wrapping.

Done once per configuration and scope, and cached by content: equal settings in another object, or
read again from the same file, give the same assembly.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import msgspec
from msgspec import Struct, structs

from clawkit.agent.deferral import Deferral, make_controls, plan_deferral
from clawkit.config.model import Config
from clawkit.core.approval import Ask, Deny
from clawkit.core.catalog import CARRIER, CATALOG, CONTROLS, GROUPS, CatalogEntry, canonical
from clawkit.core.context import Context, InForce, Scope
from clawkit.core.params import advertised
from clawkit.core.tool import (
    CALLER,
    CORE,
    Registered,
    Registry,
    Tool,
    action_values,
    without_actions,
)
from clawkit.errors import ConfigError, Issue, RegistryError, SchemaError
from clawkit.policy.pipeline import PolicyDecision, Subject, ToolVerdict, Trace, apply_policy
from clawkit.policy.rules import Pattern, Rule, compile_rules, judge, judge_file
from clawkit.policy.tool_names import Universe
from clawkit.schema.choose import check_schema

SETTINGS = "settings"
"""The trace step of tools removed by settings rather than by allow and deny lists."""
REMEMBERED = 64
_READERS = GROUPS["group:memory"]
"""Tools that read files, but are not file tools."""


class Assembly(Struct, frozen=True, dict=True):
    """The tools of a run, which tools were removed, and why."""

    tools: Mapping[str, Tool]
    """By canonical name, in catalog order, including deferred ones."""
    sources: Mapping[str, str]
    """Every known tool, loaded or not, with its source."""
    decision: PolicyDecision
    rules: tuple[Rule, ...]
    warnings: tuple[str, ...]
    registry: Mapping[str, Registered]
    """The loaded tools, before policy."""
    deferral: Deferral = Deferral()

    @cached_property
    def direct(self) -> dict[str, Tool]:
        """The tools to give to a model: all but deferred ones."""
        deferred = frozenset(self.deferral.names)
        return {name: tool for name, tool in self.tools.items() if name not in deferred}

    @property
    def refused(self) -> dict[str, str]:
        """The reason for each removed tool."""
        return {
            name: self.decision.refusal(name)
            for name, verdict in self.decision.verdicts.items()
            if not verdict.allowed
        }

    @property
    def off(self) -> frozenset[str]:
        """Tools that policy allows but other settings turn off."""
        verdicts = self.decision.verdicts.items()
        causes = {name: verdict.removed_by for name, verdict in verdicts}
        return frozenset(name for name, cause in causes.items() if cause and cause.step == SETTINGS)

    @property
    def in_force(self) -> InForce:
        off = len(self.off)
        deferred = len(self.deferral.names)
        return InForce(tuple(self.direct), len(self.refused) - off, off, deferred)

    def lost_in(self, config: Config, scope: Scope) -> list[str]:
        """The tools of this run that policy would remove in another scope. Tools that settings
        offer only to some models, such as `apply_patch`, count as kept."""
        decision = apply_policy(config, scope, _subjects_of(self.registry))
        decision = _deny_more(decision, dict(scope.withheld), self.rules)
        return [name for name in self.tools if not decision.verdicts[name].allowed]

    def judge(self, tool: Tool, params: Mapping[str, Any], ctx: Context) -> Deny | Ask | None:
        """The decision of `tools.rules` on one call."""
        name = canonical(tool.name)
        said = judge(self.rules, tool, name, params, ctx) if self.rules else None
        if said is None and name in _READERS:
            # Text hidden from `read` must not be found in notes either.
            conditional = [rule for rule in self.rules if rule.params]
            said = judge(conditional, tool, "read", params, ctx)
        return said

    def effect_on(self, tool: str, path: str, workspace: str) -> str:
        """The decision of `tools.rules` on a file tool's use of a path: `allow`, `ask` or `deny`.
        Always `deny` for a tool that the run does not have."""
        found = self.tools.get(tool)
        if found is None:
            return "deny"
        return judge_file(self.rules, found, tool, path, workspace) if self.rules else "allow"

    def lets_read(self, path: str, workspace: str) -> bool:
        """Whether no rule keeps a file from the model."""
        return not self.denies_files or self.effect_on("read", path, workspace) == "allow"

    @property
    def denies_files(self) -> bool:
        """Whether some rule may deny reading a file."""
        return any(rule.effect == "deny" and rule.tools.find("read") for rule in self.rules)


def assemble(config: Config, scope: Scope, extra: Sequence[Registered] = ()) -> Assembly:
    """The assembly for a configuration and scope; `extra` are external tools with their sources.
    Raises `RegistryError` if a name is taken, `SchemaError` if a schema cannot be offered to a
    model, and `ConfigError` for settings whose errors only show here."""
    return _assemble(_Inputs(config, scope, tuple(extra)))


class _Inputs:
    """Inputs compare equal if their settings (by content), scope and external tools are equal."""

    def __init__(self, config: Config, scope: Scope, extra: tuple[Registered, ...]) -> None:
        self.config, self.scope, self.extra = config, scope, extra
        try:
            content = msgspec.json.encode(config)
        except UnicodeEncodeError as error:
            broken = f"{error.object!r} cannot be encoded: the variable it comes from is not UTF-8"
            raise ConfigError([Issue("", broken)]) from None
        # The session and the context window do not affect which tools are available.
        seen = structs.replace(scope, session="", context_window=None)
        # An `id()` is valid while the object lives, and this keeps the tools alive.
        tools = ((each.source, each.optional, id(each.tool)) for each in extra)
        self._key = (content, seen, *tools)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Inputs) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=REMEMBERED)
def _assemble(inputs: _Inputs) -> Assembly:
    config, scope = inputs.config, inputs.scope
    registry = Registry()
    conflicts: list[str] = []
    withheld = dict(scope.withheld)
    for entry in CATALOG.values():
        if entry.available and entry.id not in CONTROLS and entry.id not in withheld:
            built = _withhold(entry, config, scope) or load_tool(entry, config, scope)
            if isinstance(built, Tool):
                registry.add(Registered(built, CORE))
            else:
                withheld[entry.id] = built
    for each in inputs.extra:
        try:
            check_schema(each.tool.schema, each.tool.name)
            for name in each.tool.stray_paths:
                raise SchemaError(f"{each.tool.name}: the path {name!r} is not a parameter")
            registry.add(each)
        except (SchemaError, RegistryError) as error:
            # An invalid tool of the caller is an error; one of a plugin or server is left out.
            if each.source == CALLER:
                raise
            conflicts.append(str(error))
    subjects = _subjects_of(registry)
    decision = apply_policy(config, scope, subjects)
    sources = {subject.name: subject.source for subject in subjects}
    rules, remarks = compile_rules(config.tools.rules, Universe.of(sources))
    decision = _deny_more(decision, withheld, rules)
    tools = {
        name: _switch_off(each.tool, name, rules)
        for name, each in registry.items()
        if decision.verdicts[name].allowed
    }
    tools = {name: _hide(tool, tools) for name, tool in tools.items()}
    denied = [name for name in CONTROLS if not decision.verdicts[name].allowed]
    deferral = plan_deferral(config.tools.deferral(), tools, sources, denied)
    if deferral.why_not:
        decision = _deny_more(decision, dict.fromkeys(CONTROLS, deferral.why_not), ())
    remarks += _remarks_on_rules(rules, registry)
    warnings = (*decision.warnings, *remarks, *dict.fromkeys(conflicts))
    assembly = Assembly(tools, sources, decision, rules, warnings, registry, deferral)
    if deferral.names:
        about = deferral.names, sources, assembly.refused
        tools.update(make_controls(config.tools.deferral(), tools, *about))
    return assembly


def _subjects_of(registry: Mapping[str, Registered]) -> list[Subject]:
    return [
        Subject(name, found.source, found.tool.owner_only, found.optional)
        if (found := registry.get(name))
        else Subject(name)
        for name in {**CATALOG, **registry}
    ]


def load_tool(entry: CatalogEntry, config: Config, scope: Scope) -> Tool | str:
    """The tool of a module, or the reason why this run does not have it: its `TOOL`, or the result
    of its `make_tool(config, scope)`."""
    module = importlib.import_module(entry.module)
    make_tool = getattr(module, "make_tool", None)
    built: Tool | str = make_tool(config, scope) if make_tool else module.TOOL
    return built


def _withhold(entry: CatalogEntry, config: Config, scope: Scope) -> str:
    """Why a tool that changes files is not offered; empty if it is offered."""
    if entry.id not in ("write", "edit", "apply_patch") or not scope.sandboxed:
        return ""
    if config.agents.sandbox_of(scope.agent).access() != "ro":
        return ""
    return "the sandbox has the workspace read-only (sandbox.workspaceAccess is 'ro')"


def _deny_more(
    decision: PolicyDecision, withheld: Mapping[str, str], rules: Sequence[Rule]
) -> PolicyDecision:
    """The decision, with tools removed that the lists allow but settings or rules deny."""
    verdicts = dict(decision.verdicts)

    def remove(name: str, trace: Trace) -> None:
        if name in verdicts and verdicts[name].allowed:
            verdicts[name] = ToolVerdict(False, (*verdicts[name].traces, trace))

    for name, why in withheld.items():
        remove(name, Trace(10, SETTINGS, "deny", SETTINGS, None, why))
    for rule in rules:
        key = f"tools.rules[{rule.number}]"
        for name in verdicts if rule.effect == "deny" and rule.unconditional else ():
            if (entry := rule.tools.find(name)) is not None:
                why = f"{key} denies it with {entry!r}"
                remove(name, Trace(11, "tools.rules", "deny", key, entry, why))
    denied = verdicts["exec"].removed_by
    if denied is not None and denied.effect == "deny":
        # If exec is denied, code_execution must not run the same programs.
        why = f"it runs programs like exec, and {denied.why}"
        remove("code_execution", structs.replace(denied, why=why))
    return structs.replace(decision, verdicts=verdicts)


def _switch_off(tool: Tool, name: str, rules: Sequence[Rule]) -> Tool:
    """The tool without actions that a rule denies for all parameters."""
    for rule in rules:
        if rule.effect != "deny" or rule.action is None or rule.params:
            continue
        if rule.tools.find(name) is not None:
            off = frozenset(filter(rule.action.test, action_values(tool)))
            if off:
                tool = without_actions(tool, off, rule.reason or f"tools.rules[{rule.number}]")
    return tool


def _hide(tool: Tool, tools: Mapping[str, Tool]) -> Tool:
    """The tool without parameters that only work with another tool that the run does not have."""
    idle = {param for param, other in tool.needs.items() if canonical(other) not in tools}
    return replace(tool, hidden=tool.hidden | idle) if idle else tool


def _remarks_on_rules(rules: Sequence[Rule], registered: Mapping[str, Registered]) -> Iterator[str]:
    """Warnings about rules that never match: none of their tools has the parameter or action."""
    for rule in rules:
        about = [each.tool for name, each in registered.items() if rule.tools.find(name)]
        key = f"tools.rules[{rule.number}]"
        if not about:  # the parameters of a tool that is not loaded are unknown
            if rule.tools.find(CARRIER) and not (rule.effect == "deny" and rule.unconditional):
                yield f"{key}: {CARRIER!r} is judged as the call inside it; name the target tool"
            continue
        names = " and ".join(repr(tool.name) for tool in about[:3])
        more = f" and {len(about) - 3} more" if len(about) > 3 else ""
        for param in rule.params:
            if not any(_takes(tool, param) for tool in about):
                yield f"{key}.params.{param}: {names}{more} has no such parameter"
        if rule.action is not None and not any(_acts(tool, rule.action) for tool in about):
            yield f"{key}.action: {names}{more} has no such action"


def _acts(tool: Tool, action: Pattern) -> bool:
    values = action_values(tool)
    return any(map(action.test, values)) if values else _takes(tool, "action")


def _takes(tool: Tool, param: str) -> bool:
    if tool.touches is not None and param == "path":
        return True
    known = advertised(tool, param) or advertised(tool, param.partition(".")[0])
    return known is not None or tool.schema.get("additionalProperties") is not False
