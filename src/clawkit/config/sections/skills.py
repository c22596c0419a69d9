"""Skills: `skills`, and the limits that an agent may override."""

from collections.abc import Iterable
from typing import Any

from clawkit.config.section import Conflict, Count, Positive, SecretInput, Section
from clawkit.config.sections.shared import relative_paths


class SkillEntry(Section):
    """One skill."""

    enabled: bool = True  #: Offer the skill.
    api_key: SecretInput | None = None  #: Value of the variable that the skill calls `primaryEnv`.
    env: dict[str, SecretInput] = {}
    """Variables for commands outside the sandbox, unless clawkit's own environment has them."""
    config: dict[str, Any] = {}  #: Settings that the skill itself defines.


class SkillLoad(Section):
    extra_dirs: list[str] = []
    """Further directories with skills, absolute or from `~`; they come last."""
    watch: bool = True  #: Notice changed skills with the next turn, not only in a new session.
    watch_debounce_ms: Count | None = None  #: Milliseconds to wait after a change.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        return relative_paths(raw, "extraDirs")


class SkillLimits(Section):
    max_candidates_per_root: Positive = 300  #: Directories that are looked at in one place.
    max_skills_loaded_per_source: Positive = 200  #: Skills that are read from one place.
    max_skills_in_prompt: Count = 150  #: Skills in the prompt.
    max_skills_prompt_chars: Count = 18_000  #: Characters of the list in the prompt.
    max_skill_file_bytes: Positive = 256_000  #: Largest SKILL.md, in bytes.


class AgentSkillLimits(Section):
    max_skills_prompt_chars: Count | None = None  #: Characters of the list in the prompt.


class Skills(Section):
    """Folders with instructions for certain tasks, which the model reads when it needs them."""

    allow_bundled: list[str] | None = None  #: Bundled skills to offer; clawkit brings none.
    load: SkillLoad = SkillLoad()  #: Where skills are found.
    limits: SkillLimits = SkillLimits()  #: How many skills are found and listed.
    entries: dict[str, SkillEntry] = {}  #: Settings of skills, by name or `skillKey`.
