"""Finds the content of a web page."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from selectolax.lexbor import LexborHTMLParser

from clawkit.text import one_line
from clawkit.web.dom import Element, names, visible_tree
from clawkit.web.markdown import write_markdown

Mode = Literal["markdown", "text"]
MAX_TITLE = 256
MIN_TEXT = 200
EMPTY = "the page has almost no text: it is rendered by JavaScript, or it was blocked"

_ASIDE = frozenset(("nav", "footer", "aside", "menu"))
_ASIDE_ROLES = names(
    "navigation contentinfo complementary banner search menu menubar dialog alertdialog toolbar "
    "tablist alert"
)
_ASIDE_LABEL = re.compile(
    r"cookie|consent|gdpr|share|sharing|social|related|recommend|newsletter|subscri|sign-?up|promo|"
    r"advert|(?:^|[\s_-])ads?(?:$|[\s_-])|breadcrumb|sidebar|side-bar|foot(?:er|-)|navbar|(?:^|[\s_-])nav(?:$|[\s_-])|"
    r"navigation|menu|popup|pop-up|modal|overlay|paginat|pager|toolbar|skip-?(?:link|to)|"
    r"author-?(?:bio|box|info)|(?:^|[\s_-])toc(?:$|[\s_-])|table-of-contents|rating|widget|comment"
)


class Page(msgspec.Struct, frozen=True):
    """What a page says."""

    title: str
    text: str
    note: str
    """What the reader must know about the text; empty if there is nothing."""


def extract_page(
    html: str, *, base_url: str = "", mode: Mode = "markdown", main_only: bool = True
) -> Page:
    """The content of a page, or all visible text if not `main_only`."""
    parser = LexborHTMLParser(html)
    root = visible_tree(parser)
    title = _title(parser)
    total = root.size
    visible = write_markdown(root, base_url=base_url, plain=mode == "text")
    if main_only:
        text = write_markdown(_main(root), base_url=base_url, plain=mode == "text")
        if len(text) < max(MIN_TEXT, total // 10):
            text = visible
    else:
        text = visible
    return Page(title, text, "" if len(text) >= MIN_TEXT else EMPTY)


def _title(parser: LexborHTMLParser) -> str:
    node = parser.css_first("title")
    return one_line(node.text(), MAX_TITLE) if node is not None else ""


def _main(root: Element) -> Element:
    total = root.size
    for element in list(root.walk()):
        if element.parent is None:
            continue
        share = element.size / max(1, total)
        if element.tag in _ASIDE or element.attrs.get("role", "").lower() in _ASIDE_ROLES:
            limit = 0.5
        elif element.tag == "header" and not element.is_below("article"):
            limit = 0.25
        elif element.label and _ASIDE_LABEL.search(element.label):
            limit = 0.2
        else:
            continue
        if share < limit:
            element.remove()
    root = _content_root(root)
    root = _narrowed(root)
    _drop_link_blocks(root)
    return root


def _content_root(root: Element) -> Element:
    best = root
    size = 0
    for element in root.walk():
        if (
            element.tag in ("main", "article")
            or element.attrs.get("role") == "main"
            or "articlebody" in element.attrs.get("itemprop", "").lower()
        ) and element.size > size:
            best, size = element, element.size
    return best if size >= root.size * 0.4 else root


def _narrowed(root: Element) -> Element:
    direct: dict[Element, int] = {}
    total = 0
    for element in root.walk():
        if element.tag == "p" and element.size - element.links >= 25 and element.parent:
            direct[element.parent] = direct.get(element.parent, 0) + element.size
            total += element.size
    if not direct:
        return root
    best = max(direct, key=lambda each: direct[each])
    return best if direct[best] >= 0.75 * total and best.size >= 0.5 * root.size else root


def _drop_link_blocks(root: Element) -> None:
    if root.links > 0.5 * root.size:
        return
    for element in list(root.walk()):
        if (
            element.tag in ("div", "ul", "ol", "section", "table", "p", "dl")
            and element is not root
            and element.parent is not None
            and element.size > 0
            and element.links > 0.66 * element.size
        ):
            element.remove()
