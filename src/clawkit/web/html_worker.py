"""Extracts the content of pages with a deadline.

A page may be made to take long, or much memory. Simple ones cannot, and are read by a thread; all
others are read by a process of their own (`html_child.py`), which can be killed.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from typing import IO, Any, cast

import msgspec
import selectolax

import clawkit
from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError
from clawkit.process.isolated import Isolated, NoAnswerError
from clawkit.web import html_child
from clawkit.web.extract import Page, extract_page
from clawkit.web.protocols import ExtractMode

# No page with these counts takes a thread more than a fraction of a second, however it is made.
MAX_SIMPLE = 1024 * 1024
MAX_SIMPLE_TAGS = 20_000
MAX_SIMPLE_STEPS = 10_000_000
"""Elements that are open at each tag, which the parser may look at."""
MAX_SIMPLE_COPIES = 5_000_000
"""Characters in the tags of those of them that format text, which the parser may repeat."""
MAX_SIMPLE_ATTRIBUTES = 128
"""Of a tag: the parser compares each with all before it."""
MAX_SIMPLE_ROOTS = 16
"""Tags of `html` and `body`: the parser adds the attributes of all to those of the first."""
MAX_ANSWER = 64 * 1024 * 1024

_FORMATTING = frozenset(b"a b big code em font i nobr s small strike strong tt u".split())
_ELEMENT_SIZE, _ATTRIBUTE_SIZE = 100, 30
"""What an element and an attribute take, in characters of a tag."""
_BEFORE_ATTRIBUTES = b" \t\n\f\r/\"'"
_IGNORED = frozenset(
    b"body caption col colgroup form frame frameset head html optgroup option select tbody td "
    b"tfoot th thead tr".split()
)
"""Tags that the parser may pass over, and then copy the text before them with what follows."""
MAX_SIMPLE_TEXT = 100_000_000
_EMPTY = frozenset(b"br embed hr img meta".split())
"""Elements that are never open, not even in drawings."""
# A tag from its name on, as parsers read it; `@` is a character that must not be in it.
_ATTRIBUTE = r"""[\s/]*+[^\s/>@][^\s/>=@]{0,4999}+(?![^\s/>=])
    (?>(?:\s*+=\s*+(?:"[^"@]*+"|'[^'@]*+'|[^\s>"'@][^\s>@]{0,4999}+(?![^\s>])|(?=>)))?)"""
_TAG = rf"""(/?[a-z][^\s/>@]{{0,4999}}+)(?![^\s/>])
    (?>(?:{_ATTRIBUTE}){{0,{MAX_SIMPLE_ATTRIBUTES}}})[\s/]*+(?:>|\Z)"""
_REGULAR, _TOO_LONG = 1, 3
_SLASH = ord("/")
# Tags without a `<` in them; other tags; those with too many attributes; comments; and what may be
# the start of a comment that has tags in it.
_MARKUP = re.compile(
    rf"""<(?:{_TAG.replace("@", "<")}|(?={_TAG.replace("@", "")})|(/?[a-z].*)
    |!--[^<>]*+(?<=--)>|([!?/]))""".encode(),
    re.VERBOSE | re.DOTALL,
)
# Made here, in one thread: msgspec crashes when several threads use a type for the first time.
_PAGES = msgspec.json.Decoder(Page)


async def extract(
    html: str, *, base_url: str, mode: ExtractMode, main_only: bool, timeout_s: float
) -> Page:
    """The content of a page, as `extract_page` finds it. Raises `ToolError` if that takes longer
    than `timeout_s`, or too much memory."""
    options: dict[str, Any] = {"base_url": base_url, "mode": mode, "main_only": main_only}

    def read_simple() -> Page | None:
        return extract_page(html, **options) if is_simple(html) else None

    try:
        async with asyncio.timeout(timeout_s):
            if (page := await in_thread(read_simple)) is not None:
                return cast("Page", page)
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
    """Whether the page is cheap to parse, however the parser understands it.

    Tags are counted as open until their end tag follows with nothing but text and complete elements
    between: whatever such an element is in, a comment or an attribute as well, it leaves nothing
    open. All other tags are counted as if they were never closed.
    """
    # Not white space in tags, unlike in expressions.
    data = html.encode("utf-8", "replace").lower().replace(b"\v", b"?")
    if len(data) > MAX_SIMPLE or (tags := data.count(b"<")) > MAX_SIMPLE_TAGS:
        return False
    # At each option, the parser may look at all of a page.
    if data.count(b"<option") * tags > MAX_SIMPLE_STEPS:
        return False
    if data.count(b"<html") + data.count(b"<body") > MAX_SIMPLE_ROOTS:
        return False
    opened: list[tuple[bytes, int]] = []
    formatting = steps = copies = text = start = 0
    for found in _MARKUP.finditer(data):
        kind = found.lastindex
        if kind is None:
            continue
        name = found[kind]
        if kind == _TOO_LONG:
            return False
        if name[0] == _SLASH or name in _IGNORED or kind != _REGULAR:
            if kind != _REGULAR or len(found[0]) > len(name) + 2:
                text += found.start() - start
        else:
            start = found.start()
        if kind == _REGULAR and name[0] == _SLASH:
            if opened and opened[-1][0] == name[1:]:
                formatting -= opened.pop()[1]
        elif kind != _REGULAR or name not in _EMPTY:
            size = 0
            if name in _FORMATTING:
                # Where a tag that is not regular ends is not known.
                tag = found[0] if kind == _REGULAR else data
                attributes = len(tag) - len(tag.translate(None, _BEFORE_ATTRIBUTES))
                size = _ELEMENT_SIZE + _ATTRIBUTE_SIZE * attributes + len(tag)
            # No end tag matches the others.
            opened.append((name if kind == _REGULAR else b"", size))
            formatting += size
        steps += len(opened)
        copies += formatting
    if text > MAX_SIMPLE_TEXT:
        return False
    return steps <= MAX_SIMPLE_STEPS and copies <= MAX_SIMPLE_COPIES


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
