"""One skill: the content of its SKILL.md, and its deviations from the rules of agentskills.io."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from clawkit.config.paths import SkillSource
from clawkit.skills.front_matter import read_front_matter
from clawkit.text import one_line

FILES = ("SKILL.md", "skill.md")
MAX_NAME = 128
MAX_DESCRIPTION = 1_024
_STANDARD = ("name", "description", "license", "allowed-tools", "metadata", "compatibility")
_OURS = ("homepage", "user-invocable", "disable-model-invocation")
_COMMAND = ("command-dispatch", "command-tool", "command-arg-mode")
_NAMESPACES = ("openclaw", "clawdbot")


Names = Annotated[tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=50)]
"""Few, because each program is searched in every directory of PATH."""


class SkillRequirements(Struct, frozen=True, rename="camel", omit_defaults=True):
    bins: Names = ()
    """Programs that must all be installed."""
    any_bins: Names = ()
    """Programs of which one must be installed."""
    env: Names = ()
    config: Names = ()
    """Settings that must be set to something other than false."""


class SkillMetadata(Struct, frozen=True, rename="camel", omit_defaults=True):
    always: bool = False
    """Whether it is offered regardless of requirements."""
    emoji: str = ""
    homepage: str = ""
    skill_key: str = ""
    primary_env: str = ""
    os: Names = ()
    requires: SkillRequirements = SkillRequirements()
    install: tuple[dict[str, Any], ...] = ()
    """How to install its requirements: for people to read, never run."""


class Skill(Struct, frozen=True, rename="camel"):
    name: str
    description: str
    file: str
    source: SkillSource
    is_trusted: bool
    """Whether the agent cannot change it: only then it may get variables and allowed programs."""
    metadata: SkillMetadata = SkillMetadata()
    fields: dict[str, str] = {}
    """`license`, `compatibility` and `allowed-tools`, for display."""
    is_for_user: bool = True
    """Whether a person can invoke it with `/NAME`."""
    is_for_model: bool = True
    tool: str = ""
    """The tool that `/NAME` calls, instead of sending a message."""
    warnings: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        return os.path.dirname(self.file)

    @property
    def command(self) -> str:
        """The word that a person types after the slash."""
        return re.sub(r"[^a-z0-9_-]+", "-", self.name.lower()).strip("-")

    @property
    def key(self) -> str:
        """Its key in `skills.entries`."""
        return self.metadata.skill_key or self.name


def read_skill(text: str, file: str, source: SkillSource, *, trusted: bool) -> Skill:
    """The skill in the text of a SKILL.md. Raises ValueError with a message that does not quote the
    text: the file may not be a skill at all."""
    found = read_front_matter(text)
    name = _text(found, "name") or os.path.basename(os.path.dirname(file))
    description = _text(found, "description")
    if not file.isprintable():
        raise ValueError("its path has control characters")
    if not name.isprintable() or len(name) > MAX_NAME:
        raise ValueError(f"the name must be 1 to {MAX_NAME} printable characters")
    if not description:
        raise ValueError("the description is missing, so a model cannot know when to use it")
    tool = _text(found, "command-tool") if found.get("command-dispatch") == "tool" else ""
    return Skill(
        name,
        clean(description, MAX_DESCRIPTION),
        file,
        source,
        trusted,
        _read_metadata(found),
        {key: clean(_text(found, key), 500) for key in _STANDARD[2:] if _text(found, key)},
        is_for_user=_flag(found, "user-invocable", default=True),
        is_for_model=not _flag(found, "disable-model-invocation", default=False),
        tool=tool,
        warnings=tuple(_deviations(found, name, file)),
    )


def clean(text: str, max_chars: int) -> str:
    """Text of a skill in one line, without control and invisible characters."""
    return one_line("".join(each if each.isprintable() else " " for each in text), max_chars)


def _text(front_matter: dict[str, Any], key: str) -> str:
    value = front_matter.get(key, "")
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return value.strip() if isinstance(value, str) else str(value) if value is True else ""


def _flag(front_matter: dict[str, Any], key: str, *, default: bool) -> bool:
    value = front_matter.get(key, default)
    if not isinstance(value, bool):
        raise ValueError(f"{key} must be true or false")
    return value


def _read_metadata(front_matter: dict[str, Any]) -> SkillMetadata:
    given = front_matter.get("metadata") or {}
    spaces = [given.get(name) for name in _NAMESPACES] if isinstance(given, dict) else ["?"]
    try:
        own = msgspec.convert(next(filter(None, spaces), {}), SkillMetadata)
    except msgspec.ValidationError as error:
        raise ValueError(f"metadata: {error}") from None
    homepage = own.homepage or _text(front_matter, "homepage")
    return msgspec.structs.replace(own, homepage=clean(homepage, 200))


def _deviations(front_matter: dict[str, Any], name: str, file: str) -> Iterator[str]:
    """Deviations from the rules of agentskills.io that clawkit accepts."""
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) or len(name) > 64:
        yield "name: use up to 64 lower-case letters and digits, with single hyphens between"
    if name != (folder := os.path.basename(os.path.dirname(file))):
        yield f"name: it differs from the directory, {clean(folder, 80)!r}"
    if len(_text(front_matter, "description")) > MAX_DESCRIPTION:
        yield f"description: longer than {MAX_DESCRIPTION} characters, and truncated"
    if len(_text(front_matter, "compatibility")) > 500:
        yield "compatibility: longer than 500 characters"
    if own := [clean(key, 40) for key in front_matter if key not in _STANDARD]:
        unknown = [key for key in own if key not in (*_OURS, *_COMMAND)]
        what = f"; without effect here: {', '.join(unknown[:8])}" if unknown else ""
        yield f"keys that other programs may not know: {', '.join(own[:8])}{what}"
