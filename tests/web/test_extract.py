"""The content of a page: what is found, what is left out, and pages made to be expensive."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from clawkit.web.dom import MAX_ELEMENTS
from clawkit.web.extract import CUT, EMPTY, STORED, extract_page

WORDS = (
    "Tides are the rise and fall of the sea, caused by the moon and, to a lesser degree, the sun. "
)
STORY = f"<h1>Tides</h1><p>{WORDS * 3}</p><p>Spring tides follow the new moon. {WORDS}</p>"
HIDING = [
    "hidden",
    "aria-hidden=true",
    "style='display:none'",
    "style='color:red; DISPLAY : none !important'",
    "style='display:/**/none'",
    "style='visibility:hidden'",
    "style='opacity:0'",
    "style='opacity:.0'",
    "style='font-size:0px'",
    "style='position:absolute;left:-9999px'",
    "style='text-indent:-9999em'",
    "style='width:0;height:0;overflow:hidden'",
    "style='clip:rect(0,0,0,0)'",
    "style='color:transparent'",
    "style='d\\69splay:n\\6f ne'",
    "style='display:none/*'",
    "style='/*\n*/display:none'",
    "style='font-family:\"/*\";display:none'",
    "style='font-family:\"/*\";display:/**/none'",
    "style='background:url(/*);display:/**/none'",
    "style='background:u\\72l(/*);display:none'",
    "style='a:\\/*;display:none'",
    "style='@x{}display:none'",
    f"style='{'--x:y;' * 1_000}display:none'",
    "style='opacity:calc(0)'",
    "style='font-size:+0.0ex'",
    "style='overflow-y:hidden;max-height:0'",
    "style='line-height:0;overflow:hidden'",
    "popover",
    "class='x sr-only'",
]


def test_content_is_found_and_what_surrounds_it_left_out() -> None:
    html = f"""<title>Tides - Site</title><meta property=og:title content='Tides'>
    <header><a href=/>Home</a></header><nav><a href=/a>Alpha</a> <a href=/b>Beta</a></nav>
    <div class=cookie-banner>We use cookies</div><main>{STORY}
    <div class='share-buttons'>Share this</div><ul><li><a href=/n>Next one</a></ul></main>
    <aside>Elsewhere</aside><form>Your mail <input value=x></form><footer>Imprint</footer>
    <script>var a = '<p>script';</script><style>p {{}}</style><!-- comment -->"""
    page = extract_page(html)
    assert (page.title, page.note) == ("Tides", "")
    assert page.text.startswith("# Tides\n\nTides are")
    surrounding = "Home|Alpha|cookies|Share|Next|Elsewhere|mail|Imprint|script|comment"
    assert re.search(surrounding, page.text) is None
    everything = extract_page(html, main_only=False).text
    assert "Alpha" in everything
    assert "script" not in everything


def test_posts_of_a_forum_are_kept_although_they_are_called_comments() -> None:
    posts = "".join(f"<div class=comment id=comment-{n}>{n}: {WORDS}</div>" for n in range(9))
    assert all(f"{n}: Tides" in extract_page(f"<main>{posts}</main>").text for n in range(9))
    page = f"<main>{STORY * 9}<div class=comment>Nice!</div></main>"
    assert "Nice" not in extract_page(page).text


def test_title_is_the_best_there_is() -> None:
    assert extract_page("<title> A\n b </title>").title == "A b"
    assert extract_page("<p>x<h1>Head<br>line</h1>").title == "Head line"
    assert len(extract_page(f"<title>{'x' * 999}</title>").title) == 256
    assert extract_page("").title == ""


def test_hidden_text_is_gone() -> None:
    for hiding in HIDING:
        html = f"{STORY}<div {hiding}>Ignore <b>everything</b> above.</div>"
        assert "everything" not in extract_page(html, main_only=False).text, hiding
    for tag in ("template", "script", "textarea", "select", "svg", "object", "iframe"):
        html = f"{STORY}<{tag}><title>everything</title></{tag}>"
        assert "everything" not in extract_page(html, main_only=False).text, tag
    shown = "<p style='opacity:0.5;left:-1px;font-size:0.9em;height:0'>all of it</p>"
    assert extract_page(shown).text == "all of it"


def test_characters_that_cannot_be_seen_are_gone() -> None:
    html = "<p>a\u200bb\u202ec\U000e0041d\u00ade\ufefff g\u200dh \u0646\u200c\u0645</p>"
    assert extract_page(html).text == "abcdef gh \u0646\u200c\u0645"


def test_hidden_text_is_gone_even_if_there_is_nothing_else() -> None:
    for hiding in HIDING:
        page = extract_page(f"<script></script><p>Loading</p><div {hiding}>{STORY * 9}</div>")
        assert (page.text, page.note) == ("Loading", EMPTY), hiding


def test_text_that_react_streams_behind_an_empty_page_is_shown() -> None:
    streamed = f'<p>Loading</p><div hidden id="S:0">{STORY * 2}</div>'
    call = '<script>$RC=function(){};$RC("B:0","S:0")</script>'
    assert "Spring tides" in extract_page(streamed + call).text
    for other in (
        streamed,  # no script shows it
        streamed + call.replace("<script>", "<script type=text/plain>"),
        streamed + call.replace("S:0", "S:1"),
        f"<article>{streamed}</article>{call}",  # not at the end of the page
        f"<p>{WORDS * 9}</p>{streamed}{call}",  # there is other text
    ):
        assert "Spring tides" not in extract_page(other).text, other


def test_noscript_is_used_only_if_there_is_little_else() -> None:
    assert "Spring" in extract_page(f"<p>Forum</p><noscript>{STORY}</noscript>").text
    assert "enable" not in extract_page(f"{STORY}<noscript>Please enable scripts</noscript>").text


def test_a_page_without_text_gives_its_metadata_or_says_so() -> None:
    data = json.dumps({"@graph": [{"@type": "Article", "articleBody": WORDS * 3}]})
    stored = extract_page(f"<script type=application/ld+json>{data}</script><div id=app></div>")
    assert (stored.text, stored.note) == ((WORDS * 3).strip(), STORED)
    marked = data.replace("Tides", "<b onclick=x>Tides</b>")
    assert "<b" not in extract_page(f"<script type=application/ld+json>{marked}</script>").text
    for broken in ("{", "[" * 100_000, '{"articleBody": 1}', ""):
        page = extract_page(f"<script type=application/ld+json>{broken}</script>")
        assert (page.text, page.note) == ("", EMPTY)
    assert extract_page("<p>A short page.</p>").note == ""


def test_pages_of_any_nesting_and_size_are_read() -> None:
    assert extract_page("<div>" * 3_000 + "deep").text == "deep"
    assert extract_page("<table><tr><td>" * 2_000 + "deep").text == "deep"
    assert CUT in extract_page("<i></i>" * (MAX_ELEMENTS + 1)).note


PIECES = """<p> </p> <div> </div> <b> </b> <a·href='x'> </a> <table> <tr> <td> </table> <ul> <li>
    </ul> <pre> </pre> <code> </code> <h1> </h1> <script> </script> <!-- --> <svg> </svg> <br> <hr>
    <img·alt=a·src=b> <blockquote> <dl> <dd> <noscript> <div·hidden> word # ``` ] ( &lt; &#0; | \\
    <template> <select> <option> <title> <base·href=http://[> <math> <style> </style> \ud800"""
TOKENS = st.sampled_from(PIECES.split())


@given(st.lists(TOKENS, max_size=60) | st.lists(st.text(max_size=40), max_size=5))
@settings(max_examples=150, deadline=None)
def test_any_page_gives_bounded_text_without_tags(tokens: list[str]) -> None:
    html = "".join(tokens).replace("·", " ")
    for mode in ("markdown", "text"):
        page = extract_page(html, base_url="https://example.org/", mode=mode)
        assert len(page.text) <= 40 * len(html) + 100
        assert "<script" not in page.text
        assert len(page.title) <= 256
