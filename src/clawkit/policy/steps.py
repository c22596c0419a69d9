"""The steps of the policy, built from configuration for one scope.

Each step can only take away. A step holds allow rules (none: no restriction) and deny rules; every
rule knows the configuration key it came from, so that a decision can name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from clawkit.config.model import Config
from clawkit.config.sections.agents import EmbeddedPi
from clawkit.core.catalog import CATALOG, PROFILES
from clawkit.core.context import Scope
from clawkit.policy.match import Matcher, Universe, explain_unmatched
from clawkit.policy.who import (
    find_key,
    for_model,
    for_sender,
    group_ids,
    odd_providers,
    odd_senders,
)

SANDBOX_ALLOW = (
    *("exec", "process", "read", "write", "edit", "apply_patch", "grep", "find", "ls", "image"),
    *("sessions_list", "sessions_history", "sessions_send", "sessions_spawn", "sessions_yield"),
    *("subagents", "session_status"),
)
SANDBOX_DENY = ("browser", "canvas", "nodes", "cron", "gateway")


class Lists(Protocol):
    """Allow and deny lists: the shape that global, agent, group and sender settings share."""

    @property
    def allow(self) -> Sequence[str] | None: ...
    @property
    def also_allow(self) -> Sequence[str] | None: ...
    @property
    def deny(self) -> Sequence[str] | None: ...


class Rule(NamedTuple):
    """One list of one configuration key."""

    key: str
    matcher: Matcher
    shown: str | None = None
    """What to name instead of the matching entry: the profile, for a profile's list."""

    @property
    def built_in(self) -> bool:
        """Whether the list is clawkit's own, not the operator's."""
        return self.shown is not None and self.shown.startswith("(")


class Step(NamedTuple):
    """One step. `allow` None restricts nothing; an empty tuple lets nothing through."""

    number: int
    name: str
    allow: tuple[Rule, ...] | None
    deny: tuple[Rule, ...] = ()


class Steps(NamedTuple):
    """All steps in order, and what came up while building them."""

    steps: tuple[Step, ...]
    opt_in: tuple[Matcher, ...]
    """Every list in force that may ask for an optional tool."""
    warnings: tuple[str, ...]


