"""A page as a small tree of its visible content.

The tree has no scripts, form fields or hidden elements. It is shallow enough for recursion, for any
page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_DEPTH = 150
"""Deeper elements become siblings."""
MAX_ELEMENTS = 100_000
MAX_LABEL = 500


def names(text: str) -> frozenset[str]:
    """A set of names, written as one text."""
    return frozenset(text.split())


BLOCKS = names(
    "address article aside blockquote body caption center dd details dir div dl dt fieldset "
    "figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr legend li listing main menu "
    "nav noscript ol p plaintext pre search section summary table tbody td tfoot th thead tr ul xmp"
)
_DROPPED = names(
    "script style template head title meta link base input select textarea option datalist "
    "button iframe frame frameset object embed applet svg canvas audio video map area progress "
    "meter dialog noframes noembed rp param source track"
)
_KEEP_SPACE = frozenset(("pre", "xmp", "listing", "plaintext"))
_UNSEEN = (
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]|[\ufe00-\ufe0f]{2,}"
    # Joiners shape letters of some scripts, and emoji; in ASCII they only hide words.
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)
# Comments, strings and URLs, which may contain any characters; and escaped characters.
_STYLE_PARTS = (
    r"""(?s)/\*.*?(?:\*/|\Z)|"(?>(?:[^"\\\n]|\\.)*)"?|'(?>(?:[^'\\\n]|\\.)*)'?"""
    r"""|(?<![\w-])url\(\s*+[^"'\s)][^)]*+\)?|\\(?:0{0,4}([0-9a-f]{2})\s?|(\S))"""
)
_ZERO = r"(?:calc\()?[-+]?(?:0+(?:\.0*)?|\.0+)(?![\d.])[a-z0-9%+-]*\)?"
_FAR = r"-\d{3,}(?:\.\d*)?[a-z%]*"
_HIDING = re.compile(
    r"display:none|visibility:(?:hidden|collapse)|content-visibility:hidden"
    rf"|(?:opacity|font-size|scale|zoom):{_ZERO}"
    rf"|(?:left|right|top|bottom|text-indent|margin(?:-left|-top)?):{_FAR}"
    r"|clip:rect\((?:[01](?:px)?,?){4}\)|clip-path:inset\((?:50|100)%\)|color:transparent"
    r"|transform:scale\(0\)"
)
_CLIPPED = re.compile(r"overflow(?:-[xy])?:[a-z]*(?:hidden|clip)[a-z]*")
_EMPTY_BOX = re.compile(rf"(?:max-|line-)?(?:width|height):{_ZERO}")
_STREAMED = r"""\$R[CRS]\([^()]{0,200}?["'](S:\w+)["']"""
_HIDDEN_CLASSES = names(
    "visually-hidden visuallyhidden sr-only screen-reader-text screen-reader-only "
    "screenreader-only a11y-hidden element-invisible"
)


class Element:
    """An element, with the sizes of its text."""

    __slots__ = ("attrs", "children", "has_blocks", "is_streamed", "links", "parent", "size", "tag")

    def __init__(self, tag: str, attrs: dict[str, str], parent: Element | None) -> None:
        self.tag = tag
        self.attrs = attrs
        self.parent = parent
        self.children: list[Element | str] = []
        self.size = 0
        """Characters of its text."""
        self.links = 0
        """Characters of its text in links."""
        self.has_blocks: bool | None = None
        """Cache of the Markdown writer."""
        self.is_streamed = False
        """Whether it is hidden until a script of the page moves it."""

    @property
    def label(self) -> str:
        """Its class and id, which often describe its purpose; truncated, because it is searched
        often."""
        class_, id_ = self.attrs.get("class", ""), self.attrs.get("id", "")
        return f"{class_[:MAX_LABEL]} {id_[:MAX_LABEL]}".strip().lower()

    def walk(self) -> list[Element]:
        """It and all elements in it, parents before their children."""
        found = [self]
        for element in found:
            found += [each for each in element.children if each.__class__ is Element]
        return found

    def above(self) -> Iterator[Element]:
        """Its ancestors, the nearest first."""
        element = self.parent
        while element is not None:
            yield element
            element = element.parent

    def drop(self, is_dropped: Callable[[Element], bool], min_size: int = 0) -> None:
        """Remove descendants, unless less text than `min_size` would be left."""
        kept, dropped = [self], set[Element]()
        for element in kept:
            for child in element.children:
                if isinstance(child, Element):
                    if is_dropped(child):
                        dropped.add(child)
                    else:
                        kept.append(child)
        if self.size - sum(each.size for each in dropped) < min_size:
            return
        for parent in {each.parent for each in dropped if each.parent}:
            parent.children = [each for each in parent.children if each not in dropped]
        self.measure()

    def measure(self) -> None:
        for element in reversed(self.walk()):
            size = links = 0
            for child in element.children:
                if isinstance(child, str):
                    size += len(child)
                else:
                    size += child.size
                    links += child.links
            element.size = size
            element.links = size if element.tag == "a" else links


