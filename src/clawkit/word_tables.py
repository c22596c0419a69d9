"""Tables in text files next to the code, for lists that change more often than the code."""

from __future__ import annotations

import os


def read_groups(module: str, table: str) -> dict[str, list[str]]:
    """The indented lines of each group of a table in the directory of `module` (its `__file__`). A
    group starts with its name and a colon; lines that start with # are comments. Raises ValueError
    for anything else, so that no line is silently lost."""
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
            raise ValueError(f"{table}: neither a group nor a line of one: {line!r}")
    return groups


def read_words(module: str, table: str) -> dict[str, list[str]]:
    """The words of each group of a table."""
    groups = read_groups(module, table)
    return {name: " ".join(lines).split() for name, lines in groups.items()}
