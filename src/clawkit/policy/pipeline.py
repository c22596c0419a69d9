"""The policy itself: every tool goes through every step, and every decision is traced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from clawkit.config.model import Config
from clawkit.core.catalog import CATALOG
from clawkit.core.context import Scope
from clawkit.policy.match import Matcher, Universe
from clawkit.policy.steps import Rule, Step, build_steps

Effect = Literal["allow", "deny", "not-allowed"]


class Subject(NamedTuple):
    """A tool as policy sees it."""

    name: str
    """Canonical."""
    source: str = "core"
    owner_only: bool = False
    optional: bool = False


class Trace(NamedTuple):
    """What one step said about one tool, and because of which entry of which key."""

    number: int
    step: str
    effect: Effect
    key: str
    entry: str | None
    """The entry as written (the profile's name for a profile), when there is one."""
    why: str
    """The same for people."""

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
    "not-allowed": "{key} is {entry!r}, which does not hold it",
}
_BUILT_IN: dict[Effect, str] = {
    "allow": "{key} {entry} lists it",
    "deny": "{key} {entry} removes it",
    "not-allowed": "{key} {entry} does not list it",
}


def trace(step: Step, effect: Effect, rule: Rule, entry: str) -> Trace:
    """What a rule of a step said."""
    words = _BUILT_IN if rule.built_in else _WORDS
    shown = rule.shown or entry
    why = words[effect].format(key=rule.key, entry=shown)
    return Trace(step.number, step.name, effect, rule.key, shown, why)


def _missing(step: Step, rules: tuple[Rule, ...]) -> Trace:
    """What a step says about tools that none of its lists holds."""
    if len(rules) == 1 and rules[0].shown is not None:
        return trace(step, "not-allowed", rules[0], "")
    keys = [rule.key for rule in rules] or [step.name]
    why = (
        f"{keys[0]} does not list it"
        if len(keys) == 1
        else f"neither {' nor '.join(keys)} lists it"
    )
    return Trace(step.number, step.name, "not-allowed", " and ".join(keys), None, why)


class Verdict(NamedTuple):
    """What became of one tool. When it was removed, the last trace says by what."""

    kept: bool
    traces: tuple[Trace, ...]

    @property
    def removed_by(self) -> Trace | None:
        return None if self.kept else self.traces[-1]


class Decision(NamedTuple):
    """The policy for one scope: a verdict for every tool, and remarks for the operator."""

    verdicts: Mapping[str, Verdict]
    warnings: tuple[str, ...]

    def refusal(self, name: str) -> str:
        """Why a removed tool may not be called, for the model and the person alike."""
        return f"the tool {name!r} is not allowed here: {self.verdicts[name].removed_by}"


def apply_policy(config: Config, scope: Scope, subjects: Iterable[Subject]) -> Decision:
    """Judge all tools. Pure; what a failing step should have judged is removed."""
    subjects = tuple(subjects)
    universe = Universe.of({each.name: each.source for each in subjects})
    steps = build_steps(config, scope, universe)
    said: dict[str, list[Trace]] = {each.name: [] for each in subjects}
    left = [each.name for each in subjects if _owner_may(each, scope.sender.owner, said)]
    for step in steps.steps:
        if step.allow is not None or step.deny:
            left = _sift(step, left, said)
    kept = frozenset(left)
    for each in subjects:
        if each.optional and each.name in kept and not _asked_for(each, steps.opt_in):
            said[each.name].append(OPTIONAL)
            kept -= {each.name}
    verdicts = {name: Verdict(name in kept, tuple(traces)) for name, traces in said.items()}
    return Decision(verdicts, steps.warnings)


def _owner_may(subject: Subject, owner: bool, said: Mapping[str, list[Trace]]) -> bool:
    entry = CATALOG.get(subject.name)
    if owner or not (subject.owner_only or (entry is not None and entry.owner_only)):
        return True
    said[subject.name].append(OWNER_ONLY)
    return False


def _sift(step: Step, names: list[str], said: Mapping[str, list[Trace]]) -> list[str]:
    """The names that one step leaves; what it says about each is added to `said`."""
    try:
        spoken = _judge(step, names)
    except Exception as error:  # noqa: BLE001  # fail closed: what cannot be judged is removed
        why = f"error: {error}"
        failed = Trace(
            step.number, step.name, "deny", step.name, why, f"{step.name} failed: {error}"
        )
        spoken = dict.fromkeys(names, failed)
    for name, said_now in spoken.items():
        said[name].append(said_now)
    return [name for name in names if name not in spoken or spoken[name].effect == "allow"]


def _judge(step: Step, names: list[str]) -> dict[str, Trace]:
    """What a step says, about those names that it says something about. Deny comes first."""
    spoken: dict[str, Trace] = {}
    left = names
    kinds: tuple[tuple[Effect, tuple[Rule, ...]], ...]
    kinds = (("deny", step.deny), ("allow", step.allow or ()))
    for effect, rules in kinds:
        for rule in rules:
            found = rule.matcher.find_all(left)
            if effect == "allow":
                _add_courtesy(found, rule, left)
            traces = {entry: trace(step, effect, rule, entry) for entry in set(found.values())}
            spoken |= {name: traces[entry] for name, entry in found.items()}
            left = [name for name in left if name not in found]
    if step.allow is not None:
        spoken |= dict.fromkeys(left, _missing(step, step.allow))
    return spoken


def _add_courtesy(found: dict[str, str], rule: Rule, names: list[str]) -> None:
    """Allowing `write` allows `apply_patch` too; denying it does not deny it."""
    entry = rule.matcher.find("write")
    if entry is not None and "apply_patch" in names:
        found.setdefault("apply_patch", entry)


def _asked_for(subject: Subject, opt_in: Iterable[Matcher]) -> bool:
    owner = subject.source.partition(":")[2].lower()
    return any(matcher.names_plainly(subject.name, owner) for matcher in opt_in)
