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
def noted(note: Note, action: str) -> Iterator[None]:
    """Goes on after foreign code failed, and notes that."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        note(f"{action} failed: {error!r}")


class SafeDiagnostics:
    """Finds nothing if the plugin fails: the edit has happened."""

    def __init__(self, inner: Diagnostics, note: Note) -> None:
        self._inner, self._note = inner, note

    async def check(self, edits: Sequence[Edited]) -> Problems:
        found: object = None
        with noted(self._note, "its check of a changed file"):
            found = await bounded(self._inner.check(edits), CHECK_S)
            if not isinstance(found, Problems):
                raise TypeError(f"it returned {type(found).__name__}, not Problems")
        return found if isinstance(found, Problems) else Problems()


class SafeRecorder:
    """Records nothing if the plugin fails."""

    def __init__(self, inner: EventRecorder, note: Note) -> None:
        self._inner, self._note = inner, note
        self.warnings = tuple(map(str, inner.warnings))

    def beside(self, tell: Tell) -> Tell:
        heard: Tell = lambda _event: None  # noqa: E731
        with noted(self._note, "its telemetry"):
            heard = self._inner.beside(heard)

        def both(event: Event) -> None:
            tell(event)
            with noted(self._note, "its telemetry"):
                heard(event)

        return both

    async def close(self) -> None:
        with noted(self._note, "closing its telemetry"):
            await bounded(self._inner.close(), CLOSE_S)


class SafeModel:
    """Raises only `ModelError`."""

    def __init__(self, make: Callable[[str], Model], name: str) -> None:
        self._inner = own = make(name)
        self.ref, self.api, self.facts = own.ref, own.api, own.facts

    async def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
        try:
            async with aclosing(cast("Any", self._inner.stream(request))) as items:
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
