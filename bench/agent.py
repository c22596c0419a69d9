"""An agent against a scripted service: start, the gap between answer and next request, memory."""

from __future__ import annotations

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bench import minimal_agent
from bench.figure import Figure
from clawkit.agent.system_prompt import PromptContext, build_prompt
from clawkit.testing import open_kit

CLAWKIT = os.path.join(os.path.dirname(sys.executable), "clawkit")
STARTS = 25
STEPS = 210
SLEEPS = 8
ROUNDS = 4
_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)


def _chunk(body: dict[str, Any]) -> bytes:
    data = b"data: " + json.dumps(body).encode() + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _reply(*calls: tuple[str, dict[str, Any]], text: str = "") -> bytes:
    """A whole streamed answer in the format of chat completions."""
    made = [
        {
            "index": number,
            "id": f"call_{time.monotonic_ns()}_{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for number, (name, arguments) in enumerate(calls)
    ]
    delta = {"role": "assistant", "tool_calls": made} if made else {"content": text}
    last = {"delta": {}, "index": 0, "finish_reason": "tool_calls" if made else "stop"}
    done = b"data: [DONE]\n\n"
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        + _chunk({"choices": [{"index": 0, "delta": delta}]})
        + _chunk({"choices": [last], "usage": {"prompt_tokens": 100, "completion_tokens": 5}})
        + f"{len(done):x}\r\n".encode()
        + done
        + b"\r\n0\r\n\r\n"
    )


class Service:
    """Answers from a list on one thread, and notes when requests come."""

    def __init__(self, replies: Iterator[bytes], before: Callable[[int], None] | None = None):
        self._replies = replies
        self._before = before
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self.came: list[float] = []
        self.sent: list[float] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with link:
                self._talk(link)

    def _talk(self, link: socket.socket) -> None:
        while first := link.recv(1 << 16):
            self.came.append(time.perf_counter())
            head, _, body = first.partition(b"\r\n\r\n")
            found = _LENGTH.search(head)
            left = int(found[1]) - len(body) if found else 0
            while left > 0 and (more := link.recv(1 << 20)):
                left -= len(more)
            if self._before:
                self._before(len(self.came))
            reply = next(self._replies)
            # Recorded before sending: the next request may arrive before this thread runs again.
            self.sent.append(time.perf_counter())
            link.sendall(reply)

    def gaps(self) -> list[float]:
        """Milliseconds from sending each answer to the start of the next request."""
        return [(came - sent) * 1e3 for sent, came in zip(self.sent, self.came[1:], strict=False)]

    def close(self) -> None:
        self._listener.close()


def configure(place: Path, service: Service, *, sandboxed: bool = False) -> None:
    home = place / "home"
    home.mkdir(exist_ok=True, mode=0o700)
    provider = {
        "baseUrl": service.url,
        "api": "openai-completions",
        "models": [{"id": "m", "name": "m", "contextWindow": 1_000_000}],
    }
    config: dict[str, Any] = {
        "models": {"providers": {"bench": provider}},
        "agents": {"defaults": {"model": "bench/m", "maxTurns": 1_000}},
        "tools": {"fs": {"lsp": {"enabled": False}}},
    }
    if not sandboxed:
        config["tools"]["exec"] = {"mode": "full"}
    (home / "clawkit.json5").write_text(json.dumps(config), encoding="utf-8")


def _start(
    place: Path, service: Service, *options: str, sandboxed: bool = False
) -> subprocess.Popen[bytes]:
    configure(place, service, sandboxed=sandboxed)
    return spawn(place, *options)


