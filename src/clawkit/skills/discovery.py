"""Finds and reads skills in their directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from clawkit.config.paths import SkillSource
from clawkit.config.sections.skills import SkillLimits
from clawkit.core.paths import is_below
from clawkit.errors import ToolInputError
from clawkit.fs.roots import opened
from clawkit.skills.skill import FILES, Skill, read_skill
from clawkit.store import why_foreign
from clawkit.text import human_size

MAX_NAMES = 10_000
"""Maximum names of a directory to look at."""
_LEADS_OUT = "a link leads out of its directory"
_SKIPPED = ("node_modules", "__pycache__")
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
Stamp = tuple[int, int, int, int]


class SkillRoot(NamedTuple):
    path: str
    source: SkillSource
    within: str = ""
    """The directory that its resolved path must be in."""


class SkillFile(NamedTuple):
    """A SKILL.md, or a file or directory that cannot be used."""

    root: SkillRoot
    file: str
    stamp: Stamp = (0, 0, 0, 0)
    """Differs after a change."""
    problem: str = ""
    """Why it is left out."""


def scan(roots: Iterable[SkillRoot], limits: SkillLimits) -> list[SkillFile]:
    """All skill files below the roots, in order, without reading them."""
    found: list[SkillFile] = []
    seen: set[str] = set()
    for root in roots:
        real = os.path.realpath(root.path)
        if real in seen:
            continue
        seen.add(real)
        if root.within and not is_below(real, os.path.realpath(root.within)):
            found.append(SkillFile(root, root.path, problem=_LEADS_OUT))
        else:
            found += _scan_root(SkillRoot(real, root.source), limits)
    return found


def _scan_root(root: SkillRoot, limits: SkillLimits) -> Iterator[SkillFile]:
    # The root itself does not count.
    folders, skills = limits.max_candidates_per_root + 1, limits.max_skills_loaded_per_source
    for found in _walk(root, root.path):
        folders, skills = folders - 1, skills - (found is not None)
        if min(folders, skills) < 0:
            setting = "maxCandidatesPerRoot" if folders < 0 else "maxSkillsLoadedPerSource"
            what = f"it has more than skills.limits.{setting} allows; the others are ignored"
            yield SkillFile(root, root.path, problem=what)
            return
        if found is not None:
            yield found


def _walk(root: SkillRoot, folder: str, levels: int = 2) -> Iterator[SkillFile | None]:
    """A candidate, or None, for the directory and each below it, with one level of grouping. A
    directory that is a skill itself has no others."""
    found = _look(root, folder)
    yield found
    if found is None and levels:
        for each in _folders(folder):
            yield from _walk(root, each, levels - 1)


def _folders(folder: str) -> list[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        names = [each.name for each in islice(entries, MAX_NAMES) if not each.is_file()]
        visible = (name for name in names if name[0] != "." and name not in _SKIPPED)
        return [os.path.join(folder, name) for name in sorted(visible)]
    return []


def _look(root: SkillRoot, folder: str) -> SkillFile | None:
    for name in FILES:
        path = os.path.join(folder, name)
        with suppress(OSError, ValueError):
            info = os.stat(path)
            stamp = (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
            if is_below(real := _resolve(path, stamp), root.path):
                return SkillFile(root, real, stamp)
            return SkillFile(root, path, stamp, _LEADS_OUT)
    return None


@lru_cache(maxsize=1024)
def _resolve(path: str, _stamp: Stamp) -> str:
    """The real path of a file; cached until it changes, because it is needed at every turn."""
    return os.path.realpath(path)


def read_all(
    candidates: Iterable[SkillFile], limits: SkillLimits, writable: Sequence[str]
) -> tuple[list[Skill], list[SkillFile]]:
    """The skills of the candidates (the first of each name), and why others are left out. The agent
    can change those below a directory in `writable`."""
    skills: dict[str, Skill] = {}
    broken: list[SkillFile] = []
    for each in candidates:
        try:
            if each.problem:
                raise ValueError(each.problem)
            text, is_private = _read(each, limits.max_skill_file_bytes)
            open_ = any(is_below(each.file, os.path.realpath(folder)) for folder in writable)
            trusted = is_private and not open_ and each.root.source != "workspace"
            skill = read_skill(text, each.file, each.root.source, trusted=trusted)
            first = skills.setdefault(skill.name.lower(), skill)
            if first is not skill:
                raise ValueError(f"{first.file} has the same name and takes precedence")
        except (ToolInputError, ValueError) as error:
            broken.append(each._replace(problem=str(error)))
        except OSError as error:
            broken.append(each._replace(problem=f"cannot be read: {error.strerror}"))
    return list(skills.values()), broken


def _read(candidate: SkillFile, max_bytes: int) -> tuple[str, bool]:
    """The text of a file, and whether no other user can change it. The path is resolved again, from
    its root: it may have become a link in the meantime."""
    root, file = candidate.root.path, candidate.file
    with opened(root, os.path.relpath(file, root), _FLAGS) as fd:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise ValueError("it is not a regular file")
        if info.st_size > max_bytes:
            size, limit = human_size(info.st_size), human_size(max_bytes)
            raise ValueError(f"it is {size}; skills.limits.maxSkillFileBytes is {limit}")
        with open(fd, "rb", closefd=False) as content:
            data = content.read(max_bytes + 1)
    is_private = not any(map(why_foreign, (info, os.stat(os.path.dirname(file)))))
    try:
        return data.decode(), is_private
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8") from None
