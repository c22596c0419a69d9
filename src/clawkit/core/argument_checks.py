"""Checks of the arguments that programs pass, which no type checker may have seen.

A wrong type raises TypeError, a wrong value `ToolInputError`; both name the argument.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from clawkit.errors import ToolInputError
from clawkit.text import one_line


def show(value: object) -> str:
    return one_line(repr(value), 80)


def check_type(name: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """`kinds` are types; `expected` describes them."""
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError(f"{name}: expected {expected}, not {show(value)}")


def check_texts(**texts: object) -> None:
    for name, value in texts.items():
        check_type(name, value, str, "a text")


def check_folder(name: str, value: object) -> None:
    check_type(name, value, (str, os.PathLike, type(None)), "a directory")


def check_run(agent: object, workspace: object, depth: object, **flags: object) -> None:
    """What decides about the rights of a run. A wrong type must not count as true."""
    check_type("agent", agent, (str, type(None)), "an id")
    check_folder("workspace", workspace)
    check_type("depth", depth, int, "a whole number")
    for name, value in flags.items():
        check_type(name, value, (bool, type(None)), "True or False")


def check_list(name: str, value: object) -> None:
    """A text would be a list of letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        hint = "" if value is None else f"; write [{show(value)}]"
        raise TypeError(f"{name}: expected a list, not {show(value)}{hint}")


def check_choice(what: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ToolInputError(f"unknown {what} {show(value)}; use one of {', '.join(choices)}")


def check_functions(**functions: object) -> None:
    """Each is a function, or None."""
    for name, value in functions.items():
        if value is not None and not callable(value):
            raise TypeError(f"{name}: expected a function, not {show(value)}")


def check_limits(**limits: tuple[object, int]) -> None:
    """Each is a number or None, and the lowest that it may be."""
    for name, (value, lowest) in limits.items():
        if value is None:
            continue
        check_type(name, value, (int, float), "a number")
        if not value >= lowest:  # type: ignore[operator]  # a number; NaN is not even 0
            raise ToolInputError(f"{name}: must be {lowest} or more, not {show(value)}")
