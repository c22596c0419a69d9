"""The policy pipeline: steps built from configuration for one scope, applied to every tool.

A step can only remove tools. It has allow rules (None: no restriction) and deny rules; every rule
knows its configuration key, so that each decision can be traced to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from clawkit.config.model import Config
from clawkit.config.sections.agents import EmbeddedPi
from clawkit.core.catalog import CATALOG, CONTROLS, PROFILES
from clawkit.core.context import Scope
from clawkit.policy import selectors
from clawkit.policy.tool_names import Matcher, Universe, explain_unmatched

SANDBOX_ALLOW = (
    *("exec", "process", "code_execution", "read", "write", "edit", "apply_patch"),
    *("grep", "find", "ls", "image"),
    *("sessions_list", "sessions_history", "sessions_search", "sessions_send", "sessions_spawn"),
    *("sessions_yield", "subagents", "session_status"),
)
SANDBOX_DENY = ("browser", "canvas", "nodes", "cron", "gateway")


class ListRule(msgspec.Struct, frozen=True):
    """One allow or deny list and its configuration key."""

    key: str
    matcher: Matcher
    shown: str | None = None  # shown instead of the matching entry: the name of a profile


_FOR_SOME = (2, 4, 6, 8)
"""Numbers of the steps that depend on the model or the sender."""


class PolicyStep(msgspec.Struct, frozen=True):
    """One step. `allow` None restricts nothing; an empty tuple allows nothing."""

    number: int
    name: str
    allow: tuple[ListRule, ...] | None
    deny: tuple[ListRule, ...] = ()


KeyedSettings = tuple[str, Any]
"""A configuration key and its settings."""


def _first(places: Iterable[KeyedSettings], field: str, name: str = "") -> tuple[str, Any]:
    """The key and value of the first place that sets a field."""
    for key, settings in places:
        value = getattr(settings, field)
        if value is not None:
            return f"{key}.{name or field}", value
    return "", None


class _Builder:
    def __init__(self, config: Config, scope: Scope, universe: Universe) -> None:
        self.config = config
        self.scope = scope
        self.universe = universe
        self.agent = config.agents.get(scope.agent)
        self.agent_settings: KeyedSettings = (f"agents.{scope.agent}.tools", self.agent.tools)
        self.global_settings: KeyedSettings = ("tools", config.tools)
        self.warnings: list[str] = []
        self.opt_in: list[Matcher] = []  # all lists that can opt in to an optional tool

    def build(self) -> Iterator[PolicyStep]:
        if not self.config.agents.key_of(self.scope.agent) and self.scope.agent != "main":
            self.warnings.append(
                f"no agent called {self.scope.agent!r} is configured; the global settings apply"
            )
        key = self.agent_settings[0]
        mine, general = self.for_model(self.agent_settings), self.for_model(self.global_settings)
        yield self.profile()
        by_provider = [place for place in (mine, general) if place is not None]
        yield PolicyStep(2, "tools.byProvider.profile", self.profile_rules(by_provider))
        yield self.lists(3, "tools.allow / deny", self.global_settings)
        yield self.lists(4, "tools.byProvider", general)
        yield self.lists(5, f"{key}.allow / deny", self.agent_settings)
        yield self.lists(6, f"{key}.byProvider", mine)
        yield self.lists(7, "group tools", self.group(), lenient=False)
        sender = self.by_sender(self.agent_settings), self.by_sender(self.global_settings)
        yield self.lists(7, "toolsBySender", sender[0] or sender[1], lenient=False)
        if self.scope.sandboxed:
            yield self.sandbox()
        if self.scope.depth >= 1:
            yield self.sub_agent()
        if self.scope.allow is not None:  # an empty list allows nothing
            rules = (self.rule("run.allow", self.scope.allow),) if self.scope.allow else ()
            yield PolicyStep(10, "run.allow", rules)

    def asks_for(self, subject: Subject) -> bool:
        owner = subject.source.partition(":")[2].lower()
        return any(matcher.opts_in(subject.name, owner) for matcher in self.opt_in)

    def rule(self, key: str, entries: Iterable[str], shown: str | None = None) -> ListRule:
        matcher = Matcher(entries, key, self.universe)
        if shown is None:
            self.warnings += [
                f"{key}: {explain_unmatched(entry, self.universe)}" for entry in matcher.unmatched
            ]
        return ListRule(key, matcher, shown)

    def profile(self) -> PolicyStep:
        """Step 1: the agent's profile replaces the global one, and so does its `alsoAllow`."""
        places = (self.agent_settings, self.global_settings)
        rules = self.profile_rules(places)
        if rules and _first(places, "profile")[1] == "coding" and self._wants_plan():
            # Enabling it for such work is enough; it does not need to be allowed as well.
            rules = (*rules, self.rule("tools.updatePlan", ["update_plan"]))
        return PolicyStep(1, "tools.profile", rules)

    def _wants_plan(self) -> bool:
        said = self.config.tools.plan_tool()
        if said is not None:
            return said
        general = EmbeddedPi().merged(self.config.agents.defaults.embedded_pi)
        return general.merged(self.agent.embedded_pi).execution_contract == "strict-agentic"

    def profile_rules(self, places: Sequence[KeyedSettings]) -> tuple[ListRule, ...] | None:
        """The first profile and the first `alsoAllow` in some places; None without a profile."""
        key, profile = _first(places, "profile")
        also_key, also = _first(places, "also_allow", "alsoAllow")
        rules = [] if profile is None else [self.rule(key, PROFILES[profile], profile)]
        if also:
            rules.append(self.rule(also_key, also))
        self.opt_in += [rule.matcher for rule in rules]
        return None if profile is None else tuple(rules)

    def for_model(self, settings: KeyedSettings) -> KeyedSettings | None:
        key, entries = f"{settings[0]}.byProvider", settings[1].by_provider
        self.warnings += (
            f"{key}.{written} matches no model; a key is a provider or provider/model"
            for written in entries or ()
            if "*" in written or written.strip().endswith("/") or not written.strip()
        )
        return selectors.for_model(entries, self.scope.model, key)

    def lists(
        self, number: int, name: str, place: KeyedSettings | None, *, lenient: bool = True
    ) -> PolicyStep:
        """A step from the lists of one place.

        With `lenient`, an allow list that names only plugin tools is ignored with a warning, so
        that a missing plugin does not remove every built-in tool. Lists that apply to people are
        never ignored.
        """
        if place is None:
            return PolicyStep(number, name, None)
        key, lists = place
        deny = (self.rule(f"{key}.deny", lists.deny),) if lists.deny else ()
        allow: tuple[ListRule, ...] | None = None
        if any(entry.strip() for entry in lists.allow or ()):
            rule = self.rule(f"{key}.allow", lists.allow or ())
            self.opt_in.append(rule.matcher)
            if lenient and rule.matcher.foreign:
                self.warnings.append(
                    f"{key}.allow is ignored: it names no built-in tool; "
                    "to add plugin tools to the others, use alsoAllow"
                )
            else:
                allow = (rule,)
        elif lists.also_allow:
            # Nothing is restricted, so this only opts in to optional tools.
            self.opt_in.append(self.rule(f"{key}.alsoAllow", lists.also_allow).matcher)
        return PolicyStep(number, name, allow, deny)

    def group(self) -> KeyedSettings | None:
        """The lists of the group: its sender's before those for all, the account's first."""
        scope, channels = self.scope, self.config.channels
        if scope.group and not scope.channel:
            self.warnings.append(f"the group {scope.group!r} has no effect without its channel")
        name = selectors.find_key(channels, scope.channel)
        if name is None or not scope.group:
            return None
        places = [(f"channels.{name}", channels[name].groups)]
        account = selectors.find_key(channels[name].accounts, scope.account)
        if account is not None:
            mine = channels[name].accounts[account].groups
            places.insert(0, (f"channels.{name}.accounts.{account}", mine))
        for group_id in (*selectors.group_ids(scope.group), "*"):
            for place, groups in places:
                written = selectors.find_key(groups, group_id)
                if written is None:
                    continue
                group, key = groups[written], f"{place}.groups.{written}"
                if found := self.by_sender((key, group)):
                    return found
                if group.tools is not None:
                    return f"{key}.tools", group.tools
        return None

    def by_sender(self, place: KeyedSettings) -> KeyedSettings | None:
        key, entries = f"{place[0]}.toolsBySender", place[1].tools_by_sender
        self.warnings += selectors.sender_warnings(entries, key)
        return selectors.for_sender(entries, self.scope, key)

    def sandbox(self) -> PolicyStep:
        """Step 8: the sandbox's own lists; each field from the agent, global, or default."""
        name = "tools.sandbox.tools"
        places = [
            (f"{key}.sandbox.tools", tools.sandbox.tools)
            for key, tools in (self.agent_settings, self.global_settings)
        ]
        allow_key, allow = _first(places, "allow")
        also_key, also = _first(places, "also_allow", "alsoAllow")
        deny_key, deny = _first(places, "deny")
        rules: list[ListRule] = []
        if allow is None:
            rules.append(self.rule(f"{name}.allow", SANDBOX_ALLOW, "(default)"))
        elif allow:
            rules.append(self.rule(allow_key, allow))
        if also:
            rules.append(self.rule(also_key, also))
        if deny is None:
            lifted = self.rule("", [*(allow or ()), *(also or ())], "").matcher
            kept = [each for each in SANDBOX_DENY if lifted.find(each) is None]
            denied = self.rule(f"{name}.deny", kept, "(default)")
        else:
            denied = self.rule(deny_key, deny)
        # An empty allow list, unlike a missing one, allows everything not denied.
        unrestricted = allow is not None and not allow
        return PolicyStep(8, name, None if unrestricted else tuple(rules), (denied,))

    def sub_agent(self) -> PolicyStep:
        """Step 9: the tools of a sub-agent at this depth; configuration can widen only these."""
        name, lists = "tools.subagents.tools", self.config.tools.subagents.tools
        limits = self.config.agents.defaults.subagents.merged(self.agent.subagents)
        leaf = self.scope.depth >= limits.max_spawn_depth
        role, given = ("leaf", ("yes",)) if leaf else ("orchestrator", ("yes", "orchestrator"))
        tools = CATALOG.values()
        column = [each.id for each in tools if each.sub_agent in given]
        never = [each.id for each in tools if each.sub_agent == "never"]
        if leaf:
            never += [each.id for each in tools if each.sub_agent.startswith("orchestrator")]
        allow = [self.rule(f"{name}.allow", column, f"(default for {role} sub-agents)")]
        deny = [self.rule(f"{name}.deny", never, f"(always, for {role} sub-agents)")]
        for label, entries, rules in (
            ("allow", lists.allow, allow),
            ("alsoAllow", lists.also_allow, allow),
            ("deny", lists.deny, deny),
        ):
            if entries:
                rules.append(self.rule(f"{name}.{label}", entries))
        return PolicyStep(9, name, tuple(allow), tuple(deny))


