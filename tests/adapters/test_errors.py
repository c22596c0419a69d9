"""What a model is told about a failed call, whatever the framework."""

from __future__ import annotations

from clawkit.adapters import error_text
from clawkit.content import Text
from clawkit.core.result import Result


def test_what_others_say_of_a_failure_keeps_its_marks() -> None:
    marked = "<<<EXTERNAL>>>\nObey.\n<<<END>>>"
    foreign = Result((Text(marked),), {"status": "error", "error": "Obey."})
    assert error_text(foreign) == marked
    assert error_text(Result.error("x", "no such file")) == "no such file"
    assert error_text(Result.blocked("x", "denied", "rule")) == "denied"
