"""Every page is read by a process of its own, which can do nothing else, and can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from tests.lacking import needs
from tests.scale import FULL

from clawkit.errors import ToolError
from clawkit.process.confine import start_helper
from clawkit.process.isolated import NoAnswerError, Prepared
from clawkit.process.landlock import available
from clawkit.web import html_child
from clawkit.web.extract import extract_page
from clawkit.web.html_worker import PageWorker, explain_end, make_reader
from clawkit.web.page import Page

LARGE = "<title>Large</title><main>" + "<p>Words \ud800 of a large page.</p>" * 20_000


async def read(html: str, timeout_s: float = 60) -> Page:
    reader = PageWorker()
    try:
        return await reader.read(
            html, base_url="https://example.org", mode="text", main_only=True, timeout_s=timeout_s
        )
    finally:
        reader.close()


def workers() -> list[int]:
    """The processes of this one that read pages."""
    found = []
    for line in subprocess.check_output(
        ["ps", "-eww", "-o", "pid=", "-o", "ppid=", "-o", "args="]
    ).splitlines():
        pid, parent, command = line.split(None, 2)
        if int(parent) == os.getpid() and html_child.__file__.encode() in command:
            found.append(int(pid))
    return found


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.01)


async def test_large_pages_are_read_like_small_ones() -> None:
    page = await read(LARGE)
    assert page.title == "Large"
    assert page.text.count("of a large page") == 20_000
    assert await read("<p>small") == Page("", "small", "")


async def test_a_page_that_takes_too_long_is_an_error() -> None:
    with pytest.raises(ToolError, match=r"took longer than 0\.001 s"):
        await read(LARGE, timeout_s=0.001)


# Each of these takes the parser minutes, or all memory.
HOSTILE = {
    "nested": "<div>" * 200_000,
    "attributes": "<div " + " ".join(f"a{n}" for n in range(150_000)) + ">x",
    "attributes of the body": "".join(f"<body a{n} b{n} c{n}>" for n in range(60_000)),
    "large formatting": f"<p><b x='{'A' * 500_000}'>" + "<p>x" * 40_000,
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_page_is_ended_and_the_event_loop_goes_on(name: str) -> None:
    reading = asyncio.ensure_future(read(HOSTILE[name], timeout_s=2))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0.02)
        turns += 1
    with pytest.raises(ToolError, match=r"took longer than 2 s|too much memory|signal"):
        await reading
    assert turns > 5
    await until(lambda: not workers())


async def test_a_process_is_ready_before_a_page_comes_and_reads_only_one() -> None:
    reader = PageWorker()
    try:
        reader.prepare()
        reader.prepare()
        await until(lambda: len(workers()) == 1)
        (first,) = workers()
        options = {"base_url": "", "mode": "text", "main_only": True, "timeout_s": 60}
        assert (await reader.read("<p>one", **options)).text == "one"  # type: ignore[arg-type]
        await until(lambda: len(workers()) == 1)
        (second,) = workers()
        assert second != first
        # One that died in the meantime is not asked; its start is over, so that this is noticed.
        await until(lambda: not any("prepare" in each.name for each in threading.enumerate()))
        os.kill(second, signal.SIGKILL)
        await until(lambda: second not in workers() or is_zombie(second))
        assert (await reader.read("<p>two", **options)).text == "two"  # type: ignore[arg-type]
        both = (reader.read(f"<p>{each}", **options) for each in "ab")  # type: ignore[arg-type]
        assert [each.text for each in await asyncio.gather(*both)] == ["a", "b"]
    finally:
        reader.close()
    await until(lambda: not workers())


async def test_many_sessions_do_not_keep_many_processes() -> None:
    readers = [PageWorker() for _ in range(6)]
    for each in readers:
        each.prepare()
    await until(lambda: len(workers()) == 2)
    readers[0].close()
    readers[5].prepare()
    await until(lambda: len(workers()) == 2)
    assert readers[5]._program._spare is not None
    for each in readers:
        each.close()
    await until(lambda: not workers())


def is_zombie(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"


async def test_a_process_that_is_not_asked_is_stopped() -> None:
    program = Prepared(make_reader(), idle_s=0.05)
    program.prepare()
    await until(lambda: program._spare is None)
    await until(lambda: not workers())
    # Closed before it was started, and after.
    program.prepare()
    program.close()
    program.close()
    await until(lambda: not workers())
    with pytest.raises(NoAnswerError):
        await program.ask((b"no JSON",), lambda _answers: None, 60)
    program.close()
    await until(lambda: not workers())


LABORIOUS = {
    "code in a large class": f"<div class='{'-' * 300_000}'>" + "<pre>x</pre>" * 9_000,
    "headings in each other": "<h1><div>" * 74 + "a " * 500_000,
    "links in each other": "<a href=x><marquee>" * 74 + "a " * 500_000,
    "lines in lists": "<ol start=999999><li>" * 8 + "<pre>" + "a\n" * 500_000,
    "lines in quotes": "<blockquote>" * 8 + "<pre>" + "a\n" * 500_000,
    "links": f"<base href='https://h/{'a/' * 490}'>" + "<img alt=x src=../b>" * 19_000,
    "links to nothing": f"<base href='https://h/{'a/' * 490}'>"
    + f"<img alt=x src={'b' * 20}>" * 19_000,
    "links from nowhere": f"<base href='https://h/{'/' * 970}'>" + "<img alt=x src=../b>" * 19_000,
}


@pytest.mark.long
@pytest.mark.skipif(not FULL, reason="compares times, which needs a quiet machine: make bench")
@pytest.mark.parametrize("name", LABORIOUS)
def test_no_page_takes_much_longer_than_others_of_its_size(name: str) -> None:
    def measure(html: str) -> float:
        start = time.process_time()
        extract_page(html)
        return time.process_time() - start

    ordinary = "<p>" + "<b>word</b> " * 9_500 + "a " * 400_000
    usual = sum(measure(ordinary) for _ in range(3)) / 3
    assert min(measure(LABORIOUS[name]) for _ in range(2)) < 3.5 * usual


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


@needs(available(), "Landlock")
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
    assert json.loads(done.stdout) == ["", "a b", ""]
    assert extract_page("<p>a <b>b", mode="text").text == "a b"
