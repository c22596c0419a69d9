"""What was typed before, in a file that only its owner reads."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable

from prompt_toolkit.history import History

from clawkit.config.paths import home
from clawkit.store import private_dir, write_atomic

MAX_KEPT = 2_000
MAX_BYTES = 2 * 1024 * 1024
_MAX_ENTRY = 64 * 1024


def history_file() -> str:
    return os.path.join(home(os.environ), "history")


class TypedBefore(History):
    """One JSON text per line, the newest last. Without a file that can be used, for now only."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._redact: Callable[[str], str] | None = None
        self._waiting: list[str] = []
        """What was typed before it was known which secrets there are."""

    def begin(self, redact: Callable[[str], str]) -> None:
        """Keep what is typed, without what `redact` takes out."""
        self._redact = redact
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self.store_string(each)

    def load_history_strings(self) -> Iterable[str]:
        lines = self._read()
        found = [text for text in map(_decode, lines) if text]
        if len(lines) > MAX_KEPT:
            self._write(found[-MAX_KEPT // 2 :])
        return reversed(found[-MAX_KEPT:])

    def store_string(self, string: str) -> None:
        # What begins with a blank is not kept, as in shells.
        if not string.strip() or string.startswith(" ") or len(string) > _MAX_ENTRY:
            return
        if self._redact is None:
            self._waiting.append(string)
            return
        line = json.dumps(self._redact(string)) + "\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            private_dir(os.path.dirname(self._path))
            fd = os.open(self._path, flags, 0o600)
        except OSError:
            return
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)

    def _read(self) -> list[bytes]:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return []
        try:
            size = os.fstat(fd).st_size
            return os.pread(fd, MAX_BYTES, max(0, size - MAX_BYTES)).split(b"\n")
        except OSError:
            return []
        finally:
            os.close(fd)

    def _write(self, texts: list[str]) -> None:
        data = "".join(f"{json.dumps(text)}\n" for text in texts).encode()
        try:
            write_atomic(self._path, data, mode=0o600)
        except OSError:
            return


def _decode(line: bytes) -> str:
    try:
        text = json.loads(line)
    except ValueError:
        return ""
    return text if isinstance(text, str) else ""
