"""Whether a skill is offered, by its requirements and the configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from clawkit.config.sections.skills import SkillEntry
from clawkit.process.env_blocklist import why_refused
from clawkit.skills.skill import Skill


class SkillFacts(NamedTuple):
    """The facts that decide whether skills are offered."""

    system: str
    """As in `sys.platform`."""
    find: Callable[[str], str | None]
    """The path of a program."""
    env: Mapping[str, str]
    settings: Mapping[str, Any]
    """The configuration as written in the file."""
    entries: Mapping[str, SkillEntry] = {}
    named: Collection[str] | None = None
    """The only skills that the agent may have; None for all."""


def why_not(skill: Skill, facts: SkillFacts) -> str:
    """Why a skill is not offered; empty if it is."""
    entry, about = facts.entries.get(skill.key), skill.metadata
    if entry is not None and not entry.enabled:
        return f"skills.entries.{skill.key}.enabled is false"
    if facts.named is not None and skill.name not in facts.named:
        return "it is not in the agent's list of skills"
    if about.os and facts.system not in about.os:
        return f"it is for {', '.join(about.os)}"
    missing = () if about.always else tuple(_missing(skill, facts))
    return f"it needs {', '.join(missing)}" if missing else ""


def _missing(skill: Skill, facts: SkillFacts) -> Iterator[str]:
    needs = skill.metadata.requires
    provided = variables_of(skill, facts)
    yield from (f"the program {name}" for name in needs.bins if not facts.find(name))
    if needs.any_bins and not any(map(facts.find, needs.any_bins)):
        yield f"one of the programs {', '.join(needs.any_bins)}"
    for name in needs.env:
        if not facts.env.get(name) and name not in provided:
            yield f"the variable {name}"
    yield from (f"the setting {path}" for path in needs.config if not _at(facts.settings, path))


def variables_of(skill: Skill, facts: SkillFacts) -> dict[str, Any]:
    """The variables in `skills.entries` for commands of a skill, with secrets unresolved. Empty for
    a skill that the agent can change, because it could take the name of another one."""
    entry = facts.entries.get(skill.key)
    if entry is None or not skill.is_trusted:
        return {}
    primary = skill.metadata.primary_env
    key = {primary: entry.api_key} if primary and entry.api_key else {}
    return {name: value for name, value in {**key, **entry.env}.items() if not why_refused(name)}


def unused_settings(skill: Skill, facts: SkillFacts) -> Iterator[str]:
    """Settings in `skills.entries` that have no effect for a skill, and why."""
    entry, key = facts.entries.get(skill.key), f"skills.entries.{skill.key}"
    if entry is None:
        return
    if not skill.is_trusted and (entry.env or entry.api_key):
        yield f"{key}: its variables are not used, because the agent can change {skill.file}"
    if entry.api_key and not skill.metadata.primary_env:
        yield f"{key}.apiKey is not used: the skill does not name a variable for it"
    for name in entry.env:
        if why := why_refused(name):
            yield f"{key}.env.{name} is not used: it {why}"


def _at(settings: Any, path: str) -> bool:
    for name in path.split("."):
        settings = settings.get(name) if isinstance(settings, dict) else None
    return bool(settings)
