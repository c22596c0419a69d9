"""What `clawkit doctor` says about models and conversations."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from clawkit.cli.doctor_services import (
    MAX_CHECKED,
    address_problem,
    check_sessions,
    store_remedy,
)
from clawkit.cli.main import run
from clawkit.config.load import load
from clawkit.content import Text, User
from clawkit.errors import ToolError
from clawkit.models.known import PROVIDERS
from clawkit.sessions.store import SessionStore
from clawkit.testing import ScriptedServer

SECRET = "sk-0f1e2d3c4b5a69788796a5b4c3d2e1f0"


class Found:
    """The output and the exit code of the doctor."""

    def __init__(self, code: int, out: str) -> None:
        self.code = code
        self.findings = json.loads(out)["findings"]

    def of(self, section: str, level: str) -> list[str]:
        return [
            f"{each['what']} → {each['do']}"
            for each in self.findings
            if (each["section"], each["level"]) == (section, level)
        ]


Doctor = Callable[..., Found]


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in PROVIDERS.values():
        for name in provider.env:
            monkeypatch.delenv(name, raising=False)
    # Nobody listens there, whatever runs on this machine.
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")


@pytest.fixture
def home() -> Path:
    return Path(os.environ["CLAWKIT_HOME"])


@pytest.fixture
def doctor(home: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    def type_in(text: str = "", *args: str) -> Found:
        if text:
            write(home / "clawkit.json5", text)
        with pytest.raises(SystemExit) as end:
            run(["doctor", "--json", *args])
        out, err = capsys.readouterr()
        assert SECRET not in out + err
        assert err == ""
        assert isinstance(end.value.code, int)
        return Found(end.value.code, out)

    return type_in


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def agent_file(home: Path, name: str, value: Any, mode: int = 0o600) -> Path:
    text = value if isinstance(value, str) else json.dumps(value)
    return write(home / "agents" / "main" / "agent" / name, text, mode)


def choose(primary: str, *fallbacks: str) -> str:
    return json.dumps(
        {"agents": {"defaults": {"model": {"primary": primary, "fallbacks": list(fallbacks)}}}}
    )


def test_no_model_and_no_key(doctor: Doctor) -> None:
    done = doctor()
    assert done.code == 0
    [told] = done.of("models", "warn")
    assert told.startswith("no model is configured and no API key was found")
    assert told.endswith("→ clawkit onboard, or export ANTHROPIC_API_KEY=...")


def test_a_key_in_the_environment_is_enough(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    done = doctor()
    assert done.of("models", "warn") == []
    [told] = done.of("models", "ok")
    assert "is used, because of env:OPENAI_API_KEY" in told


async def test_a_model_of_this_machine_will_do(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedServer(models=("qwen3:8b", "llama3"), ollama=True) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        done = await asyncio.to_thread(doctor)
        assert done.of("models", "warn") == []
        what = "no model is configured; ollama/qwen3:8b is used, which runs on this machine"
        assert done.of("models", "ok") == [f"{what} → clawkit models set ollama/qwen3:8b"]
        before = len(server.others)
        agents = {"list": [{"id": "ada"}, {"id": "bob"}]}
        allow = {"defaults": {"modelPolicy": {"allow": ["ollama/llama3"]}}}
        done = await asyncio.to_thread(doctor, json.dumps({"agents": agents | allow}))
        first, second = done.of("models", "ok")
        assert first.startswith("agent 'ada': no model is configured; ollama/llama3 is used")
        assert second.startswith("agent 'bob': no model is configured; ollama/llama3 is used")
        # However many agents there are, it is asked once; with a model it is not asked at all.
        assert len(server.others) == before + 1
        await asyncio.to_thread(doctor, choose("clawkit/operator"))
        assert len(server.others) == before + 1


def test_a_model_that_can_be_used(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    done = doctor(choose("gpt-5.4", "clawkit/operator", "ollama/llama3"))
    assert done.code == 0
    assert done.of("models", "ok") == [
        "openai/gpt-5.4, with env:OPENAI_API_KEY → ",
        "fallback ollama/llama3, no credential needed → ",
    ]


def test_a_credential_that_is_missing(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    done = doctor(choose("openai/gpt-5.4", "anthropic/claude-opus-5"))
    assert done.code == 0
    [told] = done.of("models", "warn")
    assert told.startswith("agents.defaults.model.fallbacks[0]: anthropic has no credential")
    assert "set ANTHROPIC_API_KEY" in told
    done = doctor(choose("anthropic/claude-opus-5", "openai/gpt-5.4"))
    assert done.code == 1
    [told] = done.of("models", "error")
    assert told.startswith("agents.defaults.model.primary: anthropic has no credential")


def test_unknown_models_and_providers_are_errors(doctor: Doctor) -> None:
    done = doctor(choose("clawkit/operator", "claude-opsu-5", "nobody/x"))
    assert done.code == 1
    first, second = done.of("models", "error")
    assert first.startswith("agents.defaults.model.fallbacks[0]: unknown model or alias")
    assert "Did you mean 'anthropic/claude-opus-5'" in first
    assert second.startswith("agents.defaults.model.fallbacks[1]: unknown provider 'nobody'")


def test_a_credential_that_rests(doctor: Doctor, home: Path) -> None:
    until = round(time.time() * 1000) + 3_600_000
    profile = {"type": "api_key", "provider": "openai", "key": SECRET}
    stats = {"openai:a": {"cooldownUntil": until}}
    stored = {"profiles": {"openai:a": profile}, "usageStats": stats}
    agent_file(home, "auth-profiles.json", stored)
    [told] = doctor(choose("openai/gpt-5.4")).of("models", "warn")
    assert "agents.defaults.model.primary: openai:a was rejected and is not used for " in told
    profile_b = profile | {"key": f"{SECRET}b"}
    stored = {"profiles": {"openai:a": profile, "openai:b": profile_b}, "usageStats": stats}
    agent_file(home, "auth-profiles.json", stored)
    done = doctor()
    assert done.of("models", "warn") == []
    assert done.of("models", "ok") == ["openai/gpt-5.4, with openai:b → "]


def test_configured_providers_without_a_credential(doctor: Doctor) -> None:
    done = doctor(
        """{ models: { providers: {
          a: { baseUrl: "https://a.example/v1", models: [{ id: "x" }] },
          b: { baseUrl: "https://b.example/v1", models: [{ id: "x" }], auth: "aws-sdk" },
          openai: { timeoutSeconds: 9 },
          local: { baseUrl: "http://127.0.0.1:9/v1", models: [{ id: "x" }] },
        } } }"""
    )
    first, second = done.of("models", "warn")
    assert first.startswith("the provider a has no credential")
    assert first.endswith("→ set models.providers.a.apiKey")
    assert "AWS credentials are not supported yet" in second


def test_unsupported_providers_are_errors(doctor: Doctor) -> None:
    done = doctor(
        """{ models: { providers: { a: { baseUrl: "https://a.example", auth: "aws-sdk",
             models: [{ id: "x" }, { id: "y", api: "google-vertex" }] } } },
             agents: { defaults: { model: { primary: "a/x", fallbacks: ["a/y"] } } } }"""
    )
    first, second = done.of("models", "error")
    assert "AWS credentials are not supported yet" in first
    assert "'google-vertex' is not supported yet" in second


@pytest.mark.parametrize("name", ["models.json", "auth-profiles.json"])
@pytest.mark.parametrize("text", ["{", "[]", '{"providers": 1, "profiles": 1} x'])
def test_broken_files_of_an_agent(doctor: Doctor, home: Path, name: str, text: str) -> None:
    path = agent_file(home, name, text)
    done = doctor()
    assert done.code == 1
    [told] = done.of("models", "error")
    assert str(path) in told


def test_an_incomplete_stored_credential_is_a_warning(doctor: Doctor, home: Path) -> None:
    half = {"openai:half": {"type": "api_key", "provider": "openai"}}
    agent_file(home, "auth-profiles.json", {"profiles": half})
    told = doctor().of("models", "warn")
    assert any("'openai:half' cannot be used: it is incomplete" in each for each in told)


@pytest.mark.parametrize("name", ["models.json", "auth-profiles.json"])
@pytest.mark.parametrize(("mode", "level"), [(0o644, "warn"), (0o660, "error")])
def test_files_of_an_agent_that_others_get_at_are_closed(
    doctor: Doctor, home: Path, name: str, mode: int, level: str
) -> None:
    path = agent_file(home, name, {}, mode)
    done = doctor()
    assert done.code == (1 if level == "error" else 0)
    assert any(f"chmod 600 {path}" in told for told in done.of("home", level))
    assert doctor("", "--fix").code == 0
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_files_of_an_agent_with_its_own_directory_are_checked(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "ada" / "models.json", '{"providers": {}}', 0o644)
    settings = {"agents": {"list": [{"id": "ada", "agentDir": str(path.parent)}]}}
    assert any(str(path) in told for told in doctor(json.dumps(settings)).of("home", "warn"))
    other = write(tmp_path / "bob" / "auth-profiles.json", "{}", 0o644)
    monkeypatch.setenv("CLAWKIT_AGENT_DIR", str(other.parent))
    assert any(str(other) in told for told in doctor().of("home", "warn"))


def test_each_agent_is_reported_by_name(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    done = doctor('{agents: {list: [{id: "ada", model: "gpt-5.4"}, {id: "bob"}]}}')
    first, second = done.of("models", "ok")
    assert first.startswith("agent 'ada': openai/gpt-5.4, with")
    assert second.startswith("agent 'bob': no model is configured; ")


def test_an_agent_id_that_cannot_be_a_directory_is_an_error(doctor: Doctor) -> None:
    done = doctor('{agents: {list: [{id: "a/../b"}]}}')
    assert done.code == 1
    assert "cannot be used as the name of a directory" in done.of("models", "error")[0]


@pytest.mark.parametrize(
    ("url", "allow", "words"),
    [
        ("https://api.example.com/v1", None, ""),
        ("http://api.example.com/v1", None, "plain http can be intercepted"),
        ("http://api.example.com/v1", False, "plain http can be intercepted"),
        # It may be a name of a private network.
        ("http://api.example.com/v1", True, ""),
        ("http://8.8.8.8/v1", True, "plain http can be intercepted"),
        ("http://8.8.8.8/v1", None, "plain http can be intercepted"),
        ("http://127.0.0.1:9/v1", None, ""),
        ("http://localhost:9/v1", None, ""),
        ("http://localhost:9/v1", False, "allowPrivateNetwork: false"),
        ("http://192.168.1.4:9/v1", None, "allowPrivateNetwork: true"),
        ("https://192.168.1.4:9/v1", None, "allowPrivateNetwork: true"),
        ("http://192.168.1.4:9/v1", True, ""),
        ("http://gpu-box:8000/v1", None, ""),
        ("http://gpu.lan:8000/v1", None, ""),
        ("http://169.254.169.254/v1", True, "no setting allows"),
        ("ftp://x/v1", None, "does not start with http"),
    ],
)
def test_addresses_that_are_not_connected_to(url: str, allow: bool | None, words: str) -> None:
    problem = address_problem(url, allow)
    assert words in problem
    assert bool(problem) == bool(words)


def test_plain_http_to_the_world_is_an_error(doctor: Doctor) -> None:
    done = doctor(
        """{ models: { providers: {
          a: { baseUrl: "http://a.example.com/v1", apiKey: "k", models: [{ id: "x" }] },
          b: { apiKey: "k", models: [{ id: "y", baseUrl: "http://b.example.com/v1" }] },
        } } }"""
    )
    assert done.code == 1
    first, second = done.of("models", "error")
    assert first.startswith("models.providers.a.baseUrl: plain http")
    assert second.startswith("models.providers.b.models['y'].baseUrl: plain http")


class TestSessions:
    @pytest.fixture
    def path(self, home: Path) -> Path:
        store = SessionStore(str(home / "sessions.sqlite"))
        for number in range(300):
            if number % 100 == 0:
                session = store.create("main", workspace="/work")
            store.append(session.id, User((Text(f"{number} " * 200),)))
        store.close()
        return Path(store.path)

    def test_a_missing_store_is_ok(self, doctor: Doctor, home: Path) -> None:
        assert "the first session creates it" in doctor().of("sessions", "ok")[0]
        assert not (home / "sessions.sqlite").exists()

    def test_a_sound_one(self, doctor: Doctor, path: Path) -> None:
        [told] = doctor().of("sessions", "ok")
        assert told.startswith(f"{path}: 3 sessions, ")

    def test_a_single_session_is_reported_in_the_singular(self, doctor: Doctor, home: Path) -> None:
        store = SessionStore(str(home / "sessions.sqlite"))
        store.create("main", workspace="/work")
        store.close()
        [told] = doctor().of("sessions", "ok")
        assert told.startswith(f"{store.path}: 1 session, ")

    @pytest.mark.parametrize("mode", [0o644, 0o660])
    def test_fix_makes_a_store_private(self, doctor: Doctor, path: Path, mode: int) -> None:
        path.chmod(mode)
        done = doctor()
        assert done.code == 1
        assert f"chmod 600 {path}" in done.of("sessions", "error")[0]
        fixed = doctor("", "--fix")
        assert fixed.of("sessions", "error") == []
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_a_damaged_store_is_an_error(self, doctor: Doctor, path: Path) -> None:
        data = bytearray(path.read_bytes())
        # Everything beyond the tables' own pages, where the messages are.
        half = len(data) // 2
        data[half:] = b"\xff" * (len(data) - half)
        path.write_bytes(data)
        done = doctor()
        assert done.code == 1
        [told] = done.of("sessions", "error")
        assert "damaged" in told
        assert f"mv {path} {path}.old" in told

    @pytest.mark.parametrize("data", [b"", b"no database" * 500])
    def test_a_file_that_is_not_a_store_is_an_error(
        self, doctor: Doctor, path: Path, data: bytes
    ) -> None:
        path.write_bytes(data)
        assert doctor().of("sessions", "error")

    @pytest.mark.parametrize(
        ("cause", "remedy"),
        [
            (None, "mv /h/s.sqlite /h/s.sqlite.old"),
            (apsw.CorruptError(), "mv /h/s.sqlite /h/s.sqlite.old"),
            (apsw.NotADBError(), "mv /h/s.sqlite /h/s.sqlite.old"),
            (apsw.SQLError("no such table"), "mv /h/s.sqlite /h/s.sqlite.old"),
            (apsw.FullError(), "free some space there: df -h /h"),
            (apsw.IOError(), "free some space there: df -h /h"),
            (OSError(errno.ENOSPC, "full"), "free some space there: df -h /h"),
            (apsw.BusyError(), "stop the process that uses it: fuser -v /h/s.sqlite"),
            (apsw.CantOpenError(), "set X to a writable location, or do not save"),
            (PermissionError(errno.EACCES, "no"), "set X to a writable location, or do not save"),
        ],
    )
    def test_moving_the_store_away_is_advised_only_if_it_is_damaged(
        self, cause: Exception | None, remedy: str
    ) -> None:
        error = ToolError("it cannot be used")
        error.__cause__ = cause
        assert store_remedy(error, "/h/s.sqlite", "X").startswith(remedy)

    def test_a_very_large_store_is_not_checked(self, path: Path) -> None:
        with path.open("r+b") as file:
            file.truncate(MAX_CHECKED + 1)
        [told] = check_sessions(load(), os.environ)
        assert told.what.endswith("too large to check")

    def test_an_unsupported_store_is_an_error(self, doctor: Doctor) -> None:
        done = doctor('{session: {store: "postgres://u:secret@db/x"}}')
        assert done.code == 1
        [told] = done.of("sessions", "error")
        assert "PostgreSQL" in told
        assert "secret" not in told