def visible_tree(parser: LexborHTMLParser) -> tuple[Element, bool]:
    """The visible tree of a page, and whether it has more elements than the limit. Content for
    browsers without scripts, and content that React streams and moves later, is left out unless it
    is most of the page."""
    root = Element("body", {}, None)
    is_cut = parser.body is not None and _fill(root, parser.body, _streamed(parser))
    root.measure()
    every = root.walk()
    unscripted = {each for each in every if each.tag == "noscript"}
    streamed = {each for each in every if each.is_streamed}
    for doubtful in (unscripted, streamed):
        if doubtful and sum(each.size for each in doubtful) * 2 <= root.size:
            root.drop(doubtful.__contains__)
    return root, is_cut


def _streamed(parser: LexborHTMLParser) -> set[str]:
    """The ids of hidden elements that scripts of the page make visible."""
    scripts = (each.text() for each in parser.css("body script:not([type]):not([src])"))
    return {found for each in scripts for found in re.findall(_STREAMED, each)}


def _fill(root: Element, body: LexborNode, streamed: set[str]) -> bool:
    """Copy visible content; returns whether elements were dropped because of the limit. Without
    recursion, because the page controls the depth."""
    left = MAX_ELEMENTS
    # For each level: the next node to copy, its target element, its depth, and whether white space
    # is significant.
    stack: list[tuple[LexborNode | None, Element, int, bool]] = [(body.first_child, root, 1, False)]
    while stack:
        node, parent, depth, keeps_space = stack.pop()
        while node is not None:
            tag = node.tag
            if tag == "-text":
                if text := clean_text(node.text_content or "", keeps_space=keeps_space):
                    parent.children.append(text)
            elif tag is not None and tag[0] not in "-!" and tag not in _DROPPED:
                attrs: dict[str, Any] = node.attributes
                if None in attrs.values():
                    attrs = {key: value or "" for key, value in attrs.items()}
                is_streamed = depth == 1 and attrs.get("id", "") in streamed
                if is_streamed or not (attrs and is_hidden(attrs)):
                    left -= 1
                    if left < 0:
                        return True
                    element = Element(tag, attrs, parent)
                    element.is_streamed = is_streamed
                    parent.children.append(element)
                    if (child := node.first_child) is not None:
                        stack.append((node.next, parent, depth, keeps_space))
                        node, depth = child, depth + 1
                        parent = element if depth <= MAX_DEPTH else parent
                        keeps_space = keeps_space or tag in _KEEP_SPACE
                        continue
            node = node.next
    return False


def clean_text(text: str, *, keeps_space: bool = False) -> str:
    """The text without invisible characters; white space collapsed as in a browser."""
    words = text if keeps_space else " ".join(text.split())
    if not (words.isascii() and words.isprintable()):
        text = re.sub(_UNSEEN, "", text)
        words = " ".join(text.split())
    if keeps_space:
        return text.replace("\r\n", "\n").expandtabs(4)
    if not words:
        return " " if text else ""
    return f"{' ' * text[0].isspace()}{words}{' ' * text[-1].isspace()}"


def is_hidden(attrs: dict[str, str]) -> bool:
    """Whether an element with these attributes is invisible."""
    if "hidden" in attrs or "popover" in attrs or attrs.get("aria-hidden", "").lower() == "true":
        return True
    if not _HIDDEN_CLASSES.isdisjoint(attrs.get("class", "").split()):
        return True
    if not (style := attrs.get("style")):
        return False
    style = style.lower()
    read = re.sub(_STYLE_PARTS, lambda part: chr(int(part[1] or "0", 16)) + (part[2] or ""), style)
    # Ignores the context of a rule, so that no trick can reveal hidden text.
    plain = re.sub(r"[\s\\\0]+", "", f"{read};{style}".lower())
    rules = {rule.partition("!")[0] for rule in set(re.sub("[{}]", ";", plain).split(";"))}
    if any(map(_HIDING.fullmatch, rules)):
        return True
    return any(map(_CLIPPED.fullmatch, rules)) and any(map(_EMPTY_BOX.fullmatch, rules))
