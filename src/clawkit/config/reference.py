"""Which settings an existing openclaw.json may hold beyond those clawkit uses."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

_KEYS_FILE = os.path.join(os.path.dirname(__file__), "reference-keys.txt")

Tree: TypeAlias = dict[str, "Tree"]


def is_known(path: Sequence[str | int]) -> bool:
    """Whether that key path is a setting of the reference implementation."""
    if tuple(path[:2]) == ("agents", "list"):
        # The older spelling of the same agents: a list of them instead of a map by id.
        path = ("agents", "entries", *("*" for _ in path[2:3]), *path[3:])
    return _reaches(_tree(), path)


def _reaches(tree: Tree, path: Sequence[str | int]) -> bool:
    if not path:
        return True
    step, rest = path[0], path[1:]
    names = ("[]",) if isinstance(step, int) else (step, "*")
    return any(name in tree and _reaches(tree[name], rest) for name in names)


@cache
def _tree() -> Tree:
    with open(_KEYS_FILE, encoding="utf-8") as file:
        return parse_tree(file.read())


def parse_tree(text: str) -> Tree:
    """The nested form of the packaged list; its first lines say how it is written."""
    root: Tree = {}
    open_trees = [root]
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, _, leaves = line.strip().partition(":")
        depth = len(line) - len(line.lstrip(" "))
        del open_trees[depth + 1 :]
        tree = open_trees[depth].setdefault(name, {}) if name else root
        for leaf in leaves.split():
            tree.setdefault(leaf, {})
        open_trees.append(tree)
    return root
