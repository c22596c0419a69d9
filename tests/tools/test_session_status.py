"""session_status: agent, workspace, model and tools of a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.tables import table

from clawkit.config.load import loads
from clawkit.content import Assistant, Text, Usage, User
from clawkit.core.call import CallRequest, Run, call
from clawkit.core.context import InForce, Scope, Sender
from clawkit.core.result import Result
from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.sessions.protocols import Session, Sessions, SessionState
from clawkit.sessions.store import SessionStore
from clawkit.testing import check_tool, open_kit
from clawkit.tools.session_status import TOOL, make_tool
from clawkit.version import __version__


async def status(
    scope: Scope = Scope(), services: dict[type, object] | None = None, **params: Any
) -> Result:
    in_force = InForce(("read", "ls"), 30)
    run = Run(
        {"session_status": TOOL}, "/ws", scope, services={InForce: in_force, **(services or {})}
    )
    return await call(run, CallRequest("session_status", params))


def test_models_can_be_offered_it() -> None:
    assert check_tool(TOOL) == []


async def test_the_card_shows_agent_session_and_model() -> None:
    result = await status(Scope(agent="support", session="s1", sandboxed=True, depth=1))
    text = result.as_text()
    assert text.startswith(
        f"clawkit {__version__}\nsession s1 of agent support\nmodel not set\n"
        "workspace /ws (sandboxed)\ntools read, ls (30 removed by policy)\ntime 2"
    )
    assert result.details == {
        "ok": True,
        "sessionKey": "agent:support:s1",
        "agentId": "support",
        "active": True,
        "model": None,
        "modelProvider": None,
        "modelOverride": None,
        "changedModel": False,
        "stateVersion": 0,
        "statusText": text,
        "workspace": "/ws",
        "sandboxed": True,
        "senderIsOwner": False,
        "depth": 1,
        "tools": ["read", "ls"],
        "toolsRemoved": 30,
        "toolsOff": 0,
        "toolsDeferred": 0,
        "version": __version__,
    }


async def test_the_card_of_a_real_run(tmp_path: Path) -> None:
    async with open_kit(tmp_path, model="openai/gpt-5", config={"tools": {"deny": ["ls"]}}) as kit:
        result = await kit.call("session_status")
    assert "model openai/gpt-5\n" in result.as_text()
    assert "agents_list (1 removed by policy, 11 off by settings)\n" in result.as_text()
    built = "read write edit apply_patch grep find exec process code_execution web_search"
    built += " web_fetch memory_search"
    built += (
        " memory_get sessions_list sessions_history sessions_search session_status cron agents_list"
    )
    assert result.details["tools"] == built.split()
    assert result.details["modelProvider"] == "openai"
    assert result.details["senderIsOwner"] is True
    assert not os.path.exists(os.path.join(os.environ["CLAWKIT_HOME"], "sessions.sqlite"))


async def test_a_run_without_tools_shows_none() -> None:
    run = Run({"session_status": TOOL}, "/", services={InForce: InForce((), 3)})
    assert "tools none (3" in (await call(run, CallRequest("session_status"))).as_text()


@pytest.mark.parametrize("key", ["current", "s1", "agent:main:s1"])
@pytest.mark.parametrize("name", ["sessionKey", "session_key"])
@pytest.mark.parametrize("session", ["s1", "agent:main:s1"])
async def test_the_current_session_has_three_names(key: str, name: str, session: str) -> None:
    scope = Scope(session=session, sender=Sender(owner=True))
    assert (await status(scope, {}, **{name: key})).details["sessionKey"] == "agent:main:s1"


@pytest.mark.parametrize(("key", "code"), [("other", 404), ("", 400)])
async def test_without_a_store_other_sessions_are_unknown(key: str, code: int) -> None:
    result = await status(Scope(session="s1"), sessionKey=key)
    assert result.details["code"] == code
    assert key in result.details["error"]


# With a store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    made = SessionStore(str(tmp_path / "home" / "sessions.sqlite"))
    yield made
    made.close()


def begin(store: SessionStore, name: str, agent: str = "main", **given: Any) -> Session:
    made = store.create(agent, workspace=f"/{name}", model="a/b", name=name, **given)
    store.append(made.id, User((Text(f"about {name}"),)))
    store.append(made.id, Assistant((Text("yes"),), usage=Usage(1_000, 200, 300, 0, 0.125)))
    return store.get(made.id)


async def test_another_session_of_the_agent_can_be_shown(store: SessionStore) -> None:
    begin(store, "main")
    work = begin(store, "work")
    for name in ("work", work.key, work.id, work.id[:5]):
        result = await status(Scope(session="main"), {Sessions: store}, sessionKey=name)
        lines = result.as_text().splitlines()[1:-1]
        assert lines == [
            "session work of agent main: about work",
            "model a/b",
            "context 1,500 tokens",
            "used 1 turn, 1,300 tokens sent, 200 received, $0.1250",
            "workspace /work",
        ]
        assert result.details["sessionKey"] == "agent:main:work"
        assert result.details["active"] is False
        assert result.details["stateVersion"] == 3
        assert "tools" not in result.details


async def test_stored_facts_of_this_session_are_shown(store: SessionStore) -> None:
    begin(store, "main")
    result = await status(Scope(), {Sessions: store})
    assert "session main of agent main: about main\nmodel not set\ncontext 1,500 tokens\n" in (
        result.as_text()
    )
    assert result.details["stateVersion"] == 3


async def test_an_unknown_session_is_an_error_with_suggestions(store: SessionStore) -> None:
    begin(store, "work")
    result = await status(Scope(), {Sessions: store}, sessionKey="wrok")
    assert result.details["error"] == "there is no session 'wrok'; did you mean 'work'?"
    assert result.details["code"] == 404


async def test_sessions_that_may_not_be_seen_are_refused(store: SessionStore) -> None:
    one, two = begin(store, "one"), begin(store, "two")
    begin(store, "child", parent=one.id)
    begin(store, "theirs", "other")

    async def look(session: str, name: str, agent: str = "main") -> str:
        scope = Scope(agent=agent, session=session)
        result = await status(scope, {Sessions: store}, sessionKey=name)
        assert result.details.get("code", 403) == 403
        return result.as_text() if result.is_error else ""

    assert await look("one", "child") == ""
    assert await look("main", "two") == ""
    for name in (two.id, "two", two.key):
        said = await look("one", name)
        assert f"{name!r} cannot be seen from here: tools.sessions.visibility is 'tree'" in said
    assert "to the agent 'other'" in await look("main", "agent:other:theirs")


@pytest.mark.parametrize(
    ("config", "scope", "seen"),
    [
        ("{}", Scope(session="one"), False),
        ("{}", Scope(session="main"), True),
        ("{session: {mainKey: 'one'}}", Scope(session="one"), True),
        ("{session: {mainKey: 'one'}}", Scope(session="main"), False),
        ("{tools: {sessions: {visibility: 'self'}}}", Scope(session="main"), False),
        ("{tools: {sessions: {visibility: 'self'}}}", Scope(session="main", sandboxed=True), False),
        ("{tools: {sessions: {visibility: 'agent'}}}", Scope(session="one"), True),
        ("{tools: {sessions: {visibility: 'agent'}}}", Scope(session="one", sandboxed=True), False),
        ("{}", Scope(session="main", sandboxed=True), False),
        (
            "{agents: {defaults: {sandbox: {sessionToolsVisibility: 'all'}}}}",
            Scope(session="main", sandboxed=True),
            True,
        ),
    ],
)
async def test_settings_decide_which_sessions_are_visible(
    store: SessionStore, config: str, scope: Scope, seen: bool
) -> None:
    begin(store, "two")
    tool = make_tool(loads(config).config, scope)
    services: dict[type, object] = {InForce: InForce((), 0), Sessions: store}
    run = Run({"session_status": tool}, "/ws", scope, services=services)
    result = await call(run, CallRequest("session_status", {"sessionKey": "two"}))
    assert result.is_error is not seen


async def test_main_and_labels_are_names_too(store: SessionStore) -> None:
    begin(store, "boss")
    work = begin(store, "work")
    db = apsw.Connection(store.path)
    db.execute("UPDATE session SET label = 'nightly build' WHERE id = ?", (work.id,))
    db.close()
    scope = Scope(session="boss")
    tool = make_tool(loads("{session: {mainKey: 'boss'}}").config, scope)
    services: dict[type, object] = {InForce: InForce((), 0), Sessions: store}
    run = Run({"session_status": tool}, "/ws", scope, services=services)
    for given, key in (("main", "agent:main:boss"), ("nightly build", work.key)):
        result = await call(run, CallRequest("session_status", {"sessionKey": given}))
        assert result.details["sessionKey"] == key


async def test_the_origin_of_a_run_is_reported() -> None:
    sender = Sender(id="42", name="Ada", username="ada")
    scope = Scope(
        session="telegram:group:-1:topic:9", channel="telegram", account="bot", sender=sender
    )
    result = await status(scope)
    assert result.details["origin"] == {
        "channel": "telegram",
        "accountId": "bot",
        "threadId": "9",
        "groupId": "-1",
        "sender": {"id": "42", "name": "Ada", "username": "ada"},
    }
    assert result.details["deliveryContext"] == {
        "channel": "telegram",
        "accountId": "bot",
        "threadId": "9",
        "to": "-1",
    }
    assert "\norigin telegram bot 9 -1\n" in result.as_text()
    direct = (await status(Scope(channel="signal", sender=Sender(id="+49")))).details
    assert direct["deliveryContext"] == {"channel": "signal", "to": "+49"}
    assert direct["origin"] == {"channel": "signal", "sender": {"id": "+49"}}
    grouped = (await status(Scope(channel="irc", group="#x"))).details
    assert grouped["deliveryContext"] == {"channel": "irc", "to": "#x"}
    assert "origin" not in (await status()).details


async def test_the_origin_of_another_session_comes_from_its_key(store: SessionStore) -> None:
    begin(store, "discord:channel:7:thread:8")
    begin(store, "work")
    scope = Scope(session="main", channel="telegram", account="bot")
    key = "agent:main:discord:channel:7:thread:8"
    details = (await status(scope, {Sessions: store}, sessionKey=key)).details
    assert details["origin"] == {"channel": "discord", "threadId": "8", "groupId": "7"}
    assert details["deliveryContext"] == {"channel": "discord", "threadId": "8", "to": "7"}
    details = (await status(scope, {Sessions: store}, sessionKey="work")).details
    assert not details.keys() & {"origin", "deliveryContext"}


async def test_changes_are_reported_to_the_model_and_to_programs(store: SessionStore) -> None:
    begin(store, "main")
    result = await status(Scope(), {Sessions: store}, changesSince=1)
    assert result.as_text().endswith(
        "version 3; changes since 1:\n  2 turn number=1\n  3 answered number=2"
    )
    changes = result.details["stateChanges"]
    assert [(each["sequence"], each["type"]) for each in changes["events"]] == [
        (2, "turn"),
        (3, "answered"),
    ]
    assert changes["events"][0]["atMs"] > 0
    del changes["events"]
    assert changes == {"truncated": False, "earliestAvailableSequence": 1, "historyGap": False}
    assert "stateChanges" not in (await status(Scope(), {Sessions: store})).details
    nothing = await status(Scope(), {Sessions: store}, changesSince=3)
    assert nothing.as_text().endswith("\nversion 3; no changes since 3")


async def test_changes_that_are_many_come_in_pages(store: SessionStore) -> None:
    made = begin(store, "main")
    for _ in range(300):
        store.append(made.id, User((Text("more"),)))
    result = await status(Scope(), {Sessions: store}, changesSince=0)
    changes = result.details["stateChanges"]
    assert changes["truncated"] is changes["historyGap"] is True
    last = changes["events"][-1]["sequence"]
    assert result.as_text().endswith(
        f"  changes before {changes['earliestAvailableSequence']} are no longer stored\n"
        f"  there are more: continue with changesSince {last}"
    )


@pytest.mark.parametrize("since", [-1, "x", 1.5])
async def test_a_number_of_a_change_is_one(store: SessionStore, since: object) -> None:
    assert (await status(Scope(), {Sessions: store}, changesSince=since)).details["code"] == 400


async def test_where_no_agent_runs_no_model_can_be_chosen(store: SessionStore) -> None:
    begin(store, "main")
    result = await status(Scope(), {Sessions: store}, model="c/d")
    assert "no agent is running here" in result.details["error"]


# With an agent


class Talking:
    """A running agent, as far as its session goes."""

    auth = "API key from A_KEY"
    context_tokens, context_window = 50_000, 200_000
    queued = 2

    def __init__(self, store: SessionStore, session: Session) -> None:
        self._store, self._id = store, session.id

    @property
    def session(self) -> Session:
        return self._store.get(self._id)

    @property
    def model(self) -> str:
        return self.session.model_override or self.session.model

    def resolve_model(self, text: str) -> str:
        if text.strip() == "Default":
            return ""
        if text == "secret":
            raise ToolAuthorizationError("x/secret is not an allowed model")
        if text != "fast":
            raise ToolInputError(f"there is no model {text!r}; did you mean 'fast'?")
        return "x/fast-1"

    def set_model(self, model: str) -> None:
        self._store.set_model(self._id, model)


@pytest.fixture
def talking(store: SessionStore) -> dict[type, object]:
    return {Sessions: store, SessionState: Talking(store, begin(store, "main"))}


async def test_a_running_agent_tells_more(talking: dict[type, object]) -> None:
    result = await status(Scope(session="agent:main:main"), talking)
    assert result.as_text().splitlines()[1:-1] == [
        "session main of agent main: about main",
        "model a/b",
        "auth API key from A_KEY",
        "context 50,000 tokens of 200,000 (25%)",
        "used 1 turn, 1,300 tokens sent, 200 received, $0.1250",
        "queue 2 waiting",
        "workspace /ws",
        "tools read, ls (30 removed by policy)",
    ]
    assert result.details["model"] == "a/b"
    assert result.details["active"] is True


async def test_a_session_that_is_not_saved_has_a_complete_key(
    talking: dict[type, object], store: SessionStore
) -> None:
    class Unsaved(Talking):
        @property
        def session(self) -> Session:
            return Session("", "main", "main")

    work = begin(store, "work")
    services = {**talking, SessionState: Unsaved(store, work)}
    assert (await status(Scope(), services)).details["sessionKey"] == "agent:main:main"
    assert not (await status(Scope(), services, sessionKey="work")).is_error


async def test_a_model_is_chosen_and_given_up_again(talking: dict[type, object]) -> None:
    chosen = await status(Scope(), talking, model="fast")
    assert "model x/fast-1 (set for this session)\n" in chosen.as_text()
    assert chosen.details["changedModel"] is True
    assert chosen.details["model"] == chosen.details["modelOverride"] == "x/fast-1"
    assert chosen.details["modelProvider"] == "x"
    assert chosen.details["stateVersion"] == 4
    again = await status(Scope(), talking, model="fast")
    assert again.details["changedModel"] is False
    back = await status(Scope(), talking, model=" Default ")
    assert back.details["changedModel"] is True
    assert (back.details["model"], back.details["modelOverride"]) == ("a/b", None)


@pytest.mark.parametrize(
    ("model", "code", "message"),
    [
        ("secret", 403, "is not an allowed model"),
        ("fats", 400, "did you mean 'fast'?"),
    ],
)
async def test_an_unusable_model_changes_nothing(
    talking: dict[type, object], model: str, code: int, message: str
) -> None:
    result = await status(Scope(), talking, model=model)
    assert result.details["code"] == code
    assert message in result.as_text()
    assert (await status(Scope(), talking)).details["model"] == "a/b"


async def test_another_session_gets_its_model_by_way_of_the_store(
    talking: dict[type, object], store: SessionStore
) -> None:
    work = begin(store, "work")
    result = await status(Scope(), talking, sessionKey="work", model="fast")
    assert result.details["changedModel"] is True
    assert "auth" not in result.as_text()
    assert store.get(work.id).model_override == "x/fast-1"
    assert (await status(Scope(), talking)).details["model"] == "a/b"


def test_choosing_a_model_is_a_change_and_looking_is_none() -> None:
    from clawkit.core.context import Context
    from clawkit.tools.session_status import Params

    ctx = Context("1", Scope(), "/")
    assert [each.kind for each in TOOL.effects(Params(), ctx)] == ["read"]
    assert [each.kind for each in TOOL.effects(Params(model="x"), ctx)] == ["write"]


@table("name", ["sessionId", "session", "key", "label"])
async def test_the_session_may_be_called_by_other_names(name: str) -> None:
    given: dict[str, Any] = {name: "current"}
    result = await status(**given)
    assert result.details["ok"] is True
    wrong = await status(**given, sessionKey="current")
    assert "sessionKey: given twice" in wrong.as_text()
