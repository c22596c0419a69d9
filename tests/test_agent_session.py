"""The agent as a whole: model, tools and a conversation that is kept."""

from __future__ import annotations

import asyncio
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture

from clawkit import Agent
from clawkit.agent.events import TextPiece
from clawkit.config.model import Config
from clawkit.content import Assistant, Block, Image, Summary, Text, ToolResult, Usage, User
from clawkit.errors import ConfigError, ConflictError, ToolAuthorizationError, ToolInputError
from clawkit.models.protocols import Api, Facts, ModelError
from clawkit.process.protocols import ExecHost
from clawkit.services import Services
from clawkit.sessions.protocols import locate_store
from clawkit.sessions.store import SessionStore
from clawkit.testing import Gate, ScriptedApprover, ScriptedModel, ScriptedServer, call
from clawkit.turns import WARM_UP_S
from clawkit_testkit import fault

FREE = {"tools": {"exec": {"mode": "full"}}}


def service(server: ScriptedServer, **agents: Any) -> Any:
    mine = server.provider_config("anthropic-messages", models=["one", "two"])
    providers = {"mine": mine}
    return {
        "models": {"providers": providers},
        "agents": {"defaults": {"model": "mine/one", **agents}},
    }


async def test_a_resumed_conversation_continues_where_it_stopped(workspace: Path) -> None:
    model = ScriptedModel(call("read", {"path": "a.txt"}), "It says alpha and beta.")
    async with Agent.open({}, workspace=workspace, model=model) as agent:
        await agent.send("what is in a.txt?")
        session = agent.session
    assert session is not None
    again = ScriptedModel("As I said.")
    async with Agent.open({}, workspace=workspace, model=again, session=session.id) as agent:
        assert agent.session is not None
        assert agent.session.title == "what is in a.txt?"
        await agent.send("and again?")
    kinds = [type(message) for message in again.requests[0].messages]
    assert kinds == [User, Assistant, ToolResult, Assistant, User]


async def test_a_session_has_a_name_from_the_start_if_one_is_given(workspace: Path) -> None:
    for said in ("first", "second"):
        model = ScriptedModel("ok")
        async with Agent.open({}, workspace=workspace, model=model, session="work") as agent:
            await agent.send(said)
            assert agent.session is not None
            assert agent.session.key == "agent:main:work"
    assert len(model.requests[0].messages) == 3


async def test_one_process_at_a_time_works_in_a_session(workspace: Path) -> None:
    async with Agent.open({}, workspace=workspace, model=ScriptedModel(), session="work"):
        with pytest.raises(ConflictError, match="work"):
            Agent.open({}, workspace=workspace, model=ScriptedModel(), session="work")
    async with Agent.open({}, workspace=workspace, model=ScriptedModel(), session="work"):
        pass


async def test_without_keep_nothing_is_stored(workspace: Path) -> None:
    async with Agent.open({}, workspace=workspace, model=ScriptedModel("ok"), keep=False) as agent:
        await agent.send("hello")
        assert agent.session is None
    assert not Path(locate_store(None, os.environ)).exists()


async def test_a_summary_is_what_a_resumed_conversation_begins_with(workspace: Path) -> None:
    model = ScriptedModel("one", "two", "what was before")
    config = {"agents": {"defaults": {"compaction": {"keepRecentTokens": 8}}}}
    async with Agent.open(config, workspace=workspace, model=model, session="s") as agent:
        await agent.send("first")
        await agent.send("second")
        assert await agent.conversation.compact("the names")
    asked = model.requests[-1].messages[0]
    assert isinstance(asked, User)
    assert "the names" in str(asked)
    again = ScriptedModel("three")
    async with Agent.open({}, workspace=workspace, model=again, session="s") as agent:
        await agent.send("third")
    sent = again.requests[0].messages
    assert isinstance(sent[0], Summary)
    assert sent[0].text == "what was before"
    assert [type(m).__name__ for m in sent] == ["Summary", "User", "Assistant", "User"] or [
        type(m).__name__ for m in sent
    ] == ["Summary", "Assistant", "User"]


