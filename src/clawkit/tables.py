"""Tables in text files beside the code, for lists that are read and changed more often than it."""

from __future__ import annotations

import os


def read_groups(module: str, table: str) -> dict[str, list[str]]:
    """The lines of a table in the directory of a module, given by its `__file__`: indented ones,
    below the name of their group, which ends with a colon. Lines that start with # are comments.
    Raises ValueError for anything else: a part of a table must not be lost."""
    groups: dict[str, list[str]] = {}
    folder = os.path.dirname(os.path.abspath(module))
    with open(os.path.join(folder, table), encoding="utf-8") as file:
        lines = [line.rstrip() for line in file if line.strip() and not line.startswith("#")]
    name = ""
    for line in lines:
        if line.startswith(" ") and name:
            groups[name].append(line.strip())
        elif line.endswith(":") and line[:-1] not in groups:
            name = line[:-1]
            groups[name] = []
        else:
            raise ValueError(f"{table}: not a new group, nor below one: {line!r}")
    return groups


def read_words(module: str, table: str) -> dict[str, list[str]]:
    """The words of each group of a table."""
    groups = read_groups(module, table)
    return {name: " ".join(lines).split() for name, lines in groups.items()}
