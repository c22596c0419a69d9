"""`clawkit models` as a person or a program types it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from clawkit.cli import models as models_command
from clawkit.cli.main import run
from clawkit.cli.models import print_rows
from clawkit.cli.shared_options import count_tokens
from clawkit.config.json5 import parse
from clawkit.models.known import PROVIDERS
from clawkit.models.protocols import Api
from clawkit.process import process_table
from clawkit.terminal_text import text_width
from clawkit.testing import ScriptedServer, hang
from clawkit_testkit import fault

APIS: tuple[Api, ...] = (
    "openai-completions",
    "openai-responses",
    "anthropic-messages",
    "google-generative-ai",
)
SECRET = "sk-0f1e2d3c4b5a69788796a5b4c3d2e1f0"


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def row(self, model: str) -> dict[str, Any]:
        return next(row for row in self.json["models"] if row["model"] == model)


Models = Callable[..., Done]


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
def file(home: Path) -> Path:
    return home / "clawkit.json5"


@pytest.fixture
def models(capsys: pytest.CaptureFixture[str]) -> Models:
    """Run `clawkit models ...` in this process."""

    def type_in(*args: str) -> Done:
        with pytest.raises(SystemExit) as end:
            run(["models", *args])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert "unexpected" not in err
        assert SECRET not in out + err
        assert isinstance(end.value.code, int)
        return Done(end.value.code, out, err)

    return type_in


def profiles(home: Path, text: dict[str, Any], agent: str = "main") -> Path:
    folder = home / "agents" / agent / "agent"
    folder.mkdir(parents=True, mode=0o700)
    path = folder / "auth-profiles.json"
    path.write_text(json.dumps({"version": 1, **text}), encoding="utf-8")
    path.chmod(0o600)
    return path


class TestList:
    def test_models_without_a_key_are_not_listed(self, models: Models) -> None:
        done = models("list")
        assert [line.split()[0] for line in done.out.splitlines()[1:-1]] == ["clawkit/operator"]
        assert re.search(r"1 of \d+ models can be used\. \d+ more with --all\.", done.out)

    def test_models_with_a_key_are_listed_with_its_source(
        self, models: Models, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
        done = models("list")
        assert "env:ANTHROPIC_API_KEY" in done.out
        assert "openai/" not in done.out
        first = models("list", "--json").json["models"][0]
        assert first["model"].startswith("anthropic/")
        assert first["role"] == "default"

    def test_all_says_what_is_missing_and_comes_after_what_can_be_used(
        self, models: Models, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        done = models("list", "--all")
        lines = done.out.splitlines()
        usable = [number for number, line in enumerate(lines) if "env:OPENAI_API_KEY" in line]
        missing = [number for number, line in enumerate(lines) if "missing:" in line]
        assert max(usable) < min(missing)
        assert "missing: set GEMINI_API_KEY or GOOGLE_API_KEY" in done.out

    def test_json_has_every_fact(self, models: Models, file: Path) -> None:
        file.write_text(
            """{
              models: { providers: { mine: {
                baseUrl: "http://127.0.0.1:9/v1", apiKey: "SECRET",
                models: [{
                  id: "big", name: "Big One", contextWindow: 200000, contextTokens: 96000,
                  maxTokens: 8000, input: ["text", "image"], reasoning: true,
                  cost: { input: 1.5, output: 6 },
                }, { id: "plain" }],
              } } },
              agents: { defaults: {
                model: { primary: "mine/big", fallbacks: ["mine/plain"] },
                models: { "mine/big": { alias: "b" } },
                modelPolicy: { allow: ["mine/big"] },
              } },
            }""".replace("SECRET", SECRET),
            encoding="utf-8",
        )
        done = models("list", "--json")
        assert done.json["agent"] == "main"
        assert done.json["warnings"] == []
        assert done.json["models"][0] == {
            "model": "mine/big",
            "provider": "mine",
            "name": "Big One",
            "contextWindow": 200_000,
            "contextTokens": 96_000,
            "maxTokens": 8_000,
            "input": ["text", "image"],
            "reasoning": True,
            "cost": {"input": 1.5, "output": 6.0, "cacheRead": 0.0, "cacheWrite": 0.0},
            "source": "config",
            "usable": True,
            "allowed": True,
            "auth": "models.providers.mine.apiKey",
            "missing": None,
            "aliases": ["b"],
            "role": "default",
            "problem": None,
        }
        plain = done.row("mine/plain")
        assert (plain["role"], plain["allowed"], plain["usable"]) == ("fallback 1", False, False)
        assert plain["cost"] is None
        text = models("list").out
        assert re.search(r"mine/big .* 200k \(cap 96k\) .* \$1\.5/\$6 .* default, alias b", text)
        assert "fallback 1, not allowed by modelPolicy" in text

    def test_the_list_can_be_limited_to_one_provider(self, models: Models) -> None:
        done = models("list", "--provider", "Z.AI", "--all", "--json")
        assert {row["provider"] for row in done.json["models"]} == {"zai"}
        few = models("list", "--provider", "zai")
        assert "0 of " in few.out
        assert "To use them: set ZAI_API_KEY or Z_AI_API_KEY" in few.out

    def test_a_single_model_is_reported_in_the_singular(self, models: Models, file: Path) -> None:
        file.write_text(
            '{models: {providers: {a: {baseUrl: "https://a.example/v1", models: [{id: "x"}]}}}}',
            encoding="utf-8",
        )
        assert "0 of 1 models can be used. To use it: set" in models("list", "--provider", "a").out

    def test_a_provider_whose_models_are_not_known_by_name(self, models: Models) -> None:
        done = models("list", "--provider", "ollama")
        assert "Use any of them as ollama/NAME." in done.out

    def test_a_provider_that_does_not_exist(self, models: Models) -> None:
        done = models("list", "--provider", "anthropc")
        assert done.code == 2
        assert "unknown provider 'anthropc'; did you mean 'anthropic'?" in done.err
        done = models("list", "--provider", "zzzzzz")
        assert "unknown provider 'zzzzzz'. Providers: anthropic, " in done.err

    def test_unknown_names_are_reported_and_the_rest_is_listed(
        self, models: Models, file: Path
    ) -> None:
        file.write_text('{agents: {defaults: {model: "cluade-opus-5"}}}', encoding="utf-8")
        done = models("list", "--all")
        assert done.code == 0
        assert "warning: agents.defaults.model: unknown model or alias" in done.err
        assert "anthropic/claude-opus-5" in done.out

    def test_a_chosen_model_that_is_not_known_is_listed(self, models: Models, file: Path) -> None:
        file.write_text('{agents: {defaults: {model: "openai/gpt-99"}}}', encoding="utf-8")
        row = models("list", "--json").json["models"][0]
        assert (row["model"], row["usable"]) == ("openai/gpt-99", False)
        assert row["missing"] == "set OPENAI_API_KEY or models.providers.openai.apiKey"

    def test_provider_problems_are_reported_in_their_row(self, models: Models, file: Path) -> None:
        file.write_text(
            """{ models: { providers: {
              a: { baseUrl: "https://a.example", auth: "aws-sdk", models: [{id: "x"}] },
              b: { baseUrl: "https://b.example", api: "google-vertex", models: [{id: "y"}] },
            } } }""",
            encoding="utf-8",
        )
        done = models("list", "--all", "--json")
        assert "AWS credentials are not supported yet" in done.row("a/x")["problem"]
        assert "is not supported yet" in done.row("b/y")["problem"]
        assert not done.row("a/x")["usable"]

    def test_an_unresolvable_secret_is_reported_in_its_row(
        self, models: Models, file: Path
    ) -> None:
        file.write_text(
            """{ models: { providers: { a: {
              baseUrl: "https://a.example", models: [{id: "x"}],
              apiKey: { source: "env", id: "NOT_SET_ANYWHERE" },
            } } } }""",
            encoding="utf-8",
        )
        assert "NOT_SET_ANYWHERE" in models("list", "--all", "--json").row("a/x")["missing"]

    def test_an_invalid_stored_credential_is_reported_once(
        self, models: Models, home: Path
    ) -> None:
        profiles(home, {"profiles": {"openai:half": {"type": "api_key", "provider": "openai"}}})
        assert models("list", "--all").err.count("'openai:half' cannot be used") == 1

    def test_text_of_others_cannot_play_tricks_on_the_terminal(
        self, models: Models, file: Path
    ) -> None:
        file.write_text(
            """{ models: { providers: { a: { baseUrl: "http://127.0.0.1:9",
              models: [{ id: "x", name: "\\u001b[2J\\u202e evil" }] } } } }""",
            encoding="utf-8",
        )
        out = models("list").out
        assert "a/x" in out
        assert "\x1b[2J" not in out
        assert "\u202e" not in out

    async def test_a_model_of_this_machine_is_the_default_as_for_a_turn(
        self, models: Models, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with ScriptedServer(models=("nomic-embed", "qwen3:8b"), ollama=True) as server:
            monkeypatch.setenv("OLLAMA_HOST", server.url)
            done = await asyncio.to_thread(models, "list", "--json")
            status = await asyncio.to_thread(models, "status", "--json")
        first = done.json["models"][0]
        assert (first["model"], first["role"], first["usable"]) == (
            "ollama/qwen3:8b",
            "default",
            True,
        )
        assert done.row("clawkit/operator")["role"] is None
        assert status.json["models"][0]["model"] == first["model"]

    @pytest.mark.parametrize(
        "text",
        [
            '{agents: {defaults: {model: "clawkit/operator"}}}',
            '{agents: {defaults: {model: "openai/gpt-5.4"}}}',
            '{models: {providers: {a: {baseUrl: "http://127.0.0.1:9", models: [{id: "x"}]}}}}',
            # Here Ollama is none of the providers.
            '{models: {mode: "replace"}}',
        ],
    )
    async def test_ollama_is_not_queried_if_a_model_is_configured_or_found(
        self, models: Models, file: Path, monkeypatch: pytest.MonkeyPatch, text: str
    ) -> None:
        file.write_text(text, encoding="utf-8")
        async with ScriptedServer(models=("qwen3:8b",), ollama=True) as server:
            monkeypatch.setenv("OLLAMA_HOST", server.url)
            done = await asyncio.to_thread(models, "list", "--json")
            assert done.json["models"][0]["role"] == "default"
            assert list(server.others) == []

    def test_credentials_of_an_agent_count_only_for_it(
        self, models: Models, home: Path, file: Path
    ) -> None:
        file.write_text('{agents: {list: [{id: "main"}, {id: "ada"}]}}', encoding="utf-8")
        stored = {"openai:me": {"type": "api_key", "provider": "openai", "key": SECRET}}
        profiles(home, {"profiles": stored}, "ada")
        assert (
            models("list", "--agent", "ada", "--json").row("openai/gpt-5.4")["auth"] == "openai:me"
        )
        assert "openai/" not in models("list").out


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (800, "800"),
        (999, "999"),
        (1_000, "1k"),
        (32_768, "33k"),
        (200_000, "200k"),
        (999_499, "999k"),
        (999_500, "1M"),
        (1_048_576, "1M"),
        (1_500_000, "1.5M"),
    ],
)
def test_numbers_of_tokens_are_short(tokens: int, said: str) -> None:
    assert count_tokens(tokens) == said


@pytest.mark.parametrize("columns", [24, 40, 60, 80, 100, 120, 160, None])
def test_a_list_fits_the_terminal(
    models: Models, capsys: pytest.CaptureFixture[str], columns: int | None
) -> None:
    rows = models("list", "--all", "--json").json["models"]
    print_rows(rows, columns)
    lines = capsys.readouterr().out.splitlines()
    for row in rows:
        assert any(line.startswith(row["model"]) for line in lines)
    assert sum("missing: set OPENAI_API_KEY" in line for line in lines) >= 10
    if columns is not None and columns >= 60:
        assert max(map(text_width, lines)) <= columns
    if columns is None:
        assert len(lines) == len(rows) + 1


class TestStatus:
    def test_without_a_model_the_offline_model_is_shown(self, models: Models) -> None:
        done = models("status")
        assert done.code == 1
        assert "clawkit/operator" in done.out
        assert "type clawkit onboard" in done.out
        assert models("status", "--json").json["source"] == "built-in"

    def test_choosing_the_offline_model_is_not_a_problem(self, models: Models, file: Path) -> None:
        file.write_text('{agents: {defaults: {model: "clawkit/operator"}}}', encoding="utf-8")
        done = models("status", "--probe", "--json")
        assert done.code == 0
        assert done.json["models"][0]["problem"] is None

    def test_status_shows_models_credentials_and_hosts(
        self, models: Models, home: Path, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
        file.write_text(
            '{agents: {defaults: {model: {primary: "claude-opus-5", fallbacks: ["gpt-5.4"]}}}}',
            encoding="utf-8",
        )
        done = models("status", "--json")
        assert done.code == 0
        assert done.json["directory"] == str(home / "agents" / "main" / "agent")
        assert done.json["models"] == [
            {
                "model": "anthropic/claude-opus-5",
                "name": "claude-opus-5",
                "setting": "agents.defaults.model.primary",
                "role": "primary",
                "api": "anthropic-messages",
                "endpoint": "api.anthropic.com",
                "credential": "env:ANTHROPIC_API_KEY",
                "kind": "api-key",
                "cooldownMs": 0,
                "others": [],
                "problem": None,
                "probe": None,
            },
            {
                "model": "openai/gpt-5.4",
                "name": "gpt-5.4",
                "setting": "agents.defaults.model.fallbacks[0]",
                "role": "fallback",
                "api": "openai-responses",
                "endpoint": "api.openai.com",
                "credential": None,
                "kind": None,
                "cooldownMs": 0,
                "others": [],
                "problem": "no credential: set OPENAI_API_KEY or models.providers.openai.apiKey",
                "probe": None,
            },
        ]
        text = models("status").out
        assert "then openai/gpt-5.4" in text
        assert "with env:ANTHROPIC_API_KEY (api-key)" in text

    def test_credentials_that_are_cooling_down_are_reported(
        self, models: Models, home: Path, file: Path
    ) -> None:
        until = round(time.time() * 1000) + 3_600_000
        entry = {"type": "api_key", "provider": "openai", "key": SECRET}
        stats = {"openai:a": {"cooldownUntil": until}, "openai:b": {"disabledUntil": until * 2}}
        profiles(home, {"profiles": {"openai:a": entry}, "usageStats": stats})
        file.write_text('{agents: {defaults: {model: "openai/gpt-5.4"}}}', encoding="utf-8")
        told = models("status", "--json").json["models"][0]
        assert told["credential"] == "openai:a"
        assert 3_000_000 < told["cooldownMs"] <= 3_600_000
        assert "openai:a (api-key); it was rejected and is not used for " in models("status").out

    def test_further_credentials_are_listed(
        self, models: Models, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", f"{SECRET}1")
        entry = {"type": "token", "provider": "openai", "token": f"{SECRET}2"}
        profiles(home, {"profiles": {"openai:a": entry}})
        told = models("status", "--json").json["models"][0]
        assert (told["credential"], told["kind"]) == ("openai:a", "token")
        assert [each["credential"] for each in told["others"]] == ["env:OPENAI_API_KEY"]
        assert "also env:OPENAI_API_KEY (api-key)" in models("status").out

    def test_an_unknown_fallback_is_reported_as_its_own_problem(
        self, models: Models, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        choice = '{primary: "openai/gpt-5.4", fallbacks: ["gtp-5.4", "nobody/x"]}'
        file.write_text(f"{{agents: {{defaults: {{model: {choice}}}}}}}", encoding="utf-8")
        done = models("status", "--json")
        assert done.code == 0
        assert [each["model"] for each in done.json["models"]] == ["openai/gpt-5.4", None, None]
        assert "Did you mean 'openai/gpt-5.4'" in done.json["models"][1]["problem"]
        assert "unknown provider 'nobody'" in models("status").out

    def test_an_invalid_address_is_a_problem(self, models: Models, file: Path) -> None:
        provider = '{baseUrl: "nowhere", models: [{id: "x"}]}'
        chosen = '{defaults: {model: "a/x"}}'
        file.write_text(
            f"{{models: {{providers: {{a: {provider}}}}}, agents: {chosen}}}", encoding="utf-8"
        )
        done = models("status", "--json")
        assert done.code == 1
        assert "models.providers.a.baseUrl: is not a URL" in done.json["models"][0]["problem"]

    def test_a_broken_configuration_ends_with_2(self, models: Models, file: Path) -> None:
        file.write_text("{ tolls: 1 }", encoding="utf-8")
        assert models("status").code == 2
        assert models("list").code == 2

    def test_a_broken_models_json_ends_with_2_and_says_where(
        self, models: Models, home: Path
    ) -> None:
        path = profiles(home, {"profiles": {}}).with_name("models.json")
        path.write_text('{"providers": {"a": {"baseURL": 1}}}', encoding="utf-8")
        done = models("list")
        assert done.code == 2
        assert str(path) in done.err


class TestProbe:
    @pytest.mark.parametrize("api", APIS)
    async def test_each_model_is_asked_for_a_word(
        self, models: Models, file: Path, api: Api
    ) -> None:
        async with ScriptedServer("Ready.", fault.status(401)) as server:
            self.configure(file, server, api)
            done = await asyncio.to_thread(models, "status", "--probe", "--json")
            first, second = done.json["models"]
            answers = {first["probe"]["ok"]: first, second["probe"]["ok"]: second}
            assert answers[True]["probe"]["text"] == "Ready."
            assert answers[True]["probe"]["ms"] >= 0
            assert answers[False]["probe"]["kind"] == "auth"
            assert "rejected the credential (HTTP 401)" in answers[False]["probe"]["error"]
            assert done.code == (0 if answers[True] is first else 1)
            assert len(server.requests) == 2

    async def test_the_probe_fails_if_the_first_model_does_not_answer(
        self, models: Models, file: Path
    ) -> None:
        async with ScriptedServer(then=fault.status(500)) as server:
            self.configure(file, server, "openai-completions")
            done = await asyncio.to_thread(models, "status", "--probe")
            assert done.code == 1
            assert done.out.count("failed after ") == 2
            assert server.count == 2

    async def test_the_probe_reports_how_long_it_took(self, models: Models, file: Path) -> None:
        async with ScriptedServer(then="Ready.") as server:
            self.configure(file, server, "openai-responses")
            done = await asyncio.to_thread(models, "status", "--probe")
            assert done.code == 0
            assert len(re.findall(r"answered in [\d.]+m?s: Ready\.", done.out)) == 2

    def test_no_server_is_running(self, models: Models, file: Path) -> None:
        provider = '{baseUrl: "http://127.0.0.1:1/v1", models: [{id: "x"}]}'
        text = (
            f'{{models: {{providers: {{a: {provider}}}}}, agents: {{defaults: {{model: "a/x"}}}}}}'
        )
        file.write_text(text, encoding="utf-8")
        done = models("status", "--probe", "--json")
        assert done.code == 1
        assert done.json["models"][0]["probe"]["kind"] == "network"

    def test_a_header_that_cannot_be_made_fails_like_an_answer(
        self, models: Models, file: Path
    ) -> None:
        provider = (
            '{baseUrl: "http://127.0.0.1:1/v1", models: [{id: "x"}], '
            'headers: {"X-Key": {source: "env", id: "NOT_SET_ANYWHERE"}}}'
        )
        text = (
            f'{{models: {{providers: {{a: {provider}}}}}, agents: {{defaults: {{model: "a/x"}}}}}}'
        )
        file.write_text(text, encoding="utf-8")
        probe = models("status", "--probe", "--json").json["models"][0]["probe"]
        assert (probe["ok"], probe["kind"]) == (False, "config")
        assert "NOT_SET_ANYWHERE" in probe["error"]

    async def test_the_probe_of_a_silent_model_times_out(
        self, models: Models, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(models_command, "PROBE_S", 0.3)
        async with ScriptedServer(then=hang()) as server:
            self.configure(file, server, "openai-completions")
            done = await asyncio.to_thread(models, "status", "--probe", "--json")
            assert done.code == 1
            assert done.json["models"][0]["probe"]["error"] == "no answer within 0.3s"

    async def test_a_model_on_this_machine_is_found(
        self, models: Models, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with ScriptedServer(then="Ready.", models=("llama3",), ollama=True) as server:
            monkeypatch.setenv("OLLAMA_HOST", server.url)
            done = await asyncio.to_thread(models, "status", "--probe", "--json")
            assert done.code == 0
            assert done.json["source"] == "local"
            assert done.json["models"][0]["model"] == "ollama/llama3"
            assert done.json["models"][0]["probe"]["ok"]

    @staticmethod
    def configure(file: Path, server: ScriptedServer, api: Api) -> None:
        provider = server.provider_config(api, ["one", "two"])
        choice = {"primary": "fake/one", "fallbacks": ["fake/two"]}
        settings = {
            "models": {"providers": {"fake": provider}},
            "agents": {"defaults": {"model": choice}},
        }
        file.write_text(json.dumps(settings), encoding="utf-8")


class TestSet:
    def content(self, file: Path) -> Any:
        return parse(file.read_text(encoding="utf-8")).value

    def test_a_model_is_written_with_its_provider(
        self, models: Models, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
        done = models("set", "claude-opus-5")
        assert done.code == 0
        assert "warning" not in done.err
        assert self.content(file)["agents"]["defaults"]["model"] == "anthropic/claude-opus-5"
        assert models("status", "--json").json["models"][0]["model"] == "anthropic/claude-opus-5"

    def test_comments_stay_and_so_do_fallbacks(self, models: Models, file: Path) -> None:
        text = """{
  // who answers
  agents: { defaults: { model: {
    primary: "openai/gpt-5.4", fallbacks: ["xai/grok-4.5"], timeoutMs: 9,
  } } },
}
"""
        file.write_text(text, encoding="utf-8")
        assert models("set", "claude-opus-5").code == 0
        changed = file.read_text(encoding="utf-8")
        assert changed == text.replace("openai/gpt-5.4", "anthropic/claude-opus-5")
        assert models(
            "set", "gpt-5.4", "--fallback", "claude-opus-5", "--fallback", "gemini-2.5-pro"
        )
        assert self.content(file)["agents"]["defaults"]["model"] == {
            "primary": "openai/gpt-5.4",
            "fallbacks": ["anthropic/claude-opus-5", "google/gemini-2.5-pro"],
            "timeoutMs": 9,
        }
        assert "// who answers" in file.read_text(encoding="utf-8")
        assert models("set", "gpt-5.4", "--no-fallback").code == 0
        assert self.content(file)["agents"]["defaults"]["model"]["fallbacks"] == []

    def test_an_alias_is_stored_as_the_model_it_means(self, models: Models, file: Path) -> None:
        file.write_text(
            '{agents: {defaults: {models: {"openai/gpt-5.4": {alias: "fast"}}}}}', encoding="utf-8"
        )
        assert models("set", "FAST").code == 0
        assert self.content(file)["agents"]["defaults"]["model"] == "openai/gpt-5.4"

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            (("claude-opsu-5",), "Did you mean 'anthropic/claude-opus-5'"),
            (("antropic/claude-opus-5",), "Did you mean 'anthropic'?"),
            (("gpt-5.4", "--fallback", "gtp-5"), "unknown model or alias 'gtp-5'"),
            (("",), "empty"),
            (("openai/",), "must look like"),
            (("\x1b[2J",), "unknown model"),
        ],
    )
    def test_unknown_names_are_refused(
        self, models: Models, file: Path, args: tuple[str, ...], words: str
    ) -> None:
        done = models("set", *args)
        assert done.code == 2
        assert words in done.err
        assert "\x1b[2J" not in done.err
        assert not file.exists()

    def test_models_that_are_not_allowed_are_refused(self, models: Models, file: Path) -> None:
        text = '{agents: {defaults: {modelPolicy: {allow: ["openai/*"]}}}}'
        file.write_text(text, encoding="utf-8")
        done = models("set", "claude-opus-5")
        assert done.code == 3
        assert "modelPolicy.allow" in done.err
        assert file.read_text(encoding="utf-8") == text

    def test_doubtful_models_are_set_with_a_warning(self, models: Models, file: Path) -> None:
        done = models("set", "anthropic/claude-opsu-5")
        assert done.code == 0
        assert "did you mean 'claude-opus-5'" in done.err
        assert "anthropic needs a credential: set ANTHROPIC_API_KEY" in done.err
        assert self.content(file)["agents"]["defaults"]["model"] == "anthropic/claude-opsu-5"

    def test_a_dry_run_writes_nothing(self, models: Models, file: Path) -> None:
        done = models("set", "gpt-5.4", "--dry-run")
        assert done.code == 0
        assert "openai/gpt-5.4" in done.out
        assert not file.exists()

    def test_as_json(self, models: Models, file: Path) -> None:
        done = models("set", "gpt-5.4", "--json")
        assert (done.json["file"], done.json["written"]) == (str(file), True)

    @pytest.mark.parametrize(
        ("text", "where"),
        [
            ('{agents: {list: [{id: "x"}, {id: "ada"}]}}', ("list", 1)),
            ('{agents: {entries: {x: {}, "ada": {}}}}', ("entries", "ada")),
        ],
    )
    def test_the_model_can_be_set_for_one_agent(
        self, models: Models, file: Path, text: str, where: tuple[str, Any]
    ) -> None:
        file.write_text(text, encoding="utf-8")
        assert models("set", "gpt-5.4", "--agent", "Ada").code == 0
        kind, key = where
        assert self.content(file)["agents"][kind][key]["model"] == "openai/gpt-5.4"
        assert "defaults" not in self.content(file)["agents"]

    def test_an_agent_that_does_not_exist(self, models: Models, file: Path) -> None:
        file.write_text('{agents: {list: [{id: "ada"}]}}', encoding="utf-8")
        done = models("set", "gpt-5.4", "--agent", "adda")
        assert done.code == 2
        assert "unknown agent 'adda'; did you mean 'ada'? Without --agent" in done.err

    def test_agents_with_their_own_model_are_reported(self, models: Models, file: Path) -> None:
        file.write_text(
            '{agents: {list: [{id: "ada", default: true, model: "openai/o3"}]}}', encoding="utf-8"
        )
        done = models("set", "gpt-5.4")
        assert done.code == 0
        assert "'ada' has its own model (agents.list[0].model); add --agent" in done.err

    def test_two_contradicting_options(self, models: Models) -> None:
        assert models("set", "gpt-5.4", "--fallback", "o3", "--no-fallback").code == 2

    def test_a_command_of_an_agent_may_not(
        self, models: Models, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process_table, "is_inside_command", lambda: True)
        done = models("set", "gpt-5.4")
        assert done.code == 3
        assert "a person must type this" in done.err
        assert not file.exists()
        assert models("list").code == 0


def test_services_are_written_for_other_programs_without_their_secrets(
    models: Models, file: Path, home: Path
) -> None:
    file.write_text(
        json.dumps(
            {
                "env": {"MINE_KEY": SECRET},
                "models": {
                    "providers": {
                        "mine": {
                            "baseUrl": "http://127.0.0.1:9/v1",
                            "apiKey": "${MINE_KEY}",
                            "models": [{"id": "m", "name": "M"}],
                        }
                    }
                },
            }
        )
    )
    done = models("write")
    written = home / "agents" / "main" / "agent" / "models.json"
    assert (done.code, done.out) == (0, f"Wrote {written}\n")
    assert SECRET not in written.read_text()
    assert "127.0.0.1:9" in written.read_text()
    assert written.stat().st_mode & 0o777 == 0o600
