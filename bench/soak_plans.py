"""Random commands, each with its expected outcome."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "glade", "heron", "ivory")
_END_SIGNALS = ("SIGTERM", "SIGKILL")
_TEXT_MAX, _BINARY_MAX = 400_000, 3_000_000


class Plan(NamedTuple):
    """A command, and how it ends when nobody interferes."""

    text: str
    out: bytes = b""
    """All that it writes."""
    endless: bool = False
    """Whether it writes that again and again."""
    reason: str = "exit"
    code: int | None = 0
    signals: tuple[str, ...] = ()
    left: int = 0
    """Processes that it leaves running."""
    params: Mapping[str, Any] = {}
    is_text: bool = True
    can_break: bool = True
    """Whether it may be ended early."""


class Makers:
    """Builds commands from chance. What they write is a part of a file in the workspace."""

    def __init__(self, place: Path, seed: int) -> None:
        rng = random.Random(f"{seed}-source")
        lines: list[str] = []
        size = 0
        while size < 4_000_000:
            lines.append(f"{len(lines):07} " + " ".join(rng.choices(_WORDS, k=rng.randrange(16))))
            size += len(lines[-1]) + 1
        self.words = ("\n".join(lines) + "\n").encode()
        self.noise = rng.randbytes(4_000_000)
        (place / "words").write_bytes(self.words)
        (place / "noise").write_bytes(self.noise)

    def some(self, rng: random.Random, size: int, *, noise: bool = False) -> tuple[str, bytes]:
        """A command that writes so many bytes, and these."""
        source, name = (self.noise, "noise") if noise else (self.words, "words")
        start = rng.randrange(len(source) - size)
        if not noise and size:
            start = source.index(b"\n", start) + 1
        data = source[start : start + size]
        return f"tail -c +{start + 1} {name} | head -c {len(data)}", data

    def plain(self, rng: random.Random, mark: str) -> Plan:
        parts = [self.some(rng, rng.choice((0, 1, 79, 3_000, 20_000))) for _ in range(4)]
        texts = [text + rng.choice(("", " >&2")) for text, _ in parts]
        code = rng.choice((0, 0, 0, 1, 2, 3, 100, 125, 128, 137, 255))
        out = b"".join(data for _, data in parts)
        return Plan("; ".join((*texts, f"exit {code}")), out, code=code)

    def in_turns(self, rng: random.Random, mark: str) -> Plan:
        count = rng.randrange(1, 200)
        out = "".join(f"o{n} {mark}\ne{n}\n" for n in range(1, count + 1))
        text = f"for n in {{1..{count}}}; do echo o$n {mark}; echo e$n >&2; done"
        return Plan(text, out.encode())

    def edge(self, rng: random.Random, mark: str) -> Plan:
        """Just as much as memory or the reader's patience hold, and one byte more or less."""
        size = rng.choice((65_536, 98_500, 100_000, 262_144)) + rng.choice((-1, 0, 1))
        return Plan(*self.some(rng, size))

    def much(self, rng: random.Random, mark: str) -> Plan:
        noise = rng.random() < 0.6
        size = rng.randrange(100_001, _BINARY_MAX if noise else _TEXT_MAX)
        return Plan(*self.some(rng, size, noise=noise), is_text=not noise)

    def not_found(self, rng: random.Random, mark: str) -> Plan:
        if rng.random() < 0.3:
            return Plan("./words 2>/dev/null", reason="not-executable", code=126)
        return Plan(f"no-such-{mark} 2>/dev/null", reason="not-found", code=127)

    def by_signal(self, rng: random.Random, mark: str) -> Plan:
        name = rng.choice(("KILL", "TERM", "SEGV", "ABRT", "HUP", "USR1", "PIPE", "XCPU"))
        text, out = self.some(rng, 500)
        if rng.random() < 0.3:
            number = {"KILL": 137, "TERM": 143, "HUP": 129}.get(name)
            if number:
                text += f"; sh -c 'kill -{name} $$' 2>/dev/null; exit $?"
                return Plan(f"{{ {text}; }} 2>/dev/null", out, code=number)
        text += f"; kill -{name} $$; sleep 999.{mark}"
        return Plan(text, out, reason="signal", code=None, signals=(f"SIG{name}",))

    def hang(self, rng: random.Random, mark: str) -> Plan:
        text, out = self.some(rng, rng.choice((0, 300)))
        waits = rng.choice(
            (
                f"sleep 999.{mark}",
                f"sleep 999.{mark}; echo never",
                f"for n in 1 2 3; do sleep 999.{mark} & done; wait",
                f"(((sleep 999.{mark}; :); :); :)",
                f"setsid sleep 999.{mark} & sleep 998.{mark}",
                f"(setsid sleep 999.{mark} &); exec sleep 998.{mark}",
                f"kill -STOP $$; sleep 999.{mark}",
                f"sleep 999.{mark} & kill -STOP $! $$; wait",
                f"sleep 999.{mark} | cat",
                f"exec >&- 2>&-; sleep 999.{mark}",
            )
        )
        text = f"{text}; {waits}"
        if rng.random() < 0.7:
            params = {"timeout": rng.choice((0.3, 0.5, 1))}
            return self._ended(text, out, "overall-timeout", params)
        return self._ended(text, out, "no-output-timeout", {"noOutputTimeout": 0.5})

    @staticmethod
    def _ended(text: str, out: bytes, reason: str, params: Mapping[str, Any]) -> Plan:
        return Plan(text, out, reason=reason, code=None, signals=_END_SIGNALS, params=params)

    def stubborn(self, rng: random.Random, mark: str) -> Plan:
        text = f"trap '' TERM INT HUP; echo on; sleep 999.{mark}; sleep 998.{mark}"
        plan = self._ended(text, b"on\n", "overall-timeout", {"timeout": 0.3})
        return plan._replace(signals=("SIGKILL",))

    def endless(self, rng: random.Random, mark: str) -> Plan:
        if rng.random() < 0.03:
            plan = self._ended("cat /dev/zero", bytes(100), "overall-timeout", {"timeout": 0.2})
            return plan._replace(endless=True, is_text=False)
        text = f"while :; do echo {mark} {'x' * 50}; done"
        out = f"{mark} {'x' * 50}\n".encode()
        plan = self._ended(text, out, "overall-timeout", {"timeout": rng.choice((0.2, 0.5))})
        return plan._replace(endless=True)

    def daemons(self, rng: random.Random, mark: str) -> Plan:
        count = rng.randrange(1, 4)
        held = rng.choice(("", " >/dev/null 2>&1 </dev/null"))
        start = rng.choice(
            ("(setsid sleep 999.{}{} &)", "setsid sleep 999.{}{} &", "sleep 999.{}{} &")
        )
        text, out = self.some(rng, rng.choice((0, 500, 150_000)))
        starts = "\n".join([start.format(mark, held)] * count)
        code = rng.choice((0, 0, 4))
        return Plan(f"{starts}\n{text}; exit {code}", out, code=code, left=count, can_break=False)

    def nameless(self, rng: random.Random, mark: str) -> Plan:
        """The processes it leaves behind have neither its variables nor its session."""
        sleep = f"exec sleep 999.{mark} </dev/null >/dev/null 2>&1"
        # It has lost them when the shell goes on.
        text = f"said=$(setsid -f env -i /bin/bash -c 'echo on; {sleep}'); echo $said"
        return Plan(text, b"on\n", left=1, can_break=False)

    def closes_output(self, rng: random.Random, mark: str) -> Plan:
        text, out = self.some(rng, 300)
        code = rng.randrange(0, 125)
        text += f"; exec >&- 2>&-; sleep 0.{rng.randrange(1, 4)}; exit {code}"
        return Plan(text, out, code=code)

    def lively(self, rng: random.Random, mark: str) -> Plan:
        """Writes often enough not to be ended for its silence."""
        out = "".join(f"{n}\n" for n in range(1, 11))
        text = "for n in {1..10}; do echo $n; sleep 0.05; done"
        return Plan(text, out.encode(), params={"noOutputTimeout": 5})

    def in_terminal(self, rng: random.Random, mark: str) -> Plan:
        text, out = self.some(rng, rng.choice((0, 300, 20_000, 150_000)))
        columns, rows = rng.randrange(20, 300), rng.randrange(5, 100)
        code = rng.choice((0, 5))
        out = out.replace(b"\n", b"\r\n") + f"{rows} {columns}\r\n".encode()
        size = {"pty": True, "columns": columns, "rows": rows}
        return Plan(f"{text}; stty size; exit {code}", out, code=code, params=size)


def part_of(plan: Plan, size: int) -> bytes:
    """The first bytes of what a command writes."""
    out = plan.out * (size // len(plan.out) + 1) if plan.endless else plan.out
    return out[:size]


def text_of(data: bytes) -> str:
    return data.decode().replace("\r\n", "\n")
