"""`clawkit mcp install`: only the entry changes, and only after it was shown."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from clawkit.cli.mcp import install
from clawkit.errors import EditError
from clawkit.mcp_server.install import CLIENTS, make_entry, plan, snippet

ENTRY = {"command": "clawkit", "args": ["mcp", "serve"]}
FILES = {
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*args: str) -> Result:
    return CliRunner().invoke(install, args)


def servers(home: Path, client: str) -> dict[str, Any]:
    text = (home / FILES[client]).read_text()
    loaded = tomllib.loads(text) if client == "codex" else json.loads(text)
    found: dict[str, Any] = loaded[CLIENTS[client].key]
    return found


@pytest.mark.parametrize("client", list(CLIENTS))
def test_the_entry_starts_the_server_and_can_be_removed(home: Path, client: str) -> None:
    done = run("--client", client, "--workspace", str(home), "--yes")
    assert done.exit_code == 0, done.output
    assert "+++" in done.output
    entry = servers(home, client)["clawkit"]
    assert os.access(entry["command"], os.X_OK)
    assert entry["args"][-4:] == ["mcp", "serve", "--workspace", str(home)]
    assert entry.get("type") == ("stdio" if client in ("claude-code", "vscode") else None)
    assert stat.S_IMODE((home / FILES[client]).stat().st_mode) == 0o600
    again = run("--client", client, "--workspace", str(home), "--yes")
    assert "has this entry already" in again.output
    gone = run("--client", client, "--remove", "--yes")
    assert gone.exit_code == 0, gone.output
    text = (home / FILES[client]).read_text()
    assert "clawkit" not in text
    assert "has no server 'clawkit'" in run("--client", client, "--remove", "--yes").output


def test_the_home_of_clawkit_and_the_places_of_clients_are_respected(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "elsewhere"))
    monkeypatch.setenv("CODEX_HOME", str(home / "there"))
    monkeypatch.setenv("CLAWKIT_HOME", str(home / "mine"))
    assert run("--client", "claude-code", "--yes").exit_code == 0
    assert run("--client", "codex", "--yes").exit_code == 0
    entry = json.loads((home / "elsewhere/.claude.json").read_text())["mcpServers"]["clawkit"]
    assert entry["env"]["CLAWKIT_HOME"] == str(home / "mine")
    assert entry["args"][-2:] == ["mcp", "serve"]
    loaded = tomllib.loads((home / "there/config.toml").read_text())
    assert loaded["mcp_servers"]["clawkit"]["env"]["CLAWKIT_HOME"] == str(home / "mine")


def test_comments_and_other_entries_stay(home: Path) -> None:
    file = home / FILES["vscode"]
    file.parent.mkdir(parents=True)
    before = (
        '{\n  // mine\n  "servers": {\n    "a": {"url": "x"}, // one\n  },\n  "inputs": []\n}\n'
    )
    file.write_text(before)
    assert run("--client", "vscode", "--workspace", "/", "--yes").exit_code == 0
    after = file.read_text()
    assert [line for line in before.splitlines() if line not in after] == []
    assert run("--client", "vscode", "--remove", "--yes").exit_code == 0
    assert file.read_text() == before
    toml = home / FILES["codex"]
    toml.parent.mkdir()
    kept = '# mine\nmodel = "m"  # this\n\n[mcp_servers.a]\ncommand = "x"\n\n[tui]\ntheme = "t"\n'
    toml.write_text(kept)
    for name in ("clawkit", "second"):
        assert run("--client", "codex", "--name", name, "--yes").exit_code == 0
    assert toml.read_text().startswith(kept)
    assert run("--client", "codex", "--workspace", "/", "--yes").exit_code == 0
    assert servers(home, "codex")["clawkit"]["args"][-1] == "/"
    assert set(servers(home, "codex")) == {"a", "clawkit", "second"}
    for name in ("clawkit", "second"):
        assert run("--client", "codex", "--name", name, "--remove", "--yes").exit_code == 0
    assert toml.read_text().rstrip() == kept.rstrip()


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("cursor", "{"),
        ("cursor", "[]"),
        ("cursor", '{"mcpServers": []}'),
        ("cursor", '{"mcpServers": {}} x'),
        ("codex", "model = "),
        ("codex", f"a = {'[' * 50_000}"),
        ("codex", "mcp_servers = 7"),
        ("codex", 'mcp_servers = { clawkit = { command = "x" } }'),
        ("codex", '[mcp_servers]\nclawkit.command = "x"'),
        ("codex", 'a = """\n[mcp_servers.clawkit]\n"""\n'),
    ],
    ids=range(10),
)
def test_a_file_that_is_not_understood_is_left_alone(home: Path, client: str, text: str) -> None:
    file = home / FILES[client]
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(EditError, match="was not changed"):
        plan(CLIENTS[client], "clawkit", ENTRY, os.environ)
    assert file.read_text() == text


def test_bad_bytes_names_and_changes_meanwhile_are_refused(home: Path) -> None:
    file = home / FILES["cursor"]
    file.parent.mkdir()
    file.write_bytes(b"\xff")
    with pytest.raises(EditError, match="UTF-8"):
        plan(CLIENTS["cursor"], "clawkit", ENTRY, os.environ)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(EditError, match="is not a regular file"):
        plan(CLIENTS["cursor"], "clawkit", ENTRY, os.environ)
    file.unlink()
    file.write_text("{}")
    for name in ("", "a b", "a.b", "x" * 65, "a\n"):
        with pytest.raises(EditError, match="invalid name"):
            plan(CLIENTS["cursor"], name, ENTRY, os.environ)
        with pytest.raises(EditError, match="invalid name"):
            snippet(CLIENTS["codex"], name, ENTRY)
    change = plan(CLIENTS["cursor"], "clawkit", ENTRY, os.environ)
    assert json.loads(change.after) == {"mcpServers": {"clawkit": ENTRY}}
    file.write_text('{"other": 1}')
    with pytest.raises(EditError, match="meantime"):
        change.write()
    assert json.loads(file.read_text()) == {"other": 1}


def test_a_file_behind_a_link_is_changed_and_the_link_stays(home: Path) -> None:
    (home / "dotfiles").mkdir()
    (home / "dotfiles/mcp.json").write_text('{"mcpServers": {"a": {}}}')
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").symlink_to(home / "dotfiles/mcp.json")
    assert run("--client", "cursor", "--workspace", "/", "--yes").exit_code == 0
    assert (home / ".cursor/mcp.json").is_symlink()
    assert set(servers(home, "cursor")) == {"a", "clawkit"}


def test_nothing_is_written_without_an_approval(home: Path) -> None:
    asked = run("--client", "claude-code")
    assert asked.exit_code == 2
    assert "add --yes" in asked.output
    printed = run("--client", "codex", "--print")
    assert "[mcp_servers.clawkit]" in printed.output
    printed = run("--client", "gemini", "--print", "--name", "mine")
    assert '"mine"' in printed.output
    assert list(home.iterdir()) == []


def test_clients_that_do_not_start_in_a_project_need_a_workspace(home: Path) -> None:
    for client, where in CLIENTS.items():
        if client in ("claude-code", "codex", "gemini"):
            assert make_entry(where, None, {})["args"][-1] == "serve"
        else:
            with pytest.raises(EditError, match="--workspace"):
                make_entry(where, None, {})
    missing = run("--client", "cursor", "--workspace", str(home / "no"), "--yes")
    assert (missing.exit_code, "is not a directory" in missing.output) == (2, True)
    wrong = run("--client", "cursor", "--remove", "--print")
    assert wrong.exit_code == 2


def test_a_module_in_the_project_does_not_pass_for_clawkit(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients start the server in the directory of the project, which commands can write."""
    python = home / "python"
    python.symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setattr(sys, "executable", str(python))  # without the script beside it
    (home / "clawkit.py").write_text("print('pwned')\n")
    entry = make_entry(CLIENTS["claude-code"], None, {})
    argv = [entry["command"], *entry["args"]]
    done = subprocess.run(
        argv, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert entry["command"] == str(python)
    assert b"pwned" not in done.stdout
