"""`clawkit gateway start`, `stop`, `restart` and `status`: real processes in a scratch home."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asking import PROGRAM
from tests.gateway.test_command import BASE, clawkit, free_port, running

from clawkit.cli.gateway_status import explain_reach
from clawkit.gateway.daemon import run_argv
from clawkit.gateway.process_record import RunningGateway, look, record_file
from clawkit.process import process_table

pytestmark = pytest.mark.usefixtures("ready")


def home() -> Path:
    return Path(os.environ["CLAWKIT_HOME"])


def configure(text: str) -> None:
    path = home() / "clawkit.json5"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)


def gateways() -> list[int]:
    """The processes that run a gateway of this home."""
    own = f"CLAWKIT_HOME={home()}".encode()
    found = []
    for each in process_table.table().values():
        try:
            argv = process_table.read_small(f"/proc/{each.pid}/cmdline").split(b"\0")
            env = process_table.read_small(f"/proc/{each.pid}/environ").split(b"\0")
        except OSError:
            continue
        if b"gateway" in argv and b"run" in argv and own in env and not each.exited:
            found.append(each.pid)
    return found


def wait_until(is_so: Callable[[], object], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    yield
    for pid in gateways():
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def port() -> int:
    number = free_port()
    configure(f"{{ gateway: {{ port: {number} }} }}")
    return number


def start(*args: str) -> dict[str, Any]:
    done = clawkit("start", "--json", *args)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_start_restart_and_stop(port: int) -> None:
    begun = start()
    assert begun["started"] is True
    assert begun["url"] == f"ws://127.0.0.1:{port}/"
    process = process_table.look(begun["pid"])
    assert process is not None
    assert process.session == begun["pid"], "a session of its own has no terminal"
    status = json.loads(clawkit("status", "--json").stdout)
    assert (status["running"], status["pid"], status["startedBy"]) == (True, begun["pid"], "start")
    assert (status["since"], status["version"]) == (begun["since"], begun["version"])
    shown = clawkit("status").stdout
    assert f"process {begun['pid']}, since {begun['since']}, in the background" in shown

    second = clawkit("start")
    assert second.returncode == 1
    assert f"process {begun['pid']} at {begun['url']}" in second.stderr
    assert "clawkit gateway stop" in second.stderr

    again = json.loads(clawkit("restart", "--json").stdout)
    assert again["restarted"] is True
    assert again["pid"] != begun["pid"]
    assert gateways() == [again["pid"]]

    stopped = clawkit("stop", "--json")
    assert stopped.returncode == 0
    assert json.loads(stopped.stdout) == {"stopped": True, "pid": again["pid"], "killed": False}
    assert gateways() == []
    assert not os.path.exists(record_file())
    log = (home() / "logs" / "gateway.jsonl").read_text(encoding="utf-8")
    assert log.count("the gateway is ready") == log.count("the gateway has stopped") == 2


def test_stop_and_restart_without_a_gateway(port: int) -> None:
    none = clawkit("stop")
    assert none.returncode == 1
    assert none.stderr == f"clawkit: no gateway is running for {home()}\n"
    assert json.loads(clawkit("restart", "--json").stdout)["started"] is True
    assert clawkit("stop").returncode == 0


def test_a_restart_keeps_the_options_and_an_invalid_configuration_stops_nothing() -> None:
    other, number = home() / "other.json5", free_port()
    other.write_text("{}", encoding="utf-8")
    other.chmod(0o600)
    begun = start("--config", str(other), "--port", str(number))
    other.write_text("{ gateway: { port: true } }", encoding="utf-8")
    refused = clawkit("restart")
    assert refused.returncode == 2
    assert "other.json5" in refused.stderr
    assert gateways() == [begun["pid"]]
    other.write_text("{}", encoding="utf-8")
    again = json.loads(clawkit("restart", "--json").stdout)
    assert (again["config"], again["url"]) == (str(other), f"ws://127.0.0.1:{number}/")


def test_a_restart_keeps_a_port_that_was_free() -> None:
    begun = start("--port", "0")
    again = json.loads(clawkit("restart", "--json").stdout)
    assert (again["restarted"], again["url"]) == (True, begun["url"])


def test_a_gateway_in_the_foreground_is_recognized(port: int) -> None:
    with running() as process:
        status = json.loads(clawkit("status", "--json").stdout)
        assert (status["pid"], status["startedBy"]) == (process.pid, "run")
        refused = clawkit("restart")
        assert refused.returncode == 1
        assert "runs in the foreground" in refused.stderr
        assert "clawkit gateway stop && clawkit gateway start" in refused.stderr
        assert process.poll() is None
        assert clawkit("stop").returncode == 0
        assert process.wait(15) == 0


def test_a_gateway_that_others_can_reach_unencrypted_says_so() -> None:
    configure('{ gateway: { bind: "lan" } }')
    said = "on all addresses of this machine, unencrypted"
    begun = clawkit("start", "--port", "0")
    assert said in begun.stderr
    assert "clawkit config set gateway.tls.enabled true" in begun.stderr
    status = clawkit("status").stdout
    assert said in status
    record = look().record
    assert record is not None
    assert f":{record.port}/" in status.partition("For other machines: ws://")[2]
    found = subprocess.run([*PROGRAM, "doctor"], capture_output=True, text=True, check=False)
    assert said in found.stdout


@pytest.mark.parametrize(
    ("host", "fingerprint", "words"),
    [
        ("127.0.0.1", "", []),
        ("127.0.0.1", "AB:CD", ["Certificate (SHA-256): AB:CD"]),
        (
            "10.0.0.5",
            "",
            ["on 10.0.0.5, unencrypted. For other machines: ws://10.0.0.5:7/", "read"],
        ),
        ("10.0.0.5", "AB:CD", ["on 10.0.0.5. For other machines: wss://10.0.0.5:7/", "AB:CD"]),
        ("100.64.0.9", "", ["on 100.64.0.9. For other machines: ws://100.64.0.9:7/"]),
        ("box.example", "", ["on box.example, unencrypted", "read"]),
    ],
)
def test_the_status_explains_who_can_reach_the_gateway(
    host: str, fingerprint: str, words: list[str]
) -> None:
    found = list(explain_reach(host, 7, fingerprint))
    assert len(found) == len(words)
    assert all(word in line for word, line in zip(words, found, strict=True))


def test_commands_find_a_gateway_on_a_port_of_its_choice() -> None:
    start("--port", "0")
    assert clawkit("health").stdout.startswith("ok, ")


def test_a_killed_gateway_is_reported_and_replaced(port: int) -> None:
    begun = start()
    os.kill(begun["pid"], signal.SIGKILL)
    wait_until(lambda: not gateways())
    text = clawkit("status")
    assert text.returncode == 1
    assert f"left a stale lock: process {begun['pid']}" in text.stderr
    status = json.loads(clawkit("status", "--json").stdout)
    assert (status["running"], status["stale"]["pid"]) == (False, begun["pid"])
    again = start()
    assert json.loads(clawkit("status", "--json").stdout)["pid"] == again["pid"]
    os.kill(again["pid"], signal.SIGKILL)
    wait_until(lambda: not gateways())
    none = clawkit("stop")
    assert none.returncode == 1
    assert f"(process {again['pid']} was killed or has crashed)" in none.stderr
    assert look() == (0, None)


def test_a_gateway_that_does_not_stop_is_killed_only_on_request(port: int) -> None:
    begun = start()
    os.kill(begun["pid"], signal.SIGSTOP)
    silent = clawkit("status", "--timeout", "0.5")
    assert silent.returncode == 1
    assert "holds the lock, but does not answer" in silent.stderr
    slow = clawkit("stop", "--timeout", "0.3")
    assert slow.returncode == 1
    assert "clawkit gateway stop --force" in slow.stderr
    killed = clawkit("stop", "--timeout", "0.3", "--force", "--json")
    assert json.loads(killed.stdout)["killed"] is True
    assert gateways() == []
    assert not os.path.exists(record_file())


def left_behind() -> set[str]:
    """What should not be there after a failed start."""
    places = ("gateway/running.json", "gateway/start.lock", "logs/gateway.out")
    return {each for each in places if (home() / each).exists()}


def test_a_taken_port_is_explained(port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        done = clawkit("start")
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: it is in use" in done.stderr
    assert "clawkit config set gateway.port PORT" in done.stderr
    assert (gateways(), left_behind()) == ([], set())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{ gateway: { port: 'x' } }", "gateway.port"),
        ("{ gateway: ", "clawkit.json5"),
        ("{ gateway: { tls: { enabled: true, certPath: '/nowhere' } } }", "gateway.tls"),
    ],
)
def test_an_invalid_configuration_is_explained(text: str, problem: str) -> None:
    configure(text)
    done = clawkit("start")
    assert done.returncode == 2
    assert problem in done.stderr
    assert "Traceback" not in done.stderr
    assert (gateways(), left_behind()) == ([], set())


def test_a_home_that_cannot_be_written_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    (home() / "file").write_text("", encoding="utf-8")
    places = {home() / "file": "Not a directory", Path("/proc/nowhere"): "No such file"}
    if os.geteuid():
        (home() / "closed").mkdir(mode=0o500)
        places[home() / "closed"] = "Permission denied"
    for place, why in places.items():
        monkeypatch.setenv("CLAWKIT_HOME", str(place))
        for command in ("start", "run"):
            done = clawkit(command)
            assert done.returncode == 1
            assert f"cannot write to {place}" in done.stderr
            assert why in done.stderr
            assert "set CLAWKIT_HOME to a writable directory" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_start_leaves_nothing(port: int, number: int) -> None:
    process = subprocess.Popen([*BASE, "start"], stderr=subprocess.PIPE, text=True)
    wait_until(gateways)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    if process.returncode:
        assert (process.returncode, said) == (130, "\ninterrupted\n")
        assert (gateways(), left_behind()) == ([], set())
    else:
        assert "started" in said  # it was ready first


def test_a_start_that_takes_too_long_is_given_up(port: int) -> None:
    done = clawkit("start", "--timeout", "0.1")
    assert done.returncode == 1
    assert "not ready after 0.1 seconds" in done.stderr
    assert (gateways(), left_behind()) == ([], set())


def test_two_starts_at_once_leave_one_gateway(port: int) -> None:
    both = [subprocess.Popen([*BASE, "start"], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [each.communicate(timeout=60)[1] for each in both]
    assert sorted(each.returncode for each in both) == [0, 1], said
    assert len(gateways()) == 1


def test_the_command_line_of_a_gateway_has_no_secrets(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWKIT_GATEWAY_TOKEN", "s3cret-of-the-test")
    begun = start()
    argv = process_table.read_small(f"/proc/{begun['pid']}/cmdline").split(b"\0")
    assert [each.decode() for each in argv[:-1]] == run_argv("start", None, None)
    for path in (home() / "logs").iterdir():
        assert "s3cret-of-the-test" not in path.read_text(encoding="utf-8")
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "ws://127.0.0.1:7/"),
        ("0.0.0.0", "ws://127.0.0.1:7/"),
        ("::", "ws://[::1]:7/"),
        ("100.64.0.9", "ws://100.64.0.9:7/"),
    ],
)
def test_where_clients_on_this_machine_connect(host: str, url: str) -> None:
    assert RunningGateway(1, "", host, 7, "", "run", None, None, "", True, {}).url == url


def test_a_damaged_record_is_ignored() -> None:
    (home() / "gateway").mkdir(mode=0o700)
    Path(record_file()).write_text("{", encoding="utf-8")
    assert look() == (0, None)
    assert clawkit("stop").returncode == 1
