"""Bounds what the markup of a page can cost before it is parsed.

The parser takes quadratic time for deep nesting, for many attributes in a tag and for many options,
and unclosed formatting elements multiply the tree. This takes linear time.
"""

from __future__ import annotations

import re

from clawkit.web.dom import BLOCKS, names

MAX_NESTING = 1_000
MAX_ATTRIBUTES = 256
MAX_COPIES = 10_000_000
"""Formatting elements that the parser might create again."""

_VOID = names(
    "area base br col embed hr img input link meta param source track wbr frame keygen "
    "html head body"
)
# Elements that end when another of their family starts.
_FAMILIES = {
    name: family
    for family in ({"p"}, {"li"}, {"dd", "dt"}, {*names("tr td th tbody thead tfoot")})
    for name in family
}
# End tags inside them do not end what is around them.
_BARRIERS = names("table object applet marquee template svg math select button")
_LOOK_UP = 32
_SPACE = r"[ \t\n\f\r]"
_ATTRIBUTE = (
    rf"[^ \t\n\f\r/>][^ \t\n\f\r/>=]*+(?>{_SPACE}*+=(?>{_SPACE}*+"
    r"""(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^ \t\n\f\r"'>][^ \t\n\f\r>]*+))?)?"""
)
_TOKEN = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|<(script|style|textarea|title|xmp|iframe|noembed|noframes)(?=[\s/>]).*?(?:</\1(?=[\s/>])|\Z)"
    rf"|<(/?)([a-z][^ \t\n\f\r/>]*+)((?>{_SPACE}++|/|{_ATTRIBUTE})*)(?:>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_FORMATTING = r"(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)"


def bound_markup(html: str) -> tuple[str, bool]:
    """The page with bounded markup, and whether the end was cut off because of its nesting."""
    if re.search("<(?:select|option|optgroup)", html, re.IGNORECASE):
        html = re.sub(r"(?i)<(/?)select(?=[\s/>])", r"<\1datalist", html)
        html = re.sub(r"(?i)<(/?)opt(?:ion|group)(?=[\s/>])", r"<\1p", html)
    formats = re.findall(rf"(?i)<{_FORMATTING}(?=[\s/>])[^>]*", html)
    if 3 * len(set(formats)) * html.count("<") > MAX_COPIES:
        html = re.sub(rf"(?i)<(/?){_FORMATTING}(?=[\s/>])", r"<\1span", html)
    stack: list[str] = []
    pieces: list[str] = []
    done = 0
    for token in _TOKEN.finditer(html):
        name = token[3]
        if name is None:
            continue
        name = name.lower()
        if token[2]:
            _close(stack, name)
            continue
        if len(token[4]) > 4 * MAX_ATTRIBUTES and _count_attributes(token[4]) > MAX_ATTRIBUTES:
            # What the attributes say can no longer be known, so it is not shown.
            pieces += (html[done : token.start()], f"<{name} hidden>")
            done = token.end()
        if name in _VOID:
            continue
        if family := _FAMILIES.get(name):
            _end_family(stack, family)
        stack.append(name)
        if len(stack) > MAX_NESTING:
            return "".join((*pieces, html[done : token.start()])), True
    return ("".join((*pieces, html[done:])) if pieces else html), False


def _count_attributes(text: str) -> int:
    return sum(1 for _ in re.finditer(_ATTRIBUTE, text))


def _close(stack: list[str], name: str) -> None:
    """Pop the element that an end tag ends, and what is in it."""
    for back in range(1, min(_LOOK_UP, len(stack)) + 1):
        other = stack[-back]
        if other == name:
            del stack[-back:]
            return
        if other in _BARRIERS or (other in BLOCKS and name not in BLOCKS):
            return


def _end_family(stack: list[str], family: set[str]) -> None:
    """Pop the element that the start of another of its family ends."""
    for back in range(1, min(_LOOK_UP, len(stack)) + 1):
        other = stack[-back]
        if other in family:
            del stack[-back:]
            return
        if other in BLOCKS or other in _BARRIERS:
            return
