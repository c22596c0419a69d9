"""Somebody who sends calls past a guard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clawkit.config.sections.tools import Detectors, LoopDetection
from clawkit.core.call import GuardedCall
from clawkit.core.result import Result
from clawkit.guard.loops import LoopGuard


class Calls:
    """The calls of a session, one message after the other."""

    def __init__(self, *, enabled: bool | None = True, **settings: Any) -> None:
        """Settings of the guard; those of its detectors count as well."""
        known = {name: settings.pop(name) for name in Detectors.__struct_fields__ & settings.keys()}
        detectors = Detectors(**known)
        self.guard = LoopGuard(LoopDetection(enabled=enabled, detectors=detectors, **settings))

    def send(
        self,
        tool: str,
        params: object = None,
        said: str | Result = "the same",
        *,
        acts: bool = False,
        known: bool = True,
    ) -> Result:
        """One call, and what its tool says if it comes to that."""
        admission = self.guard.admit([GuardedCall(tool, params, known)])
        if admission.refusals:
            return admission.refusals[0]
        result = Result.text(said) if isinstance(said, str) else said
        return self.guard.note(admission.tickets[0], result, acts=acts)

    def read(self, path: str, said: str = "its content") -> Result:
        return self.send("read", {"path": path}, said)

    def edit(self, text: str) -> Result:
        return self.send("edit", {"new": text}, f"now it is {text}", acts=True)

    def exec(self, command: str, said: str = "", code: int = 0, *, acts: bool = True) -> Result:
        result = Result.text(said, status="completed", exitCode=code, aggregated=said)
        return self.send("exec", {"command": command}, result, acts=acts)

    def poll(self, news: str = "", *, action: str = "poll") -> Result:
        result = Result.text("still running", status="running", aggregated=news)
        return self.send("process", {"action": action, "sessionId": "a"}, result, acts=True)


def detector_of(result: Result) -> str:
    """The detector that refused a call; empty when it passed."""
    return str(result.details.get("intervention", {}).get("detector", ""))


def noticed(result: Result) -> str:
    """The notice under a result; empty when there is none."""
    last = result.content[-1].to_json().get("text", "")
    return last if last.startswith("[Loop guard:") else ""


def warned(results: Iterable[Result]) -> list[int]:
    """Which of the results have a notice, counted from 1."""
    return [number for number, result in enumerate(results, 1) if noticed(result)]


def refused(results: Iterable[Result]) -> list[int]:
    """Which of the calls were not carried out, counted from 1."""
    return [number for number, result in enumerate(results, 1) if detector_of(result)]
