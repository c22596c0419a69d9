"""Thinking that a model writes into its text, between tags at the very beginning.

Services that run models of others give it a field of its own; small ones pass on what they got.
"""

from __future__ import annotations

from typing import Literal

OPEN, CLOSE = "<think>", "</think>"
_MAX_LEAD = 100
"""Blanks before a tag, at the most."""
Kind = Literal["text", "thinking"]


class Tags:
    """Takes text piece by piece, and tells the two apart. A tag may be cut anywhere."""

    def __init__(self) -> None:
        self._state: Literal["begins", "thinks", "turns", "speaks"] = "begins"
        self._held = ""
        """What may be the beginning of a tag."""

    def feed(self, text: str) -> list[tuple[Kind, str]]:
        text, self._held = self._held + text, ""
        if self._state == "begins":
            start = text.lstrip()
            if len(text) < _MAX_LEAD and len(start) < len(OPEN) and OPEN.startswith(start):
                self._held = text
                return []
            if not start.startswith(OPEN):
                self._state = "speaks"
                return [("text", text)]
            self._state = "thinks"
            text = start.removeprefix(OPEN).lstrip("\n")
        thought, rest = "", text
        if self._state == "thinks":
            thought, found, rest = text.partition(CLOSE)
            if not found:
                return self._hold_back(text)
            self._state = "turns"
        if self._state == "turns":
            rest = rest.lstrip("\n")
            self._state = "speaks" if rest else "turns"
        return [("thinking", thought.rstrip("\n")), ("text", rest)]

    def _hold_back(self, text: str) -> list[tuple[Kind, str]]:
        cut = next((n for n in range(len(CLOSE) - 1, 0, -1) if text.endswith(CLOSE[:n])), 0)
        thought, self._held = text[: len(text) - cut], text[len(text) - cut :]
        return [("thinking", thought)]

    def end(self) -> list[tuple[Kind, str]]:
        """What is left when nothing more comes."""
        held, self._held = self._held, ""
        return [("thinking" if self._state == "thinks" else "text", held)] if held else []