def spawn(place: Path, *options: str) -> subprocess.Popen[bytes]:
    """`clawkit agent`, with the existing configuration."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env["CLAWKIT_HOME"] = str(place / "home")
    argv = [CLAWKIT, "agent", "-m", "go", *options]
    work = place / "work"
    work.mkdir(exist_ok=True)
    (work / "small.txt").write_text("a small file\n" * 10, encoding="utf-8")
    quiet = subprocess.DEVNULL
    return subprocess.Popen(argv, cwd=work, env=env, stdin=quiet, stdout=quiet, stderr=quiet)


def _run(
    place: Path, replies: Iterator[bytes], before: Any = None, *, sandboxed: bool = False
) -> Service:
    service = Service(replies, before)
    process = _start(place, service, sandboxed=sandboxed)
    try:
        process.wait(300)
    finally:
        process.kill()
        service.close()
    return service


def _minimal(place: Path, service: Service) -> subprocess.Popen[bytes]:
    """The baseline of start and gaps: `bench/minimal_agent.py` with the same service."""
    argv = [sys.executable, str(Path(minimal_agent.__file__)), service.url]
    return subprocess.Popen(argv, cwd=place / "work", stdin=subprocess.DEVNULL)


def _run_minimal(place: Path, replies: Iterator[bytes]) -> Service:
    service = Service(replies)
    _minimal(place, service).wait(300)
    service.close()
    return service


def _start_up(place: Path) -> Figure:
    base: list[float] = []
    ours: list[float] = []
    # Warm-up run: puts files of both into the page cache, and creates the working directory.
    _run(place, iter([_reply(text="hello")]))
    for _ in range(STARTS):
        for times, start in ((base, _minimal), (ours, _start)):
            service = Service(iter([_reply(text="hello")]))
            began = time.perf_counter()
            start(place, service).wait(60)
            times.append(service.came[0] - began)
            service.close()
    note = f"{min(ours) * 1e3:.0f} ms against {min(base) * 1e3:.0f} ms"
    ratio = min(ours) / min(base)
    return Figure("start to first model request", ratio, "x a minimal agent", 3, note)


def _repeat(name: str, arguments: dict[str, Any], times: int) -> Iterator[bytes]:
    for _ in range(times):
        yield _reply((name, arguments))
    yield _reply(text="done")


def _gap_of_read(place: Path) -> Iterator[Figure]:
    """The best of some rounds each, as below."""
    read = ("read", {"path": "small.txt"}, STEPS)
    gaps, base = [], []
    for _ in range(ROUNDS):
        gaps.append(_run(place, _repeat(*read)).gaps())
        base.append(_low(_run_minimal(place, _repeat(*read)).gaps()[5:60]))
    ours, least = min(_low(each[5:60]) for each in gaps), min(base)
    note = f"{ours:.2f} ms against {least:.2f} ms"
    yield Figure("reply to next request, read", ours / least, "x a minimal agent", 3, note)
    early, late = (
        min(statistics.median(each[part]) for each in gaps)
        for part in (slice(5, 25), slice(190, 210))
    )
    note = f"early {early:.2f} ms, late {late:.2f} ms"
    yield Figure("the gap at the 200th call", late / early, "x that at the 10th", 1.5, note)


def _gap_of_exec(place: Path) -> Iterator[Figure]:
    """The best of some rounds each, because other load only adds to them."""
    base, gaps, first = [], [], []
    for _ in range(ROUNDS):
        base.append(_low(_run_minimal(place, _repeat("exec", {"command": "true"}, 45)).gaps()[5:]))
        seen = _run(place, _repeat("exec", {"command": "true"}, 45)).gaps()
        gaps.append(_low(seen[5:]))
        first.append(seen[0] - statistics.median(seen[5:]))
    took, least = min(gaps), min(base)
    note = f"{took:.2f} ms against {least:.2f} ms"
    yield Figure("reply to next request, exec true", took / least, "x a minimal agent", 2.2, note)
    yield Figure("the first command of a process", min(first), "ms more than later ones", 60)


def _gap_in_sandbox(place: Path) -> Figure:
    """The overhead of the default sandbox, from the best of some rounds each."""
    free: list[float] = []
    held: list[float] = []
    for _ in range(ROUNDS):
        for gaps, sandboxed in ((free, False), (held, True)):
            replies = _repeat("exec", {"command": "true"}, 45)
            gaps.append(_low(_run(place, replies, sandboxed=sandboxed).gaps()[5:]))
    note = f"{min(held):.2f} ms against {min(free):.2f} ms without"
    name = "exec true, default sandbox"
    return Figure(name, min(held) - min(free), "ms more", 2, note)


def _low(values: Iterable[float]) -> float:
    """The lower quartile."""
    return statistics.quantiles(values, n=4)[0]


def _memory(place: Path) -> Figure:
    sizes: list[int] = []
    process: list[subprocess.Popen[bytes]] = []

    def look(number: int) -> None:
        if number >= 50:
            sizes.append(_pss(process[0].pid))

    calls = [("read", {"path": "small.txt"}), ("exec", {"command": "true"})]

    def replies() -> Iterator[bytes]:
        for number in range(50):
            yield _reply(calls[number % 2])
        yield _reply(text="done")

    service = Service(replies(), look)
    process.append(_start(place, service))
    process[0].wait(120)
    service.close()
    return Figure("a turn of 50 calls, memory", max(sizes) / 1e6, "MB (PSS of the tree)", 50)


def _pss(pid: int) -> int:
    """Bytes of a process and its descendants, shared memory counted once."""
    total = 0
    todo = [pid]
    while todo:
        one = todo.pop()
        try:
            text = Path(f"/proc/{one}/smaps_rollup").read_text(encoding="ascii")
            for task in Path(f"/proc/{one}/task").iterdir():
                todo += map(int, (task / "children").read_text(encoding="ascii").split())
        except (FileNotFoundError, ProcessLookupError):
            continue
        found = re.search(r"^Pss: +([0-9]+)", text, re.M)
        total += int(found[1]) * 1024 if found else 0
    return total


def _side_by_side(place: Path) -> Figure:
    """The best of some rounds, as above; each is the first command of its process."""
    calls = [("exec", {"command": "sleep 0.3"})] * SLEEPS
    rounds = [_run(place, iter([_reply(*calls), _reply(text="done")])) for _ in range(ROUNDS)]
    took = min(service.gaps()[0] for service in rounds) / 1e3
    return Figure(f"{SLEEPS} calls of one message, each sleeps 0.3 s", took, "s", 0.5)


def _tokens() -> Figure:
    with tempfile.TemporaryDirectory() as place:
        kit = open_kit(place, config={"tools": {"profile": "coding"}})
        schemas = json.dumps(kit.schemas("anthropic"), separators=(",", ":"))
        prompt = build_prompt(kit.run.tools, PromptContext(place, model="anthropic/example"))
    note = f"schemas {len(schemas) // 4}, prompt {len(prompt) // 4}"
    tokens = (len(schemas) + len(prompt)) / 4
    return Figure("prompt and schemas, coding profile", tokens, "tokens", 6_000, note)


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as name:
        place = Path(name)
        yield _start_up(place)
        yield from _gap_of_read(place)
        yield from _gap_of_exec(place)
        yield _gap_in_sandbox(place)
        yield _memory(place)
        yield _side_by_side(place)
    yield _tokens()
