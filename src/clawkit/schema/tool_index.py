"""Search over deferred tools, whose schemas the model does not get: BM25 in memory, and one line
per tool.

Names and descriptions are indexed, and parameters of our own tools. Schemas of third-party tools
(plugins and servers) are not, and their descriptions only up to a limit, so that they cannot match
every query.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from clawkit.core.catalog import canonical
from clawkit.core.tool import CALLER, CORE, Tool
from clawkit.external import defuse
from clawkit.text import one_line

MAX_INDEXED = 400
"""Indexed characters of a third-party description."""
_SUMMARY, _SIGNATURE = 160, 240
_NAME_WEIGHT = 3  # a word of the name counts as often as this in the description
_K1, _B = 1.2, 0.75
_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+"


def is_stranger(source: str) -> bool:
    return source not in (CORE, CALLER)


class ToolIndex(Struct, frozen=True, dict=True):
    """The deferred tools of a run."""

    tools: Mapping[str, Tool]
    """All tools of the run, by canonical name."""
    deferred: tuple[str, ...] = ()
    """The searchable tools: canonical names, in alphabetical order."""
    sources: Mapping[str, str] = {}
    refused: Mapping[str, str] = {}
    """Reasons why policy removed tools."""

    def search(self, query: str, limit: int) -> list[str]:
        """The best matches, an exact name first."""
        scores: dict[str, float] = {}
        for word in set(_words(query)):
            for name, weight in self._weights.get(word, {}).items():
                scores[name] = scores.get(name, 0.0) + weight
        best = sorted(scores, key=lambda name: (-scores[name], name))
        exact = canonical(query)
        if exact in self.deferred:
            best = [exact, *(name for name in best if name != exact)]
        return best[:limit]

    def line(self, name: str) -> str:
        """Name, parameters and description in one line."""
        tool, source = self.tools[name], self.sources[name]
        origin = f" [{source}]" if is_stranger(source) else ""
        return f"{signature(tool)}{origin}: {summarize(tool, _SUMMARY)}"

    @cached_property
    def _weights(self) -> dict[str, dict[str, float]]:
        """Word -> tool -> weight of the word for that tool (BM25)."""
        counts = {name: Counter(self._indexed(name)) for name in self.deferred}
        mean = sum(map(Counter.total, counts.values())) / max(1, len(counts))
        weights: dict[str, dict[str, float]] = {}
        for name, words in counts.items():
            drag = _K1 * (1 - _B + _B * words.total() / mean) if mean else _K1
            for word, count in words.items():
                weights.setdefault(word, {})[name] = count * (_K1 + 1) / (count + drag)
        for found in weights.values():
            rarity = math.log(1 + (len(counts) - len(found) + 0.5) / (len(found) + 0.5))
            for name in found:
                found[name] *= rarity
        return weights

    def _indexed(self, name: str) -> Iterator[str]:
        tool = self.tools[name]
        for _ in range(_NAME_WEIGHT):
            yield from _words(tool.name)
        if is_stranger(self.sources[name]):
            yield from _words(tool.description[:MAX_INDEXED])
        else:
            yield from _words(" ".join((tool.description, *tool.properties)))


def _words(text: str) -> Iterator[str]:
    """Words in lower case, names split at `_` and capitals, without the plural's s."""
    for word in re.findall(_WORD, text):
        yield word.lower().removesuffix("s") if len(word) > 3 else word.lower()


def summarize(tool: Tool, max_chars: int) -> str:
    return one_line(defuse(tool.description), max_chars)


def signature(tool: Tool) -> str:
    """`name(path: string, limit?: integer)`. Only identifiers are taken from a schema."""
    required = tool.schema.get("required") or ()
    parts = [
        f"{name}{'' if name in required else '?'}: {_type_of(part)}"
        for name, part in tool.properties.items()
        if name not in tool.hidden and re.fullmatch(r"[\w.$-]{1,40}", name)
    ]
    return f"{tool.name}({one_line(', '.join(parts), _SIGNATURE)})"


def _type_of(part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return kind if isinstance(kind, str) and kind.isalpha() and len(kind) < 10 else "any"
