"""A gateway that restarts itself, is killed, or cannot write: real processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asking import PROGRAM
from tests.gateway.test_command import clawkit, free_port, running
from tests.gateway.test_daemon import configure, home, wait_until

from clawkit.config.load import load
from clawkit.errors import ToolError
from clawkit.gateway.client import connect, find_target
from clawkit.gateway.process_record import read_record

pytestmark = pytest.mark.usefixtures("ready")


def call(method: str, **params: Any) -> Any:
    with connect(find_target(load())) as link:
        return link.call(method, params, 30)


def start_marks() -> int:
    """How often the gateway became ready."""
    log = home() / "logs" / "gateway.jsonl"
    return log.read_text(encoding="utf-8").count("the gateway is ready") if log.exists() else 0


def doctor() -> str:
    done = subprocess.run([*PROGRAM, "doctor"], capture_output=True, text=True, check=False)
    return done.stdout


def said(session: str = "main") -> list[str]:
    found = call("chat.history", sessionKey=session)
    return [each["content"] for each in found["messages"] if each["role"] == "user"]


def test_a_patch_restarts_the_process_in_place_and_delivers_the_note() -> None:
    port, other = free_port(), free_port()
    configure(f"{{ gateway: {{ port: {port} }} }}")
    with running() as process:
        base = call("config.get")["hash"]
        raw = json.dumps({"gateway": {"port": other}})
        given = {"raw": raw, "baseHash": base, "sessionKey": "main", "restartDelayMs": 0}
        done = call("config.patch", **given, note="list")
        assert done["sentinel"]["persisted"] is True
        wait_until(lambda: (found := read_record()) is not None and found.port == other)
        record = read_record()
        assert record is not None
        assert record.pid == process.pid
        assert start_marks() == 2
        wait_until(lambda: said() != [])
        assert said() == ["The gateway was restarted: config.patch changed gateway.port.\nlist"]
        # A change by another program is taken up, too, and what is left is reported.
        configure(f"{{ gateway: {{ port: {port} }} }}")
        wait_until(lambda: (found := read_record()) is not None and found.restart_needed)
        assert "Restart it to apply gateway.port" in clawkit("status").stdout
        assert call("health")["config"]["restartNeeded"] == ["gateway.port"]
        assert "does not use the changed gateway.port" in doctor()
        configure("{ gateway: { port: ")
        wait_until(lambda: (found := read_record()) is not None and found.config_problem)
        invalid = clawkit("status")
        assert invalid.returncode == 2
        assert "the last valid configuration" in invalid.stdout
        told = clawkit("status", "--json")
        shown = json.loads(told.stdout)
        assert (told.returncode, shown["running"], shown["pid"]) == (2, True, process.pid)
        assert shown["error"] == shown["configProblem"]
        assert "uses the last valid configuration" in doctor()
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


def test_a_signal_restarts_it_and_another_one_stops_it() -> None:
    with running("--port", "0") as process:
        before = read_record()
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: start_marks() == 2)
        wait_until(lambda: (found := read_record()) is not None and found.pid == process.pid)
        after = read_record()
        assert before is not None
        assert after is not None
        assert after.port == before.port
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
        assert start_marks() == 2


def test_a_full_disk_is_an_error_and_leaves_nothing_half_written() -> None:
    configure(f"{{ gateway: {{ port: {free_port()} }} }}")
    config = home() / "clawkit.json5"
    before = config.read_bytes()
    with running() as process:
        call("agent", message="list", idempotencyKey="first")
        base = call("config.get")["hash"]
        limits = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (8, limits[1]))
        given = {"sessionKey": "main", "message": "list", "idempotencyKey": "second"}
        with pytest.raises(ToolError, match=r"runs\.sqlite"):
            call("chat.send", **given)
        patch = {"raw": "{tools: {deny: ['write']}}", "baseHash": base}
        with pytest.raises(ToolError, match=r"clawkit\.json5"):
            call("config.patch", **patch)
        assert config.read_bytes() == before
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
        assert call("chat.send", **given)["status"] == "started"
        assert call("agent.wait", runId="second")["status"] == "ok"
        assert said() == ["list", "list"]
        call("config.patch", **patch)
        assert [each.name for each in Path(home()).glob("*.tmp*")] == []


def test_a_killed_gateway_goes_on_where_it_was() -> None:
    configure(f"{{ gateway: {{ port: {free_port()} }} }}")
    fifo = home() / "fifo"
    os.mkfifo(fifo)
    with running() as process:
        given = {"sessionKey": "main", "message": f"run cat {fifo}", "idempotencyKey": "k"}
        assert call("chat.send", **given)["status"] == "started"
        process.kill()
        process.wait()
    with running():
        fifo.unlink()
        assert call("chat.send", **given)["status"] in ("in_flight", "ok")
        assert call("agent.wait", runId="k")["status"] == "ok"
        assert [each for each in said() if each.startswith("run cat")] == [f"run cat {fifo}"]