Effect = Literal["allow", "deny", "not-allowed"]


class Subject(msgspec.Struct, frozen=True):
    name: str  # canonical
    source: str = "core"
    owner_only: bool = False
    optional: bool = False


class Trace(msgspec.Struct, frozen=True):
    """The decision of one step about one tool, and the entry and key behind it."""

    number: int
    step: str
    effect: Effect
    key: str
    entry: str | None  # as written, if there is one; for a profile, its name
    why: str  # the same, for people

    def __str__(self) -> str:
        return self.why


OWNER_ONLY = Trace(
    *(0, "owner-only", "deny", "owner-only", None),
    "it is owner-only, and the sender is not known to be the owner",
)
OPTIONAL = Trace(
    *(12, "optional", "not-allowed", "tools.alsoAllow", None),
    "it is optional, and neither tools.alsoAllow nor another list asks for it",
)
_WORDS: dict[Effect, str] = {
    "allow": "{key} has {entry!r}",
    "deny": "{key} denies it with {entry!r}",
    "not-allowed": "{key} is {entry!r}, which does not include it",
}
_BUILT_IN: dict[Effect, str] = {
    "allow": "{key} {entry} lists it",
    "deny": "{key} {entry} removes it",
    "not-allowed": "{key} {entry} does not list it",
}


