"""`clawkit gateway install` and `uninstall`: what is written, when, and what is run."""

from __future__ import annotations

import json
import os
import plistlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.gateway.test_command import BASE, clawkit, free_port
from tests.gateway.test_daemon import _ends, gateways, home, start, wait_until
from tests.lacking import needs

from clawkit.errors import ToolInputError
from clawkit.gateway.process_record import look
from clawkit.gateway.service_file import MARK, make_service_file, quote_unit, service_name

pytestmark = pytest.mark.usefixtures("ready")

__all__ = ["_ends"]

ODD = "a b$c%d\"e\\f'g;h"
# A stand-in for the program of systemd: it notes what it was asked for, and starts and stops what
# the unit says, in the background.
SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$SYSTEMCTL_LOG"
run() { "$SYSTEMCTL_PYTHON" -P -m clawkit gateway run --started-by service > /dev/null 2>&1 & }
pid() { sed 's/.*"pid":\\([0-9]*\\).*/\\1/' "$CLAWKIT_HOME/gateway/running.json"; }
case "$2" in
  start) run ;;
  restart) old=$(pid); kill "$old"; while [ -e "/proc/$old" ]; do sleep 0.05; done; run ;;
  disable) kill "$(pid)" ;;
esac
"""


def path_of_unit() -> Path:
    return home() / ".config" / "systemd" / "user" / f"{service_name(os.environ)}.service"


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which a stand-in for systemctl notes its arguments."""
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL, encoding="utf-8")
    program.chmod(0o755)
    noted = tmp_path / "calls"
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SYSTEMCTL_LOG", str(noted))
    monkeypatch.setenv("SYSTEMCTL_PYTHON", sys.executable)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (home() / "clawkit.json5").write_text(
        f"{{ gateway: {{ port: {free_port()} }} }}", encoding="utf-8"
    )
    (home() / "clawkit.json5").chmod(0o600)
    return noted


def unquote(word: str) -> str:
    """A quoted word, as systemd reads it, in an argument."""
    assert word[0] == word[-1] == '"'
    plain = re.sub(r"\\(.)", r"\1", word[1:-1])
    return plain.replace("%%", "%").replace("$$", "$")


def test_a_service_is_installed_restarted_and_removed(calls: Path) -> None:
    name = service_name(os.environ)
    made = clawkit("install", "--yes", "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout) == {
        "installed": str(path_of_unit()),
        "service": name,
        "started": True,
        "commands": [],
    }
    assert path_of_unit().read_text(encoding="utf-8") in made.stderr, "it is shown"
    wait_until(lambda: look().is_ready)
    status = json.loads(clawkit("status", "--json").stdout)
    assert status["startedBy"] == "service"
    again = json.loads(clawkit("restart", "--json").stdout)
    assert (again["restarted"], again["startedBy"]) == (True, "service")
    assert again["pid"] != status["pid"]
    gone = clawkit("uninstall", "--yes")
    assert gone.returncode == 0
    assert not path_of_unit().exists()
    wait_until(lambda: not gateways())
    assert calls.read_text(encoding="utf-8").splitlines() == [
        "--user daemon-reload",
        f"--user enable {name}",
        f"--user start {name}",
        f"--user restart {name}",
        f"--user disable --now {name}",
        "--user daemon-reload",
    ]


def test_a_running_gateway_is_left_alone(calls: Path) -> None:
    begun = start()
    made = clawkit("install", "--yes")
    assert made.returncode == 0
    name = service_name(os.environ)
    assert f"clawkit gateway stop && systemctl --user start {name}" in made.stderr
    assert "loginctl enable-linger" in made.stderr
    assert f"start {name}" not in calls.read_text(encoding="utf-8")
    assert gateways() == [begun["pid"]]


def test_only_the_file_is_written_on_request(calls: Path) -> None:
    made = clawkit("install", "--yes", "--no-start")
    assert made.returncode == 0
    assert "systemctl --user daemon-reload && systemctl --user enable" in made.stderr
    assert path_of_unit().exists()
    assert not calls.exists()


def test_a_service_manager_that_fails_is_reported(calls: Path, tmp_path: Path) -> None:
    failing = "#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n"
    (tmp_path / "bin" / "systemctl").write_text(failing, encoding="utf-8")
    made = clawkit("install", "--yes")
    assert made.returncode == 1
    assert "was written, but systemctl failed: Failed to connect to bus" in made.stderr
    assert "type: systemctl --user daemon-reload && " in made.stderr
    gone = clawkit("uninstall", "--yes")
    assert gone.returncode == 0
    assert "clawkit gateway stop" in gone.stderr
    assert not path_of_unit().exists()


