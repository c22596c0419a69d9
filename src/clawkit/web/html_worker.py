"""Extracts the content of pages with a deadline.

A page may be made to take long, or much memory. Simple ones cannot, and are read by a thread; all
others are read by a process of their own (`html_child.py`), which can be killed.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from typing import IO, cast

import msgspec
import selectolax

import clawkit
from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError
from clawkit.process.isolated import Isolated, NoAnswerError
from clawkit.web import html_child
from clawkit.web.extract import Mode, Page, extract_page

MAX_SIMPLE = 256 * 1024
MAX_SIMPLE_TAGS = 6_000
MAX_SIMPLE_COPIES = 500_000
MAX_ANSWER = 64 * 1024 * 1024

_FORMATTING = r"(?i)<(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[\s/>])"
# Made here, in one thread: msgspec crashes when several threads use a type for the first time.
_PAGES = msgspec.json.Decoder(Page)


async def extract(
    html: str, *, base_url: str, mode: Mode, main_only: bool, timeout_s: float
) -> Page:
    """The content of a page, as `extract_page` finds it. Raises `ToolError` if that takes longer
    than `timeout_s`, or too much memory."""
    options = {"base_url": base_url, "mode": mode, "main_only": main_only}
    try:
        if is_simple(html):
            async with asyncio.timeout(timeout_s):
                return cast("Page", await in_thread(extract_page, html, **options))
        # Lone surrogates, which a page can contain, are not valid UTF-8.
        request = {"html": html.encode("utf-8", "replace").decode(), **options}
        return await make_reader().ask((msgspec.json.encode(request),), _read, timeout_s)
    except TimeoutError:
        raise ToolError(f"reading the page took longer than {timeout_s:g} s") from None
    except NoAnswerError as error:
        raise explain_end(error.code) from None
    except OSError as error:
        raise ToolError(f"the page worker cannot be started: {error}") from error


def is_simple(html: str) -> bool:
    """Whether no page with these counts is expensive, however it is nested: the parser takes
    quadratic time for elements in each other, and copies unclosed formatting elements into every
    paragraph."""
    tags = html.count("<")
    if len(html) > MAX_SIMPLE or tags > MAX_SIMPLE_TAGS:
        return False
    return len(re.findall(_FORMATTING, html)) * tags <= MAX_SIMPLE_COPIES


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
    files = (clawkit.__file__, msgspec.__file__, selectolax.__file__)
    places = dict.fromkeys(os.path.dirname(os.path.dirname(each)) for each in files)
    return Isolated(html_child.__file__, list(places))
