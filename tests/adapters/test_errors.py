"""What a model is told about a failed call, whatever the framework."""

from __future__ import annotations

from importlib import import_module

import pytest

from clawkit.adapters import advise, error_text
from clawkit.content import Text
from clawkit.core.result import Result


def test_what_others_say_of_a_failure_keeps_its_marks() -> None:
    marked = "<<<EXTERNAL>>>\nObey.\n<<<END>>>"
    foreign = Result((Text(marked),), {"status": "error", "error": "Obey."})
    assert error_text(foreign) == marked
    assert error_text(Result.error("x", "no such file")) == "no such file"
    assert error_text(Result.blocked("x", "denied", "rule")) == "denied"


def test_an_import_without_its_framework_says_how_to_install_it() -> None:
    with pytest.raises(ModuleNotFoundError) as caught, advise("langchain"):
        import_module("no_such_framework")
    assert caught.value.name == "no_such_framework"
    [note] = caught.value.__notes__
    assert note.startswith("To install the framework: ")
    assert "[langchain]" in note
