"""Writes a page as Markdown, or as plain text.

Text of the page cannot pass for structure: starts of headings, lists, quotes and fences are
escaped, and so are tags and links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urljoin, urlsplit

from clawkit.web.dom import BLOCKS, Element

MAX_URL = 1_000
MAX_ALT = 120
MAX_COLSPAN = 6
MAX_LINK_CHARS = 500_000
"""Maximum characters of all URLs in a page; a short relative link may become a long one."""
MAX_INDENTS = 8
"""Nested lists and quotes; deeper ones are not indented further."""
MAX_REWRITES = 8
"""Average number of times that enclosing elements may rewrite the text."""

_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_PREFORMATTED = ("pre", "listing", "xmp", "plaintext")
_CODE = ("code", "kbd", "samp", "tt")
_CELLS = ("td", "th")
# Texts of permalinks next to headings.
_ANCHORS = ("¶", "#", "§", "🔗")
_BREAK = "\x00"
# At the start of a line: headings, quotes, list items, fences, rules and underlined headings.
_LINE_START = re.compile(
    r"^(?=#{1,6}(?:\s|$)|>|[-+*](?:\s|$)|`{3}|~{3}|([-=_*])(?>(?:[ \t]*+\1)*)[ \t]*$)"
    r"|^(\d{1,9})(?=[.)](?:\s|$))",
    re.MULTILINE,
)
_INLINE = re.compile(r"<(?=[a-zA-Z/!?])|\](?=[(\[:])|\\(?=[!-/:-@\[-`{-~])")


def write_markdown(root: Element, *, base_url: str = "", plain: bool = False) -> str:
    """The text of an element, as Markdown or without any markup. Links are absolute."""
    writer = _Writer(base_url, plain, MAX_REWRITES * (root.size + MAX_LINK_CHARS))
    return _join(writer.blocks(root.children, 0)).strip("\n")


def join_url(base: str, target: str) -> str:
    """The absolute address of a link; empty if it is not one for the web or for mail."""
    try:
        url = urljoin(base, re.sub(r"[\x00-\x20\x7f]+", "", target[: MAX_URL + 1]))
        is_usable = urlsplit(url).scheme in ("http", "https", "mailto")
    except ValueError:
        return ""
    return url if is_usable and len(url) <= MAX_URL else ""


class _Writer:
    def __init__(self, base_url: str, plain: bool, rewrites: int) -> None:
        self._base_url = base_url
        self._plain = plain
        self._rewrites = rewrites
        """Remaining characters that may be rewritten."""
        self._link_chars = 0

    def blocks(self, children: Iterable[Element | str], indents: int) -> list[str]:
        """The blocks in some nodes; neighbouring inline nodes are one paragraph."""
        found: list[str] = []
        run: list[Element | str] = []

        def end_paragraph() -> None:
            if run and (text := self._paragraph(run)):
                found.append(text)
            run.clear()

        for child in children:
            if isinstance(child, str) or not _has_blocks(child):
                run.append(child)
            else:
                end_paragraph()
                found += self._block(child, indents)
        end_paragraph()
        return found

    def _block(self, element: Element, indents: int) -> list[str]:
        tag = element.tag
        if tag in _HEADINGS:
            text = self._one_line(_join(self.blocks(element.children, indents)))
            return [text if self._plain else f"{_HEADINGS[tag]} {text}"] if text else []
        if tag in _PREFORMATTED:
            text = _text_of(element).strip("\n")
            return [self._code_block(element, text)] if text.strip() else []
        if tag in ("ul", "ol", "menu", "dir"):
            return self._list(element, indents)
        if tag == "blockquote":
            inner = _join(self.blocks(element.children, indents + 1))
            return [self._item(">", inner) if indents < MAX_INDENTS else inner] if inner else []
        if tag == "table":
            return self._table(element, indents)
        if tag == "hr":
            return [] if self._plain else ["---"]
        if tag == "dd" and indents < MAX_INDENTS:
            inner = _join(self.blocks(element.children, indents + 1))
            return [self._item(":", inner)] if inner else []
        return self.blocks(element.children, indents)

    def _paragraph(self, nodes: Sequence[Element | str]) -> str:
        lines = (" ".join(line.split()) for line in self._inline(nodes).split(_BREAK))
        text = "\n".join(filter(None, lines))
        return text if self._plain else _LINE_START.sub(_escape_start, text)

    def _inline(self, nodes: Iterable[Element | str]) -> str:
        return "".join(
            self._escape(node) if isinstance(node, str) else self._inline_element(node)
            for node in nodes
        )

    def _inline_element(self, element: Element) -> str:
        tag = element.tag
        if tag == "br":
            return _BREAK
        if tag == "img":
            return self._image(element)
        if tag in _CODE:
            return self._code(" ".join(_text_of(element).split()))
        text = self._inline(element.children)
        if tag == "a" and text.strip(" \x00"):
            href = element.attrs.get("href", "")
            is_anchor = text.strip() in _ANCHORS and href.startswith("#")
            return "" if is_anchor else self._link(text, href)
        return text

    def _link(self, text: str, href: str) -> str:
        url = "" if self._plain else self._url(href)
        words = self._one_line(text.replace(_BREAK, " "))
        if not url or words.startswith("!["):
            return text
        before, after = " " * text[0].isspace(), " " * text[-1].isspace()
        return f"{before}[{words}]({url}){after}"

    def _image(self, element: Element) -> str:
        alt = " ".join(element.attrs.get("alt", "").split())[:MAX_ALT]
        url = self._url(element.attrs.get("src", "")) if alt and not self._plain else ""
        return f"![{self._escape(alt).replace(']', '')}]({url})" if url else ""

    def _url(self, target: str) -> str:
        """The absolute URL; empty for fragments, and after too many URLs."""
        if target.startswith("#") or self._link_chars > MAX_LINK_CHARS:
            return ""
        url = join_url(self._base_url, target)
        # Parsing cost includes the whole base, even if it is not part of the result.
        self._link_chars += len(url) + self._base_url.count("/")
        return url.replace("(", "%28").replace(")", "%29").replace("<", "%3C").replace(">", "%3E")

    def _list(self, element: Element, indents: int) -> list[str]:
        number = _number(element.attrs.get("start", ""), 1) if element.tag == "ol" else None
        items = []
        for child in element.children:
            if isinstance(child, str):
                if text := self._paragraph([child]):
                    items.append(text)
                continue
            inner = self.blocks([child] if child.tag != "li" else child.children, indents + 1)
            if not inner:
                continue
            # An item is one paragraph in most lists; only others need empty lines.
            text = "\n".join(inner) if len(inner) < 3 and "```" not in inner[-1] else _join(inner)
            if child.tag != "li" or indents >= MAX_INDENTS:
                items.append(text)
                continue
            items.append(self._item("-" if number is None else f"{number}.", text))
            number = None if number is None else number + 1
        return ["\n".join(items)] if items else []

    def _table(self, element: Element, indents: int) -> list[str]:
        rows = [[each for each in row if each.tag in _CELLS] for row in _rows(element)]
        rows = [row for row in rows if row]
        if (
            any(_is_layout(cell) for row in rows for cell in row)
            or max(map(len, rows), default=0) < 2
        ):
            return self.blocks(element.children, indents)
        found = []
        for child in element.children:
            if isinstance(child, Element) and child.tag == "caption":
                found += self.blocks(child.children, indents)
        lines = []
        for row in rows:
            cells = []
            for cell in row:
                text = " ".join(self._inline(cell.children).replace(_BREAK, " ").split())
                cells.append(text)
                span = _number(cell.attrs.get("colspan", ""), 1)
                cells += [""] * (min(span, MAX_COLSPAN) - 1)
            lines.append(cells)
        if any(cell for cells in lines for cell in cells):
            found.append(self._grid(lines))
        return found

    def _escape(self, text: str) -> str:
        return text if self._plain else _INLINE.sub(lambda found: f"\\{found[0]}", text)

    def _code_block(self, element: Element, text: str) -> str:
        fence = "`" * max(3, _longest_run(text) + 1)
        return text if self._plain else f"{fence}{_language(element)}\n{text}\n{fence}"

    def _code(self, text: str) -> str:
        if self._plain or not text:
            return text
        fence = "`" * (_longest_run(text) + 1)
        pad = " " if text[0] == "`" or text[-1] == "`" else ""
        return f"{fence}{pad}{text}{pad}{fence}"

    def _item(self, mark: str, inner: str) -> str:
        if self._plain:
            return inner if mark in "-:>" else f"{mark} {inner}"
        if self._may_change(inner):
            start = "\n> " if mark == ">" else "\n" + " " * (len(mark) + 1)
            blank, bare = f"{start}\n", f"{start.rstrip(' ')}\n"
            # Twice, because consecutive blank lines share a line break.
            inner = inner.replace("\n", start).replace(blank, bare).replace(blank, bare)
        return f"{mark} {inner}"

    def _one_line(self, text: str) -> str:
        return " ".join(text.split()) if self._may_change(text) else text

    def _may_change(self, text: str) -> bool:
        self._rewrites -= len(text)
        return self._rewrites > 0

    def _grid(self, rows: list[list[str]]) -> str:
        if self._plain:
            return "\n".join("\t".join(cells).rstrip() for cells in rows)
        width = max(map(len, rows))
        rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        head = rows[0] + [""] * (width - len(rows[0]))
        lines = [head, ["---"] * width, *rows[1:]]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _has_blocks(element: Element) -> bool:
    """Whether an element is a block, or is inline and has blocks in it."""
    if element.tag in BLOCKS:
        return True
    if element.has_blocks is None:
        element.has_blocks = any(
            _has_blocks(child) for child in element.children if isinstance(child, Element)
        )
    return element.has_blocks


def _rows(table: Element) -> Iterable[list[Element]]:
    """The children of each row of a table, without those of tables in it."""
    for child in table.children:
        if isinstance(child, Element):
            if child.tag == "tr":
                yield [each for each in child.children if isinstance(each, Element)]
            elif child.tag in ("tbody", "thead", "tfoot"):
                yield from _rows(child)


def _is_layout(cell: Element) -> bool:
    """Whether a cell contains elements that a Markdown table cannot contain."""
    return any(
        each.tag in ("table", "ul", "ol", "pre", "blockquote", "h1", "h2", "h3", "dl")
        or (each.tag in ("p", "div") and each.size > 400)
        for each in cell.walk()
        if each is not cell
    )


def _text_of(element: Element) -> str:
    """All text unchanged, for code."""
    parts: list[str] = []
    stack: list[Element | str] = [element]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            parts.append(node)
            continue
        if node.tag == "br" or (node.tag in ("div", "p", "li", "tr") and parts):
            parts.append("\n")
        stack += reversed(node.children)
    return "".join(parts)


def _language(element: Element) -> str:
    code = [each for each in element.children if isinstance(each, Element) and each.tag == "code"]
    above = element.parent
    for each in (*code, element, *([above] if above else [])):
        if found := re.search(r"(?:language|lang|highlight-source)-([\w+#.-]{1,20})", each.label):
            return found[1]
    return ""


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) <= 6 else default


def _escape_start(match: re.Match[str]) -> str:
    return f"{match[2]}\\" if match[2] else "\\"


def _join(blocks: Iterable[str]) -> str:
    return "\n\n".join(blocks)