async def test_a_message_that_fits_is_sent_and_one_that_is_too_long_is_an_error(
    workspace: Path,
) -> None:
    facts = Facts(context_window=40_000)
    model = ScriptedModel("one", "what was before", "two", "again", "three", facts=facts)
    async with Agent.open({}, workspace=workspace, model=model) as agent:
        await agent.send("first")
        # As much as there is room for.
        long = " and what does it mean?".rjust(119_980, "x")
        await agent.send(long)
        sent = model.requests[2].messages
        assert [type(each) for each in sent] == [Summary, User]
        assert sent[1] == User((Text(long),), sent[1].at_ms)
        ended = await agent.send("x" * 200_000)
        assert ended.how == "error"
        assert "is about 50,004 tokens long" in ended.error
        assert "read it from a file" in ended.error
        assert len(model.requests) == 3
        assert (await agent.send("never mind")).text == "three"


async def test_secrets_are_not_stored(workspace: Path) -> None:
    secret = "correct-horse-battery-staple-42"
    config = {
        "models": {"providers": {"mine": {"baseUrl": "http://127.0.0.1:9", "apiKey": secret}}}
    }
    (workspace / "leak.txt").write_text(f"the key is {secret}\n")
    model = ScriptedModel(call("read", {"path": "leak.txt"}), f"It is {secret}.")
    async with Agent.open(config, workspace=workspace, model=model) as agent:
        await agent.send(f"is it {secret}?")
    folder = Path(os.environ["CLAWKIT_HOME"])
    stored = b"".join(path.read_bytes() for path in folder.rglob("*sqlite*"))
    assert b"the key is" in stored
    assert secret.encode() not in stored


async def test_secrets_obtained_during_a_conversation_are_masked(
    workspace: Path, tmp_path: Path
) -> None:
    """A key from a file, a header from a file and a token that was renewed: nobody knows them when
    the conversation begins."""
    key, header, token = ("correct-horse-" + each for each in ("key-41", "header-42", "token-43"))
    vault = tmp_path / "vault.json"
    vault.write_text(json.dumps({"key": key, "header": header}), encoding="utf-8")
    vault.chmod(0o600)
    ref = {"source": "file", "provider": "vault"}
    look = call("read", {"path": "leak.txt"})
    async with ScriptedServer(look, "seen", look, "ok") as server:
        config = service(server)
        config["secrets"] = {"providers": {"vault": {"source": "file", "path": str(vault)}}}
        config["models"]["providers"]["mine"] |= {
            "apiKey": {**ref, "id": "/key"},
            "headers": {"x-extra": {**ref, "id": "/header"}},
        }
        (workspace / "leak.txt").write_text(f"{key} and {header} and {token}\n", encoding="utf-8")
        events: list[object] = []
        async with Agent.open(config, workspace=workspace, tell=events.append) as agent:
            await agent.send("look")
            # What is learned outlives a change of the settings.
            agent.use_exec({"ask": "always"})
            agent.models.catalog.credentials.learn([token])
            await agent.send("look again")
        sent = [json.dumps(each.body) for each in server.requests]
    assert key in str(server.requests[0].headers)
    assert header in str(server.requests[0].headers)
    stored = b"".join(
        path.read_bytes() for path in Path(os.environ["CLAWKIT_HOME"]).rglob("*sqlite*")
    )
    for shown in (sent[-1], str(events), stored.decode("utf-8", "replace")):
        assert key not in shown
        assert header not in shown
    assert sent[-1].count(token) == 1, "it was not known yet when it was first read"


async def test_the_prompt_has_the_tools_and_the_files_of_the_workspace(workspace: Path) -> None:
    (workspace / "AGENTS.md").write_text("Speak softly.")
    model = ScriptedModel("ok")
    agents = {"defaults": {"userTimezone": "Asia/Tokyo"}}
    config = {"tools": {"deny": ["exec", "code_execution"]}, "agents": agents}
    async with Agent.open(config, workspace=workspace, model=model) as agent:
        await agent.send("hi")
    system = model.requests[0].system
    assert "Speak softly." in system
    assert "exec" not in system
    assert "Asia/Tokyo" in system
    assert "exec" not in [tool.name for tool in model.requests[0].tools]


