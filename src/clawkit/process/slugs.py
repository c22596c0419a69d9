"""Names for commands that people and models can remember: two words."""

from __future__ import annotations

import os
from collections.abc import Container

from clawkit.text import printable

_FIRST = (
    "amber brave brisk calm clear cosy crisp dapper deft eager early fair fleet fond fresh gentle "
    "glad golden grand green happy hardy humble jolly keen kind late lively lucky lunar mellow "
    "merry mild misty neat nimble noble pale plain plucky proud quick quiet rapid ready rosy "
    "round royal sandy sharp shy silent silver sleek snug solar spry steady sunny swift tidy vivid "
    "warm wise witty"
)
_SECOND = (
    "acorn alder badger basil beacon beech birch breeze brook canyon cedar cliff clover comet "
    "coral cove crane creek daisy delta dune falcon fern finch fjord forest fox glade harbor hazel "
    "heron hill island ivy juniper lagoon lake larch lark lemon lynx maple marsh meadow mesa moss "
    "nutmeg oak orchid otter owl pebble pine plover poppy quail reef ridge river robin sage "
    "shore sparrow spruce stone summit thistle tulip valley willow wren"
)
_TRIES = 12


def new_slug(taken: Container[str]) -> str:
    """A name that is free."""
    slug = f"{_pick(_FIRST)}-{_pick(_SECOND)}"
    for number in range(1, _TRIES + 1):
        name = slug if number == 1 else f"{slug}-{number}"
        if name not in taken:
            return name
    return f"{slug}-{os.urandom(4).hex()}"


def _pick(words: str) -> str:
    choice = words.split()
    return choice[int.from_bytes(os.urandom(4), "big") % len(choice)]


def name_of(command: str) -> str:
    """A few words of a command, for a list: what is called, and the first word for it."""
    words = command.split(None, 16)
    verb = next((word for word in words if "=" not in word), "")
    rest = words[words.index(verb) + 1 :] if verb else []
    first = next((word for word in rest[:15] if not word.startswith("-")), "")
    return printable(" ".join(part for part in (shorten(verb, 48), shorten(first, 48)) if part), "")


def shorten(text: str, size: int) -> str:
    """Text cut in the middle."""
    if len(text) <= size:
        return text
    head = (size - 1) // 2
    return f"{text[:head]}…{text[-(size - 1 - head) :]}"
