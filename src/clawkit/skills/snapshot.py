"""The skills of a session: the offered ones, their list in the prompt, their invocation by
people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from clawkit.config.sections.skills import SkillLimits
from clawkit.skills.discovery import SkillFile, read_all
from clawkit.skills.eligibility import SkillFacts, unused_settings, variables_of, why_not
from clawkit.skills.skill import Skill

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_CHARS_PER_TOKEN = 4
_INTRODUCTION = (
    "Each of these files has instructions for a kind of task. If one fits, read it at its location "
    "before you begin, then follow it; read no other. In it, {baseDir} and relative paths mean its "
    "directory. It grants no tools and cannot override policy."
)


class SkillSnapshot:
    """The skills for one agent at one time."""

    def __init__(
        self,
        candidates: Sequence[SkillFile],
        facts: SkillFacts,
        limits: SkillLimits,
        writable: Sequence[str],
    ) -> None:
        """The agent can change everything below the directories in `writable`."""
        self.candidates, self._facts, self._limits = candidates, facts, limits
        self.skills, self.broken = read_all(candidates, limits, writable)

    @cached_property
    def in_force(self) -> list[Skill]:
        found = (each for each in self.skills if not self.why_not(each))
        return sorted(found, key=lambda each: each.name)

    @cached_property
    def listed(self) -> list[Skill]:
        """The skills in the prompt."""
        listed = [each for each in self.in_force if each.is_for_model]
        del listed[self._limits.max_skills_in_prompt :]
        left = self._limits.max_skills_prompt_chars
        for at, each in enumerate(listed):
            left -= len(row_of(each)) + 1
            if left < 0:
                return listed[:at]
        return listed

    @cached_property
    def prompt(self) -> str:
        """The section of the prompt; empty without skills."""
        if not self.listed:
            return ""
        rows = "\n".join(map(row_of, self.listed))
        return f"{_INTRODUCTION}\n<available_skills>\n{rows}\n</available_skills>"

    def remarks(self) -> list[str]:
        """Settings of skills without effect."""
        return [text for each in self.skills for text in unused_settings(each, self._facts)]

    def why_not(self, skill: Skill) -> str:
        """Why a skill is not offered; empty if it is."""
        return why_not(skill, self._facts)

    def describe(self, skill: Skill) -> dict[str, Any]:
        """JSON about a skill: its content, and whether it is offered."""
        tokens = -(-len(row_of(skill)) // _CHARS_PER_TOKEN) if skill in self.listed else 0
        why = self.why_not(skill)
        facts = {"eligible": not why, "missing": why, "tokens": tokens, "command": skill.command}
        return {**msgspec.to_builtins(skill), **facts}

    @property
    def folders(self) -> list[str]:
        """The directories that the model may read for its skills."""
        return [each.folder for each in self.in_force if each in self.listed or each.is_for_user]

    @cached_property
    def programs(self) -> list[str]:
        """Current paths of the programs that trusted skills require."""
        named = [
            name
            for each in self.in_force
            if each.is_trusted
            for name in (*each.metadata.requires.bins, *each.metadata.requires.any_bins)
        ]
        found = (self._facts.find(name) for name in named if "/" not in name)
        return list(filter(None, dict.fromkeys(found)))

    @property
    def variables(self) -> dict[str, Any]:
        """Variables for commands outside the sandbox, with secrets unresolved."""
        return {
            name: self._facts.env.get(name) or value
            for each in self.in_force
            for name, value in variables_of(each, self._facts).items()
        }

    @cached_property
    def commands(self) -> dict[str, Skill]:
        """The skills that a person can invoke, by the word after the slash; an exact name takes
        precedence over a similar one."""
        found = (each for each in self.in_force if each.is_for_user and each.command)
        return {each.command: each for each in sorted(found, key=lambda s: s.name == s.command)}

    def find(self, line: str) -> tuple[Skill, str] | None:
        """The skill that `/NAME …` or `/skill NAME …` invokes, and the rest of the line."""
        words = re.fullmatch(r"/(?:skill[ \t]+)?([^\s/]+)(?:\s+(.*))?", line, re.DOTALL)
        skill = self.commands.get(words[1].lower()) if words else None
        return (skill, (words[2] or "").strip()) if words and skill else None

    def expand(self, line: str) -> str:
        """The message for the model when a person invokes a skill; other lines are unchanged."""
        found = self.find(line)
        if found is None:
            return line
        skill, words = found
        text = f"Use the skill {skill.name!r}: read {skill.file} and follow it."
        return f"{text}\n\n{words}" if words else text


def row_of(skill: Skill) -> str:
    cells = ("name", skill.name), ("description", skill.description), ("location", skill.file)
    inside = "".join(f"<{tag}>{text.translate(_ESCAPES)}</{tag}>" for tag, text in cells)
    return f"<skill>{inside}</skill>"