async def test_the_configured_model_is_asked_and_another_one_when_it_is_chosen(
    workspace: Path,
) -> None:
    async with ScriptedServer("from one", "from two", "from one again") as server:
        async with Agent.open(service(server), workspace=workspace, session="s") as agent:
            assert (await agent.send("hi")).text == "from one"
            agent.use_model("two")
            assert (await agent.send("hi")).text == "from two"
            assert agent.session is not None
            assert agent.session.model_override == "mine/two"
        async with Agent.open(service(server), workspace=workspace, session="s") as agent:
            assert str(agent.conversation.model.ref) == "mine/two"
            agent.use_model("")
            assert (await agent.send("hi")).text == "from one again"
        assert [request.model for request in server.requests] == ["one", "two", "one"]


async def test_a_model_that_may_not_be_chosen_is_refused(workspace: Path) -> None:
    async with ScriptedServer() as server:
        config = service(server, modelPolicy={"allow": ["mine/one"]})
        async with Agent.open(config, workspace=workspace) as agent:
            with pytest.raises(ToolAuthorizationError, match="mine/two"):
                agent.use_model("mine/two")
            with pytest.raises(ToolInputError, match="nowhere"):
                agent.use_model("nowhere/nothing")
            assert str(agent.conversation.model.ref) == "mine/one"


async def test_a_tool_cannot_choose_a_model_without_a_credential(workspace: Path) -> None:
    async with ScriptedServer(then="ok") as server:
        config = service(server)
        async with Agent.open(config, workspace=workspace, session="x", owner=True) as agent:
            refused = await agent.kit.call("session_status", {"model": "openai/gpt-5"})
            assert "no credential for it" in refused.as_text()
            assert not (await agent.kit.call("session_status", {"model": "mine/two"})).is_error
            assert (await agent.send("hello")).how == "done"
        assert server.requests[0].model == "two"


async def test_background_commands_keep_running_when_the_model_changes(workspace: Path) -> None:
    start = call("exec", {"command": "sleep 60", "background": True})
    model = ScriptedModel(start, "started")
    async with ScriptedServer(call("process", {"action": "list"}), "seen") as server:
        config = {**service(server), **FREE}
        async with Agent.open(config, workspace=workspace, model=model) as agent:
            await agent.send("start it")
            agent.use_model("mine/one")
            await agent.send("does it run?")
            results = [m for m in agent.conversation.history if isinstance(m, ToolResult)]
    assert "sleep 60" in str(results[-1].content)
    assert "running" in str(results[-1].content)


async def test_commands_are_prepared_while_the_model_thinks(workspace: Path) -> None:
    gate = Gate(call("exec", {"command": "echo ready"}))
    model = ScriptedModel(gate, "done")
    async with Agent.open(FREE, workspace=workspace, model=model, owner=True) as agent:
        services = agent.kit.run.services
        assert isinstance(services, Services)
        turn = asyncio.ensure_future(agent.send("go"))
        while not services.is_created(ExecHost):
            await asyncio.sleep(0.01)
        gate.release()
        assert (await turn).how == "done"
    [result] = [each for each in model.requests[1].messages if isinstance(each, ToolResult)]
    assert result.content == (Text("ready"),)


async def test_nothing_is_prepared_for_a_run_without_commands(workspace: Path) -> None:
    config = {"tools": {"deny": ["exec"]}}
    gate = Gate("done")
    async with Agent.open(config, workspace=workspace, model=ScriptedModel(gate)) as agent:
        services = agent.kit.run.services
        assert isinstance(services, Services)
        turn = asyncio.ensure_future(agent.send("go"))
        await asyncio.sleep(2 * WARM_UP_S)
        gate.release()
        await turn
        assert not services.is_created(ExecHost)