class _Builder:
    """Builds the steps for one configuration and scope."""

    def __init__(self, config: Config, scope: Scope, universe: Universe) -> None:
        self.config = config
        self.scope = scope
        self.universe = universe
        self.agent = config.agents.by_id().get(scope.agent.strip().lower())
        self.warnings: list[str] = []
        self.opt_in: list[Matcher] = []

    def rule(self, key: str, entries: Iterable[str], shown: str | None = None) -> Rule:
        matcher = Matcher(entries, key, self.universe)
        if shown is None:
            self.warnings += [
                f"{key}: {explain_unmatched(entry, self.universe)}" for entry in matcher.unmatched
            ]
        return Rule(key, matcher, shown)

    def profile(self) -> Step:
        """Step 1: the agent's profile replaces the global one; so does its `alsoAllow`."""
        ours, tools = self.agent.tools if self.agent else None, self.config.tools
        mine = f"agents.{self.scope.agent}.tools"
        key, profile = "tools.profile", tools.profile
        if ours is not None and ours.profile is not None:
            key, profile = f"{mine}.profile", ours.profile
        also = ("tools.alsoAllow", tools.also_allow)
        if ours is not None and ours.also_allow is not None:
            also = (f"{mine}.alsoAllow", ours.also_allow)
        step = self._profile_step(Step(1, "tools.profile", None), key, profile, also)
        if profile == "coding" and step.allow and self._wants_plan():
            # Who turns it on for work like this does not have to allow it as well.
            plan = self.rule("tools.updatePlan", ["update_plan"])
            return step._replace(allow=(*step.allow, plan))
        return step

    def _wants_plan(self) -> bool:
        said = self.config.tools.plan_tool()
        if said is not None:
            return said
        of_all, own = self.config.agents.defaults.embedded_pi, self.agent
        behaviour = EmbeddedPi().merged(of_all).merged(own.embedded_pi if own else None)
        return behaviour.execution_contract == "strict-agentic"

    def provider_profile(self) -> Step:
        """Step 2: the profile for the provider or model, the agent's before the global one."""
        step = Step(2, "tools.byProvider.profile", None)
        found = [pair for pair in self._provider_lists() if pair is not None]
        profiles = [(f"{key}.profile", lists.profile) for key, lists in found if lists.profile]
        also = [
            (f"{key}.alsoAllow", lists.also_allow)
            for key, lists in found
            if lists.also_allow is not None
        ]
        if not profiles:
            return step
        return self._profile_step(step, *profiles[0], also[0] if also else ("", None))

    def _profile_step(
        self, step: Step, key: str, profile: str | None, also: tuple[str, Sequence[str] | None]
    ) -> Step:
        rules = [] if profile is None else [self.rule(key, PROFILES[profile], profile)]
        if also[1]:
            rules.append(self.rule(also[0], also[1]))
        self.opt_in += [rule.matcher for rule in rules]
        return step if profile is None else step._replace(allow=tuple(rules))

    def _provider_lists(self) -> Iterator[tuple[str, Any] | None]:
        """For the agent, then globally: the entry that fits the run's model."""
        model = self.scope.model
        agent = self.agent.tools.by_provider if self.agent and self.agent.tools else None
        self.warnings += odd_providers(agent, f"agents.{self.scope.agent}.tools.byProvider")
        self.warnings += odd_providers(self.config.tools.by_provider, "tools.byProvider")
        yield for_model(agent, model, f"agents.{self.scope.agent}.tools.byProvider")
        yield for_model(self.config.tools.by_provider, model, "tools.byProvider")

    def lists(self, step: Step, key: str, lists: Lists | None, *, lenient: bool = True) -> Step:
        """A step from one scope's lists.

        An allow list that names only tools of plugins is ignored with a warning (`lenient`), so
        that a missing plugin does not take every built-in tool away; lists that say who may do
        something are never ignored.
        """
        if lists is None:
            return step
        deny = (self.rule(f"{key}.deny", lists.deny),) if lists.deny else ()
        allow: tuple[Rule, ...] | None = None
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
            # Nothing to add to: every tool stays, and optional ones named here are asked for.
            self.opt_in.append(self.rule(f"{key}.alsoAllow", lists.also_allow).matcher)
        return step._replace(allow=allow, deny=deny)

    def provider(self) -> tuple[Step, Step]:
        """Steps 4 and 6: the lists for the provider or model, global and the agent's."""
        agent, tools = self._provider_lists()
        return (
            self.lists(Step(4, "tools.byProvider", None), *(tools or ("", None))),
            self.lists(
                Step(6, f"agents.{self.scope.agent}.tools.byProvider", None),
                *(agent or ("", None)),
            ),
        )

    def groups(self) -> tuple[Step, ...]:
        """Step 7: the group's lists and the sender's."""
        return (
            self.lists(Step(7, "group tools", None), *self._group_lists(), lenient=False),
            self.lists(Step(7, "toolsBySender", None), *self._sender_lists(), lenient=False),
        )

    def _group_lists(self) -> tuple[str, Lists | None]:
        """The most particular of: this group per sender, this group, all groups per sender, all."""
        scope, channels = self.scope, self.config.channels
        if scope.group and not scope.channel:
            self.warnings.append(f"the group {scope.group!r} means nothing without its channel")
        name = find_key(channels, scope.channel)
        if name is None or not scope.group:
            return "", None
        places = [(f"channels.{name}", channels[name].groups)]
        account = find_key(channels[name].accounts, scope.account)
        if account is not None:
            mine = channels[name].accounts[account].groups
            places.insert(0, (f"channels.{name}.accounts.{account}", mine))
        for group_id in (*group_ids(scope.group), "*"):
            for place, groups in places:
                written = find_key(groups, group_id)
                if written is None:
                    continue
                group, key = groups[written], f"{place}.groups.{written}"
                self.warnings += odd_senders(group.tools_by_sender, f"{key}.toolsBySender")
                found = for_sender(group.tools_by_sender, scope, f"{key}.toolsBySender")
                if found is not None:
                    return found
                if group.tools is not None:
                    return f"{key}.tools", group.tools
        return "", None

    def _sender_lists(self) -> tuple[str, Lists | None]:
        ours = self.agent.tools.tools_by_sender if self.agent and self.agent.tools else None
        key = f"agents.{self.scope.agent}.tools.toolsBySender"
        self.warnings += odd_senders(ours, key)
        self.warnings += odd_senders(self.config.tools.tools_by_sender, "tools.toolsBySender")
        found = for_sender(ours, self.scope, key) or for_sender(
            self.config.tools.tools_by_sender, self.scope, "tools.toolsBySender"
        )
        return found or ("", None)

    def sandbox(self) -> Step:
        """Step 8: in the sandbox, what its own lists allow; each field agent, global, default."""
        name = "tools.sandbox.tools"
        if not self.scope.sandboxed:
            return Step(8, name, None)
        ours = self.agent.tools.sandbox.tools if self.agent and self.agent.tools else None
        scopes = [
            (f"agents.{self.scope.agent}.{name}", ours),
            (name, self.config.tools.sandbox.tools),
        ]

        def first(field: str, label: str) -> tuple[str, Sequence[str] | None]:
            for key, lists in scopes:
                if lists is not None and getattr(lists, field) is not None:
                    return f"{key}.{label}", getattr(lists, field)
            return "", None

        allow_key, allow = first("allow", "allow")
        also_key, also = first("also_allow", "alsoAllow")
        deny_key, deny = first("deny", "deny")
        rules: list[Rule] = []
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
        # An empty allow list, unlike a missing one, allows everything that is not denied.
        unrestricted = allow is not None and not allow
        return Step(8, name, None if unrestricted else tuple(rules), (denied,))

    def sub_agent(self) -> Step:
        """Step 9: what a sub-agent of this depth has; configuration widens only this column."""
        name = "tools.subagents.tools"
        if self.scope.depth < 1:
            return Step(9, name, None)
        leaf = self.scope.depth >= self._max_depth()
        never = [each.id for each in CATALOG.values() if each.sub_agent == "never"]
        if leaf:
            never += [e.id for e in CATALOG.values() if e.sub_agent.startswith("orchestrator")]
        column = [
            each.id
            for each in CATALOG.values()
            if each.sub_agent == "yes" or (each.sub_agent == "orchestrator" and not leaf)
        ]
        role = "leaf" if leaf else "orchestrator"
        lists = self.config.tools.subagents.tools
        allow = [self.rule(f"{name}.allow", column, f"(default for {role} sub-agents)")]
        deny = [self.rule(f"{name}.deny", never, f"(always, for {role} sub-agents)")]
        for label, entries, rules in (
            ("allow", lists.allow if lists else None, allow),
            ("alsoAllow", lists.also_allow if lists else None, allow),
            ("deny", lists.deny if lists else None, deny),
        ):
            if entries:
                rules.append(self.rule(f"{name}.{label}", entries))
        return Step(9, name, tuple(allow), tuple(deny))

    def _max_depth(self) -> int:
        general = self.config.agents.defaults.subagents
        return general.merged(self.agent.subagents if self.agent else None).max_spawn_depth

    def run(self) -> Step:
        """Last: the list this one run was given. An empty list leaves nothing."""
        step = Step(10, "run.allow", None)
        if self.scope.allow is None:
            return step
        rules = (self.rule("run.allow", self.scope.allow),) if self.scope.allow else ()
        return step._replace(allow=rules)


def build_steps(config: Config, scope: Scope, universe: Universe) -> Steps:
    """The policy of a configuration for one scope."""
    builder = _Builder(config, scope, universe)
    if builder.agent is None and scope.agent != "main":
        builder.warnings.append(
            f"no agent called {scope.agent!r} is configured; the global settings apply"
        )
    by_provider, agent_by_provider = builder.provider()
    ours = builder.agent.tools if builder.agent else None
    agent_key = f"agents.{scope.agent}.tools"
    steps = (
        builder.profile(),
        builder.provider_profile(),
        builder.lists(Step(3, "tools.allow / deny", None), "tools", config.tools),
        by_provider,
        builder.lists(Step(5, f"{agent_key}.allow / deny", None), agent_key, ours),
        agent_by_provider,
        *builder.groups(),
        builder.sandbox(),
        builder.sub_agent(),
        builder.run(),
    )
    return Steps(steps, tuple(builder.opt_in), tuple(dict.fromkeys(builder.warnings)))