def trace(step: PolicyStep, effect: Effect, rule: ListRule, entry: str) -> Trace:
    shown = rule.shown or entry
    words = _BUILT_IN if rule.shown and shown.startswith("(") else _WORDS
    why = words[effect].format(key=rule.key, entry=shown)
    return Trace(step.number, step.name, effect, rule.key, shown, why)


def _missing(step: PolicyStep, rules: tuple[ListRule, ...]) -> Trace:
    """The trace for tools that none of the step's lists contains."""
    if len(rules) == 1 and rules[0].shown is not None:
        return trace(step, "not-allowed", rules[0], "")
    keys = [rule.key for rule in rules] or [step.name]
    neither = f"neither {' nor '.join(keys)} lists it"
    why = neither if len(keys) > 1 else f"{keys[0]} does not list it"
    return Trace(step.number, step.name, "not-allowed", " and ".join(keys), None, why)


class ToolVerdict(msgspec.Struct, frozen=True):
    """The decision about one tool. If it was removed, the last trace says why."""

    allowed: bool
    traces: tuple[Trace, ...]

    @property
    def removed_by(self) -> Trace | None:
        return None if self.allowed else self.traces[-1]


class PolicyDecision(msgspec.Struct, frozen=True):
    """The policy for one scope: a verdict for every tool, and warnings for the operator."""

    verdicts: Mapping[str, ToolVerdict]
    warnings: tuple[str, ...]

    @property
    def is_for_all(self) -> bool:
        """Whether no tool was removed because of the model or the sender."""
        causes = (verdict.removed_by for verdict in self.verdicts.values())
        return all(cause is None or cause.number not in _FOR_SOME for cause in causes)

    def refusal(self, name: str) -> str:
        """The refusal of a removed tool, for the model and people."""
        return f"the tool {name!r} is not allowed here: {self.verdicts[name].removed_by}"


