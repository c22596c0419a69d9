"""Everything a service can do wrong, through every API: the turn ends, the conversation goes on."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.agent.talking import (
    APIS,
    KEY,
    Heard,
    NoWait,
    assert_consistent,
    assert_sane,
    config_for,
    open_agent,
    stored,
)

from clawkit import Result, tool
from clawkit.agent.events import AnswerRestarted, TurnEnded
from clawkit.agent.loop import TurnLimits
from clawkit.agent_session import Agent
from clawkit.content import Assistant, Message, Text, ToolResult
from clawkit.models.protocols import Api
from clawkit.testing.answers import Gate, call, calls, say, think
from clawkit_testkit import fault
from clawkit_testkit.server import ScriptedServer

Happened = tuple[TurnEnded, Heard, list[Message]]
LOOK = [think("So."), say("Let me look."), call("read", {"path": "a.txt"})]


class Turns:
    """One session, a service whose mood changes, and as many agents as it takes."""

    def __init__(self, server: ScriptedServer, config: dict[str, Any], place: Path) -> None:
        self.server = server
        self.config = config
        self.clock = NoWait()
        self._place = place

    def open(self, **options: Any) -> Agent:
        options = {"session": "talk", "clock": self.clock, **options}
        return open_agent(self.config, self._place, **options)

    async def send(self, text: str = "Go.", **options: Any) -> Happened:
        """A turn of an agent of its own; what must hold after each one does."""
        heard = Heard()
        async with self.open(tell=heard, **options) as agent:
            ended = await agent.send(text)
            history = list(agent.conversation.history)
            assert_consistent(history)
            assert_consistent(stored(agent))
        assert_sane(heard)
        return ended, heard, history


@asynccontextmanager
async def turns(
    api: Api,
    place: Path,
    *answers: Any,
    then: Any = "Fine.",
    with_commands: bool = True,
    **provider: Any,
) -> AsyncIterator[Turns]:
    """With commands, each agent starts the program that runs them while the service is at it."""
    async with ScriptedServer(*answers, then=then) as server:
        config = config_for(server, api, **provider)
        if not with_commands:
            config["tools"]["deny"] = ["exec"]
        yield Turns(server, config, place)


class Case(NamedTuple):
    """What goes wrong for good, and the words a person must find in the one line about it."""

    answer: Any
    what: str
    advice: str
    attempts: int = 1


_LATER = "or set fallbacks."
CASES = {
    "dropped": Case(fault.drop(), "closed the connection", "Check models.providers.", 9),
    "cut": Case(fault.cut(2), "broke off", _LATER, 9),
    "cut before the first word": Case(fault.cut(0), "closed the conn", "and the network.", 9),
    "no JSON": Case(fault.malformed(1), "invalid JSON", "baseUrl and api", 3),
    "wrong JSON": Case(fault.wrong_json(2), "broke off", _LATER, 9),
    "a page": Case(fault.html(), "a web page", "baseUrl", 1),
    "a page of a proxy": Case(fault.html(502), "HTTP 502", _LATER, 9),
    "no body": Case(fault.empty(), "empty", "baseUrl and api", 3),
    "400": Case(fault.status(400), "HTTP 400", "choose another model."),
    "401": Case(fault.status(401), "HTTP 401", ".apiKey."),
    "402": Case(fault.status(402), "HTTP 402", "Top up the account"),
    "403": Case(fault.status(403), "HTTP 403", ".apiKey."),
    "404": Case(fault.status(404), "HTTP 404", "Check the model's name"),
    "413": Case(fault.status(413), "HTTP 413", "Shorten the conversation"),
    "429": Case(fault.status(429, retry_after=2), "HTTP 429", "Try again in 2s", 10),
    "429 for an hour": Case(fault.status(429, retry_after=3600), "HTTP 429", "in 1h"),
    "500": Case(fault.status(500), "HTTP 500", _LATER, 9),
    "503": Case(fault.status(503), "HTTP 503", _LATER, 9),
    "529": Case(fault.status(529), "HTTP 529", _LATER, 9),
    "quota": Case(fault.quota(), "no credit or quota", "Top up the account"),
    "bad key": Case(fault.bad_key(), "rejected the credential", ".apiKey."),
    "too long": Case(fault.overflow(), "conversation this long", "Shorten the conversation"),
    "overloaded in mid-stream": Case(fault.midstream(), "no capacity", _LATER, 9),
    "failed in mid-stream": Case(fault.midstream("server", form="failed"), "failed", _LATER, 9),
    "refused in mid-stream": Case(fault.midstream("auth"), "rejected the cred", ".apiKey."),
    "nothing said": Case(fault.empty_reply(), "empty answer twice", "try again", 2),
    "nothing but thoughts": Case([think("Hm.")], "empty answer twice", "try again", 2),
    "thought too long": Case(Assistant((think("Hm."),), "length"), "token limit", "maxTokens", 1),
    "filtered": Case(fault.refusal(""), "refused to answer", "choose another model", 1),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", CASES)
async def test_a_permanent_failure_is_one_line_and_the_next_turn_works(
    name: str, api: Api, workspace: Path
) -> None:
    case = CASES[name]
    mood = [case.answer]
    with_commands = api == APIS[0]
    async with turns(
        api, workspace, LOOK, then=lambda _: mood[0], with_commands=with_commands
    ) as talk:
        ended, heard, history = await talk.send()
        assert ended.how == "error"
        assert "\n" not in ended.error
        assert ended.error.startswith(api)
        assert case.what in ended.error
        assert case.advice in ended.error
        assert KEY not in str(heard)
        # The question before, and one more for each compaction that was tried.
        asked = case.attempts + 1 + (2 if "Shorten" in case.advice else 0)
        assert talk.server.count in (asked, asked + 1)
        if isinstance(last := history[-1], Assistant):
            assert (last.stop, last.calls) == ("error", ())
        mood[0] = "Fine."
        ended, _, _ = await talk.send("And now?")
    assert (ended.how, ended.text) == ("done", "Fine.")


PASSING = {
    "429": fault.status(429, retry_after=0),
    "500": fault.status(500),
    "cut": fault.cut(2),
    "dropped": fault.drop(),
    "no JSON": fault.malformed(2),
    "overloaded": fault.midstream(),
    "a call that has no end": fault.enormous(8_500_000),
    "nothing said": fault.empty_reply(),
}


@pytest.mark.parametrize("api", APIS)
async def test_a_single_failure_causes_only_a_notice(api: Api, workspace: Path) -> None:
    async with turns(api, workspace, *PASSING.values()) as talk:
        ended, heard, history = await talk.send()
    # Nothing said is asked again by the loop, the others by the chain.
    assert len(heard.of(AnswerRestarted)) == len(PASSING) - 1
    assert (ended.how, ended.text) == ("done", "Fine.")
    assert len(history) == 2
    assert talk.clock.waits


@pytest.mark.parametrize("api", APIS)
async def test_a_service_that_is_not_there_is_named(api: Api, workspace: Path) -> None:
    async with turns(api, workspace) as talk:
        pass
    ended, _, _ = await talk.send()
    assert ended.how == "error"
    assert ended.error.startswith(f"{api}: ")
    assert f"Check models.providers.{api}" in ended.error


async def test_a_service_that_stops_answering_is_asked_again(workspace: Path) -> None:
    for seconds in (1, 5, 25):  # a busy machine may not answer within the first
        async with turns(APIS[0], workspace, fault.hang(1), timeoutSeconds=seconds) as talk:
            ended, heard, _ = await talk.send()
        if len(heard.of(AnswerRestarted)) == 1:
            break
    assert len(heard.of(AnswerRestarted)) == 1
    assert ended.text == "Fine."


@pytest.mark.parametrize("api", APIS)
async def test_a_slow_answer_is_an_answer(api: Api, workspace: Path) -> None:
    async with turns(api, workspace, fault.slow(0.001), fault.torn(5, "Grüße 🌍")) as talk:
        assert (await talk.send())[0].text.startswith("One, two")
        assert (await talk.send())[0].text == "Grüße 🌍"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("after", [0, 2])
async def test_a_hanging_answer_can_be_aborted(api: Api, after: int, workspace: Path) -> None:
    gate = Gate("One, two, three, four.", after=after)
    async with turns(api, workspace, gate) as talk:
        async with talk.open() as agent:
            turn = asyncio.create_task(agent.send("Go."))
            received = await talk.server.wait_for()
            if after:
                while not agent.conversation.queued and not gate.reached.is_set():
                    await asyncio.sleep(0)
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
            # The service is told, not left to write into the void.
            await received.gone.wait()
        assert (await talk.send())[0].text == "Fine."


async def results_of(api: Api, place: Path, answer: Any, **options: Any) -> list[ToolResult]:
    """What came of the calls of an answer; the model was told, and the next turn works."""
    async with turns(api, place, answer, "Told.") as talk:
        ended, _, history = await talk.send(**options)
        assert (ended.how, ended.text) == ("done", "Told.")
        results = [message for message in history if isinstance(message, ToolResult)]
        assert len({each.call_id for each in results}) == len(results)
        assert (await talk.send())[0].text == "Fine."
    return results


def text_of(result: ToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, Text))


ODD_CALLS: dict[str, tuple[Any, Callable[[list[ToolResult]], bool]]] = {
    "unknown tool": (fault.unknown_tool(), lambda got: "unknown tool" in text_of(got[0])),
    "objects": (fault.object_arguments(), lambda got: "alpha" in text_of(got[0])),
    "double-encoded": (fault.double_encoded(), lambda got: "alpha" in text_of(got[0])),
    "same ids": (
        fault.duplicate_ids(call("read", {"path": "a.txt"}), call("read", {"path": "src/main.py"})),
        lambda got: "alpha" in text_of(got[0]) and "print" in text_of(got[1]),
    ),
    "200 calls": (
        [call("read", {"path": "a.txt", "offset": 1, "limit": n}) for n in range(1, 201)],
        lambda got: len(got) == 200,
    ),
    "no name": (call("", {"path": "a.txt"}), lambda got: got[0].is_error),
    "a strange name": (call("é\n<x> " * 40, {}), lambda got: got[0].is_error),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", ODD_CALLS)
async def test_odd_calls_have_results(name: str, api: Api, workspace: Path) -> None:
    answer, is_right = ODD_CALLS[name]
    assert is_right(await results_of(api, workspace, answer))


@pytest.mark.parametrize("api", APIS)
async def test_a_call_that_was_cut_off_is_not_run(api: Api, workspace: Path) -> None:
    if api == "google-generative-ai":
        # It sends a call when it is complete, or not at all.
        async with turns(api, workspace, fault.truncated()) as talk:
            ended, _, _ = await talk.send()
        assert "token limit" in ended.error
    else:
        (result,) = await results_of(api, workspace, fault.truncated())
        assert result.is_error
    assert (workspace / "a.txt").read_text(encoding="utf-8") == "alpha\nbeta\n"


async def test_an_enormous_result_is_cut(workspace: Path) -> None:
    @tool
    async def flood() -> str:
        """Says very much."""
        return "x" * 2_000_000

    (result,) = await results_of(APIS[0], workspace, call("flood"), tools=[flood])
    assert len(text_of(result)) < 100_000


@pytest.mark.parametrize("api", APIS)
async def test_what_is_too_long_is_summed_up_and_goes_on(api: Api, workspace: Path) -> None:
    async with turns(api, workspace, "Long ago.", "So.", fault.overflow(), "A summary.") as talk:
        for text in ("one " * 30_000, "two " * 3_000):
            await talk.send(text)
        ended, _, history = await talk.send("three")
        assert (ended.how, ended.text) == ("done", "Fine.")
        assert "Summary" in type(history[0]).__name__
        assert (await talk.send())[0].text == "Fine."


def write_profiles(api: Api, **fields: Any) -> None:
    place = Path(os.environ["CLAWKIT_HOME"]) / "agents" / "main" / "agent"
    place.mkdir(parents=True)
    profile = {"type": "oauth", "provider": api, **fields}
    (place / "auth-profiles.json").write_text(
        json.dumps({"version": 1, "profiles": {f"{api}:mine": profile}}), encoding="utf-8"
    )


@pytest.mark.parametrize("api", APIS)
async def test_a_sign_in_that_has_expired_is_one_line(api: Api, workspace: Path) -> None:
    write_profiles(api, access="tok-old-and-secret", expires=int(time.time() * 1000) - 1)
    async with turns(api, workspace) as talk:
        del talk.config["models"]["providers"][api]["apiKey"]
        ended, heard, _ = await talk.send()
        assert (ended.how, talk.server.count) == ("error", 0)
        assert "sign in" in ended.error
        assert api in ended.error
        assert "tok-old" not in str(heard)
        talk.config["models"]["providers"][api]["apiKey"] = KEY
        assert (await talk.send())[0].text == "Fine."


@pytest.mark.parametrize("api", APIS)
async def test_an_enormous_call_is_carried_out_and_stored_in_part(
    api: Api, workspace: Path
) -> None:
    async with turns(api, workspace, fault.enormous(3_000_000)) as talk:
        assert (await talk.send())[0].how == "done"
        assert (await talk.send())[0].text == "Fine."
    assert (workspace / "a.txt").stat().st_size == 3_000_000


async def test_a_tool_that_hangs_ends_with_the_turn(workspace: Path) -> None:
    @tool
    async def wait() -> Result:
        """Never comes back."""
        await asyncio.Event().wait()
        raise AssertionError

    async with turns(APIS[0], workspace, calls(("wait", {}), ("ls", {}))) as talk:
        async with talk.open(tools=[wait]) as agent:
            agent.conversation.limits = TurnLimits(timeout_s=0.1)
            ended = await agent.send("Go.")
            assert_consistent(agent.conversation.history)
        assert ended.how == "timeout"
        assert "took longer than 0.1s" in ended.error
        assert (await talk.send())[0].text == "Fine."
