"""Allowlist entries for programs that skills require (`autoAllowSkills`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from clawkit.approvals import options as opts
from clawkit.approvals.entries import is_literal
from clawkit.approvals.inline_code import names_of
from clawkit.approvals.launchers import starts_programs
from clawkit.approvals.safe_bins import is_interpreting
from clawkit.approvals.types import AllowlistEntry, Arg, Program

# They run code from a project's files, which the agent can write.
_RUNNERS = opts.words_of(
    """ansible ansible-playbook bazel bazelisk buck2 cargo claude clawkit codex cpan cpanm dotnet
    easy_install gemini go gradle gradlew invoke just lein lualatex luatex mage meson mvn ninja nox
    openclaw opencode packer pants pip pre-commit puppet rake rview rvim sbt scons service task
    terraform tofu vagrant view vigr vimdiff vipw"""
)
# They write or remove any file, including programs that run later.
_WRITERS = opts.words_of("chgrp chmod chown cp dd install ln mv rm rmdir shred tee truncate unlink")


def entries_for(
    programs: Iterable[str], may_write: Callable[[str], bool]
) -> tuple[AllowlistEntry, ...]:
    """An entry for each program, by its path, except those whose entry would allow more than one
    program: interpreters, shells, build tools, programs that start others or replace files,
    programs that the agent could replace, and relative paths, as from an empty part of PATH."""
    return tuple(
        AllowlistEntry(path, source="skill")
        for path in programs
        if os.path.isabs(path) and is_literal(path)
        if not is_too_much(path) and not any(map(may_write, _places(path)))
    )


def is_too_much(path: str) -> bool:
    """Whether a program runs arbitrary code, or can write programs."""
    names = names_of(Program((Arg(path),), path, os.path.realpath(path), None))
    stems = {name.rstrip("0123456789.-") for name in names}
    is_listed = not (_RUNNERS | _WRITERS).isdisjoint(names | stems)
    return is_listed or is_interpreting(set(names)) or starts_programs(names)


def _places(path: str) -> Iterator[str]:
    """The program, and every directory that decides which file its path leads to."""
    for each in (path, os.path.realpath(path)):
        yield from (each, os.path.dirname(each))
