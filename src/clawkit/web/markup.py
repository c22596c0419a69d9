"""Bounds what the markup of a page can cost before it is parsed.

The parser takes quadratic time for deep nesting, for many attributes in a tag and for many options,
and unclosed formatting elements multiply the tree. This takes linear time.
"""

from __future__ import annotations

import re

from clawkit.web.dom import BLOCKS, names

MAX_NESTING = 1_000
MAX_ATTRIBUTES = 256
MAX_ELEMENTS = 100_000
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
# They end a drawing that they are in.
_NOT_DRAWN = BLOCKS | names(
    "b big br code em embed font i img meta nobr ruby s small span strong strike sub sup tt u var"
)
_FOREIGN = {"svg", "math"}
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
    """The page with bounded markup, and whether the end was cut off because it is
    nested too deeply, or has too many elements."""
    if re.search("<(?:select|option|optgroup)", html, re.IGNORECASE):
        html = re.sub(r"(?i)<(/?)select(?=[\s/>])", r"<\1datalist", html)
        html = re.sub(r"(?i)<(/?)opt(?:ion|group)(?=[\s/>])", r"<\1p", html)
    formats = re.findall(rf"(?i)<{_FORMATTING}(?=[\s/>])[^>]*", html)
    if 3 * len(set(formats)) * html.count("<") > MAX_COPIES:
        html = re.sub(rf"(?i)<(/?){_FORMATTING}(?=[\s/>])", r"<\1span", html)
    stack: list[str] = []
    pieces: list[str] = []
    done = position = elements = 0
    while token := _TOKEN.search(html, position):
        position = token.end()
        raw, is_end, name, attributes = token.groups()
        if raw and not _FOREIGN.isdisjoint(stack[-_LOOK_UP:]):
            # In a drawing or a formula, these have elements in them.
            name, attributes = raw, ""
            position = token.start() + 1 + len(raw)
        if not name:
            continue
        name = name.lower()
        if is_end:
            _close(stack, name)
            continue
        if len(attributes) > 4 * MAX_ATTRIBUTES and _count_attributes(attributes) > MAX_ATTRIBUTES:
            # What the attributes say is not read, so the element might be hidden.
            pieces += (html[done : token.start()], f"<{name} aria-hidden=true>")
            done = position
        elements += 1
        if name not in _VOID:
            _open(stack, name, attributes)
        if len(stack) > MAX_NESTING or elements > MAX_ELEMENTS:
            return "".join((*pieces, html[done : token.start()])), True
    return ("".join((*pieces, html[done:])) if pieces else html), False


def _open(stack: list[str], name: str, attributes: str) -> None:
    """Push an element, after what its start ends."""
    if "svg" in stack[-_LOOK_UP:]:
        if name in _NOT_DRAWN:
            _close(stack, "svg")
        elif attributes.endswith("/"):
            return
    if family := _FAMILIES.get(name):
        _end_family(stack, family)
    stack.append(name)


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
