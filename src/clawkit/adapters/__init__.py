"""The tools of a `Toolkit` in other agent frameworks: one module for each, named after it.

Every call goes through `Toolkit.call`, so that policy, rules, hooks and approvals apply.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from clawkit.content import Image, Text
from clawkit.core.result import Result, error_message, to_text
from clawkit.installation import how_to_add


@contextmanager
def advise(extra: str) -> Iterator[None]:
    """Add to an import that fails how to install the framework."""
    try:
        yield
    except ModuleNotFoundError as error:
        error.add_note(f"To install the framework: {how_to_add(extra)}")
        raise


def error_text(result: Result) -> str:
    """The text about a failed call for the model. Untrusted parts keep their marks."""
    said, text = error_message(result.details), result.as_text()
    return said if said and text == to_text(result.details) else text


def convert(result: Result, text: Callable[[str], Any], image: Callable[[Image], Any]) -> list[Any]:
    """The blocks of a result in the types of a framework."""
    return [text(each.text) if isinstance(each, Text) else image(each) for each in result.content]
