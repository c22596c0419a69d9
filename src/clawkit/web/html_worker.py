"""Extracts the content of pages, in a process of its own for each page.

A page may be crafted to take much time or memory, or to exploit a parser bug, and cannot be
recognized beforehand. The process (`html_child.py`) is confined, and can be killed.
"""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from typing import IO, Any

import msgspec

import clawkit
from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError
from clawkit.process.isolated import Isolated, NoAnswerError, Prepared
from clawkit.web import html_child
from clawkit.web.page import Page
from clawkit.web.protocols import ExtractMode

MAX_ANSWER = 64 * 1024 * 1024
# Created here, in one thread: msgspec may crash on concurrent first use of a type.
_PAGES = msgspec.json.Decoder(Page)


class PageWorker:
    """Reads pages in separate processes. Bound to one event loop."""

    def __init__(self) -> None:
        self._program = Prepared(make_reader())

    def prepare(self) -> None:
        """Start a process in advance, for a page that will be read soon."""
        self._program.prepare()

    def close(self) -> None:
        self._program.close()

    async def read(
        self, html: str, *, base_url: str, mode: ExtractMode, main_only: bool, timeout_s: float
    ) -> Page:
        """The content of a page, as `extract_page` finds it. Raises `ToolError` if that takes
        longer than `timeout_s`, or too much memory."""
        options: dict[str, Any] = {"base_url": base_url, "mode": mode, "main_only": main_only}

        def encode() -> bytes:
            # Lone surrogates, which a page can contain, are not valid UTF-8.
            text = html.encode("utf-8", "replace").decode()
            return msgspec.json.encode({"html": text, **options})

        try:
            return await self._program.ask((await in_thread(encode),), _read, timeout_s)
        except TimeoutError:
            raise ToolError(f"reading the page took longer than {timeout_s:g} s") from None
        except NoAnswerError as error:
            raise explain_end(error.code) from None
        except OSError as error:
            raise ToolError(f"the page worker cannot be started: {error}") from error


def _read(answers: IO[bytes]) -> Page | None:
    answer = answers.read(MAX_ANSWER)
    if not answer.endswith(b"\n"):
        return None
    try:
        return _PAGES.decode(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ToolError("the page worker sent an invalid answer") from error


def explain_end(code: int) -> ToolError:
    """Why a worker with this exit code gave no answer."""
    if code == -signal.SIGXCPU:
        return ToolError(f"reading the page took more than {html_child.MAX_CPU_S} s")
    if code == html_child.NO_MEMORY:
        return ToolError("reading the page took too much memory")
    what = f"exit code {code}" if code >= 0 else f"signal {-code}"
    return ToolError(f"the page cannot be read: the worker failed ({what})")


def make_reader() -> Isolated:
    """The program, with the directories of clawkit and its libraries."""
    parser = find_spec("selectolax")
    files = (clawkit.__file__, parser.origin if parser else None)
    places = dict.fromkeys(os.path.dirname(os.path.dirname(each)) for each in files if each)
    return Isolated(html_child.__file__, list(places))
