"""The tool llm-task: one question, JSON back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.bundled.lobster_kit import output, run

from clawkit import Agent
from clawkit.config.model import Config
from clawkit.models.providers import agent_dir
from clawkit.runtime import Toolkit
from clawkit.testing import Gate, ScriptedModel, ScriptedServer, call

BOMB: dict[str, Any] = {"$ref": "#/$defs/30", "$defs": {"0": {"not": {}}}}
"""A schema that takes days to check."""
for each in range(30):
    BOMB["$defs"][f"{each + 1}"] = {"anyOf": [{"$ref": f"#/$defs/{each}"}] * 2}


def config(server: ScriptedServer, llm: Any = None, **settings: Any) -> dict[str, Any]:
    mine = server.provider_config("openai-completions", models=["one", "two"])
    entry = {"enabled": True, "config": settings, **({"llm": llm} if llm else {})}
    return {
        "models": {"providers": {"mine": mine}},
        "agents": {"defaults": {"model": "mine/one", "sandbox": {"mode": "off"}}},
        "tools": {"alsoAllow": ["llm-task", "lobster"]},
        "plugins": {"entries": {"llm-task": entry, "lobster": {"enabled": True}}},
    }


async def ask(given: dict[str, Any], workspace: Path, **params: Any) -> dict[str, Any]:
    async with Toolkit.open(given, workspace=workspace, owner=True) as kit:
        assert not kit.warnings
        return dict((await kit.call("llm-task", {"prompt": "do it", **params})).details)


async def test_the_answer_is_json_and_fences_are_removed(tmp_path: Path) -> None:
    cases: dict[str, Any] = {
        '{"a": 1}': {"a": 1},
        '```json\n{"a": [1]}\n```': {"a": [1]},
        "```\n3\n```\n": 3,
        " null ": None,
        '"```"': "```",
    }
    async with ScriptedServer(*cases) as server:
        for value in cases.values():
            found = await ask(config(server), tmp_path, input={"x": "ü"})
            assert (found["json"], found["provider"], found["model"]) == (value, "mine", "one")
            assert found["usage"]["output"] > 0
        body = server.requests[0].body
        assert "tools" not in body
        said = body["messages"][-1]["content"]
        text = said if isinstance(said, str) else said[0]["text"]
        assert text == 'TASK:\ndo it\n\nINPUT_JSON:\n{\n  "x": "ü"\n}\n'


async def test_what_is_not_the_json_asked_for_is_an_error(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "null"}}},
        "required": ["c"],
    }
    cases: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("  ", {}, "LLM returned empty output"),
        ("Sure: {}", {}, "LLM returned invalid JSON"),
        ("```" + " " * 100_000, {}, "LLM returned invalid JSON"),
        ("Sure: ```json\n3\n```", {}, "LLM returned invalid JSON"),
        ("```\n```", {}, "LLM returned empty output"),
        ("{} {}", {}, "LLM returned invalid JSON"),
        ("NaN", {}, "LLM returned invalid JSON"),
        ("[" * 50_000, {}, "LLM returned invalid JSON"),
        ('{"a": "x", "b": [1]}', {"schema": schema}, "LLM JSON did not match schema: "),
    )
    async with ScriptedServer(*(answer for answer, _, _ in cases)) as server:
        for _, params, words in cases:
            found = await ask(config(server), tmp_path, **params)
            assert words in found["error"], words
    for part in ("a ", "b.0 ", "<root> "):
        assert part in found["error"]


async def test_a_bad_call_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async with ScriptedServer() as server:
        given = config(server, {"allowModelOverride": True})
        cases: dict[str, dict[str, Any]] = {
            "prompt required": {"prompt": " "},
            "not a usable JSON Schema": {"schema": {"type": 3}},
            "remote references are refused": {"schema": {"$ref": "http://127.0.0.1/x"}},
            "schema: the schema is recursive": {"schema": {"anyOf": [{"$ref": "#"}] * 2}},
            "more than 20000 values": {"schema": BOMB},
            "could not be resolved: unknown": {"model": "nonsense"},
            "could not be resolved: model reference": {"provider": "mine"},
        }
        for words, params in cases.items():
            assert words in (await ask(given, tmp_path, **params))["error"], words
        assert server.requests == []
        none = {key: each for key, each in given.items() if key != "models"}
        none["agents"] = {}
        assert "no model is configured" in (await ask(none, tmp_path))["error"]


async def test_the_operator_decides_which_models_and_credentials_are_used(tmp_path: Path) -> None:
    async with ScriptedServer(*["1"] * 8) as server:
        free = {"allowModelOverride": True}
        cases: tuple[tuple[Any, dict[str, Any], dict[str, Any], str], ...] = (
            (None, {}, {}, "one"),
            (None, {"defaultModel": "mine/two"}, {}, "two"),
            (None, {"defaultProvider": "mine", "defaultModel": "two"}, {}, "two"),
            (None, {}, {"model": "mine/two"}, "allowModelOverride is false"),
            (None, {}, {"provider": "mine", "model": "two"}, "allowModelOverride is false"),
            (free, {}, {"model": "mine/two"}, "two"),
            (free, {}, {"provider": "mine", "model": "two"}, "two"),
            (free, {"allowedModels": ["mine/one"]}, {"model": "two"}, "allowed: mine/one"),
            (free, {"allowedModels": ["mine/*"]}, {"model": "two"}, "two"),
            ({**free, "allowedModels": []}, {}, {}, "allowed: none"),
            ({**free, "allowedCompletionModels": ["mine/two"]}, {}, {}, "allowed: mine/two"),
            ({**free, "allowedCompletionModels": ["mine/two"]}, {}, {"model": "two"}, "two"),
            (None, {}, {"authProfileId": "mine:a"}, "allowAuthProfileOverride is false"),
        )
        for llm, settings, params, expected in cases:
            found = await ask(config(server, llm, **settings), tmp_path, **params)
            told = found.get("model") or found["reason"]
            assert expected in told, (llm, settings, params)


async def test_one_stored_credential_can_be_chosen(tmp_path: Path) -> None:
    async with ScriptedServer("1", "1") as server:
        given = config(server, {"allowAuthProfileOverride": True}, defaultAuthProfileId="mine:b")
        profiles = {
            f"mine:{name}": {"type": "api_key", "provider": "mine", "key": f"key-{name}"}
            for name in "ab"
        }
        file = Path(agent_dir(Config(), os.environ, "main"), "auth-profiles.json")
        file.parent.mkdir(parents=True, mode=0o700)
        file.write_text(json.dumps({"version": 1, "profiles": profiles}))
        file.chmod(0o600)
        await ask(given, tmp_path)
        await ask(given, tmp_path, authProfileId="mine:a")
        sent = [each.headers["authorization"] for each in server.requests]
        assert sent == ["Bearer key-b", "Bearer key-a"]
        assert (
            "no profile 'mine:c'" in (await ask(given, tmp_path, authProfileId="mine:c"))["error"]
        )


async def test_parameters_of_the_request_are_sent(tmp_path: Path) -> None:
    async with ScriptedServer("1", "1") as server:
        given = config(server, maxTokens=500)
        await ask(given, tmp_path, temperature=0.5, maxTokens=100, thinking="off")
        await ask(given, tmp_path, maxTokens=9_000)
        first, second = (each.body for each in server.requests)
        assert first["temperature"] == 0.5
        assert "temperature" not in second
        limits = [next(v for k, v in each.items() if "max" in k) for each in (first, second)]
        assert limits == [100, 500]


async def test_how_much_it_thinks_is_sent(tmp_path: Path) -> None:
    async with ScriptedServer("1", "1") as server:
        given = config(server)
        models = [{"id": "one", "reasoning": True}]
        given["models"]["providers"]["mine"] = server.provider_config("openai-completions", models)
        await ask(given, tmp_path, thinking="high")
        await ask(given, tmp_path)
        efforts = [each.body.get("reasoning_effort") for each in server.requests]
        assert efforts[0] == "high"
        assert efforts[1] != "high"


@pytest.mark.parametrize("by_call", [True, False])
async def test_an_answer_that_takes_too_long_is_an_error(tmp_path: Path, by_call: bool) -> None:
    gate = Gate("1")
    async with ScriptedServer(gate) as server:
        given = config(server, **({} if by_call else {"timeoutMs": 200}))
        params = {"timeoutMs": 200} if by_call else {}
        assert "did not answer within 200 ms" in (await ask(given, tmp_path, **params))["error"]
        gate.release()


async def test_what_it_costs_counts_for_the_session(tmp_path: Path) -> None:
    model = ScriptedModel(call("llm-task", {"prompt": "x"}), "done")
    async with ScriptedServer("[1]") as server:
        async with Agent.open(config(server), workspace=tmp_path, model=model, owner=True) as agent:
            await agent.send("go")
            before = agent.conversation.usage
            assert agent.session is not None
            assert agent.store is not None
            stored = agent.store.get(agent.session.id).usage
            key = agent.session.id
        assert server.requests
    assert (before.output, before.input) == (stored.output, stored.input)
    again = ScriptedModel("yes")
    async with Agent.open({}, workspace=tmp_path, model=again, session=key) as agent:
        await agent.send("still there?")
    kinds = [type(each).__name__ for each in again.requests[0].messages]
    assert kinds == ["User", "Assistant", "ToolResult", "Assistant", "User"]


async def test_a_session_that_has_spent_its_limit_asks_no_more(tmp_path: Path) -> None:
    loop = {"id": "b", "for_each": "$a.json", "steps": [{"id": "c", "pipeline": "llm.invoke x"}]}
    steps = [{"id": "a", "run": "echo '[1,2,3,4]'"}, loop]
    (tmp_path / "w.json").write_text(json.dumps({"steps": steps}))
    model = ScriptedModel(call("lobster", {"action": "run", "pipeline": "w.json"}), "done")
    async with ScriptedServer("[1]", "[2]", "[3]", "[4]") as server:
        given = config(server)
        [one, _] = given["models"]["providers"]["mine"]["models"]
        one["cost"] = {"input": 1e6, "output": 1e6}  # a dollar per token
        given["agents"]["defaults"]["maxCost"] = 0.01
        async with Agent.open(given, workspace=tmp_path, model=model, owner=True) as agent:
            ended = await agent.send("go")
        assert len(server.requests) == 1
    assert "the limit is $0.01" in ended.error


async def test_a_pipeline_asks_a_model(tmp_path: Path) -> None:
    async with ScriptedServer('{"kind": "spam"}', "7") as server:
        given = config(server)
        async with Toolkit.open(given, workspace=tmp_path, owner=True) as kit:
            schema = json.dumps({"type": "object"})
            text = f"exec echo mail | llm.invoke --prompt 'Classify' --output-schema '{schema}'"
            [item] = await output(kit, text)
            assert item["output"]["data"] == {"kind": "spam"}
            assert (item["kind"], item["model"]) == ("llm.invoke", "one")
            assert "mail" in str(server.requests[0].body)
            envelope = await run(kit, f"llm_task.invoke --output-schema '{schema}' again")
            assert "did not match schema" in envelope["error"]["message"]
