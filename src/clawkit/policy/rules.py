"""Rules over arguments: `tools.rules` decides which calls of an allowed tool run, ask, or stop.

A matching deny rule always wins. Otherwise the first matching rule in the order of the file decides
between ask and allow. A call that no rule matches runs.

Paths are compared by their targets, not by spelling. A restriction must hold whatever spelling,
link or detour the caller uses, and however the operator wrote the pattern (`./a`, `a//b`, `a/**`,
`~/a`, through a link). An exception applies only to the resolved target of the path.

URLs are compared by host, however that is written. A pattern with `://` is for the whole URL.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from clawkit.config.sections.tools import RuleSettings
from clawkit.core.approval import Ask, Deny
from clawkit.core.context import Context
from clawkit.core.params import advertised, same_name
from clawkit.core.paths import plain_path, real_path
from clawkit.core.tool import Tool, make_pattern
from clawkit.errors import ConfigError, Issue, SchemaError, ToolInputError
from clawkit.globs import Glob
from clawkit.net.addresses import is_listed, parse_url
from clawkit.net.route import NetError
from clawkit.policy.tool_names import Matcher, Universe, explain_unmatched, unset_variable

Test = Callable[[str], bool]

# Not the `^` of `[^a]`, nor an escaped one.
_ANCHOR = r"(?<![\\\[])\^|\\A"
_META = r"[\\^$.|?*+()\[\]{}]"


class Pattern(msgspec.Struct, frozen=True):
    text: str
    test: Test
    is_regex: bool


class PathForms(msgspec.Struct, frozen=True):
    """All forms of a path that rules are compared with."""

    written: str
    real: str  # with all links resolved
    absolute: tuple[str, ...]  # all absolute spellings, including other names of the workspace
    inside: tuple[str, ...]  # the same relative to the workspace, if inside it
    roots: tuple[str, ...]


def path_forms(path: str, workspace: str) -> PathForms | None:
    """None if it cannot be a path."""
    try:
        whole = os.path.join(workspace, os.path.expanduser(plain_path(path)))
        # Resolve links before `..`, as the kernel does: `link/..` is not the directory of `link`.
        real = real_path(whole)
    except ToolInputError:
        return None
    roots = tuple(dict.fromkeys((workspace, os.path.realpath(workspace))))
    found = (os.path.normpath(whole), real)
    inside = tuple(dict.fromkeys(_relative(found, roots)))
    again = (os.path.normpath(os.path.join(root, each)) for root in roots for each in inside)
    return PathForms(path, real, tuple(dict.fromkeys((*found, *again))), inside, roots)


def restricts(pattern: Pattern, places: PathForms | None) -> bool:
    """Whether a deny or ask rule applies to a path, in any spelling of either."""
    if places is None:
        return True
    if pattern.is_regex:
        if any(map(pattern.test, _shown(pattern, places))):
            return True
        # `/abs/dir/` looks like a regular expression, but may be meant as a directory.
        if re.search(_META, pattern.text) or "/" not in pattern.text.strip("/"):
            return False
    return any(_covers(glob, places) for glob in _variants(pattern.text))


def exempts(pattern: Pattern, places: PathForms | None) -> bool:
    """Whether an allow rule applies to the resolved target of a path.

    Links in the pattern are not resolved, and a regular expression never sees the directories above
    the workspace: either could make an exception wider than it looks.
    """
    if places is None:
        return False
    root = places.roots[-1]
    inside = tuple(_relative((places.real,), (root,)))
    if pattern.is_regex:
        return any(map(pattern.test, inside or (places.real,)))
    glob = f"{pattern.text}*" if pattern.text.endswith("/") else pattern.text
    globs = (glob, *_absolute(glob, root, follow=False))
    return any(Glob(each).match(form) for each in globs for form in (places.real, *inside))


def matches_url(pattern: Pattern, url: str, *, is_exception: bool) -> bool:
    """Whether a rule applies to a URL. Every restriction applies to one that cannot be parsed."""
    try:
        target = parse_url(url)
    except NetError:
        return not is_exception
    if "://" in pattern.text or (
        pattern.is_regex and not is_exception and pattern.test(target.url)
    ):
        return pattern.test(target.url)
    return pattern.test(target.host) if pattern.is_regex else is_listed(target.host, [pattern.text])


def _shown(pattern: Pattern, places: PathForms) -> tuple[str, ...]:
    """The text that the regular expression of a restriction is applied to: the path relative to the
    workspace, so that directories above it do not matter, or the absolute path outside the
    workspace or for an anchored expression."""
    if not places.inside:
        return places.absolute
    inside = (*places.inside, *(f"/{each}" for each in places.inside))
    return (*inside, *places.absolute) if re.search(_ANCHOR, pattern.text) else inside


def _relative(places: tuple[str, ...], roots: tuple[str, ...]) -> Iterator[str]:
    for place in places:
        for root in roots:
            if place == root:
                yield "."
            elif place.startswith(root.rstrip("/") + "/"):
                yield os.path.relpath(place, root)


def _variants(text: str) -> tuple[str, ...]:
    """All meanings of a glob: `a/` and `a/*` include the directory itself, `*/a` also matches at
    the top, and `/**/` may be empty."""
    tidy = re.sub(r"/(?:\./)+|/{2,}", "/", re.sub(r"\*+", "*", text))
    found = [tidy if not tidy.endswith("/") else f"{tidy}*"]
    found += [each.replace("/*/", "/") for each in found if "/*/" in each]
    found += [each[2:] for each in found if each.startswith("*/") and len(each) > 2]
    found += [re.sub(r"(?:/\*)+\Z", "", each) for each in found if each.endswith("/*")]
    return tuple(dict.fromkeys(filter(None, found)))


def _covers(glob: str, places: PathForms) -> bool:
    forms = (places.written, *places.absolute, *places.inside)
    if any(map(Glob(glob).match, forms)):
        return True
    globs = (each for root in places.roots for each in _absolute(glob, root, follow=True))
    return any(any(map(Glob(each).match, places.absolute)) for each in globs)


def _absolute(glob: str, root: str, *, follow: bool) -> Iterator[str]:
    """The glob as an absolute path: its part before the first `*` as written, and optionally with
    links resolved."""
    head, star, tail = glob.partition("*")
    if not head:
        return
    written = os.path.join(root, os.path.expanduser(head))
    starts = (os.path.normpath(written), *([real_path(written)] if follow else []))
    for start in dict.fromkeys(starts):
        slash = "/" if head.endswith("/") and start != "/" else ""
        yield f"{start}{slash}{star}{tail}"


# With these letters `/a/gi` is a regular expression with unknown flags; `/etc/ssh` is a path.
_REGEX = r"(?s)/(.+)/([gimsuxyAGIMSUXY]{0,4})"


class Rule(msgspec.Struct, frozen=True):
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
    configs: Sequence[RuleSettings], universe: Universe
) -> tuple[tuple[Rule, ...], list[str]]:
    """The compiled rules, and warnings about those that match no tool."""
    rules: list[Rule] = []
    issues: list[Issue] = []
    warnings: list[str] = []
    for index, config in enumerate(configs):
        key = f"tools.rules[{index}]"
        if not config.tool.strip():
            issues.append(Issue(f"{key}.tool", "must name a tool"))
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


def _compile(text: str, key: str, issues: list[Issue]) -> Pattern:
    problem = unset_variable(text)
    try:
        pattern = compile_pattern(text)
    except SchemaError as error:
        pattern, problem = Pattern(text, Glob(text).match, False), problem or str(error)
    if problem:
        issues.append(Issue(key, problem))
    return pattern


def compile_pattern(text: str) -> Pattern:
    """`/pattern/` (or `/pattern/i`) is searched; anything else is a glob for the whole value."""
    found = re.fullmatch(_REGEX, text)
    if found is None:
        return Pattern(text, Glob(text).match, False)
    body, flags = found.groups()
    if flags not in ("", "i"):
        raise SchemaError(f"{text} has the flags {flags!r}; only 'i' is supported")
    return Pattern(text, make_pattern(f"(?i:{body})" if flags else body), True)


def judge(
    rules: Sequence[Rule], tool: Tool, name: str, params: Mapping[str, Any], ctx: Context
) -> Deny | Ask | None:
    paths = _Paths(tool, params, ctx.workspace)
    rule = _find(rules, name, paths)
    if rule is None or rule.effect == "allow":
        return None
    if rule.effect == "deny":
        why = f": {rule.reason}" if rule.reason else ""
        return Deny(f"tools.rules[{rule.number}] denies this call of {name!r}{why}")
    return Ask(
        title=f"a call of {name!r}",
        description=" ".join(filter(None, (rule.reason, paths.detours()))),
        asked_by=f"tools.rules[{rule.number}]",
        to_allow=f"clawkit config set 'tools.rules[{rule.number}].effect' allow",
    )


def judge_file(rules: Sequence[Rule], tool: Tool, name: str, path: str, workspace: str) -> str:
    """The effect of the rules on a call of a file tool whose only parameter is a path."""
    rule = _find(rules, name, _Paths(tool, {"path": path}, workspace))
    return "allow" if rule is None else rule.effect


def _find(rules: Sequence[Rule], name: str, paths: _Paths) -> Rule | None:
    first: Rule | None = None
    for rule in rules:
        if rule.tools.find(name) is None or not _matches(rule, paths):
            continue
        if rule.effect == "deny":
            return rule
        first = first or rule
    return first


class _Paths:
    """The parameters of a call, and the forms of its paths, each resolved once."""

    def __init__(self, tool: Tool, params: Mapping[str, Any], workspace: str) -> None:
        self.tool = tool
        self.params = params
        self.workspace = workspace
        self._known: dict[str, PathForms | None] = {}

    @cached_property
    def touched(self) -> tuple[str, ...]:
        """Paths inside a text parameter. If they cannot be read, `\0`, which is not a path and so
        matches every restriction."""
        if self.tool.touches is None:
            return ()
        try:
            return tuple(self.tool.touches(self.params))
        except (ToolInputError, ValueError, TypeError):
            return ("\0",)

    def of(self, path: str) -> PathForms | None:
        if path not in self._known:
            self._known[path] = path_forms(path, self.workspace)
        return self._known[path]

    def detours(self) -> str:
        """A note for people about paths that lead elsewhere."""
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
    first, dot, rest = name.partition(".")
    name = (advertised(paths.tool, first) or first) + dot + rest
    inside_text = name == "path" and paths.tool.touches is not None
    parts = list(paths.touched if inside_text else _parts(paths.params, name))
    if inside_text or any(same_name(name, each) for each in paths.tool.paths):
        about = exempts if effect == "allow" else restricts
        found = [about(pattern, paths.of(part)) for part in parts]
    elif any(same_name(name, each) for each in paths.tool.urls):
        found = [matches_url(pattern, part, is_exception=effect == "allow") for part in parts]
    else:
        found = [pattern.test(part) for part in parts]
    return bool(found) and (all(found) if effect == "allow" else any(found))


def _parts(params: Mapping[str, Any], name: str) -> Iterator[str]:
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