async def test_without_any_model_the_operator_answers(workspace: Path) -> None:
    async with Agent.open({}, workspace=workspace) as agent:
        assert str(agent.conversation.model.ref) == "clawkit/operator"
        assert (await agent.send("list")).text.startswith('"a.txt"')


async def test_a_key_in_the_environment_is_enough(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    async with Agent.open(workspace=workspace) as agent:
        assert agent.conversation.model.ref.provider == "anthropic"
        assert agent.models.auth(agent.conversation.model.ref) == "env:ANTHROPIC_API_KEY"


async def test_a_key_in_the_environment_is_enough_for_a_configuration_made_in_python(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    async with Agent.open(Config(), workspace=workspace) as agent:
        assert agent.conversation.model.ref.provider == "anthropic"


async def test_settings_of_the_owner_do_not_apply_to_others(workspace: Path) -> None:
    async with ScriptedServer(call("session_status", {"model": "mine/two"}), "no") as server:
        options: Any = {"workspace": workspace, "session": "s"}
        async with Agent.open(service(server), owner=True, **options) as agent:
            agent.use_exec({"security": "full", "ask": "off"})
        async with Agent.open(service(server), **options) as agent:
            assert agent.kit.config.tools.exec.security != "full"
            await agent.send("use another model")
            result = agent.conversation.history[2]
            assert str(agent.conversation.model.ref) == "mine/one"
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert "owner" in str(result.content)


async def test_only_the_owner_can_choose_the_model_of_another_conversation(
    workspace: Path,
) -> None:
    for model in ("mine/two", "default"):
        wish = call("session_status", {"sessionKey": "private", "model": model})
        async with ScriptedServer(wish, "no") as server:
            options: Any = {"workspace": workspace}
            async with Agent.open(
                service(server), owner=True, session="private", **options
            ) as agent:
                agent.use_model("mine/two" if model == "default" else "mine/one")
                before = agent.session
            async with Agent.open(service(server), session="main", **options) as agent:
                await agent.send("use another model there")
                result = agent.conversation.history[2]
                assert agent.store is not None
                now = agent.store.get("private", "main")
        assert isinstance(result, ToolResult)
        assert "only the owner" in str(result.content)
        assert before is not None
        assert now.model_override == before.model_override != ""


async def test_a_local_ollama_is_found(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedServer("hello from here", models=["llama3.2:3b"], ollama=True) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        async with Agent.open(workspace=workspace) as agent:
            assert str(agent.conversation.model.ref) == "ollama/llama3.2:3b"
            assert (await agent.send("hi")).text == "hello from here"
        assert server.requests[0].body["options"]["num_ctx"] > 0


async def test_a_conversation_can_have_its_own_rules_for_commands(workspace: Path) -> None:
    asked = ScriptedApprover("allow", "allow")
    touch = call("exec", {"command": "touch made"})
    model = ScriptedModel(touch, "1", touch, "2", touch, "3")
    options: Any = {"workspace": workspace, "model": model, "approver": asked, "owner": True}
    on_host = {"agents": {"defaults": {"sandbox": {"mode": "off"}}}}
    async with Agent.open(on_host, session="s", **options) as agent:
        await agent.send("go")
        assert len(asked.requests) == 1
        agent.use_exec({"security": "full", "ask": "off"})
        await agent.send("go")
        assert len(asked.requests) == 1
    async with Agent.open(on_host, session="s", **options) as agent:
        # It still holds in the same conversation, and is taken back by nothing at all.
        assert agent.kit.config.tools.exec.security == "full"
        agent.use_exec({})
        await agent.send("go")
        assert len(asked.requests) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"securty": "full"}, "security"),
        ({"security": "loose"}, "loose"),
        ({"timeoutSec": 5}, "Known"),
    ],
)
async def test_invalid_conversation_settings_change_nothing(
    workspace: Path, changes: dict[str, Any], said: str
) -> None:
    async with Agent.open({}, workspace=workspace, model=ScriptedModel()) as agent:
        before = agent.kit.config
        with pytest.raises(ConfigError, match=said):
            agent.use_exec(changes)
        with pytest.raises(ConfigError, match="one of off"):
            agent.use_elevated("very")
        assert agent.kit.config == before


