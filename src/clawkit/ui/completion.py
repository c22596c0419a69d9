"""What a line may go on with: commands, their arguments, files after @."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from clawkit.text import printable

MAX_FILES = 200
_MENTION = re.compile(r"(?:^|\s)@(\S*)$")

Words = Iterable[tuple[str, str]]
"""What can come next, and a few words about each."""


class Source(Protocol):
    """Knows what can be typed."""

    def command_words(self) -> Words: ...
    def words_after(self, name: str) -> Words:
        """What can follow a command."""
        ...

    @property
    def workspace(self) -> str: ...


class LineCompleter(Completer):
    """Completes the line before the cursor, as soon as somebody knows what with."""

    source: Source | None = None

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        text = document.text_before_cursor
        source = self.source
        if source is None:
            return ()
        if mention := _MENTION.search(text):
            return _files(mention[1], source.workspace)
        text = text.lstrip(" ")
        if not text.startswith("/") or "\n" in text:
            return ()
        name, blank, start = text[1:].partition(" ")
        if not blank:
            return _matching(name, source.command_words())
        if name == "image":
            return _files(start, source.workspace)
        return _matching(start, source.words_after(name))


def _files(start: str, workspace: str) -> Iterator[Completion]:
    folder, slash, name = start.rpartition("/")
    place = os.path.join(workspace, os.path.expanduser(f"{folder}{slash}"))
    for found, is_dir in _list(place, name)[:MAX_FILES]:
        yield Completion(f"{found}/" if is_dir else found, -len(name))


def _matching(start: str, among: Iterable[tuple[str, str]]) -> Iterator[Completion]:
    """Those that begin so, then those that have it somewhere."""
    wanted = start.casefold()
    known = [(name, meta) for name, meta in among if name.isprintable()]
    first = [each for each in known if each[0].casefold().startswith(wanted)]
    later = [each for each in known if wanted and wanted in each[0].casefold()[1:]]
    for name, meta in dict.fromkeys((*first, *later)):
        yield Completion(name, -len(start), display_meta=printable(meta, ""))


def _list(place: str, start: str) -> list[tuple[str, bool]]:
    """Names in a directory that begin so and can be typed; hidden ones only when asked for."""
    try:
        with os.scandir(place) as entries:
            found = [
                (each.name, _is_dir(each))
                for each in entries
                if each.name.startswith(start) and each.name.isprintable()
            ]
    except OSError:
        return []
    return sorted(each for each in found if start or not each[0].startswith("."))


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
