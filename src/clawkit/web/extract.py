"""Finds the content of a web page."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING

from selectolax.lexbor import LexborHTMLParser

from clawkit.text import one_line
from clawkit.web.dom import MAX_ELEMENTS, Element, clean_text, names, visible_tree
from clawkit.web.markdown import join_url, write_markdown
from clawkit.web.page import Page

if TYPE_CHECKING:
    from clawkit.web.protocols import ExtractMode

MAX_TITLE = 256
MIN_TEXT = 200
EMPTY = "the page has almost no text: it is rendered by JavaScript, or it was blocked"
STORED = "the page shows almost nothing; this text is from its metadata, which people do not see"

CUT = f"the page has more than {MAX_ELEMENTS:,} elements; the rest was left out"

_ASIDE = names("nav footer aside menu")
_ASIDE_ROLES = names(
    "navigation contentinfo complementary banner search menu menubar dialog alertdialog toolbar "
    "alert"
)
# Words in class names and ids, matched from the start of a word. The first group never labels
# content; the second usually does not, but labels the content on some pages, such as forums.
_ASIDE_WORDS = (
    "cookie consent gdpr shar(?:e|ing) social newsletter subscri sign-?up promo advert ads? "
    "sponsor breadcrumb side-?bar foot(?:er)? nav(?:bar|igation)? (?:mega)?menu paginat pager "
    "toolbar skip toc table-of-contents login related recommend pop-?up"
)
_DOUBTFUL_WORDS = (
    "modal overlay author-?(?:bio|box|info|card) rating comments? signature reputation badge vote "
    "(?:post|message)-?(?:user|profile|menu|actions|buttons|foot|controls|signature) "
    "user-?(?:info|details|extras?|title|stats|meta)"
)
_ASIDE_LABEL = re.compile(rf"(?<![a-z])(?:{'|'.join(_ASIDE_WORDS.split())})")
_DOUBTFUL_LABEL = re.compile("|".join(f"(?<![a-z])({each})" for each in _DOUBTFUL_WORDS.split()))
_MARKED_SHARE, _HEADER_SHARE, _LABEL_SHARE, _ROOT_SHARE = 0.65, 0.25, 0.2, 0.25
_PARAGRAPHS_SHARE, _LINKS_SHARE = 0.75, 0.66
_LINK_BLOCKS = names("div ul ol section table p dl")


def extract_page(
    html: str, *, base_url: str = "", mode: ExtractMode = "markdown", main_only: bool = True
) -> Page:
    """The content of a page, or all visible text if not `main_only`.

    Hidden text is left out. If there is almost no other text, `note` says so.
    """
    parser = LexborHTMLParser(html)
    root, is_cut = visible_tree(parser)
    title = _find_title(parser, root)
    if base := parser.css_first("base[href]"):
        base_url = join_url(base_url, base.attributes.get("href") or "") or base_url
    main = find_main(root) if main_only else root
    text = write_markdown(main, base_url=base_url, plain=mode == "text")
    notes = [CUT] if is_cut else []
    if len(text) < MIN_TEXT and len(stored := _stored_text(parser)) > len(text):
        text = stored
        notes.append(STORED)
    if len(text) < MIN_TEXT and (not text or "<script" in html.lower()):
        notes.append(EMPTY)
    return Page(title, text, "; ".join(notes))


def _find_title(parser: LexborHTMLParser, root: Element) -> str:
    for selector in ("meta[property='og:title']", "meta[name='og:title']", "title"):
        node = parser.css_first(selector)
        if node is not None:
            text = node.text() if selector == "title" else node.attributes.get("content")
            if title := one_line(clean_text(text or ""), MAX_TITLE):
                return title
    heading = next((each for each in root.walk() if each.tag == "h1" and each.size > 1), None)
    return one_line(write_markdown(heading, plain=True), MAX_TITLE) if heading else ""


def _stored_text(parser: LexborHTMLParser) -> str:
    """The longest text of an article in the metadata of the page."""
    best = ""
    for script in parser.css("script[type='application/ld+json']"):
        try:
            todo = [json.loads(script.text())]
        except (ValueError, RecursionError):
            continue
        while todo:
            value = todo.pop()
            if isinstance(value, dict):
                todo += value.values()
                text = value.get("articleBody")
                best = max(best, text if isinstance(text, str) else "", key=len)
            elif isinstance(value, list):
                todo += value
    best = re.sub(r"</?[a-zA-Z][^<>]{0,1000}>", " ", best)
    lines = clean_text("\n".join(best.splitlines()), keeps_space=True).split("\n")
    return "\n\n".join(line for each in lines if (line := " ".join(each.split())))


def find_main(root: Element) -> Element:
    """The main content, without its surroundings. Modifies the tree.

    No step is taken that would leave too little of the text.
    """
    total = root.size
    enough = max(MIN_TEXT, total // 10)
    root.drop(lambda each: _is_marked_aside(each, total), enough)
    labelled = _find_labelled_asides(root, total)
    root.drop(lambda each: each in labelled, enough)
    main = _narrow(_content_root(root))
    if main.links <= 0.5 * main.size:
        main.drop(
            lambda each: each.tag in _LINK_BLOCKS and each.links > _LINKS_SHARE * each.size > 0,
            enough,
        )
    return main


def _is_marked_aside(element: Element, total: int) -> bool:
    """Whether the tag or role of an element marks it as surroundings."""
    if element.tag in _ASIDE or element.attrs.get("role", "").lower() in _ASIDE_ROLES:
        return element.size < _MARKED_SHARE * total
    if element.tag == "form":
        return element.size < _LABEL_SHARE * total
    return (
        element.tag == "header"
        and element.size < _HEADER_SHARE * total
        and not any(above.tag == "article" for above in element.above())
    )


def _find_labelled_asides(root: Element, total: int) -> set[Element]:
    """The elements whose class or id marks them as surroundings. An ambiguous word that labels much
    of the text is ignored."""
    dropped = set[Element]()
    doubtful: dict[int, list[Element]] = {}
    labels: dict[Element | None, int] = {}
    """The ambiguous words of an element and its ancestors, one bit each."""
    limit = _LABEL_SHARE * total
    read = cache(_read_label)  # many elements share labels
    for element in root.walk():
        labels[element] = above = labels.get(element.parent, 0)
        if element.size < limit and (word := read(element.label)) is not None:
            if not word:
                dropped.add(element)
            elif not above >> word & 1:
                doubtful.setdefault(word, []).append(element)
                labels[element] = above | 1 << word
    for outer in doubtful.values():
        if sum(each.size for each in outer) < limit:
            dropped.update(outer)
    return dropped


def _read_label(label: str) -> int | None:
    """The number of an ambiguous word, 0 for an unambiguous one, None for none."""
    if _ASIDE_LABEL.search(label):
        return 0
    match = _DOUBTFUL_LABEL.search(label)
    return match.lastindex if match else None


def _content_root(root: Element) -> Element:
    """The largest element that is marked as the content, if it has enough of the text."""
    marked = [each for each in root.walk() if _is_marked_content(each)]
    best = max(marked, key=lambda each: each.size, default=root)
    return best if best.size >= root.size * _ROOT_SHARE else root


def _is_marked_content(element: Element) -> bool:
    return (
        element.tag in ("main", "article")
        or element.attrs.get("role") == "main"
        or "articlebody" in element.attrs.get("itemprop", "").lower()
    )


def _narrow(root: Element) -> Element:
    """The direct parent of almost all paragraphs, if they are most of the text."""
    direct: dict[Element, int] = {}
    for element in root.walk():
        if element.tag == "p" and element.size - element.links >= 25 and element.parent:
            direct[element.parent] = direct.get(element.parent, 0) + element.size
    best = max(direct, key=lambda each: direct[each], default=root)
    has_most = direct.get(best, 0) >= _PARAGRAPHS_SHARE * sum(direct.values())
    return best if has_most and best.size >= 0.5 * root.size else root
