"""Providers from plugins of others, kept from breaking what uses them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, cast

from clawkit.agent.events import Event, EventRecorder, Tell
from clawkit.content import Assistant
from clawkit.core.tasks import bounded
from clawkit.lsp.protocols import Diagnostics, Edited, Problems
from clawkit.models.protocols import Delta, Model, ModelError, Request
from clawkit.text import one_line

CHECK_S = 5.0
CLOSE_S = 5.0
Note = Callable[[str], None]
"""Reports a problem of the plugin."""


@contextmanager
def noted(note: Note, what: str) -> Iterator[None]:
    """Goes on after foreign code failed, and notes that."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        note(f"{what} failed: {error!r}")


class SafeDiagnostics:
    """Finds nothing if the plugin fails: the edit has happened."""

    def __init__(self, own: Diagnostics, note: Note) -> None:
        self._own, self._note = own, note

    async def check(self, edits: Sequence[Edited]) -> Problems:
        found: object = None
        with noted(self._note, "its check of a changed file"):
            found = await bounded(self._own.check(edits), CHECK_S)
            if not isinstance(found, Problems):
                raise TypeError(f"it returned {type(found).__name__}, not Problems")
        return found if isinstance(found, Problems) else Problems()


class SafeRecorder:
    """Records nothing if the plugin fails."""

    def __init__(self, own: EventRecorder, note: Note) -> None:
        self._own, self._note = own, note
        self.warnings = tuple(map(str, own.warnings))

    def beside(self, tell: Tell) -> Tell:
        heard: Tell = lambda _event: None  # noqa: E731
        with noted(self._note, "its telemetry"):
            heard = self._own.beside(heard)

        def both(event: Event) -> None:
            tell(event)
            with noted(self._note, "its telemetry"):
                heard(event)

        return both

    async def close(self) -> None:
        with noted(self._note, "closing its telemetry"):
            await bounded(self._own.close(), CLOSE_S)


class SafeModel:
    """Raises only `ModelError`."""

    def __init__(self, make: Callable[[str], Model], name: str) -> None:
        self._own = own = make(name)
        self.ref, self.api, self.facts = own.ref, own.api, own.facts

    async def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
        try:
            async with aclosing(cast("Any", self._own.stream(request))) as items:
                async for item in items:
                    yield item
        except (ModelError, asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:  # foreign code
            why = one_line(f"{self.ref} failed: {error!r}", 300)
            raise ModelError("invalid", why) from error  # not retried


GUARDS: dict[str, Callable[[Any, Note], Any]] = {
    "diagnostics": SafeDiagnostics,
    "telemetry": SafeRecorder,
}
"""Wrappers around the providers of roles. Providers of other roles may raise, because their errors
become results anyway."""
