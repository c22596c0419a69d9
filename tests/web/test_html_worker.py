"""Pages that may be expensive are read by a process that can do nothing else, and can be killed."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from clawkit.errors import ToolError
from clawkit.process.confine import start_helper
from clawkit.process.landlock import available
from clawkit.web import html_child, html_worker
from clawkit.web.extract import Page, extract_page
from clawkit.web.html_worker import (
    MAX_SIMPLE,
    MAX_SIMPLE_ATTRIBUTES,
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
    nested = "<p>" + "<div>" * 4_000
    assert is_simple(nested)
    for page in (LARGE, nested):
        with pytest.raises(ToolError, match=r"took longer than 0\.001 s"):
            await read(page, timeout_s=0.001)


# Each of these takes minutes, or all memory, if it reaches the parser of this process.
HOSTILE = {
    "nested": "<div>" * 200_000,
    "nested a little": "<div>" * 7_000,
    "nested in a drawing": "<svg><style>" + "<div>" * 200_000,
    "formatting": "<p>" + "".join(f"<b a={n}>" for n in range(900)) + "</p>" + "<p>x" * 4_000,
    "hidden formatting": "<p>" + "".join(f"<B\nx='>{n}'>" for n in range(900)) + "<p>x" * 4_000,
    "large formatting": f"<p><b x={'A' * 4_000} y={'B' * 4_000}>" + "<p>x" * 4_000,
    "large links": f"<p><a x='{'A' * 200_000}'>" + "<p>x" * 1_500,
    "large formatting with a tag": f"<p><i x='<{'A' * 200_000}'>" + "<p>x" * 1_500,
    "attributes of the body": "".join(f"<body a{n} b{n} c{n}>" for n in range(10_000)),
    "attributes of the root": "".join(f"<HTML a{n} b{n} c{n}>" for n in range(10_000)),
    "attributes": "<div " + " ".join(f"a{n}" for n in range(150_000)) + ">x",
    "attributes of an end tag": "</div " + " ".join(f"a{n}" for n in range(30_000)) + ">x",
    "attributes without spaces": "<div " + "".join(f"a{n}='>'" for n in range(20_000)) + ">x",
    "attributes with tags": "<div " + " ".join(f"a{n}='<p>'" for n in range(15_000)) + ">x",
    "links in a drawing": "<svg>" + "<link>" * 6_000,
    "closed in comments": "<div><!--</div>-->" * 6_000,
    "closed in attributes": "<div><img a='</div>'>" * 6_000,
    "closed in cells": "<div><table><td></div>" * 4_500,
    "closed with another letter": "<k></\u212a>" * 6_000,
    "closed with another name": "<b\vx></b>" * 6_000,
    "closed in scripts": "<div><script><!--<script></script></div>--></script>" * 3_000,
    "options": "<select>" + "<option>x" * 90_000,
    "closed options": "<select>" + "<option>x</option>" * 9_000,
    "formatting with attributes": f"<p><b {' '.join(f'a{n}' for n in range(128))}></p>"
    + "<p>x</p>" * 9_000,
    "text around tags that are passed over": ("a " * 20 + "<caption a></caption>") * 6_666,
    "text around end tags": "a" * 500_000 + "a</x a>" * 9_000,
    "less-than signs": "<" * 300_000,
}


# All of these are simple, and once took many times as long as a page of this size with only words.
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


@pytest.mark.parametrize("name", LABORIOUS)
def test_no_simple_page_takes_much_longer_than_others(name: str) -> None:
    assert is_simple(LABORIOUS[name])

    def measure(html: str) -> float:
        start = time.process_time()
        extract_page(html)
        return time.process_time() - start

    ordinary = "<p>" + "<b>word</b> " * 9_500 + "a " * 400_000
    usual = sum(measure(ordinary) for _ in range(3)) / 3
    assert min(measure(LABORIOUS[name]) for _ in range(2)) < 3.5 * usual


async def test_pages_that_may_be_expensive_are_not_read_in_this_process() -> None:
    for name, html in HOSTILE.items():
        assert not is_simple(html), name
    assert is_simple("x" * MAX_SIMPLE)
    for html in (HOSTILE["nested"], HOSTILE["attributes"]):
        with pytest.raises(ToolError, match="took longer than 2 s"):
            await read(html, timeout_s=2)


def test_ordinary_pages_are_read_in_this_process() -> None:
    row = "<tr><td class='a' id=b><a href=\"/x?a>b\">1 < 2</a><br/><!-- end --><B>x</B></td></tr>\n"
    item = "<li><picture><source srcset='a'><img src=a></picture><p>omitted end tags\n"
    script = "<script>if (i<n && c>d) { x = '<div>' + y + '</div>' }</script>"
    styled = "<svg><path d='M0 0'/></svg><p style='" + "color: red; " * 200 + "'>text</p>"
    for part in (row, item, script, styled):
        assert is_simple("<!doctype html><body><table>" + part * 300), part
    assert is_simple("<article>" + "<p>An <a href='/x'>article</a> of 200 KB.</p>" * 4_500)
    attributes = " ".join(f"a{n}" for n in range(MAX_SIMPLE_ATTRIBUTES))
    assert is_simple(f"<p {attributes}>x")
    assert not is_simple(f"<p {attributes} x>x")


NAMES = re.findall(
    r"\S+",
    "div p b a span table td tr caption select option svg math title style script textarea li h1 "
    "template button form object nobr foreignObject desc mi x body head frameset noscript iframe "
    "plaintext img br input link rt col path",
)
PIECES = re.findall(
    r"\S+", "x ' = > /> <!-- --> --!> <!--x--> <!--> <![CDATA[ ]]> < <! <? </ <b <img/a='"
)
PIECES += ['"', " ", "\0", "\v", "\f"]
for shape in ("<{}>", "</{}>", "<{} a='", "<{0}></{0}>"):
    PIECES += [shape.format(name) for name in NAMES]


def find_depth(html: str) -> int:
    deepest, todo = 0, [(LexborHTMLParser(html).root, 1)]
    while todo:
        node, depth = todo.pop()
        while node is not None:
            deepest = max(deepest, depth)
            if (child := node.first_child) is not None:
                todo.append((child, depth + 1))
            node = node.next
    return deepest


@given(st.lists(st.sampled_from(PIECES), max_size=3), st.lists(st.sampled_from(PIECES), min_size=1))
def test_no_page_is_deeper_than_it_is_counted(start: list[str], repeated: list[str]) -> None:
    repeats = 60
    html = "".join(start) + "".join(repeated) * repeats
    # At most three elements are implied by a tag; and html, head and body.
    most = (find_depth(html) - 8) // 4
    if most > 0:
        # Each repeat that adds to the depth is at least as deep as those before it.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(html_worker, "MAX_SIMPLE_STEPS", most * repeats // 4)
            assert not is_simple(html)


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
