"""Pipelines as text: stages separated by `|`, each a command with its arguments."""

from __future__ import annotations

import re

from msgspec import Struct

from clawkit.bundled.lobster.values import PipelineError, PipelineSyntaxError, Value, parse_json

MAX_CHARS, MAX_STAGES = 64 * 1024, 100
_ESCAPABLE = {"'": "'", '"': '"\\$`\n', "": ""}
"""What a backslash quotes, by the quotes around it."""


class Stage(Struct, frozen=True):
    name: str
    words: tuple[str, ...] = ()
    options: dict[str, str | bool] = {}
    """`--name value`, or True for `--name` alone. `--itemKey` is stored as `item-key`."""
    text: str = ""  # as written

    def option(self, name: str, default: str = "") -> str:
        found = self.options.get(name)
        return found if isinstance(found, str) else default

    def word(self, name: str) -> str:
        """An option that may also be given as the first word."""
        return self.option(name) or (self.words[0] if self.words else "")

    def object_option(self, name: str) -> dict[str, Value]:
        """An option that is a JSON object; empty if it is not given."""
        what = f"{self.name} --{name}"
        found = parse_json(self.option(name, "{}"), what)
        if not isinstance(found, dict):
            raise PipelineError(f"{what} must be a JSON object")
        return found


def parse(text: str) -> list[Stage]:
    """Raises `PipelineSyntaxError`."""
    if len(text) > MAX_CHARS:
        raise PipelineSyntaxError(f"it has {len(text):,} characters, over {MAX_CHARS:,}")
    parts = _split_stages(text)
    if not parts:
        raise PipelineSyntaxError("Empty pipeline")
    if len(parts) > MAX_STAGES:
        raise PipelineSyntaxError(f"it has {len(parts)} stages, over {MAX_STAGES}")
    return [_parse_stage(part) for part in parts]


def _split_stages(text: str) -> list[str]:
    # A quoted text, in which a backslash quotes anything; a separator; anything else.
    tokens = re.findall(r"""(?s)"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\||[^"'|]+|.""", text)
    parts = [""]
    for each in tokens:
        if each in ('"', "'"):
            raise PipelineSyntaxError("Unclosed quote")
        parts += [""] if each == "|" else [parts.pop() + each]
    parts = [part.strip() for part in parts]
    return parts if parts[-1] else parts[:-1]


def _parse_stage(text: str) -> Stage:
    words = _split_words(text)
    if not words:
        raise PipelineSyntaxError("Empty command stage")
    name, *rest = words
    plain: list[str] = []
    options: dict[str, str | bool] = {}
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            plain.append(word)
            continue
        key, equals, value = word[2:].partition("=")
        takes_next = not equals and rest and not rest[0].startswith("--")
        key = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", key).lower()
        options[key] = value if equals else rest.pop(0) if takes_next else True
    return Stage(name, tuple(plain), options, text)


def _split_words(text: str) -> list[str]:
    words, word, quote, at = [], "", "", 0
    while at < len(text):
        char, following = text[at], text[at + 1 : at + 2]
        at += 1
        if char == "\\" and following and following in _ESCAPABLE[quote]:
            word += following.replace("\n", "")
            at += 1
        elif char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote = char
        elif not quote and char in " \t\r\n":
            words += [word] if word else []
            word = ""
        else:
            word += char
    if quote:
        raise PipelineSyntaxError("Unclosed quote")
    return [*words, word] if word else words
