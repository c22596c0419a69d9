"""Which skills are offered."""

from __future__ import annotations

from typing import Any

import pytest

from clawkit.config.section import SecretRef
from clawkit.config.sections.skills import SkillEntry
from clawkit.skills.eligibility import SkillFacts, unused_settings, variables_of, why_not
from clawkit.skills.skill import Skill, read_skill

FACTS = SkillFacts("linux", {"git": "/usr/bin/git"}.get, {"TOKEN": "t"}, {"browser": {"on": True}})
KEY = SecretRef(source="env", id="KEY")


def skill(metadata: str = "{}", *, trusted: bool = True) -> Skill:
    text = f"---\nname: demo\ndescription: x\nmetadata: {{openclaw: {metadata}}}\n---\n"
    return read_skill(text, "/skills/demo/SKILL.md", "managed", trusted=trusted)


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("{}", {}, ""),
    ("{}", {"entries": {"demo": SkillEntry(enabled=False)}}, "skills.entries.demo.enabled"),
    ("{skillKey: 'k'}", {"entries": {"demo": SkillEntry(enabled=False)}}, ""),
    ("{skillKey: 'k'}", {"entries": {"k": SkillEntry(enabled=False)}}, "skills.entries.k.enabled"),
    ("{}", {"named": ["demo"]}, ""),
    ("{}", {"named": []}, "list of skills"),
    ("{always: true}", {"named": ["other"]}, "list of skills"),
    ("{os: ['linux', 'darwin']}", {}, ""),
    ("{os: ['darwin']}", {}, "it is for darwin"),
    ("{os: ['darwin'], always: true}", {}, "it is for darwin"),
    ("{requires: {bins: ['git']}}", {}, ""),
    ("{requires: {bins: ['git', 'gone']}}", {}, "the program gone"),
    ("{requires: {bins: ['gone']}, always: true}", {}, ""),
    ("{requires: {anyBins: ['gone', 'git']}}", {}, ""),
    ("{requires: {anyBins: ['gone', 'lost']}}", {}, "one of the programs gone, lost"),
    ("{requires: {env: ['TOKEN']}}", {}, ""),
    ("{requires: {env: ['OTHER']}}", {}, "the variable OTHER"),
    ("{requires: {env: ['OTHER']}}", {"entries": {"demo": SkillEntry(env={"OTHER": "1"})}}, ""),
    ("{requires: {env: ['K']}, primaryEnv: 'K'}", {"entries": {"demo": SkillEntry()}}, "K"),
    (
        "{requires: {env: ['K']}, primaryEnv: 'K'}",
        {"entries": {"demo": SkillEntry(api_key=KEY)}},
        "",
    ),
    ("{requires: {config: ['browser.on']}}", {}, ""),
    ("{requires: {config: ['browser.off']}}", {}, "the setting browser.off"),
    ("{requires: {config: ['browser.on.more']}}", {}, "the setting browser.on.more"),
]


def test_a_skill_is_offered_or_has_a_reason_why_not() -> None:
    for metadata, facts, why in CASES:
        said = why_not(skill(metadata), FACTS._replace(**facts))
        assert (why in said) if why else said == "", (metadata, facts, said)


def test_a_skill_cannot_require_very_much() -> None:
    for listed in (["x"] * 51, ["x" * 201]):
        for key in ("bins", "anyBins", "env", "config"):
            with pytest.raises(ValueError, match="length <="):
                skill(f"{{requires: {{{key}: {listed}}}}}")


def test_the_older_name_of_the_metadata_is_read_too() -> None:
    head = "name: demo\ndescription: x\nmetadata: {clawdbot: {os: ['darwin']}}"
    found = read_skill(f"---\n{head}\n---\n", "/demo/SKILL.md", "extra", trusted=True)
    assert why_not(found, FACTS) == "it is for darwin"
    assert skill("{}").metadata.os == ()


def test_variables_are_for_skills_that_the_agent_cannot_change() -> None:
    entry = SkillEntry(api_key=KEY, env={"MODE": "x", "LD_PRELOAD": "evil", "PATH": "/tmp"})
    facts = FACTS._replace(entries={"demo": entry})
    primary = "{primaryEnv: 'API_KEY'}"
    assert variables_of(skill(primary), facts) == {"API_KEY": KEY, "MODE": "x"}
    assert variables_of(skill(primary, trusted=False), facts) == {}
    assert variables_of(skill("{primaryEnv: 'LD_PRELOAD'}"), facts) == {"MODE": "x"}
    assert variables_of(skill(), FACTS) == {}


def test_settings_without_effect_are_reported() -> None:
    entry = SkillEntry(api_key=KEY, env={"LD_PRELOAD": "x"})
    facts = FACTS._replace(entries={"demo": entry})
    said = " ".join(unused_settings(skill(), facts))
    assert "apiKey is not used" in said
    assert "LD_PRELOAD is not used" in said
    assert "the agent can change" in " ".join(unused_settings(skill(trusted=False), facts))
    assert list(unused_settings(skill(), FACTS)) == []
