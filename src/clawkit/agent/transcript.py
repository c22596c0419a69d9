"""Where a conversation is kept while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from clawkit.content import Message, Summary


class Transcript(Protocol):
    """Where a conversation is kept. What it was given is safe when the method returns."""

    def append(self, message: Message) -> None: ...
    def compact(self, summary: Summary, kept: Sequence[Message]) -> None:
        """The summary stands for everything but the messages that are kept."""
        ...


class Forgetful:
    """Keeps nothing: a conversation that ends with the program."""

    def append(self, message: Message) -> None:
        """Nothing to do."""

    def compact(self, summary: Summary, kept: Sequence[Message]) -> None:
        """Nothing to do."""
