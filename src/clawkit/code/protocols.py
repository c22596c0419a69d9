"""What tools see of interpreters: code goes in, and what became of it comes out.

Every start of clawkit imports this; it must cost nothing.
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
    """What became of a piece of code. All of it comes from the child, and is only of the right
    type and size: names of files are no better than those a model sends."""

    stdout: _Text = ""
    stderr: _Text = ""
    value: _Text | None = None
    """How the interpreter writes the value of the last expression."""
    traceback: _Text | None = None
    cut: _Count = 0
    """Bytes of what was printed that are missing in its middle."""
    files: Annotated[tuple[_Text, ...], Meta(max_length=50)] = ()
    """New files, relative to the working directory, not all of them when there are many."""
    more_files: _Count = 0
    images: Annotated[tuple[_Text, ...], Meta(max_length=4)] = ()
    """New and changed images, in the same way."""
    more_images: _Count = 0
    figures: Annotated[tuple[bytes, ...], Meta(max_length=4)] = ()
    """What was drawn and not saved."""
    timed_out: bool = False
    lost: str = ""
    """How the interpreter came to its end, and its variables with it; empty when it goes on."""
    fresh: str = ""
    """Why it began without the variables of earlier calls; empty when that is no news."""


@runtime_checkable
class Interpreters(Protocol):
    """Run code where commands run, and keep its variables from call to call."""

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
        """Calls of the same owner and language wait for each other. A child that runs elsewhere,
        or is held otherwise, than `host` and `launch` say is replaced; their text is not used.
        Raises `ToolError` when none can be started. When cancelled, the code is interrupted."""
        ...

    async def reset(self, owner: str, language: Language) -> bool:
        """End the child, whatever it does; False when there was none."""
        ...
