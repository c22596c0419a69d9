"""Runs commands in a temporary sandbox and reports every program that was started."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench.shellproof_place import KEPT, Place, Scene

NEEDED = ("bash", "strace", "bwrap", "cc")
PATIENCE_S = 10.0
"""For one command, however busy the machine is."""
LONGEST_S = 3600

_NOBODY = 1 << 30


class Job(NamedTuple):
    """A command to be run."""

    text: str
    scene: Scene


@dataclass
class Start:
    """A program that was started, or that a process tried to start."""

    path: str
    argv: tuple[str, ...]
    env: dict[str, str]
    error: str = ""
    """Why it did not start, such as ENOENT."""
    cwd: str = ""
    """Where it runs, and what it reads from; empty when it did not tell."""
    stdin: str = ""


@dataclass
class Run:
    """What a command did."""

    status: int
    out: str
    changed: dict[str, str]
    """By path, the new content of what is not as it was."""
    late: bool
    starts: list[Start] = field(default_factory=list)


def missing() -> list[str]:
    """The programs that must be installed for tracing."""
    return [name for name in NEEDED if shutil.which(name) is None]


def run_all(
    place: Place, jobs: Sequence[Job], cpu: int | None = None, patience_s: float = PATIENCE_S
) -> list[Run]:
    """Run commands one after another in one sandbox. On one processor the tracer and what it
    traces need not wait for each other."""
    with tempfile.TemporaryDirectory(prefix="clawkit-trace-") as folder:
        log = Path(folder, "log")
        nobody = _NOBODY + os.getpid()
        setup = {"root": place.root, "tree": place.tree(), "kept": KEPT, "nobody": nobody}
        sent: list[dict[str, Any]] = [{**setup, "patience_s": patience_s}]
        sent += [{"text": each.text, "cwd": each.scene.cwd, "env": each.scene.env} for each in jobs]
        before = os.sched_getaffinity(0)
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        try:
            done = subprocess.run(
                [*_tracer(str(log)), *_sandbox(place), *_inside()],
                input="".join(json.dumps(each) + "\n" for each in sent),
                capture_output=True,
                encoding="ascii",
                errors="backslashreplace",
                timeout=LONGEST_S,
                check=False,
            )
        finally:
            os.sched_setaffinity(0, before)
        runs = [Run(**json.loads(line)) for line in done.stdout.splitlines()]
        if len(runs) != len(jobs):
            raise RuntimeError(f"the sandbox ended with {done.returncode}: {done.stderr[-2000:]}")
        for number, pid_start in _read(log):
            runs[number].starts.append(pid_start)
    return runs


def _tracer(log: str) -> list[str]:
    calls = "execve,execveat,readlink,readlinkat,getcwd"
    return [
        *("strace", "-f", "-qq", "--seccomp-bpf", "-v", "-xx", "-s", "200000"),
        *("-e", "signal=none", "-e", f"trace={calls}", "-o", log),
    ]


def _sandbox(place: Place) -> list[str]:
    """Starts a sandbox without network, in which the machine is read-only and mostly hidden."""
    root = place.root
    args = ["bwrap", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "proof"]
    args += [f"--unshare-{what}" for what in ("ipc", "pid", "net", "uts", "cgroup-try")]
    if os.geteuid() == 0:
        # Needed only to become the user nobody.
        args += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        args += ["--unshare-user"]
    for name in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache"):
        if os.path.islink(name):
            args += ["--symlink", os.readlink(name), name]
        elif os.path.exists(name):
            args += ["--ro-bind", name, name]
    args += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    for folder in ("/tmp", root):
        args += ["--perms", "0777", "--size", "67108864", "--tmpfs", folder]
    kept = [f"{root}/{name}" for name in KEPT]
    if not sys.base_prefix.startswith("/usr/"):
        kept.append(sys.base_prefix)
    for name in kept:
        args += ["--ro-bind", name, name]
    return [*args, "--chdir", root, "--remount-ro", "/", "--"]


def _inside() -> list[str]:
    """The program that runs the commands."""
    source = Path(__file__).with_name("shellproof_inside.py").read_text(encoding="utf-8")
    return [os.path.realpath(sys.executable), "-I", "-S", "-c", source]


_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_ERROR = re.compile(r"= (?:-1 |\?)(\w*)")
_END = "/mark/end"


def _read(log: Path) -> Iterator[tuple[int, Start]]:
    """Every start in a log, with the number of its command."""
    number = -1
    began: dict[str, str] = {}
    last: dict[str, Start] = {}
    with log.open(encoding="ascii") as lines:
        for line in lines:
            pid, _, text = line.rstrip("\n").partition(" ")
            text = text.lstrip()
            if text.endswith("<unfinished ...>"):
                began[pid] = text.removesuffix("<unfinished ...>")
                continue
            if text.startswith("<... "):
                text = began.pop(pid, "") + text.partition(" resumed>")[2]
            if text.startswith("execve"):
                if number >= 0:
                    start = _read_start(text)
                    if not start.error:
                        last[pid] = start
                    yield number, start
            elif text.startswith("readlink"):
                path, *target = _strings(text)
                if path.startswith("/mark/"):
                    number = -1 if path == _END else int(path.removeprefix("/mark/"))
                    last.clear()
                elif path == "/proc/self/fd/0" and target and pid in last:
                    last[pid].stdin = target[0]
            elif text.startswith("getcwd") and pid in last and (found := _strings(text)):
                last[pid].cwd = found[0]


def _read_start(text: str) -> Start:
    head, _, result = text.rpartition(") ")
    failed = _ERROR.search(result)
    path, _, rest = head.partition(", [")
    argv, _, env = rest.partition("], [")
    pairs = (each.partition("=") for each in _strings(env))
    return Start(
        _strings(path)[0],
        tuple(_strings(argv)),
        {name: value for name, _, value in pairs},
        failed[1] if failed else "",
    )


def _strings(text: str) -> list[str]:
    found = _STRING.findall(text)
    return [
        bytes.fromhex(each.replace("\\x", "")).decode("utf-8", "surrogateescape") for each in found
    ]