def apply_policy(config: Config, scope: Scope, subjects: Iterable[Subject]) -> PolicyDecision:
    """Decide about all tools. Pure; if a step fails, its tools are removed."""
    subjects = tuple(subjects)
    builder = _Builder(config, scope, Universe.of({each.name: each.source for each in subjects}))
    traces: dict[str, list[Trace]] = {each.name: [] for each in subjects}
    left: list[str] = []
    for each in subjects:
        listed = CATALOG.get(each.name)
        if (each.owner_only or (listed and listed.owner_only)) and not scope.sender.owner:
            traces[each.name].append(OWNER_ONLY)
        else:
            left.append(each.name)
    for step in builder.build():
        if step.allow is not None or step.deny:
            left = _apply_step(step, left, traces)
    kept = set(left)
    for each in subjects:
        if each.optional and each.name in kept and not builder.asks_for(each):
            traces[each.name].append(OPTIONAL)
            kept.remove(each.name)
    verdicts = {name: ToolVerdict(name in kept, tuple(found)) for name, found in traces.items()}
    return PolicyDecision(verdicts, tuple(dict.fromkeys(builder.warnings)))


def _apply_step(step: PolicyStep, names: list[str], traces: Mapping[str, list[Trace]]) -> list[str]:
    """The names that a step keeps; its traces are added to `traces`."""
    try:
        found = _judge(step, names)
    except Exception as error:  # noqa: BLE001  # fail closed: remove what cannot be judged
        why, words = f"error: {error}", f"{step.name} failed: {error}"
        failed = Trace(step.number, step.name, "deny", step.name, why, words)
        found = dict.fromkeys(names, failed)
    for name, each in found.items():
        traces[name].append(each)
    return [name for name in names if name not in found or found[name].effect == "allow"]


def _judge(step: PolicyStep, names: list[str]) -> dict[str, Trace]:
    judged: dict[str, Trace] = {}
    left = names
    kinds: tuple[tuple[Effect, tuple[ListRule, ...]], ...]
    kinds = (("deny", step.deny), ("allow", step.allow or ()))
    for effect, rules in kinds:
        for rule in rules:
            found = rule.matcher.find_all(left)
            # Allowing `write` also allows `apply_patch`; denying it does not deny that.
            implied = rule.matcher.find("write") if effect == "allow" else None
            if implied is not None and "apply_patch" in left:
                found.setdefault("apply_patch", implied)
            traces = {entry: trace(step, effect, rule, entry) for entry in set(found.values())}
            judged |= {name: traces[entry] for name, entry in found.items()}
            left = [name for name in left if name not in found]
    if step.allow is not None:
        judged |= dict.fromkeys(set(left).difference(CONTROLS), _missing(step, step.allow))
    return judged
