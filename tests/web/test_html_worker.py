"""Pages that may be expensive are read by a process that can do nothing else, and can be killed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from clawkit.errors import ToolError
from clawkit.process.confine import start_helper
from clawkit.process.landlock import available
from clawkit.web import html_child
from clawkit.web.extract import Page, extract_page
from clawkit.web.html_worker import (
    MAX_SIMPLE,
    MAX_SIMPLE_TAGS,
    explain_end,
    extract,
    is_simple,
    make_reader,
)

LARGE = "<title>Large</title><main>" + "<p>Words \ud800 of a large page.</p>" * 20_000


async def read(html: str, timeout_s: float = 60) -> Page:
    return await extract(
        html, base_url="https://example.org", mode="text", main_only=True, timeout_s=timeout_s
    )


async def test_large_pages_are_read_like_small_ones() -> None:
    assert not is_simple(LARGE)
    page = await read(LARGE)
    assert page.title == "Large"
    assert page.text.count("of a large page") == 20_000
    assert await read("<p>small") == Page("", "small", "")


async def test_a_page_that_takes_too_long_is_an_error() -> None:
    for page in (LARGE, "<p>" + "<div>" * (MAX_SIMPLE_TAGS - 1)):
        with pytest.raises(ToolError, match=r"took longer than 0\.001 s"):
            await read(page, timeout_s=0.001)


# Each of these takes minutes, or all memory, if it reaches the parser of this process.
HOSTILE = {
    "nested": "<div>" * 200_000,
    "nested a little": "<div>" * 7_000,
    "nested in a drawing": "<svg><style>" + "<div>" * 200_000,
    "formatting": "<p>" + "".join(f"<b a={n}>" for n in range(900)) + "</p>" + "<p>x" * 4_000,
    "hidden formatting": "<p>" + "".join(f"<B\nx='>{n}'>" for n in range(900)) + "<p>x" * 4_000,
    "attributes": "<div " + " ".join(f"a{n}" for n in range(150_000)) + ">x",
    "options": "<select>" + "<option>x" * 90_000,
    "less-than signs": "<" * 300_000,
}


async def test_pages_that_may_be_expensive_are_not_read_in_this_process() -> None:
    for name, html in HOSTILE.items():
        assert not is_simple(html), name
    assert is_simple("<p>x</p>" * 2_000)
    assert is_simple("x" * MAX_SIMPLE)
    for html in (HOSTILE["nested"], HOSTILE["attributes"]):
        with pytest.raises(ToolError, match="took longer than 2 s"):
            await read(html, timeout_s=2)


async def test_the_event_loop_goes_on_while_a_page_is_read() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.ensure_future(count())
    await read("<p>words</p>" * 2_900)
    counting.cancel()
    assert turns > 1


def test_the_end_of_a_worker_is_explained() -> None:
    assert "took more than 20 s" in str(explain_end(-24))
    assert "too much memory" in str(explain_end(html_child.NO_MEMORY))
    assert "signal 11" in str(explain_end(-11))
    assert "exit code 1" in str(explain_end(1))


def test_memory_is_limited() -> None:
    code = (
        "import resource, sys; from clawkit.web import extract, html_child;"
        "html_child.MAX_MEMORY = 200 << 20;"
        "extract.extract_page = lambda html: bytes(900 << 20); html_child.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=b'{"html": ""}', capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (html_child.NO_MEMORY, b"")


@pytest.mark.skipif(not available(), reason="the kernel has no Landlock")
def test_the_worker_has_no_files_and_no_network() -> None:
    attempts = "open('/etc/passwd')", "__import__('socket').create_connection(('127.0.0.1', 9))"
    for attempt in attempts:
        argv = [
            *make_reader().argv[:3],
            "-c",
            f"try: {attempt}\nexcept PermissionError: print('denied')",
        ]
        process = start_helper(argv, cwd="/", env={}, hold=make_reader().hold)
        assert process.communicate(timeout=60)[0] == b"denied\n", attempt


def test_the_program_answers_in_json() -> None:
    request = json.dumps({"html": "<p>a <b>b", "mode": "text"}).encode()
    done = subprocess.run(make_reader().argv, input=request, capture_output=True, check=True)
    assert json.loads(done.stdout) == {"title": "", "text": "a b", "note": ""}
    assert extract_page("<p>a <b>b", mode="text").text == "a b"
