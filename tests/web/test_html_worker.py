"""Large pages are read by a process that can do nothing else, and can be killed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from clawkit.errors import ToolError
from clawkit.process.confine import start_helper
from clawkit.process.landlock import available
from clawkit.web import html_child
from clawkit.web.extract import Page, extract_page
from clawkit.web.html_worker import MAX_IN_PROCESS, explain_end, extract, make_argv, make_hold

LARGE = "<title>Large</title><main>" + "<p>Words \ud800 of a large page.</p>" * 20_000


async def read(html: str, timeout_s: float = 60) -> Page:
    return await extract(
        html, base_url="https://example.org", mode="text", main_only=True, timeout_s=timeout_s
    )


async def test_large_pages_are_read_like_small_ones() -> None:
    assert len(LARGE) > MAX_IN_PROCESS
    page = await read(LARGE)
    assert page.title == "Large"
    assert page.text.count("of a large page") == 20_000
    assert await read("<p>small") == Page("", "small", "")


async def test_a_page_that_takes_too_long_is_an_error() -> None:
    with pytest.raises(ToolError, match=r"took longer than 0\.01 s"):
        await read(LARGE, timeout_s=0.01)


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
        argv = [*make_argv()[:3], "-c", f"try: {attempt}\nexcept PermissionError: print('denied')"]
        process = start_helper(argv, cwd="/", env={}, hold=make_hold())
        assert process.communicate(timeout=60)[0] == b"denied\n", attempt


def test_the_program_answers_in_json() -> None:
    request = json.dumps({"html": "<p>a <b>b", "mode": "text"}).encode()
    done = subprocess.run(make_argv(), input=request, capture_output=True, check=True)
    assert json.loads(done.stdout) == {"title": "", "text": "a b", "note": ""}
    assert extract_page("<p>a <b>b", mode="text").text == "a b"
