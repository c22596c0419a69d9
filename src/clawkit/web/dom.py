"""A page as a small tree of what a reader can see.

The tree has no scripts, no form fields and nothing hidden. It is shallow enough for recursion,
whatever the page does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_DEPTH = 150
"""Deeper elements become siblings."""


def names(text: str) -> frozenset[str]:
    """A set of names, written as one text."""
    return frozenset(text.split())


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
_NO_SIZE = r"0+(?:\.0*)?(?:px|r?em|pt|%|v[wh])?"
_FAR = r"-\d{3,}(?:\.\d*)?(?:px|r?em|pt|%|v[wh])?"
_HIDING = re.compile(
    r"(?:^|;)(?:display:none|visibility:(?:hidden|collapse)|content-visibility:hidden"
    rf"|opacity:0*(?:\.0*)?%?|font-size:{_NO_SIZE}|(?:max-)?(?:width|height):{_NO_SIZE}(?=[;!]|$)"
    rf".*overflow:(?:hidden|clip)|overflow:(?:hidden|clip).*(?:max-)?(?:width|height):{_NO_SIZE}"
    rf"|(?:left|right|top|bottom|text-indent|margin(?:-left|-top)?):{_FAR}"
    rf"|clip:rect\((?:[01](?:px)?,?){{4}}\)|clip-path:inset\((?:50|100)%\)|color:transparent"
    r"|transform:scale\(0\))(?=[;!]|$)"
)
_HIDDEN_CLASSES = names(
    "visually-hidden visuallyhidden sr-only screen-reader-text screen-reader-only "
    "screenreader-only a11y-hidden element-invisible"
)


class Element:
    """An element that can be seen, with the sizes of its text."""

    __slots__ = ("attrs", "children", "label", "links", "parent", "size", "tag")

    def __init__(self, tag: str, attrs: dict[str, str], parent: Element | None) -> None:
        self.tag = tag
        self.attrs = attrs
        self.parent = parent
        self.children: list[Element | str] = []
        self.size = 0
        """Characters of text in it."""
        self.links = 0
        """Characters of that which are in links."""
        self.label = f"{attrs.get('class', '')} {attrs.get('id', '')}".strip().lower()

    def walk(self) -> Iterator[Element]:
        """It and all elements in it, parents first."""
        stack = [self]
        while stack:
            element = stack.pop()
            yield element
            stack += [each for each in reversed(element.children) if isinstance(each, Element)]

    def is_below(self, *tags: str) -> bool:
        element: Element | None = self
        while element is not None:
            if element.tag in tags:
                return True
            element = element.parent
        return False

    def remove(self) -> None:
        """Take it out of the tree, and its sizes out of its parents."""
        if self.parent is None:
            return
        self.parent.children.remove(self)
        above: Element | None = self.parent
        self.parent = None
        while above is not None:
            above.size -= self.size
            above.links -= self.links
            above = above.parent


def visible_tree(parser: LexborHTMLParser) -> Element:
    """The visible part of a page. `noscript` is a part of it only if the page has little else."""
    root = Element("body", {}, None)
    if parser.body is None:
        return root
    _fill(root, parser.body)
    _measure(root)
    unscripted = [each for each in root.walk() if each.tag == "noscript"]
    if sum(each.size for each in unscripted) <= root.size // 2:
        for element in unscripted:
            element.remove()
    return root


def _fill(root: Element, body: LexborNode) -> None:
    """Copy what can be seen. Without recursion: here the depth is the page's."""
    # The next node to copy on each level, the element that it goes to, its depth, and whether
    # white space counts there.
    stack: list[tuple[LexborNode | None, Element, int, bool]] = [(body.first_child, root, 1, False)]
    while stack:
        node, parent, depth, keeps_space = stack.pop()
        while node is not None:
            tag = node.tag
            if tag == "-text":
                if text := clean_text(node.text_content or "", keeps_space=keeps_space):
                    parent.children.append(text)
            elif tag is not None and tag[0] not in "-!" and tag not in _DROPPED:
                attrs = {key: value or "" for key, value in node.attributes.items()}
                if not (attrs and is_hidden(attrs)):
                    element = Element(tag, attrs, parent)
                    parent.children.append(element)
                    if (child := node.first_child) is not None:
                        stack.append((node.next, parent, depth, keeps_space))
                        node, depth = child, depth + 1
                        parent = element if depth <= MAX_DEPTH else parent
                        keeps_space = keeps_space or tag in _KEEP_SPACE
                        continue
            node = node.next


def _measure(root: Element) -> None:
    elements = list(root.walk())
    for element in reversed(elements):
        size = links = 0
        for child in element.children:
            if isinstance(child, str):
                size += len(child)
            else:
                size += child.size
                links += child.links
        element.size = size
        element.links = size if element.tag == "a" else links


def clean_text(text: str, *, keeps_space: bool = False) -> str:
    """The text without characters that cannot be seen; white space collapsed as in a browser."""
    if not text.isascii() or not text.isprintable():
        text = _unseen().sub("", text)
    if keeps_space:
        return text.replace("\r\n", "\n").expandtabs(4)
    words = " ".join(text.split())
    if not words:
        return " " if text else ""
    return f"{' ' * text[0].isspace()}{words}{' ' * text[-1].isspace()}"


@cache
def _unseen() -> re.Pattern[str]:
    return re.compile(_UNSEEN)


def is_hidden(attrs: dict[str, str]) -> bool:
    """Whether an element with these attributes is hidden from people."""
    if "hidden" in attrs or attrs.get("aria-hidden", "").lower() == "true":
        return True
    if style := attrs.get("style"):
        plain = re.sub(r"/\*.*?\*/|[\s\\]+", "", style[:2_000].lower())
        if _HIDING.search(plain):
            return True
    return not _HIDDEN_CLASSES.isdisjoint(attrs.get("class", "").split())
