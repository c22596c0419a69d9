"""Completion of commands and files, and the input history."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History

from clawkit.config.paths import home
from clawkit.store import open_private, private_dir, write_atomic
from clawkit.text import printable

MAX_FILES = 200
_MENTION = re.compile(r"(?:^|\s)@(\S*)$")

Words = Iterable[tuple[str, str]]
MAX_KEPT = 2_000
MAX_BYTES = 2 * 1024 * 1024
_MAX_ENTRY = 64 * 1024


class CompletionSource(Protocol):
    def words_after(self, name: str) -> Words:
        """Completions after a command; without a name, the commands themselves."""

    @property
    def workspace(self) -> str: ...


class LineCompleter(Completer):
    """Completes the line before the cursor, once it has a source."""

    source: CompletionSource | None = None

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
            return _matching(name, source.words_after(""))
        if name == "image":
            return _files(start, source.workspace)
        return _matching(start, source.words_after(name))


def _files(start: str, workspace: str) -> Iterator[Completion]:
    """Printable file names with this prefix; hidden ones only after a dot."""
    folder, slash, name = start.rpartition("/")
    place = os.path.join(workspace, os.path.expanduser(f"{folder}{slash}"))
    found = []
    with suppress(OSError), os.scandir(place) as entries:
        for each in entries:
            is_hidden = each.name.startswith(".") and not name
            if each.name.startswith(name) and each.name.isprintable() and not is_hidden:
                found.append(f"{each.name}/" if os.path.isdir(each) else each.name)
    return (Completion(text, -len(name)) for text in sorted(found)[:MAX_FILES])


def _matching(start: str, among: Iterable[tuple[str, str]]) -> Iterator[Completion]:
    """Words with this prefix first, then those that contain it."""
    wanted = start.casefold()
    known = [(name, meta) for name, meta in among if name.isprintable()]
    first = [each for each in known if each[0].casefold().startswith(wanted)]
    later = [each for each in known if wanted and wanted in each[0].casefold()[1:]]
    for name, meta in dict.fromkeys((*first, *later)):
        yield Completion(name, -len(start), display_meta=printable(meta, ""))


def history_file() -> str:
    return os.path.join(home(os.environ), "history")


class InputHistory(History):
    """A file with one JSON string per line, newest last; in memory only if it cannot be used."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._redact: Callable[[str], str] | None = None
        self._waiting: list[str] = []
        """Lines typed before `begin`: they cannot be stored before secrets can be redacted."""

    def begin(self, redact: Callable[[str], str]) -> None:
        """Start storing lines, redacted."""
        self._redact = redact
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self.store_string(each)

    def load_history_strings(self) -> Iterable[str]:
        lines = self._read()
        found = [text for text in map(_decode, lines) if text]
        if len(lines) > MAX_KEPT:
            data = "".join(f"{json.dumps(text)}\n" for text in found[-MAX_KEPT // 2 :]).encode()
            with suppress(OSError):
                write_atomic(self._path, data, mode=0o600)
        return reversed(found[-MAX_KEPT:])

    def store_string(self, string: str) -> None:
        # As in shells, lines that start with a space are not stored.
        if not string.strip() or string.startswith(" ") or len(string) > _MAX_ENTRY:
            return
        if self._redact is None:
            self._waiting.append(string)
            return
        line = json.dumps(self._redact(string)) + "\n"
        with suppress(OSError):
            private_dir(os.path.dirname(self._path))
            with open(self._path, "ab", opener=open_private) as file:
                file.write(line.encode())

    def _read(self) -> list[bytes]:
        try:
            with open(self._path, "rb", opener=open_private) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_BYTES))
                return file.read(MAX_BYTES).split(b"\n")
        except OSError:
            return []


def _decode(line: bytes) -> str:
    try:
        text = json.loads(line)
    except ValueError:
        return ""
    return text if isinstance(text, str) else ""
