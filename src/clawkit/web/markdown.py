"""Writes a page as Markdown, or as plain text."""

from __future__ import annotations

import re

from clawkit.web.dom import Element, names

_BLOCKS = names(
    "address article aside blockquote body center dd details dir div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr legend li main menu nav noscript ol "
    "optgroup p pre search section summary table tbody td tfoot th thead tr ul xmp listing "
    "plaintext caption"
)


def write_markdown(root: Element, *, base_url: str = "", plain: bool = False) -> str:
    out: list[str] = []

    def walk(element: Element) -> None:
        for child in element.children:
            if isinstance(child, str):
                out.append(child)
            elif child.tag == "br":
                out.append("\n")
            elif child.tag in _BLOCKS:
                out.append("\n\n")
                walk(child)
                out.append("\n\n")
            else:
                walk(child)

    walk(root)
    text = re.sub(r"[ \t]*\n[ \t]*", "\n", "".join(out))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+", " ", text)).strip()
