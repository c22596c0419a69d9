"""Listening to an answer while it comes."""

from __future__ import annotations

from clawkit.agent.events import CallBegun, CallWritten, Tell, TextPiece, ThinkingPiece, Voided
from clawkit.content import Text
from clawkit.models.base import Again, CallDelta, CallStarted, Delta, TextDelta, ThinkingDelta


class Heard:
    """What has come of an answer so far."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._text: list[str] = []
        self._chars: dict[int, int] = {}

    def take(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text):
                self._text.append(text)
                self._tell(TextPiece(text))
            case ThinkingDelta(text):
                self._tell(ThinkingPiece(text))
            case CallStarted(number, _, name):
                self._chars[number] = 0
                self._tell(CallBegun(number, name))
            case CallDelta(number, text):
                self._chars[number] = self._chars.get(number, 0) + len(text)
                self._tell(CallWritten(number, self._chars[number]))
            case Again(reason, wait_s, model, kind):
                self._text, self._chars = [], {}
                self._tell(Voided(reason, wait_s, str(model), kind))

    def parts(self) -> tuple[Text, ...]:
        """Without calls: what was not asked for to the end is not to be done, or to be told of."""
        text = "".join(self._text)
        return (Text(text),) if text.strip() else ()
