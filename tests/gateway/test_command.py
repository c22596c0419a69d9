"""`clawkit gateway` as a person runs it: real processes, signals, and a second gateway."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asking import PROGRAM

from clawkit.config.load import loads
from clawkit.config.sections.gateway import GatewaySettings as Settings
from clawkit.errors import ConfigError, ToolError
from clawkit.gateway.client import find_target
from clawkit.gateway.serve import check_exposure, choose_host
from clawkit.gateway.server import Gateway, read_secret

pytestmark = pytest.mark.usefixtures("ready")
BASE = [sys.executable, "-m", "clawkit", "gateway"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def clawkit(*args: str) -> subprocess.CompletedProcess[str]:
    argv = [*PROGRAM, "gateway", *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def running(*args: str) -> Iterator[subprocess.Popen[str]]:
    """A gateway that is ready."""
    process = subprocess.Popen(
        [*BASE, "run", *args], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert "clawkit gateway: ws://" in first, first + process.stderr.read()
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@pytest.fixture
def port() -> int:
    number = free_port()
    path = os.path.join(os.environ["CLAWKIT_HOME"], "clawkit.json5")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{{ gateway: {{ port: {number} }} }}")
    os.chmod(path, 0o600)
    return number


def test_a_gateway_runs_answers_and_stops(port: int) -> None:
    with running() as process:
        status = json.loads(clawkit("status", "--json").stdout)
        assert status["running"] is True
        assert status["url"] == f"ws://127.0.0.1:{port}/"
        assert clawkit("health").stdout.startswith("ok, answered in ")
        found = json.loads(clawkit("call", "agents.list").stdout)
        assert found["defaultId"] == "main"
        params = '{"message": "list", "idempotencyKey": "k"}'
        turn = json.loads(clawkit("call", "agent", "--params", params).stdout)
        assert turn["status"] == "ok"
        assert "main (1 session)" in clawkit("health").stdout
        address = clawkit("url").stdout
        assert re.match(rf"http://127\.0\.0\.1:{port}/\?[0-9a-f]{{8}}#code=", address)
        made = json.loads(clawkit("url", "--json").stdout)
        assert made["url"] != address.strip()
        assert made["expiresAtMs"] > 0
        unknown, misspelt = clawkit("call", "zzzzz.x"), clawkit("call", "helth")
        said = "clawkit: unknown method: zzzzz.x; the gateway has agent.*, agents.*, "
        assert (unknown.returncode, unknown.stderr.startswith(said)) == (2, True), unknown.stderr
        alike = clawkit("call", "session.everything").stderr
        assert "sessions.list" in alike
        assert "agents" not in alike
        assert misspelt.stderr == "clawkit: unknown method: helth; did you mean 'health'?\n"
        wrong = clawkit("call", "health", "--params", "[")
        assert wrong.returncode == 2
        assert "--params must be a JSON object, such as '{\"limit\": 5}': " in wrong.stderr
        assert "mismatch; omit --token" in clawkit("health", "--token", "wrong").stderr
        wrong = clawkit("call", "health", "--url", status["url"], "--token", "wrong")
        assert wrong.returncode == 1
        assert "gateway token mismatch" in wrong.stderr
        second = clawkit("run", "--port", "0")
        assert second.returncode == 1
        assert f"a gateway is already running for {os.environ['CLAWKIT_HOME']}" in second.stderr
        assert f"process {process.pid}" in second.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
        assert process.stderr is not None
        assert "clawkit gateway: stopped" in process.stderr.read()
    stopped = clawkit("status", "--json")
    assert stopped.returncode == 1
    assert json.loads(stopped.stdout)["running"] is False
    assert "clawkit gateway start" in clawkit("health").stderr


def test_ctrl_c_stops_it_and_a_new_one_can_start(port: int) -> None:
    for _ in range(2):
        with running() as process:
            process.send_signal(signal.SIGINT)
            assert process.wait(15) == 0


def test_a_killed_gateway_leaves_no_lock(port: int) -> None:
    with running() as process:
        process.kill()
        process.wait()
    with running() as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


def test_a_taken_port_is_reported(port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        found = clawkit("run")
    assert found.returncode == 1
    assert f"127.0.0.1:{port}: it is in use; stop the program" in found.stderr


def test_a_home_that_cannot_be_used_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    env = {**os.environ, "CLAWKIT_HOME": str(tmp_path / "file"), "CLAWKIT_CONFIG": ""}
    for args in (["token"], ["start", "--port", "0"], ["run", "--port", "0"]):
        argv = [*PROGRAM, "gateway", *args]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        said = f"clawkit: cannot write to {tmp_path}/file/gateway: Not a directory; fix that, or "
        assert done.returncode == 1
        assert done.stderr.startswith(said)
        assert done.stderr.count("\n") == 1


def test_the_token_is_made_once_and_private() -> None:
    first = clawkit("token")
    token = first.stdout.strip()
    assert len(token) >= 40
    assert clawkit("token").stdout.strip() == token
    assert json.loads(clawkit("token", "--json").stdout) == {"token": token}
    path = os.path.join(os.environ["CLAWKIT_HOME"], "gateway", "token")
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_other_commands_do_not_import_the_gateway() -> None:
    code = (
        "import sys; import clawkit.cli.main, clawkit.cli.agent, clawkit.cli.tools, clawkit;"
        "clawkit.Agent; names = ('starlette', 'uvicorn', 'websockets', 'cryptography',"
        " 'clawkit.gateway');"
        "print([name for name in names if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def loaded(gateway: dict[str, Any]) -> Any:
    return loads(json.dumps({"gateway": gateway}))


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        ({}, "127.0.0.1"),
        ({"bind": "auto"}, "127.0.0.1"),
        ({"bind": "lan"}, "0.0.0.0"),
        ({"bind": "custom", "customBindHost": "10.0.0.5"}, "10.0.0.5"),
    ],
)
def test_the_listening_address_follows_the_settings(settings: dict[str, Any], host: str) -> None:
    found = loaded(settings).config.gateway or Settings()
    assert choose_host(found) == host


@pytest.mark.parametrize(
    ("host", "mode", "good"),
    [
        ("127.0.0.1", "none", True),
        ("::1", "none", True),
        ("localhost", "none", True),
        ("0.0.0.0", "none", False),
        ("10.0.0.5", "none", False),
        ("example.org", "none", False),
        ("0.0.0.0", "token", True),
    ],
)
def test_no_one_else_can_connect_without_authentication(host: str, mode: str, good: bool) -> None:
    given = loaded({"auth": {"mode": mode}})
    if good:
        check_exposure(given, host)
    else:
        with pytest.raises(ConfigError, match=r"Set gateway\.auth\.mode to token or password"):
            check_exposure(given, host)


def test_a_custom_address_without_authentication_does_not_start() -> None:
    path = os.path.join(os.environ["CLAWKIT_HOME"], "clawkit.json5")
    text = '{gateway: {bind: "custom", customBindHost: "0.0.0.0", auth: {mode: "none"}}}'
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    found = clawkit("run", "--port", "0")
    assert found.returncode == 2
    assert "Set gateway.auth.mode" in found.stderr


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"auth": {"mode": "trusted-proxy", "trustedProxy": {"userHeader": "x"}}},
            "there is no trusted proxy",
        ),
        ({"auth": {"mode": "password", "password": "$NOT_SET_ANYWHERE"}}, "NOT_SET_ANYWHERE"),
    ],
)
def test_unsafe_settings_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        Gateway(loaded(settings))


def test_secrets_come_from_the_configuration_the_environment_or_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert read_secret(loaded({"auth": {"mode": "none"}})) == ("none", "")
    made = read_secret(loaded({}))
    assert read_secret(loaded({})) == made
    monkeypatch.setenv("CLAWKIT_GATEWAY_TOKEN", "from-the-environment")
    assert read_secret(loaded({})) == ("token", "from-the-environment")
    assert read_secret(loaded({"auth": {"token": "written"}})) == ("token", "written")
    given = {"auth": {"mode": "password", "password": "pw"}}
    assert read_secret(loaded(given)) == ("password", "pw")


def test_a_secret_goes_only_where_the_configuration_says() -> None:
    given = loaded({"auth": {"token": "mine"}, "port": 18999})
    with pytest.raises(ToolError, match=r"no gateway is running for .*clawkit gateway start"):
        find_target(given)  # whatever listens on that port gets nothing
    assert find_target(given, "wss://elsewhere.test").secret == ""
    remote = loaded({"mode": "remote", "remote": {"url": "wss://far.test", "password": "pw"}})
    target = find_target(remote)
    assert (target.url, target.secret) == ("wss://far.test:443/", "pw")
    assert target.is_password
    assert find_target(remote, "wss://elsewhere.test").secret == ""
