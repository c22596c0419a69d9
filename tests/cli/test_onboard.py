"""`clawkit onboard` and `clawkit configure`: by options, and by questions at a real terminal."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shlex
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cli.test_terminal_approver import Terminal

from clawkit.cli.main import run
from clawkit.cli.onboarding.probe import ModelList, Trial, check_address, list_models, read_listing
from clawkit.cli.onboarding.write import CHOICES, clean_key
from clawkit.config.json5 import parse
from clawkit.config.load import load
from clawkit.models.known import PROVIDERS
from clawkit.models.protocols import Api
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import Launch
from clawkit.testing import ScriptedServer
from clawkit.web.search.table import PROVIDERS as SEARCH_PROVIDERS
from clawkit_testkit import fault

KEY = "sk-test-Zq83hfKw02mXx91LpVd"
APIS: dict[str, Api] = {
    "openai": "openai-completions",
    "openai-responses": "openai-responses",
    "anthropic": "anthropic-messages",
    "google": "google-generative-ai",
}


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Onboard = Callable[..., Done]
Open = Callable[..., Terminal]


@pytest.fixture(autouse=True)
def _nothing_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key in the environment, no Ollama, no proxy."""
    names = {name for each in PROVIDERS.values() for name in each.env} | {"CUSTOM_API_KEY"}
    names |= {name for each in SEARCH_PROVIDERS.values() for name in each.env}
    proxies = {name for name in os.environ if name.lower().endswith("_proxy")}
    for name in names | proxies:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")


@pytest.fixture
def file() -> Path:
    return Path(os.environ["CLAWKIT_HOME"], "clawkit.json5")


@pytest.fixture
def keys() -> Path:
    return Path(os.environ["CLAWKIT_HOME"], "agents", "main", "agent", "auth-profiles.json")


