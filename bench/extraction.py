"""The quality of content extraction: words of WCXB's pages, against two other extractors.

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
from collections.abc import Iterator
from multiprocessing import Pool
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
    """Words of the content, as annotated by people."""


class Score(NamedTuple):
    """The results of the extractors for one page."""

    kind: str
    cpu_s: float
    """Of ours."""
    f1: dict[str, float]


def measure() -> Iterator[Figure]:
    place = os.environ.get(VARIABLE)
    if not place:
        yield Figure("extraction", 0, "not measured", 0, f"{VARIABLE} names no directory")
        return
    for part in ("dev", "test"):
        files = sorted((Path(place) / part / "ground-truth").glob("*.json"))
        # Two processes, one page in memory each.
        with Pool(2, _start) as pool:
            yield from _sum_up(part, list(pool.imap_unordered(_score, files, chunksize=16)))


def _sum_up(part: str, scores: list[Score]) -> Iterator[Figure]:
    means = {}
    for name in scores[0].f1:
        by_kind: dict[str, list[float]] = {}
        for score in scores:
            by_kind.setdefault(score.kind, []).append(score.f1[name])
        note = " ".join(f"{kind} {fmean(by_kind[kind]):.3f}" for kind in sorted(by_kind))
        means[name] = fmean(score.f1[name] for score in scores)
        # Figures have upper limits, so this is the missing part.
        limit = 1 - MIN_F1 if name == "clawkit" and part == "test" else 1
        yield Figure(f"{part}: {name}", 1 - means[name], "1 - F1 of words", limit, note)
    behind = max(means.values()) - means["clawkit"]
    yield Figure(f"{part}: behind the best other", behind, "F1 of words", 0)
    times = sorted(score.cpu_s for score in scores)
    note = f"99 %: {times[len(times) * 99 // 100] * 1e3:.0f} ms"
    yield Figure(f"{part}: CPU per page", median(times) * 1e3, "ms, median", 30, note)


_readability: _Readability
"""Of this process."""


def _start() -> None:
    global _readability
    _readability = _Readability()


def _score(file: Path) -> Score:
    sample = _read(file)
    start = time.process_time()
    ours = extract_page(sample.html, base_url=sample.url, mode="text").text
    cpu_s = time.process_time() - start
    found = {
        "clawkit": ours,
        "trafilatura": _trafilatura(sample),
        "Readability.js": _readability(sample),
    }
    f1 = {name: _f1(_words(text), sample.words) for name, text in found.items()}
    return Score(sample.kind, cpu_s, f1)


def _read(file: Path) -> Sample:
    data = json.loads(file.read_text())
    kind = (data.get("_internal") or {}).get("page_type", {})
    kind = kind.get("primary", "article") if isinstance(kind, dict) else kind
    page = file.parent.with_name("html") / f"{file.stem}.html.gz"
    html = gzip.decompress(page.read_bytes()).decode()
    words = _words(data["ground_truth"].get("main_content") or "")
    return Sample("collection" if kind == "category" else kind, data.get("url") or "", html, words)


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))


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
