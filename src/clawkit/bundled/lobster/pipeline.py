"""Pipelines as text: stages separated by `|`, each a command with its arguments."""

from __future__ import annotations

import re

from msgspec import Struct

from clawkit.bundled.lobster.values import PipelineError, PipelineSyntaxError, Value, parse_json

MAX_CHARS, MAX_STAGES = 64 * 1024, 100
_PIECE = re.compile(
    r"""(?s)(?P<bar>\|)|(?P<gap>[ \t\r\n]+)|"(?P<double>(?>(?:\\.|[^"\\])*))"|"""
    r"""'(?P<single>(?>(?:\\++(?!')|(?>(?:\\\\)*)\\'|[^'\\])*))'|(?P<plain>[^ \t\r\n"'|]+)|."""
)
"""A separator, a part of a word, or an unterminated quote (which includes `\\\\'` inside single
quotes, because that is ambiguous)."""


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
        """An option that is a JSON object; empty if omitted."""
        what = f"{self.name} --{name}"
        found = parse_json(self.option(name, "{}"), what)
        if not isinstance(found, dict):
            raise PipelineError(f"{what} must be a JSON object")
        return found


def parse(text: str) -> list[Stage]:
    """Raises `PipelineSyntaxError`."""
    if len(text) > MAX_CHARS:
        raise PipelineSyntaxError(f"it has {len(text):,} characters, over {MAX_CHARS:,}")
    if not text.strip():
        raise PipelineSyntaxError("Empty pipeline")
    stages: list[Stage] = []
    words, start = [""], 0
    for piece in _PIECE.finditer(f"{text.rstrip().removesuffix('|')}|"):
        kind, part = piece.lastgroup, piece[piece.lastgroup or 0]
        if kind is None:
            raise PipelineSyntaxError("Unclosed quote")
        if kind == "bar":
            stages.append(_parse_stage(words, text[start : piece.start()].strip()))
            words, start = [""], piece.end()
        elif kind == "gap":
            words.append("")
        elif kind == "double":
            words[-1] += re.sub(r"\\(?:\n|([\"\\$`]))", r"\1", part)
        else:
            words[-1] += part.replace("\\'", "'") if kind == "single" else part
    if len(stages) > MAX_STAGES:
        raise PipelineSyntaxError(f"it has {len(stages)} stages, over {MAX_STAGES}")
    return stages


def _parse_stage(words: list[str], text: str) -> Stage:
    name, *rest = [*filter(None, words)] or [""]
    if not name:
        raise PipelineSyntaxError("Empty command stage")
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