@pytest.fixture
def onboard(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Onboard:
    """Run `clawkit onboard --non-interactive ...` in this process."""

    def type_in(choice: str, *args: str, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as end:
            run(["onboard", "--non-interactive", "--auth-choice", choice, *args])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert KEY not in out + err
        assert isinstance(end.value.code, int)
        return Done(end.value.code, out, err)

    return type_in


def content(file: Path) -> Any:
    return parse(file.read_text(encoding="utf-8")).value


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def stored(keys: Path) -> Any:
    return json.loads(keys.read_bytes())["profiles"]


def at_server(server: ScriptedServer, provider: str = "cerebras") -> str:
    """A configuration in which a known provider is the scripted server."""
    url = server.base_url("openai-completions")
    return f"""{{
  // mine
  models: {{ providers: {{ {provider}: {{ baseUrl: "{url}" }} }} }}, // here
}}
"""


@pytest.mark.parametrize(
    ("choice", "model", "url"),
    [
        ("cerebras-api-key", "cerebras/zai-glm-4.7", None),
        ("kimi-code-api-key", "kimi/kimi-code", None),
        ("minimax-global-api", "minimax/MiniMax-M2.7", None),
        ("minimax-cn-api", "minimax/MiniMax-M2.7", "https://api.minimaxi.com/anthropic"),
        ("moonshot-api-key", "moonshot/kimi-k2.6", None),
        ("moonshot-api-key-cn", "moonshot/kimi-k2.6", "https://api.moonshot.cn/v1"),
        ("opencode-zen", "opencode/claude-opus-4-6", None),
        ("opencode-go", "opencode-go/kimi-k2.6", None),
        ("synthetic-api-key", "synthetic/hf:MiniMaxAI/MiniMax-M2.5", None),
        ("zai-api-key", "zai/glm-4.7", None),
        ("zai-general-api-key", "zai/glm-4.7", "https://api.z.ai/api/paas/v4"),
        ("gemini-api-key", "google/gemini-3-flash-preview", None),
        ("anthropic", "anthropic/claude-sonnet-4-6", None),
    ],
)
def test_each_choice_writes_its_model_and_where_it_is(
    onboard: Onboard,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    choice: str,
    model: str,
    url: str | None,
) -> None:
    provider = model.partition("/")[0]
    monkeypatch.setenv(PROVIDERS[provider].env[0], KEY)
    assert onboard(choice, "--no-test").code == 0
    found = content(file)
    assert found["agents"]["defaults"]["model"]["primary"] == model
    providers = found.get("models", {}).get("providers", {})
    assert providers.get(provider, {}).get("baseUrl") == url
    assert KEY not in file.read_text(encoding="utf-8")


def test_every_provider_can_be_chosen() -> None:
    for each in PROVIDERS.values():
        wanted = each.id if each.is_local else f"{each.id}-api-key"
        assert CHOICES[wanted].provider == each.id
    assert {"custom-api-key", "skip"} <= CHOICES.keys()


def test_a_new_file_is_short_explained_and_closed_to_others(
    onboard: Onboard, file: Path, keys: Path
) -> None:
    done = onboard("anthropic-api-key", "--no-test", "--api-key-stdin", stdin=f"{KEY}\n")
    assert done.code == 0, done
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) < 25
    for written in ("primary:", "profile:"):
        at = next(number for number, line in enumerate(lines) if written in line)
        assert lines[at - 1].strip().startswith("// ")
    assert content(file)["tools"]["profile"] == "coding"
    assert mode_of(file) == mode_of(keys) == 0o600
    assert stored(keys) == {
        "anthropic:default": {"type": "api_key", "provider": "anthropic", "key": KEY}
    }
    assert KEY not in text
    assert load().warnings == []


def test_an_existing_file_keeps_its_comments_and_its_profile(onboard: Onboard, file: Path) -> None:
    before = """{
  // how careful to be
  tools: { profile: "minimal", exec: { ask: "always" } }, // very
  agents: {
    defaults: {
      model: "openai/gpt-5.4", // for now
    },
  },
}
"""
    file.write_text(before, encoding="utf-8")
    done = onboard("zai-api-key", "--no-test", "--api-key-env", "TEAM_KEY", "--model", "glm-5.1")
    assert done.code == 0
    text = file.read_text(encoding="utf-8")
    assert '      model: "zai/glm-5.1", // for now\n' in text
    assert '  tools: { profile: "minimal", exec: { ask: "always" } }, // very\n' in text
    assert "  // how careful to be\n" in text
    assert '        apiKey: "${TEAM_KEY}"' in text
    assert "TEAM_KEY is not set" in done.err
    assert Path(f"{file}.bak").read_text(encoding="utf-8") == before


def test_an_agent_with_a_model_of_its_own_gets_the_new_one(onboard: Onboard, file: Path) -> None:
    text = '{agents: {list: [{id: "main", model: {primary: "openai/gpt-5.4", fallbacks: []}}]}}'
    file.write_text(text, encoding="utf-8")
    assert onboard("xai-api-key", "--no-test", "--api-key-env", "XAI_API_KEY").code == 0
    assert content(file)["agents"]["list"][0]["model"]["primary"] == "xai/grok-4.5"
    assert "defaults" not in content(file)["agents"]


def test_the_usual_address_comes_back_and_one_of_a_person_stays(
    onboard: Onboard, file: Path
) -> None:
    given = ("--no-test", "--api-key-env", "MOONSHOT_API_KEY")
    onboard("moonshot-api-key-cn", *given)
    onboard("moonshot-api-key", *given)
    providers = content(file)["models"]["providers"]
    assert providers["moonshot"]["baseUrl"] == "https://api.moonshot.ai/v1"
    file.write_text('{models: {providers: {"z.ai": {baseUrl: "https://proxy.example/v1"}}}}')
    onboard("zai-api-key", "--no-test", "--api-key-env", "ZAI_API_KEY")
    assert content(file)["models"]["providers"] == {"z.ai": {"baseUrl": "https://proxy.example/v1"}}


def test_skip_writes_the_tools_only(onboard: Onboard, file: Path) -> None:
    done = onboard("skip", "--json")
    assert (done.code, done.json["model"], done.json["test"]) == (0, None, None)
    assert content(file) == {"tools": {"profile": "coding"}}
    again = onboard("skip", "--json")
    assert (again.code, again.json["changed"], again.json["written"]) == (0, False, False)


@pytest.mark.parametrize("name", APIS)
async def test_the_model_is_asked_before_anything_is_written(
    onboard: Onboard, file: Path, keys: Path, name: str
) -> None:
    async with ScriptedServer("ready") as server:
        done = await asyncio.to_thread(
            onboard,
            "custom-api-key",
            *("--custom-base-url", server.base_url(APIS[name]), "--custom-provider-id", "mine"),
            *("--custom-model-id", "scripted-model", "--custom-compatibility", name),
            *("--api-key-stdin", "--json"),
            stdin=KEY,
        )
        headers = server.requests[0].headers.values()
    assert done.code == 0, done
    assert done.json["test"]["ok"] is True
    assert done.json["model"] == "mine/scripted-model"
    assert any(KEY in value for value in headers)
    assert stored(keys)["mine:default"]["key"] == KEY
    provider = content(file)["models"]["providers"]["mine"]
    assert provider["api"] == APIS[name]
    assert provider["models"] == [
        {"id": "scripted-model", "input": ["text"], "contextWindow": 128_000}
    ]
    assert load().warnings == []


async def test_a_wrong_key_is_explained_and_nothing_is_written(
    onboard: Onboard, file: Path, keys: Path
) -> None:
    async with ScriptedServer(then=fault.bad_key()) as server:
        text = at_server(server)
        file.write_text(text, encoding="utf-8")
        given = ("cerebras-api-key", "--api-key-stdin")
        done = await asyncio.to_thread(onboard, *given, stdin=KEY)
        assert done.code == 1
        assert "The provider rejected the key." in done.err
        assert "Nothing was written" in done.err
        assert file.read_text(encoding="utf-8") == text
        assert not keys.exists()
        shown = await asyncio.to_thread(onboard, *given, "--json", stdin=KEY)
        assert (shown.code, shown.json["ok"], shown.json["written"]) == (1, False, False)
        assert shown.json["test"]["kind"] == "auth"
        saved = await asyncio.to_thread(onboard, *given, "--save-anyway", stdin=KEY)
        assert saved.code == 0
    assert stored(keys)["cerebras:default"]["key"] == KEY
    assert "// mine" in file.read_text(encoding="utf-8")


async def test_a_key_that_is_stored_is_used_again(
    onboard: Onboard, file: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedServer(then="ready") as server:
        file.write_text(at_server(server), encoding="utf-8")
        await asyncio.to_thread(onboard, "cerebras-api-key", "--api-key-stdin", stdin=KEY)
        done = await asyncio.to_thread(onboard, "cerebras", "--model", "cerebras/gpt-oss-120b")
        assert done.code == 0
        assert KEY in server.requests[-1].headers["authorization"]
        assert server.requests[-1].body["model"] == "gpt-oss-120b"
        monkeypatch.setenv("CEREBRAS_API_KEY", "another-key-for-tests")
        other = await asyncio.to_thread(onboard, "cerebras")
        assert "another-key-for-tests" in server.requests[-1].headers["authorization"]
    assert "another credential, cerebras:default, which takes precedence" in other.err
    assert list(stored(keys)) == ["cerebras:default"]


def test_a_new_key_is_put_before_those_in_the_configured_order(
    onboard: Onboard, file: Path, keys: Path
) -> None:
    file.write_text('{auth: {order: {groq: ["groq:old"]}}}', encoding="utf-8")
    keys.parent.mkdir(parents=True)
    old = {"profiles": {"groq:old": {"type": "api_key", "provider": "groq", "key": "old"}}, "x": 1}
    keys.write_text(json.dumps(old), encoding="utf-8")
    keys.chmod(0o600)
    done = onboard("groq-api-key", "--no-test", "--api-key-stdin", stdin=KEY)
    assert (done.code, "used first" in done.err) == (0, False)
    assert content(file)["auth"]["order"] == {"groq": ["groq:default", "groq:old"]}
    assert list(stored(keys)) == ["groq:old", "groq:default"]
    assert json.loads(keys.read_bytes())["x"] == 1


def test_without_the_configuration_the_key_is_not_kept_either(
    onboard: Onboard, file: Path, keys: Path
) -> None:
    Path(f"{file}.lock").mkdir()
    done = onboard("groq-api-key", "--no-test", "--api-key-stdin", stdin=KEY)
    assert done.code == 2
    assert "was not changed" in done.err
    assert not file.exists()
    assert stored(keys) == {}


def test_a_key_among_the_arguments_works_with_a_warning(onboard: Onboard, keys: Path) -> None:
    done = onboard("groq-api-key", "--no-test", "--api-key", KEY)
    assert done.code == 0
    assert "other users can see --api-key" in done.err
    assert stored(keys)["groq:default"]["key"] == KEY


@pytest.mark.parametrize(
    ("model", "flags", "images"),
    [
        ("llava:13b", (), True),
        ("qwen2.5-vl-72b", (), True),
        ("deepseek-v4", (), False),
        ("brand-new", (), False),
        ("brand-new", ("--custom-image-input",), True),
        ("gpt-4o", ("--custom-text-input",), False),
    ],
)
def test_whether_images_are_taken_is_known_by_the_name_or_said(
    onboard: Onboard, file: Path, model: str, flags: tuple[str, ...], images: bool
) -> None:
    where = ("--custom-base-url", "http://127.0.0.1:8000/v1/", "--custom-model-id", model)
    assert onboard("custom-api-key", *where, *flags, "--no-test").code == 0
    provider = content(file)["models"]["providers"]["local-8000"]
    assert provider["models"][0]["input"] == (["text", "image"] if images else ["text"])
    assert (provider["baseUrl"], "apiKey" in provider) == ("http://127.0.0.1:8000/v1", False)


def test_plain_http_to_the_world_is_refused_at_once(
    onboard: Onboard, file: Path, keys: Path
) -> None:
    where = ("--custom-base-url", "http://llm.example.com/v1", "--custom-model-id", "m")
    done = onboard("custom-api-key", *where, "--api-key-stdin", "--no-test", stdin=KEY)
    assert done.code == 2
    assert "--custom-base-url: llm.example.com cannot be used: plain http" in done.err
    assert not file.exists()
    assert not keys.exists()
    # A name may be of a private network, whatever it looks like.
    done = onboard("custom-api-key", *where, "--custom-private-network", "--no-test")
    assert done.code == 0
    provider = content(file)["models"]["providers"]["llm-example-com"]
    assert provider["request"] == {"allowPrivateNetwork": True}


@pytest.mark.parametrize("words", ["Name or service not known", "No address associated"])
def test_a_service_whose_host_is_not_found_was_not_reached(
    onboard: Onboard, file: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    def resolve(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, words)

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    done = onboard("groq-api-key", "--api-key-stdin", stdin=KEY)
    assert done.code == 1
    assert done.err.startswith("The provider cannot be reached.\n")
    assert words in done.err
    assert "no such model" not in done.err
    done = onboard("groq-api-key", "--api-key-stdin", "--json", stdin=KEY)
    assert done.json["test"]["kind"] == "not_found"
    assert not file.exists()


@pytest.mark.parametrize(
    ("kind", "was_answered", "plain"),
    [
        ("not_found", True, "not_found"),
        ("not_found", False, "network"),
        ("refused", False, "refused"),
        ("auth", True, "auth"),
    ],
)
def test_a_model_that_was_not_reached_is_not_judged(
    kind: str, was_answered: bool, plain: str
) -> None:
    trial = Trial("a/b", 0.1, kind=kind, problem="so it is", was_answered=was_answered)
    assert trial.plain_kind == plain
    assert ("no such model" in trial.words) == (plain == "not_found")


def test_another_model_of_the_same_service_is_added(onboard: Onboard, file: Path) -> None:
    where = ("--custom-base-url", "http://10.0.0.9:8000/v1", "--custom-private-network")
    for model in ("one", "two", "one"):
        assert onboard("custom-api-key", *where, "--custom-model-id", model, "--no-test").code == 0
    provider = content(file)["models"]["providers"]["10-0-0-9-8000"]
    assert [each["id"] for each in provider["models"]] == ["one", "two"]
    assert provider["request"] == {"allowPrivateNetwork": True}
    assert content(file)["agents"]["defaults"]["model"]["primary"] == "10-0-0-9-8000/one"


async def test_a_model_of_ollama_is_found_and_described(
    onboard: Onboard, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = ("nomic-embed-text", "llava:7b", "qwen3:8b")
    async with ScriptedServer("ready", models=models, ollama=True) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        done = await asyncio.to_thread(onboard, "ollama", "--json")
    assert (done.code, done.json["model"], done.json["key"]) == (0, "ollama/llava:7b", "none")
    # By its name it would take images, but Ollama says that it does not.
    provider = content(file)["models"]["providers"]["ollama"]
    assert provider == {"models": [{"id": "llava:7b", "input": ["text"]}]}


@pytest.mark.parametrize("name", ["antropic-key", "anthropic-api-kee", "nothing-like-it"])
def test_an_unknown_choice_lists_all_of_them(onboard: Onboard, name: str) -> None:
    done = onboard(name)
    assert done.code == 2
    assert ("Did you mean 'anthropic-api-key'" in done.err) == name.startswith("an")
    assert all(each in done.err for each in CHOICES)


_AT = ("--custom-base-url", "https://llm.example/v1", "--custom-model-id", "m")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("groq-api-key",), "no key for groq: set GROQ_API_KEY"),
        (("groq-api-key", "--api-key", "x", "--api-key-stdin"), "use one of --api-key"),
        (("groq-api-key", "--api-key-env", "no name"), "takes a name"),
        (("groq-api-key", "--api-key-stdin"), "the key is empty"),
        (("groq-api-key", "--api-key", "two words"), "a key cannot contain spaces"),
        (("xai-api-key", "--api-key-env", "X", "--model", "openai/gpt-5"), "a model of openai"),
        (("xai-api-key", "--api-key-env", "X", "--model", "no model"), "invalid model id"),
        (("ollama", "--api-key", "x"), "needs no key"),
        (("ollama",), "lists no models here"),
        (("groq-api-key", *_AT), "requires --auth-choice custom-api-key"),
        (("custom-api-key",), "needs --custom-base-url"),
        (("custom-api-key", *_AT), "set CUSTOM_API_KEY"),
        (
            ("custom-api-key", *_AT, "--custom-provider-id", "openai"),
            "the name of a built-in provider",
        ),
        (("custom-api-key", *_AT, "--custom-provider-id", "a/b"), "use lower-case letters"),
        (("custom-api-key", *_AT, "--custom-image-input", "--custom-text-input"), "use one of"),
        (("custom-api-key", *_AT[2:], "--custom-base-url", "http://10.1.1.1"), "private network"),
        (("custom-api-key", *_AT[2:], "--custom-base-url", "ftp://x"), "starts with http"),
    ],
)
def test_missing_and_conflicting_options_are_errors(
    onboard: Onboard, file: Path, args: tuple[str, ...], words: str
) -> None:
    done = onboard(*args)
    assert done.code == 2
    assert words in done.err
    assert not file.exists()


def test_a_file_that_must_not_change_is_not_asked_about(
    onboard: Onboard, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file.parent / "more.json5").write_text('{defaults: {model: "openai/gpt-5"}}')
    file.write_text('{agents: {$include: "more.json5"}}', encoding="utf-8")
    done = onboard("groq-api-key", "--no-test", "--api-key-stdin", stdin=KEY)
    assert (done.code, "change it there" in done.err) == (2, True)
    monkeypatch.setenv("CLAWKIT_CONFIG_READONLY", "1")
    done = onboard("skip")
    assert (done.code, "read-only" in done.err) == (2, True)


@pytest.mark.parametrize("command", [("onboard",), ("configure",), ("configure", "tools")])
def test_without_a_terminal_nothing_is_asked(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(SystemExit) as end:
        run(list(command))
    assert end.value.code == 2
    assert "there is no terminal to ask questions on" in capsys.readouterr().err


async def test_commands_of_agents_cannot_onboard(
    workspace: Path, tmp_path: Path, file: Path
) -> None:
    me = f"{shlex.quote(sys.executable)} -m clawkit"
    wanted = ("onboard --non-interactive --auth-choice skip", "configure tools")
    script = "\n".join(f"{me} {each} </dev/null; echo code $?" for each in wanted)
    host = LocalHost(str(tmp_path / "spool"))
    running = await host.start(Launch(script, str(workspace), dict(os.environ)), "one")
    await running.wait()
    said = (await running.output.read(0, 100_000)).decode()
    await host.close()
    assert said.count("code 3") == 2, said
    assert not file.exists()


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        (f"  {KEY}\n", KEY),
        (f'"{KEY}"', KEY),
        (f"export OPENAI_API_KEY='{KEY}'", KEY),
        (f"OPENAI_API_KEY={KEY}", KEY),
        (f"Bearer {KEY}", KEY),
        ("QUJD_REVG==", "QUJD_REVG=="),
        ("", None),
        ("a\x1b[Ab", None),
        ("ключ", None),
        ("x" * 9_000, None),
    ],
)
def test_typed_keys_are_cleaned_or_refused(typed: str, key: str | None) -> None:
    if key is not None:
        assert clean_key(typed) == key
        return
    with pytest.raises(ValueError, match="key") as caught:
        clean_key(typed)
    assert not typed or typed not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "private", "near"),
    [
        ("https://llm.example.com/v1/", False, False),
        ("http://localhost:8000", False, True),
        ("http://[::1]:8000/v1", False, True),
        ("http://192.168.0.4:8000/v1", True, False),
        ("http://0x0a000001/", True, False),
        ("http://gpu.lan:8000/v1", False, False),
        ("http://gpu-box:8000/v1", False, False),
    ],
)
def test_an_address_is_judged(url: str, private: bool, near: bool) -> None:
    found = check_address(url, resolve=False)
    assert (found.is_private, found.is_near) == (private, near)
    assert not found.url.endswith("/")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "http"),
        ("llm.example.com", "http"),
        ("file:///etc/passwd", "http"),
        ("https://me:secret@llm.example.com", "user name or password"),
        ("https://llm.example.com/?key=secret", "has a query or fragment"),
        ("http://203.0.113.9/v1", "documentation"),
        ("http://8.8.8.8/v1", "use https"),
        ("http://llm.example.com/v1", "use https; http is for this machine and private networks"),
        ("http://lan.example.com/v1", "use https"),
        ("http://169.254.169.254/v1", "metadata"),
        ("http://a\x00b/", "http"),
    ],
)
def test_an_unusable_address_is_an_error_with_the_reason(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        check_address(url, resolve=False)
    assert "secret" not in str(caught.value)


def test_the_host_of_an_address_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ["10.0.0.5"]

    def resolve(*_: Any, **__: Any) -> list[Any]:
        if not found:
            raise OSError("nobody knows")
        return [(2, 1, 6, "", (address, 443)) for address in found]

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    assert check_address("https://llm.corp/v1", resolve=True).is_private
    assert check_address("http://llm.corp/v1", resolve=True).is_private
    found[:] = ["10.0.0.5", "8.8.8.8"]
    with pytest.raises(ValueError, match="plain http can be intercepted"):
        check_address("http://llm.corp/v1", resolve=True)
    found[:] = ["169.254.169.254"]
    with pytest.raises(ValueError, match="metadata"):
        check_address("https://llm.corp/v1", resolve=True)
    found.clear()
    assert not check_address("https://llm.corp/v1", resolve=True).is_private
    # Whose name is not known now is not trusted with what is not encrypted.
    with pytest.raises(ValueError, match="plain http can be intercepted"):
        check_address("http://llm.corp/v1", resolve=True)


@pytest.mark.parametrize(
    ("data", "api", "models"),
    [
        ({"data": [{"id": "a", "max_model_len": 9000}]}, "openai-completions", {"a": 9000}),
        ({"data": [{"id": "a"}], "has_more": False}, "anthropic-messages", {"a": 0}),
        (
            {"models": [{"name": "models/a", "inputTokenLimit": 7000}]},
            "google-generative-ai",
            {"a": 7000},
        ),
        (
            {"data": [{"id": "a", "context_length": 1023}, {"id": "b", "context_length": 1024}]},
            "openai-completions",
            {"a": 0, "b": 1024},
        ),
        (
            {"data": [{"id": 3}, {"id": "no id"}, "x", {"id": "b", "context_length": -1}]},
            "",
            {"b": 0},
        ),
        ({"data": "x"}, None, {}),
        ({}, None, {}),
        ([1], None, {}),
        (None, None, {}),
    ],
)
def test_a_list_of_models_tells_the_api(data: Any, api: str | None, models: dict[str, int]) -> None:
    found = read_listing(data, "http://a", "http://a/v1")
    if api is None:
        assert found is None
        return
    assert found is not None
    assert found.api == (api or "openai-completions")
    assert found.models == models
    assert found.base_url == ("http://a" if "anthropic" in api else "http://a/v1")


async def test_the_version_that_is_missing_in_an_address_is_found_out() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        status, body = (200, b'{"data": [{"id": "a"}]}') if path == b"/v1/models" else (404, b"")
        head = f"HTTP/1.1 {status} Ok\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        found = await asyncio.to_thread(list_models, url, KEY)
    assert found == ModelList("openai-completions", f"{url}/v1", {"a": 0})
    assert await asyncio.to_thread(list_models, url, KEY) is None


@pytest.fixture
def terminal(workspace: Path) -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_one(*args: str, term: str = "xterm", columns: int = 400) -> Terminal:
        opened.append(Terminal(*args, cwd=workspace, TERM=term, COLUMNS=str(columns)))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def test_lines_are_folded_by_words(terminal: Open) -> None:
    screen = terminal("onboard", columns=40)
    answer(screen, (PROVIDER, "another provider"))
    screen.until("Which one?")
    lines = screen.shown.split("\r\n")[:-1]
    assert max(len(line) for line in lines if PROVIDER not in line) < 40
    assert lines[:2] == [
        "This saves which model clawkit uses.",
        "Ctrl-C stops without writing anything.",
    ]
    words = {word.strip(",") for line in lines for word in line.split()}
    assert words > set(PROVIDERS)


def answer(screen: Terminal, *talk: tuple[str, str]) -> None:
    """Wait for each question and type its answer."""
    for question, typed in talk:
        screen.until(question)
        screen.type(f"{typed}\n".encode())


PROVIDER, TYPE_KEY, MODEL = "Which provider?", "not shown; leave it empty", "Which model?"
ASK_KEY, NOW, WRITE = "Which key for", "What now?", "Write this?"
SEARCH = "searches the web for you?"


async def test_a_few_questions_lead_to_a_model_that_answers(
    terminal: Open, file: Path, keys: Path
) -> None:
    async with ScriptedServer("ready") as server:
        file.write_text(at_server(server), encoding="utf-8")

        def talk() -> Terminal:
            screen = terminal("onboard", columns=80)
            answer(screen, (PROVIDER, "zzzzzz"), ("Type a number; 'another provider'", "cerebraz"))
            answer(screen, ("Did you mean 'cerebras'?", "another provider"))
            answer(screen, ("Which one?", "cerebras"))
            answer(screen, (TYPE_KEY, KEY), (MODEL, ""), (SEARCH, ""), (WRITE, ""))
            assert screen.end() == 0
            return screen

        screen = await asyncio.to_thread(talk)
        assert KEY in server.requests[0].headers["authorization"]
    assert "no API key in the environment and no Ollama" in screen.shown
    assert "cerebras/zai-glm-4.7 answered in" in screen.shown
    assert "zai-glm-4.7: GLM 4.7" in screen.shown
    listed = screen.shown.partition("Providers: ")[2].partition("Which one?")[0]
    assert ", lmstudio," in listed.replace("\r\n", "")
    assert max(map(len, listed.splitlines())) < 80
    assert 'primary: "cerebras/zai-glm-4.7"' in screen.shown
    assert KEY not in screen.shown
    assert screen.is_as_before()
    text = file.read_text(encoding="utf-8")
    assert "  // mine\n" in text
    assert "// here\n" in text
    assert "// The model to use." in text
    assert (mode_of(file), mode_of(keys)) == (0o600, 0o600)
    assert stored(keys)["cerebras:default"]["key"] == KEY
    assert load().warnings == []


async def test_a_key_in_use_can_be_kept_while_the_model_changes(
    terminal: Open, file: Path, onboard: Onboard
) -> None:
    async with ScriptedServer(then="ready") as server:
        file.write_text(at_server(server), encoding="utf-8")
        await asyncio.to_thread(onboard, "cerebras", "--api-key-stdin", stdin=KEY)

        def talk() -> Terminal:
            screen = terminal("configure", "models")
            answer(screen, (PROVIDER, "cerebras"))
            screen.until("1) keep the current key: cerebras:default")
            answer(screen, (ASK_KEY, ""), (MODEL, ""), ("already has these settings", ""))
            assert screen.end() == 0
            return screen

        await asyncio.to_thread(talk)
        assert KEY in server.requests[-1].headers["authorization"]


async def test_a_model_that_does_not_answer_leads_to_another_choice(
    terminal: Open, file: Path
) -> None:
    async with ScriptedServer(fault.status(404), "ready") as server:
        file.write_text(text := at_server(server, "moonshot"), encoding="utf-8")

        def talk() -> None:
            screen = terminal("onboard")
            answer(screen, (PROVIDER, "another provider"), ("Which one?", "moonshot"))
            screen.until("2) https://api.moonshot.cn/v1")
            answer(screen, ("Which address", ""), (TYPE_KEY, "two words"))
            screen.until("a key cannot contain spaces")
            answer(screen, (TYPE_KEY, KEY), (MODEL, "no id"), ("invalid model id", "3"))
            screen.until("has no such model")
            answer(screen, (NOW, ""), (MODEL, "2"), (SEARCH, ""), (WRITE, "n"))
            assert screen.end() == 1
            assert KEY not in screen.shown

        await asyncio.to_thread(talk)
        assert [each.body["model"] for each in server.requests] == ["kimi-k3", "kimi-k2.7-code"]
    assert file.read_text(encoding="utf-8") == text


async def test_what_is_found_is_offered_first_and_a_wrong_key_can_be_replaced(
    terminal: Open, file: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEREBRAS_API_KEY", "wrong-key-of-tests")
    models = ("qwen3:8b",)
    async with ScriptedServer(fault.bad_key(), "ready", models=models, ollama=True) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        file.write_text(at_server(server), encoding="utf-8")

        def talk() -> Terminal:
            screen = terminal("onboard")
            screen.until("1) cerebras: key in CEREBRAS_API_KEY")
            screen.until("2) ollama: 1 model on this machine")
            answer(screen, (PROVIDER, ""), (ASK_KEY, ""), (MODEL, "2"))
            screen.until("The provider rejected the key.")
            # The likely remedy is what Enter means.
            answer(screen, (NOW, ""), (TYPE_KEY, KEY), (SEARCH, ""), (WRITE, ""))
            assert screen.end() == 0
            return screen

        screen = await asyncio.to_thread(talk)
    assert "use CEREBRAS_API_KEY from the environment: recommended" in screen.shown
    assert KEY not in screen.shown
    assert "wrong-key-of-tests" not in screen.shown
    assert stored(keys)["cerebras:default"]["key"] == KEY
    assert content(file)["agents"]["defaults"]["model"]["primary"] == "cerebras/gpt-oss-120b"


def test_a_key_can_be_set_later(terminal: Open, file: Path, keys: Path) -> None:
    screen = terminal("onboard", "--auth-choice", "groq-api-key")
    answer(screen, (TYPE_KEY, ""), (MODEL, "my/own-model"))
    screen.until("GROQ_API_KEY is not set, so the model cannot be tested")
    answer(screen, (SEARCH, ""), (WRITE, ""))
    assert screen.end() == 0
    assert "clawkit does not know groq/my/own-model" in screen.shown
    assert "groq needs a credential: set GROQ_API_KEY" in screen.shown
    assert "First: export GROQ_API_KEY=YOUR_KEY" in screen.shown
    assert content(file)["agents"]["defaults"]["model"]["primary"] == "groq/my/own-model"
    assert not keys.exists()


@pytest.mark.parametrize(
    ("at", "typed"),
    [(PROVIDER, b"\x03"), (TYPE_KEY, b"\x03"), (MODEL, b"\x04"), (WRITE, b"\x03")],
)
def test_ending_onboarding_early_leaves_nothing(
    terminal: Open, file: Path, keys: Path, at: str, typed: bytes
) -> None:
    screen = terminal("onboard")
    # Without a key nothing is tried.
    key = "" if at == WRITE else KEY
    talk = [(PROVIDER, "groq"), (TYPE_KEY, key), (MODEL, ""), (SEARCH, ""), (WRITE, "")]
    answer(screen, *talk[: [question for question, _ in talk].index(at)])
    screen.until(at)
    screen.until_reading()
    screen.type(typed)
    assert screen.end() == 130
    assert "Nothing was written." in screen.shown
    assert KEY not in screen.shown
    assert screen.is_as_before()
    assert list(file.parent.iterdir()) == []
    assert not keys.exists()


async def test_a_model_that_does_not_answer_need_not_be_waited_for(
    terminal: Open, file: Path, keys: Path
) -> None:
    async with ScriptedServer(fault.hang()) as server:
        file.write_text(text := at_server(server), encoding="utf-8")
        screen = terminal("onboard", "--auth-choice", "cerebras")
        await asyncio.to_thread(answer, screen, (TYPE_KEY, KEY), (MODEL, ""))
        await server.wait_for()
        screen.type(b"\x03")
        assert await asyncio.to_thread(screen.end) == 130
    assert "Nothing was written." in screen.shown
    assert file.read_text(encoding="utf-8") == text
    assert not keys.exists()


async def test_models_of_a_self_hosted_service_are_listed(terminal: Open, file: Path) -> None:
    async with ScriptedServer("ready") as server:

        def talk() -> Terminal:
            screen = terminal("onboard", "--auth-choice", "custom-api-key", term="dumb")
            answer(
                screen, ("Address of the API", "ftp://x"), ("starts with http", "http://10.1.2.3")
            )
            answer(screen, ("Let clawkit connect to it?", ""), ("Address of the API", server.url))
            answer(screen, ("Short name", "OpenAI"), ("the name of a built-in provider", "mine"))
            answer(screen, (TYPE_KEY, ""), ("The server responds and lists 1 model.", ""))
            answer(screen, (MODEL, ""), ("accept images?", "y"), ("Context window of", "1"))
            answer(screen, ("1,024 or more", "1023"), ("1,024 or more", "64,000"))
            answer(screen, (SEARCH, "duckduckgo"), (WRITE, ""))
            assert screen.end() == 0
            return screen

        screen = await asyncio.to_thread(talk)
        provider = {
            "baseUrl": server.url,
            "api": "openai-completions",
            "models": [
                {"id": "scripted-model", "input": ["text", "image"], "contextWindow": 64_000}
            ],
        }
    assert content(file)["models"]["providers"] == {"mine": provider}
    assert content(file)["tools"]["web"] == {"search": {"provider": "duckduckgo"}}
    assert content(file)["agents"]["defaults"]["model"]["primary"] == "mine/scripted-model"
    assert "\x1b" not in screen.shown


def test_stopping_after_a_failure_writes_nothing(terminal: Open, file: Path) -> None:
    file.write_text('{models: {providers: {vllm: {baseUrl: "http://127.0.0.1:1"}}}}')
    before = file.read_text(encoding="utf-8")
    screen = terminal("configure", "models")
    answer(screen, (PROVIDER, "vllm"), (MODEL, "some-model"))
    screen.until("The provider cannot be reached.")
    answer(screen, (NOW, "start over"), (PROVIDER, "vllm"), (MODEL, "other"), (NOW, "stop"))
    assert screen.end() == 1
    assert "Nothing was written." in screen.shown
    assert file.read_text(encoding="utf-8") == before


def test_tools_are_configured_by_questions(terminal: Open, file: Path) -> None:
    screen = terminal("configure")
    answer(screen, ("What do you want to change?", "tools"), ("Which tools may", "messaging"))
    answer(screen, ("inside the workspace?", "n"), ("without progress?", "y"), (WRITE, ""))
    assert screen.end() == 0
    assert content(file)["tools"] == {
        "profile": "messaging",
        "fs": {"workspaceOnly": False},
        "loopDetection": {"enabled": True},
    }


def test_approvals_are_configured_in_plain_words(terminal: Open, file: Path) -> None:
    file.write_text('{tools: {exec: {security: "deny"}}} // mine\n', encoding="utf-8")
    screen = terminal("configure", "approvals")
    question = "wants to run a command?"
    answer(screen, (question, "full"), ("Are you sure?", ""), (question, "1"), (WRITE, "maybe"))
    answer(screen, ("invalid input", "y"))
    assert screen.end() == 0
    assert content(file) == {"tools": {"exec": {"mode": "ask"}}}
    assert file.read_text(encoding="utf-8").endswith("// mine\n")


def test_a_search_service_is_configured_by_questions(
    terminal: Open, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = terminal("configure", "search")
    for number, name in enumerate(("parallel-free", "firecrawl", "searxng", "duckduckgo"), 1):
        screen.until(f"{number}) {name}: ")
    answer(screen, (SEARCH, "searxng"), ("Address of your SearXNG", "here"))
    answer(screen, ("not start with http", "http://10.0.0.5:8080/"), (WRITE, ""))
    assert screen.end() == 0
    assert content(file) == {
        "tools": {"web": {"search": {"provider": "searxng"}}},
        "plugins": {
            "entries": {"searxng": {"config": {"webSearch": {"baseUrl": "http://10.0.0.5:8080"}}}}
        },
    }
    # Its address can be changed; Enter keeps it.
    screen = terminal("configure", "search")
    screen.until("1) searxng: its address is set")
    answer(screen, (SEARCH, ""), ("[http://10.0.0.5:8080]", ""), ("already has these settings", ""))
    assert screen.end() == 0
    screen = terminal("configure", "search")
    answer(screen, (SEARCH, "with a key"), ("Which one?", "tavily"), (WRITE, ""))
    assert screen.end() == 0
    assert "export TAVILY_API_KEY=YOUR_KEY" in screen.shown
    assert content(file)["tools"]["web"]["search"]["provider"] == "tavily"
    monkeypatch.setenv("BRAVE_API_KEY", KEY)
    screen = terminal("configure", "search")
    screen.until("1) brave: its key is set")
    screen.until("no change: it stays tavily")
    # Enter does not switch to another service, although tavily has no key yet.
    answer(screen, (SEARCH, ""), ("already has these settings", ""))
    assert screen.end() == 0
    assert content(file)["tools"]["web"]["search"]["provider"] == "tavily"


OPENCLAW = '{\n  // mine\n  agents: { defaults: { model: "groq/one" } },\n}\n'


@pytest.fixture
def openclaw() -> Path:
    other = Path(os.environ["HOME"], ".openclaw", "openclaw.json")
    other.parent.mkdir()
    other.write_text(OPENCLAW, encoding="utf-8")
    return other


def test_the_settings_of_an_openclaw_can_be_used(
    terminal: Open, file: Path, openclaw: Path
) -> None:
    screen = terminal("onboard")
    answer(screen, ("Use them?", ""))
    assert screen.end() == 0
    assert f"Wrote {file}" in screen.shown.replace("\r\n", "")
    assert (file.read_text(encoding="utf-8"), mode_of(file)) == (OPENCLAW, 0o600)
    assert openclaw.read_text(encoding="utf-8") == OPENCLAW
    # Next time there is a configuration, and the question does not come again.
    screen = terminal("onboard")
    answer(screen, (PROVIDER, "none"), (SEARCH, ""), (WRITE, "n"))
    assert screen.end() == 1
    assert "Use them?" not in screen.shown


def test_the_settings_of_an_openclaw_need_not_be_used(
    terminal: Open, file: Path, openclaw: Path
) -> None:
    screen = terminal("onboard")
    answer(screen, ("Use them?", "n"), (PROVIDER, "none"), (SEARCH, ""), (WRITE, "n"))
    assert screen.end() == 1
    assert not file.exists()
    openclaw.write_text("{tools: 3}", encoding="utf-8")
    screen = terminal("onboard")
    answer(screen, ("cannot be copied", "none"), (SEARCH, ""), (WRITE, "n"))
    assert screen.end() == 1
    assert "expected an object" in screen.shown
    (openclaw.parent / "more.json5").write_text("{}", encoding="utf-8")
    openclaw.write_text('{tools: {$include: "more.json5"}}', encoding="utf-8")
    screen = terminal("onboard")
    answer(screen, (f"export CLAWKIT_CONFIG={openclaw}", "none"), (SEARCH, ""), (WRITE, "n"))
    assert screen.end() == 1
