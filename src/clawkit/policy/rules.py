"""Rules over arguments: `tools.rules` says which calls of an allowed tool go on, ask, or stop.

Deny first: any matching deny rule ends it. Then the first matching rule in the order of the file
decides between ask and allow. A call that no rule matches goes on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from clawkit.core.approval import Ask, Deny
from clawkit.core.context import Context
from clawkit.core.params import advertised, same_name
from clawkit.core.tool import Tool
from clawkit.core.validator import make_pattern
from clawkit.errors import ConfigError, Issue, SchemaError, ToolInputError
from clawkit.policy.match import (
    Glob,
    Matcher,
    Universe,
    explain_unmatched,
    unset_variable,
)
from clawkit.policy.paths import Pattern, Places, excepts, places_of, restricts

# Letters that people put behind a regular expression: `/a/gi` is one with unknown flags, `/etc/ssh`
# is a path.
_REGEX = re.compile(r"/(.+)/([gimsuxyAGIMSUXY]{0,4})", re.DOTALL)


class RuleConfig(Protocol):
    """One entry of `tools.rules`."""

    @property
    def tool(self) -> str: ...
    @property
    def action(self) -> str | None: ...
    @property
    def params(self) -> Mapping[str, str]: ...
    @property
    def effect(self) -> str: ...
    @property
    def reason(self) -> str | None: ...


class Rule(NamedTuple):
    """A compiled rule."""

    number: int
    tools: Matcher
    action: Pattern | None
    params: Mapping[str, Pattern]
    effect: str
    reason: str

    @property
    def unconditional(self) -> bool:
        return self.action is None and not self.params


def compile_rules(
    configs: Sequence[RuleConfig], universe: Universe
) -> tuple[tuple[Rule, ...], list[str]]:
    """The rules ready to use, and remarks on those that match no tool."""
    rules: list[Rule] = []
    issues: list[Issue] = []
    warnings: list[str] = []
    for index, config in enumerate(configs):
        key = f"tools.rules[{index}]"
        if not config.tool.strip():
            issues.append(Issue(f"{key}.tool", "names no tool"))
        matcher = Matcher([config.tool], f"{key}.tool", universe)
        warnings += [f"{key}.tool: {explain_unmatched(e, universe)}" for e in matcher.unmatched]
        params = {
            name: _compile(pattern, f"{key}.params.{name}", issues)
            for name, pattern in config.params.items()
        }
        action = config.action and _compile(config.action, f"{key}.action", issues)
        reason = config.reason or ""
        rules.append(Rule(index, matcher, action or None, params, config.effect, reason))
    if issues:
        raise ConfigError(issues)
    return tuple(rules), warnings


def _compile(text: str, place: str, issues: list[Issue]) -> Pattern:
    problem = unset_variable(text)
    try:
        pattern = compile_pattern(text)
    except SchemaError as error:
        pattern, problem = Pattern(text, Glob(text).match, False), problem or str(error)
    if problem:
        issues.append(Issue(place, problem))
    return pattern


def compile_pattern(text: str) -> Pattern:
    """`/pattern/` (or `/pattern/i`) searches; anything else must match whole, with `*`."""
    found = _REGEX.fullmatch(text)
    if found is None:
        return Pattern(text, Glob(text).match, False)
    body, flags = found.groups()
    if flags not in ("", "i"):
        raise SchemaError(f"{text} has the flags {flags!r}; only 'i' is known")
    return Pattern(text, make_pattern(f"(?i:{body})" if flags else body), True)


def judge(
    rules: Sequence[Rule], tool: Tool, name: str, params: Mapping[str, Any], ctx: Context
) -> Deny | Ask | None:
    """What the rules say about one checked call."""
    paths = _Paths(tool, params, ctx.workspace)
    first: Rule | None = None
    for rule in rules:
        if rule.tools.find(name) is None or not _matches(rule, paths):
            continue
        if rule.effect == "deny":
            why = f": {rule.reason}" if rule.reason else ""
            return Deny(f"tools.rules[{rule.number}] denies this call of {name!r}{why}")
        first = first or rule
    if first is None or first.effect == "allow":
        return None
    return Ask(
        title=f"a call of {name!r}",
        description=" ".join(filter(None, (first.reason, paths.detours()))),
        asked_by=f"tools.rules[{first.number}]",
        to_allow=f"clawkit config set 'tools.rules[{first.number}].effect' allow",
    )


class _Paths:
    """The parameters of one call, and where those that are paths lead; looked up once."""

    def __init__(self, tool: Tool, params: Mapping[str, Any], workspace: str) -> None:
        self.tool = tool
        self.params = params
        self.workspace = workspace
        self._known: dict[str, Places | None] = {}

    @cached_property
    def touched(self) -> tuple[str, ...]:
        """What the call names inside a text. Where that cannot be told, nothing that a restriction
        would not be about: `\0` cannot be a path."""
        if self.tool.touches is None:
            return ()
        try:
            return tuple(self.tool.touches(self.params))
        except (ToolInputError, ValueError, TypeError):
            return ("\0",)

    def of(self, path: str) -> Places | None:
        if path not in self._known:
            self._known[path] = places_of(path, self.workspace)
        return self._known[path]

    def detours(self) -> str:
        """What a person should know about paths that lead elsewhere than they say."""
        named = (part for name in self.tool.paths for part in _parts(self.params, name))
        found = map(self.of, (*named, *self.touched))
        return " ".join(
            f"{each.written!r} leads to {each.real!r}."
            for each in found
            if each is not None and each.real != each.absolute[0]
        )


def _matches(rule: Rule, paths: _Paths) -> bool:
    if rule.action is not None and not rule.action.test(str(paths.params.get("action", ""))):
        return False
    return all(_holds(rule.effect, pattern, paths, name) for name, pattern in rule.params.items())


def _holds(effect: str, pattern: Pattern, paths: _Paths, name: str) -> bool:
    """A restriction holds when any part of the value matches, an exception when every part does."""
    first, dot, rest = name.partition(".")
    name = (advertised(paths.tool, first) or first) + dot + rest
    inside_text = name == "path" and paths.tool.touches is not None
    parts = list(paths.touched if inside_text else _parts(paths.params, name))
    if inside_text or any(same_name(name, each) for each in paths.tool.paths):
        about = excepts if effect == "allow" else restricts
        found = [about(pattern, paths.of(part)) for part in parts]
    else:
        found = [pattern.test(part) for part in parts]
    return bool(found) and (all(found) if effect == "allow" else any(found))


def _parts(params: Mapping[str, Any], name: str) -> Iterator[str]:
    """The texts a parameter amounts to: itself, or each element of a list. Dots lead inward."""
    values = list(_reach(params, [name]))
    if "." in name:
        values += _reach(params, name.split("."))
    for value in values:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        yield (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        )


def _reach(value: Any, steps: Sequence[str]) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _reach(each, steps)
    elif not steps:
        if value is not None:
            yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if same_name(key, steps[0]):
                yield from _reach(each, steps[1:])
