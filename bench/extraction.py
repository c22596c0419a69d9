"""How well the content of pages is found: the words of WCXB's pages, against two other extractors.

The data is public (https://github.com/Murrough-Foley/web-content-extraction-benchmark), and not
part of the repository; `CLAWKIT_BENCH_WCXB` names its directory. Only the part `dev` may be used to
tune the extractor.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from bench.figure import Figure
from clawkit.web.extract import extract_page

VARIABLE = "CLAWKIT_BENCH_WCXB"
MIN_F1 = 0.87
_NODE_MODULES = Path(sys.prefix) / "bench-npm" / "node_modules"


class Sample(NamedTuple):
    kind: str
    url: str
    html: str
    words: Counter[str]
    """Of the content, as people marked it."""


def measure() -> Iterator[Figure]:
    place = os.environ.get(VARIABLE)
    if not place:
        yield Figure("extraction", 0, "not measured", 0, f"{VARIABLE} names no directory")
        return
    for part in ("dev", "test"):
        yield from _measure_part(part, list(_read(Path(place) / part)))


def _measure_part(part: str, samples: list[Sample]) -> Iterator[Figure]:
    times: list[float] = []

    def ours(sample: Sample) -> str:
        start = time.process_time()
        text = extract_page(sample.html, base_url=sample.url, mode="text").text
        times.append(time.process_time() - start)
        return text

    scores = {
        "clawkit": _score(samples, ours),
        "trafilatura": _score(samples, _trafilatura),
        "Readability.js": _score(samples, _Readability()),
    }
    kinds = sorted({sample.kind for sample in samples})
    for name, values in scores.items():
        by_kind = {
            kind: fmean(v for s, v in zip(samples, values, strict=True) if s.kind == kind)
            for kind in kinds
        }
        note = " ".join(f"{kind} {value:.3f}" for kind, value in by_kind.items())
        # A figure must not be over its limit, so this is what is missing.
        lost = 1 - fmean(values)
        limit = 1 - MIN_F1 if name == "clawkit" and part == "test" else 1
        yield Figure(f"{part}: {name}", lost, "1 - F1 of words", limit, note)
    best = max(fmean(values) for name, values in scores.items() if name != "clawkit")
    behind = best - fmean(scores["clawkit"])
    yield Figure(f"{part}: behind the best other", behind, "F1 of words", 0)
    times.sort()
    note = f"99 %: {times[len(times) * 99 // 100] * 1e3:.0f} ms"
    yield Figure(f"{part}: CPU per page", median(times) * 1e3, "ms, median", 30, note)


def _read(folder: Path) -> Iterator[Sample]:
    for file in sorted((folder / "ground-truth").glob("*.json")):
        data = json.loads(file.read_text())
        kind = (data.get("_internal") or {}).get("page_type", {})
        kind = kind.get("primary", "article") if isinstance(kind, dict) else kind
        with gzip.open(folder / "html" / f"{file.stem}.html.gz", "rt", encoding="utf-8") as page:
            html = page.read()
        words = _words(data["ground_truth"].get("main_content") or "")
        kind = "collection" if kind == "category" else kind
        yield Sample(kind, data.get("url") or "", html, words)


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))


def _score(samples: list[Sample], extract: Callable[[Sample], str]) -> list[float]:
    return [_f1(_words(extract(sample)), sample.words) for sample in samples]


def _f1(found: Counter[str], wanted: Counter[str]) -> float:
    if not found or not wanted:
        return float(not found and not wanted)
    return 2 * (found & wanted).total() / (found.total() + wanted.total())


def _trafilatura(sample: Sample) -> str:
    from trafilatura import extract

    return extract(sample.html, url=sample.url or None) or ""


class _Readability:
    """Readability.js, in one process for all pages."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", str(Path(__file__).with_name("readability.cjs"))],
            env={**os.environ, "NODE_PATH": str(_NODE_MODULES)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __call__(self, sample: Sample) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"html": sample.html}).encode() + b"\n")
        self._process.stdin.flush()
        return str(json.loads(self._process.stdout.readline())["text"])

    def __del__(self) -> None:
        self._process.kill()
        self._process.communicate()
