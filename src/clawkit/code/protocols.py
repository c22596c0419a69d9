"""The interface of interpreters for tools.

Imported at every start of clawkit, so it must be cheap to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Protocol, runtime_checkable

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from clawkit.process.protocols import Launch

Language = Literal["python", "javascript"]


_Text = Annotated[str, Meta(max_length=150_000)]
_Count = Annotated[int, Meta(ge=0)]


class Ran(msgspec.Struct, frozen=True):
    """The result of running code. It comes from the child, which is untrusted: only types and sizes
    are checked, and names of files must be treated like those that a model sends."""

    stdout: _Text = ""
    stderr: _Text = ""
    value: _Text | None = None
    """The value of the last expression, as the interpreter prints it."""
    traceback: _Text | None = None
    cut: _Count = 0
    """Bytes of output that are missing in the middle."""
    files: Annotated[tuple[_Text, ...], Meta(max_length=50)] = ()
    """New files, relative to the working directory, up to a limit."""
    more_files: _Count = 0
    images: Annotated[tuple[_Text, ...], Meta(max_length=4)] = ()
    """New and changed images, likewise."""
    more_images: _Count = 0
    figures: Annotated[tuple[bytes, ...], Meta(max_length=4)] = ()
    """Figures that were drawn and not saved."""
    timed_out: bool = False
    lost: str = ""
    """Why the interpreter has exited, losing its variables; empty if it is still there."""
    fresh: str = ""
    """Why it started without the variables of earlier calls; empty if that is expected."""


@runtime_checkable
class Interpreters(Protocol):
    """Persistent interpreters that run where commands run."""

    async def run(
        self,
        owner: str,
        language: Language,
        code: str,
        *,
        host: str,
        launch: Launch,
        timeout_s: float,
    ) -> Ran:
        """Run code. Calls of the same owner and language run one after another. A child on another
        host, or with another confinement than `launch`, is replaced; the text of `launch` is not
        used. Raises `ToolError` if the child cannot be started. Cancelling interrupts the code."""
        ...

    async def reset(self, owner: str, language: Language) -> bool:
        """Kill the child, even if it is busy; returns False if there was none."""
        ...