def test_nothing_is_written_or_removed_without_an_approval(calls: Path) -> None:
    asked = subprocess.run(
        [*BASE, "install"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert asked.returncode == 2
    assert "add --yes" in asked.stderr
    assert "ExecStart=" in asked.stderr
    assert not path_of_unit().exists()
    missing = clawkit("uninstall", "--yes")
    assert missing.returncode == 1
    assert "no service is installed" in missing.stderr
    assert not calls.exists()


def test_a_person_is_asked(calls: Path) -> None:
    import pty

    def answer(text: bytes) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        try:
            process = subprocess.Popen(
                [*BASE, "install", "--no-start"], stdin=theirs, stderr=theirs, stdout=theirs
            )
            os.write(ours, text)
            code = process.wait(30)
            return code, os.read(ours, 65_536).decode()
        finally:
            os.close(ours)
            os.close(theirs)

    code, said = answer(b"n\n")
    assert code == 3
    assert "Write this file?" in said
    assert not path_of_unit().exists()
    code, said = answer(b"y\n")
    assert code == 0
    assert path_of_unit().exists()


def test_a_file_of_someone_else_is_kept(calls: Path) -> None:
    path_of_unit().parent.mkdir(parents=True)
    path_of_unit().write_text("[Service]\n", encoding="utf-8")
    for command in ("install", "uninstall"):
        refused = clawkit(command, "--yes")
        assert refused.returncode == 1
        assert "was not written by clawkit; move it away" in refused.stderr
    assert path_of_unit().read_text(encoding="utf-8") == "[Service]\n"


def test_an_invalid_configuration_is_not_installed(calls: Path) -> None:
    (home() / "clawkit.json5").write_text("{ gateway: 1 }", encoding="utf-8")
    assert clawkit("install", "--yes").returncode == 2
    assert not path_of_unit().exists()


def test_a_unit_quotes_paths_and_has_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "CLAWKIT_GATEWAY_TOKEN", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "s3cret")
    odd = str(home() / ODD)
    env = {**os.environ, "CLAWKIT_HOME": odd, "PATH": "bin:/usr/bin::/usr/bin:/bin"}
    text = make_service_file(env, f"{odd}/c.json5", 7).text
    assert "s3cret" not in text
    command = re.search(r"^ExecStart=(.*)$", text, re.M)
    assert command is not None
    words = re.findall(r'"(?:[^"\\]|\\.)*"', command[1])
    assert [unquote(word) for word in words] == [
        *(sys.executable, "-P", "-m", "clawkit", "gateway", "run", "--started-by", "service"),
        *("--port", "7", "--config", f"{odd}/c.json5"),
    ]
    assert f"Environment={quote_unit(f'CLAWKIT_HOME={odd}')}\n" in text
    assert 'Environment="PATH=/usr/bin:/bin"\n' in text
    for broken in ("NoNewPrivileges=", "RestrictNamespaces=", "ProtectSystem=", "PrivateTmp="):
        assert broken not in text


@pytest.mark.parametrize("bad", ["new\nline", "tab\there", "not-utf8-\udcff"])
def test_a_path_that_a_unit_cannot_hold_is_refused(bad: str) -> None:
    with pytest.raises(ToolInputError, match="cannot be part of a service file"):
        make_service_file({**os.environ, "CLAWKIT_HOME": f"/tmp/{bad}"})


@needs(shutil.which("systemd-analyze"), "systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    odd = str(home() / ODD)
    made = make_service_file({**os.environ, "CLAWKIT_HOME": odd}, f"{odd}/c.json5")
    path = tmp_path / f"{made.name}.service"
    path.write_text(made.text, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(path)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_home_has_its_own_service() -> None:
    usual = {"HOME": "/home/ann"}
    assert service_name(usual) == "clawkit-gateway"
    assert service_name({**usual, "CLAWKIT_HOME": "/home/ann/.clawkit"}) == "clawkit-gateway"
    other = service_name({**usual, "CLAWKIT_HOME": "/srv/claw"})
    assert re.fullmatch(r"clawkit-gateway-[0-9a-f]{8}", other)
    assert make_service_file({**usual, "XDG_CONFIG_HOME": "/cfg"}).path == (
        "/cfg/systemd/user/clawkit-gateway.service"
    )


def test_the_file_of_launchd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    made = make_service_file({"HOME": "/Users/ann", "PATH": "/bin", "CLAWKIT_HOME": "/a & <b>"})
    assert MARK in made.text
    agent = plistlib.loads(made.text.encode())
    assert made.path == f"/Users/ann/Library/LaunchAgents/{agent['Label']}.plist"
    assert agent["ProgramArguments"][:2] == [sys.executable, "-P"]
    assert agent["EnvironmentVariables"] == {"CLAWKIT_HOME": "/a & <b>", "PATH": "/bin"}
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
