"""How long it takes to decide about a command, and the worst that one can do to that."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from bench.figure import Figure
from clawkit.approvals.file import add_entry
from clawkit.approvals.judge import Judge
from clawkit.approvals.path_rules import PathRules
from clawkit.approvals.protocols import ExecRequest
from clawkit.approvals.types import AllowlistEntry
from clawkit.config.sections.tools import SAFE_BINS, Exec

EVERYDAY = (
    "ls",
    "ls -la src",
    "pwd",
    "cat README.md",
    "git status",
    "git diff --stat HEAD~1",
    'git commit -m "Say what was done"',
    "git log --oneline -n 20 | head -5",
    "grep -rn 'def main' src",
    "find . -name '*.py' -newer setup.cfg",
    "python3 -m pytest -q tests",
    "make test 2>&1 | tail -40",
    "cd src && ls *.py",
    "wc -l src/*.py | sort -n | tail",
    "mkdir -p build && cp a.txt build/",
    "test -f a.txt && echo yes || echo no",
    "for f in a b c; do echo $f; done",
    "head -n 20 a.txt; tail -n 20 b.txt",
    "timeout 60 python3 script.py --verbose",
    "bash -c 'cd src && make'",
    "sed -n '1,40p' src/main.py",
    "LC_ALL=C sort a.txt | uniq -c | sort -rn > counts.txt",
    "cat > notes.txt <<'EOF'\nfirst\nsecond\nEOF",
    "npm run build",
    "docker ps --format '{{.Names}}'",
    "rg -n TODO --glob '!vendor'",
    "curl -s https://example.com/ | jq '.items[] | .name'",
    "rm -rf build",
)
PROGRAMS = (
    *("ls", "cat", "git", "grep", "find", "python3", "make", "wc", "mkdir", "cp", "head", "tail"),
    *("sed", "sort", "uniq", "npm", "docker", "rg", "curl", "jq", "rm"),
)
PATTERNS = ("~/bin/*", "/opt/**", "/srv/tools/*/bin/run-?")
PATH = "/usr/local/bin:/usr/bin:/bin"
ROUNDS = 200
SIZE = 64 * 1024
WORST_ROUNDS = 5


def _worst() -> dict[str, str]:
    """Commands as long as they are looked at, each hard in its own way."""

    def fill(piece: str, start: str = "", end: str = "") -> str:
        return start + piece * ((SIZE - len(start) - len(end)) // len(piece)) + end

    deep = SIZE // 8
    return {
        "segments": "; ".join(["ls"] * 10_000),
        "segments by &&": fill("a&&", end="a"),
        "pipes": fill("a|", end="a"),
        "different programs": ";".join(f"p{number}" for number in range(9_000)),
        "different paths": ";".join(f"./p{number}" for number in range(7_000)),
        "quotes": "echo " + "''" * 30_000,
        "quoted words": fill("'a' ", "echo "),
        "double quotes": fill('"a"', "echo "),
        "escapes": fill("\\a", "echo "),
        "parentheses": "(" * deep + "a" + ")" * deep,
        "braces around": "{ " * deep + "a" + ";}" * deep,
        "ifs": "if " * deep + "a",
        "shells in shells": fill("sh -c '", end="ls"),
        "one word": fill("a", "echo "),
        "one word beyond ASCII": "echo " + "é" * (SIZE // 2 - 3),
        "words": fill("a ", "echo "),
        "patterns": fill("*", "echo "),
        "patterns apart": fill("* ", "echo "),
        "brackets": fill("[", "echo "),
        "sets": fill("[a]", "echo "),
        "braces": fill("{a,b}", "echo "),
        "braces apart": fill("{a,b} ", "echo "),
        "braces open": fill("{", "echo "),
        "choices": "echo {" + "a," * (SIZE // 2 - 8) + "a}",
        "loops": "for i in " + "a " * 1_000 + "; do " + "echo $i; " * 1_000 + "done",
        "loops in loops": "".join(f"for v{n} in a b c d e f; do " for n in range(12))
        + "echo"
        + "; done" * 12,
        "here-documents": fill("cat <<'E'\nE\n"),
        "a here-document": fill("E \n", "cat <<'E'\n", "E\n"),
        "lines of tabs": fill("\t\n", "cat <<-'E'\n", "\tE\n"),
        "redirections": fill(">a", "echo "),
        "different files": "echo " + "".join(f">f{number} " for number in range(7_000)),
        "assignments": fill("A=1 ", end="ls"),
        "exports": fill("A=1 ", "export "),
        "blanks": fill(" ", end="ls"),
        "comments": fill("#\n", end="ls"),
        "continued lines": fill("\\\n", end="ls"),
        "wrappers": fill("env ", end="ls"),
        "options": fill("-v ", "timeout ", "5 ls"),
        "directories": fill("cd a;", end="ls"),
        "dots": fill("../", "cat ", "a"),
        "dots to a program": fill("../", end="ls"),
        "a text for a shell": "bash -c '" + fill("a;")[: SIZE - 16] + "'",
        "a pattern for jq": fill("[", "jq '", "'"),
        "a pattern for grep": fill("(a+)+", "grep -E '", "' a"),
        "an sed program": fill("s/a/b/;", "sed '", "' a"),
        "a python program": fill("x=1;", "python3 -c '", "'"),
        "dashes": fill("-", "ls "),
        "tildes": fill("~ ", "ls "),
        "variables": fill("$a", "ls "),
        "nothing closed": fill("'\"", "ls "),
    }


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as name:
        place = Path(name)
        (place / "src").mkdir()
        env = {"PATH": PATH, "HOME": name, "LANG": "C.UTF-8"}
        judge = _make_judge(place)
        median, late, note = _everyday(judge, name, env)
        yield Figure("verdict, median", median * 1e6, "us", 300, note)
        yield Figure("verdict, 99 of 100 within", late * 1e3, "ms", 1)
        # With nothing listed, most of them are questions, with everything that could be answered.
        median, late, note = _everyday(replace(judge, only_more=True), name, env)
        yield Figure("verdict and what to ask, median", median * 1e3, "ms", 1, note)
        yield from _worst_cases(judge, name, env)


def _make_judge(place: Path) -> Judge:
    document = str(place / "exec-approvals.json")
    found = [path for name in PROGRAMS if (path := shutil.which(name, path=PATH))]
    for pattern in (*found, *PATTERNS):
        add_entry(document, "main", AllowlistEntry(pattern))
    places = PathRules(str(place))
    return Judge(
        Exec(security="allowlist", ask="on-miss", safe_bins=list(SAFE_BINS)),
        document,
        may_read=places.may_read,
        may_write=places.may_write,
    )


def _timed(judge: Judge, request: ExecRequest) -> float:
    """Seconds of the processor: nothing in it waits, so what else the machine does is left out."""
    start = time.thread_time()
    judge.judge(request)
    return time.thread_time() - start


def _everyday(judge: Judge, cwd: str, env: dict[str, str]) -> tuple[float, float, str]:
    """The median, what almost all are within, and which one takes longest."""
    requests = [ExecRequest(command, cwd, env) for command in EVERYDAY]
    # Everything is imported now, and tables are made.
    allowed = sum(judge.judge(request).verdict == "allow" for request in requests)
    # Interleaved, so that whatever else the machine does falls on all of them alike.
    times: list[list[float]] = [[] for _ in requests]
    for _ in range(ROUNDS):
        for each, request in zip(times, requests, strict=True):
            each.append(_timed(judge, request))
    slowest = max(range(len(times)), key=lambda index: statistics.median(times[index]))
    together = sorted(value for each in times for value in each)
    usual = statistics.median(times[slowest]) * 1e6
    note = f"{allowed} of {len(requests)} allowed; {EVERYDAY[slowest]!r:.40} takes {usual:.0f} us"
    return statistics.median(together), together[len(together) * 99 // 100], note


def _worst_cases(judge: Judge, cwd: str, env: dict[str, str]) -> Iterator[Figure]:
    """The slowest of them, and all that are too slow."""
    figures = []
    for name, command in _worst().items():
        request = ExecRequest(command, cwd, env)
        spent = min(_timed(judge, request) for _ in range(WORST_ROUNDS))
        doubt = judge.judge(request).doubt
        note = f"{len(command.encode()) / 1024:.0f} KiB, {doubt.reason if doubt else 'understood'}"
        figures.append(Figure(f"verdict, {name}", spent * 1e3, "ms", 100, note[:60]))
    figures.sort(key=lambda each: each.value, reverse=True)
    yield from (each for number, each in enumerate(figures) if number < 3 or each.over)
    rest = statistics.median(each.value for each in figures)
    yield Figure(f"verdict, {len(figures)} hard commands, median", rest, "ms", 100)