async def test_conversation_settings_override_those_of_the_agent(
    workspace: Path,
) -> None:
    config = {"agents": {"entries": {"main": {"tools": {"exec": {"security": "deny"}}}}}}
    model = ScriptedModel(call("exec", {"command": "true"}), "ok")
    async with Agent.open(config, workspace=workspace, model=model) as agent:
        agent.use_exec({"security": "full", "ask": "off"})
        await agent.send("go")
        result = agent.conversation.history[2]
    assert isinstance(result, ToolResult)
    assert not result.is_error


async def test_elevated_and_thinking_are_kept_with_the_conversation(workspace: Path) -> None:
    async with Agent.open(
        {}, workspace=workspace, model=ScriptedModel(), session="s", owner=True
    ) as agent:
        agent.use_elevated("full")
        agent.use_thinking("high")
    async with Agent.open(
        {}, workspace=workspace, model=ScriptedModel(), session="s", owner=True
    ) as agent:
        assert agent.kit.config.agents.defaults.elevated_default == "full"
        assert agent.conversation.thinking == "high"
        agent.use_elevated(None)
        assert agent.kit.config.agents.defaults.elevated_default is None


async def test_arguments_override_the_configured_limits(workspace: Path) -> None:
    config = {
        "agents": {
            "defaults": {"maxTurns": 7, "maxCost": 2, "timeoutSeconds": 90},
            "entries": {"main": {"maxTurns": 5, "thinkingDefault": "low"}},
        }
    }
    async with Agent.open(config, workspace=workspace, model=ScriptedModel()) as agent:
        limits = agent.conversation.limits
        assert (limits.max_steps, limits.max_cost, limits.timeout_s) == (5, 2, 90)
        assert agent.conversation.thinking == "low"
    options: Any = {"max_turns": 3, "max_cost": 1.5, "thinking": "max"}
    async with Agent.open(config, workspace=workspace, model=ScriptedModel(), **options) as agent:
        assert (agent.conversation.limits.max_steps, agent.conversation.limits.max_cost) == (3, 1.5)
        assert agent.conversation.thinking == "max"


async def test_large_pictures_are_scaled_down_when_attached(
    workspace: Path, tmp_path: Path
) -> None:
    buffer = io.BytesIO()
    Picture.new("RGB", (3000, 1500), "red").save(buffer, "PNG")
    (tmp_path / "big.png").write_bytes(buffer.getvalue())
    (tmp_path / "no.png").write_text("not a picture")
    async with Agent.open({}, workspace=workspace, model=ScriptedModel("red")) as agent:
        image = await agent.attach(tmp_path / "big.png")
        assert isinstance(image, Image)
        await agent.send([Text("what colour?"), image])
        with pytest.raises(ToolInputError, match=r"gone\.png"):
            await agent.attach(tmp_path / "gone.png")
        with pytest.raises(ToolInputError):
            await agent.attach(tmp_path / "no.png")


async def test_images_go_only_to_models_that_take_them(workspace: Path) -> None:
    picture: list[Block] = [Text("look"), Image("iVBORw0KGgo=", "image/png")]
    for takes, expected in ((["text"], False), (["text", "image"], True)):
        async with ScriptedServer("ok") as server:
            config = service(server)
            entry = config["models"]["providers"]["mine"]["models"][0]
            entry["input"] = takes
            async with Agent.open(config, workspace=workspace) as agent:
                await agent.send(picture)
            assert ("iVBORw0KGgo=" in str(server.requests[0].body)) is expected


