"""The log of the gateway: one JSON object in each line, without secrets."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct, field

from clawkit.redact import Redactor
from clawkit.store import private_dir

NAME = "gateway.jsonl"
MAX_BYTES, KEEP = 10 * 1024**2, 2
MAX_LINE = 8_000
Level = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: tuple[str, ...] = get_args(Level)


class LogLine(Struct, frozen=True):
    """A line of the log file."""

    time: str = ""
    level: str = ""
    subsystem: str = ""
    message: str = ""
    meta: Any = field(name="_meta", default=None)


class LogFilter(Struct, frozen=True):
    """Selects lines by minimum level and by text, case-insensitively."""

    level: Level = "debug"
    text: str = ""

    def keeps(self, line: str) -> bool:
        if self == LogFilter():
            return True
        try:
            found = _DECODER.decode(line)
        except ValueError:  # truncated when the process was killed, or from another program
            found = LogLine(message=line)
        at = LEVELS.index(found.level) if found.level in LEVELS else len(LEVELS)
        words = f"{found.subsystem} {found.message}".casefold()
        return at >= LEVELS.index(self.level) and self.text.casefold() in words


_DECODER = msgspec.json.Decoder(LogLine)


class _Format(logging.Formatter):
    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        name, at = record.levelname, at.replace("+00:00", "Z")
        meta = {"logLevelName": "WARN" if name == "WARNING" else name}
        shown = self._redact(text)[:MAX_LINE]
        return msgspec.json.encode(LogLine(at, name.lower(), record.name, shown, meta)).decode()


class _File(RotatingFileHandler):
    """A private log file, even after rotation."""

    def _open(self) -> TextIOWrapper:
        private = partial(os.open, mode=0o600)
        return open(self.baseFilename, "a", encoding="utf-8", opener=private)


class GatewayLog:
    """Writes everything that clawkit logs to the gateway's log file."""

    def __init__(self, folder: str, redactor: Redactor) -> None:
        private_dir(folder)
        self.path = os.path.join(folder, NAME)
        self._handler = _File(self.path, maxBytes=MAX_BYTES, backupCount=KEEP, encoding="utf-8")
        self._handler.setFormatter(_Format(redactor.strict))
        self._logger = logging.getLogger("clawkit")
        self._logger.addHandler(self._handler)
        self._level = self._logger.level
        if self._logger.getEffectiveLevel() > logging.INFO:
            self._logger.setLevel(logging.INFO)

    def close(self) -> None:
        self._logger.removeHandler(self._handler)
        self._logger.setLevel(self._level)
        self._handler.close()

    def tail(
        self, cursor: int | None, limit: int, max_bytes: int, wanted: LogFilter
    ) -> dict[str, Any]:
        """The lines after `cursor`, a position in the file, or the last ones."""
        with open(self.path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            is_reset = cursor is not None and cursor > size
            start = max(0, size - max_bytes)
            is_cut = start > 0
            if cursor is not None and not is_reset and cursor >= start:
                start, is_cut = cursor, False
            file.seek(start)
            data = file.read(size - start)
        if is_cut:
            data = data.partition(b"\n")[2]
        # Log texts may contain other line breaks, such as U+2028.
        found = data.decode("utf-8", "replace").removesuffix("\n").split("\n")
        lines = [line for line in found if line and wanted.keeps(line)]
        return {
            "file": self.path,
            "cursor": size,
            "size": size,
            "lines": lines[-limit:],
            "truncated": is_cut or len(lines) > limit,
            "reset": is_reset,
        }