async def test_session_status_describes_the_running_conversation(workspace: Path) -> None:
    model = ScriptedModel(call("session_status"), "fine", facts=Facts(context_window=64_000))
    async with Agent.open({}, workspace=workspace, model=model, session="work") as agent:
        await agent.send("how are you?")
        result = agent.conversation.history[2]
    assert isinstance(result, ToolResult)
    assert result.details["sessionKey"] == "agent:main:work"
    assert result.details["model"] == "scripted/model"
    assert "64" in str(result.content)


async def test_a_turn_can_be_aborted_and_the_next_one_works(workspace: Path) -> None:
    model = ScriptedModel(call("exec", {"command": "sleep 60"}), "fine")
    async with Agent.open(FREE, workspace=workspace, model=model) as agent:
        task = asyncio.create_task(agent.send("go"))
        while not agent.conversation.history or not model.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await agent.send("and now?")).text == "fine"


def test_a_broken_configuration_leaves_no_session_behind(workspace: Path) -> None:
    config = {"agents": {"defaults": {"model": "nowhere/nothing"}}}
    for _ in range(2):
        with pytest.raises(ConfigError, match="nowhere"):
            Agent.open(config, workspace=workspace, session="s")
    store = SessionStore(locate_store(None, os.environ))
    assert store.recent() == []
    store.close()


PAID = Usage(10, 1, cost=0.25)


async def cost_of(workspace: Path, *answers: Any) -> tuple[float, float]:
    """The cost of one turn according to the conversation, and according to the store."""
    model = ScriptedModel(*answers)
    async with Agent.open({}, workspace=workspace, model=model, session="paid") as agent:
        await agent.send("go")
        spent = agent.conversation.usage.cost
    async with Agent.open({}, workspace=workspace, model=ScriptedModel(), session="paid") as agent:
        assert agent.session is not None
        assert agent.session.usage.cost == agent.conversation.usage.cost
        return spent, agent.session.usage.cost


async def test_the_cost_of_an_empty_answer_is_stored(workspace: Path) -> None:
    empty = Assistant((), usage=PAID)
    assert await cost_of(workspace, empty, empty) == (0.5, 0.5)


async def test_the_cost_of_a_truncated_answer_is_stored(workspace: Path) -> None:
    assert await cost_of(workspace, Assistant((), "length", usage=PAID)) == (0.25, 0.25)


async def test_the_cost_of_an_answer_that_broke_off_is_stored(workspace: Path) -> None:
    broken = ModelError("cut", "the connection broke", partial=Assistant((), usage=PAID))
    assert await cost_of(workspace, broken) == (0.25, 0.25)


async def test_empty_answers_count_towards_the_cost_limit_of_a_resumed_conversation(
    workspace: Path,
) -> None:
    await cost_of(workspace, Assistant((), "length", usage=PAID))
    model = ScriptedModel("too late")
    async with Agent.open(
        {}, workspace=workspace, model=model, session="paid", max_cost=0.2
    ) as agent:
        ended = await agent.send("go on")
    assert ended.how == "max-cost"
    assert model.requests == []


@pytest.mark.parametrize("api", ["anthropic-messages", "google-generative-ai"])
async def test_the_cost_of_an_interrupted_answer_is_stored(workspace: Path, api: Api) -> None:
    priced = {"id": "one", "cost": {"input": 1_000_000, "output": 0}}
    async with ScriptedServer(fault.hang(2)) as server:
        providers = {"mine": server.provider_config(api, [priced])}
        config = {
            "models": {"providers": providers},
            "agents": {"defaults": {"model": "mine/one"}},
        }
        async with Agent.open(config, workspace=workspace, session="paid") as agent:
            begun = asyncio.Event()
            agent.conversation.tell = lambda event: (
                begun.set() if isinstance(event, TextPiece) else None
            )
            turn = asyncio.ensure_future(agent.send("go"))
            await begun.wait()
            turn.cancel()
            await asyncio.wait({turn})
            assert agent.session is not None
            assert agent.session.usage.input > 0
            assert agent.session.usage == agent.conversation.usage
            assert agent.session.usage.cost == agent.session.usage.input
