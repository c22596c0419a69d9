"""The same conversations through every API, and from one API to another."""

from __future__ import annotations

import asyncio
import random
import struct
import zlib
from collections.abc import Iterator
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from tests.agent.talking import APIS, Heard, assert_consistent, assert_sane, config_for, open_agent
from tests.agent.talking import stored as stored_of
from tests.scale import scaled
from tests.sdks import SDKS

from clawkit.agent.events import Event
from clawkit.content import Assistant, Image, Message, Text, Thinking, ToolResult
from clawkit.models.protocols import Api
from clawkit.testing.answers import call, say, think
from clawkit_testkit.server import ScriptedServer

pytestmark = SDKS
STEPS = 50
WORDS = (
    *("Plain.", "Zwölf Boxkämpfer", "世界", "🌍🏳️‍🌈", "مرحبا", "e\u0301", "a\u2028b", "nul\x00"),
    *("tab\tand\r\nlines\n", "```json\n{}\n```", '"quoted" \\ back', "<tool>x</tool>", "x" * 3_000),
)
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read", {"path": "a.txt"}),
    ("read", {"path": "dot.png"}),
    ("read", {"path": "nowhere.txt"}),
    ("read", {"path": "../../etc/hostname", "limit": "many"}),
    ("write", {"path": "new/ünï.txt", "content": "Zeile\r\n世界 🌍\n\x00"}),
    ("edit", {"path": "a.txt", "edits": [{"oldText": "alpha", "newText": "alpha"}]}),
    ("edit", {"path": "src/main.py", "edits": [{"oldText": "missing", "newText": "x"}]}),
    ("grep", {"pattern": "alpha|ok"}),
    ("grep", {"pattern": "("}),
    ("find", {"pattern": "*.py"}),
    ("ls", {}),
    ("exec", {"command": "printf 'päge 🌍'; exit 3"}),
    ("exec", {"command": "cat a.txt src/main.py"}),
    ("process", {"action": "list"}),
    ("process", {"action": "poll", "sessionId": "nobody"}),
    ("no_such_tool", {"deep": {"list": [1, None, True, 1.5, "é"]}}),
    ("update_plan", {"plan": [{"step": "Look", "status": "in_progress"}]}),
)


def make_script(seed: int) -> list[list[Any]]:
    """Answers as models give them, the last one without calls."""
    chance = random.Random(seed)
    script: list[list[Any]] = []
    for number in range(STEPS - 1):
        parts: list[Any] = []
        if chance.random() < 0.3:
            parts.append(think(chance.choice(WORDS), f"c2lnbmF0dXJl{number:04}"))
        if chance.random() < 0.5:
            parts.append(say(chance.choice(WORDS)))
        wanted = chance.sample(CALLS, chance.choice((1, 1, 1, 2, 4)))
        parts += [call(name, given) for name, given in wanted]
        script.append(parts)
    return [*script, [say("That is all. 完")]]


def make_png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00\xff\x00\x00\x00\xff\x00" * 2)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


def make_place(place: Path) -> Path:
    (place / "src").mkdir(parents=True)
    (place / "a.txt").write_text("alpha\nbeta\n", encoding="utf-8")
    (place / "src" / "main.py").write_text('print("ok")\n', encoding="utf-8")
    (place / "dot.png").write_bytes(make_png())
    return place


_OWN = ("model", "api", "usage", "atMs", "signature", "hidden")


def comparable(messages: list[Message], place: Path) -> list[Any]:
    """Messages without what is each API's own, or the moment's."""
    ids: dict[str, str] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            if value.get("type") == "toolCall":
                value["id"] = ids.setdefault(value["id"], f"call {len(ids)}")
            if "callId" in value:
                value["callId"] = ids[value["callId"]]
            return {
                key: plain(item)
                for key, item in value.items()
                if key not in _OWN and not key.lower().endswith(("ms", "pid"))
            }
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return value.replace(str(place), "PLACE") if isinstance(value, str) else value

    return [plain(msgspec.to_builtins(message)) for message in messages]


async def converse(api: Api, script: list[list[Any]], place: Path) -> list[Any]:
    heard = Heard()
    async with ScriptedServer(*script) as server:
        config = config_for(server, api)
        config["tools"]["loopDetection"] = {"enabled": False}
        async with open_agent(config, place, tell=heard) as agent:
            ended = await agent.send("Do it. 世界")
            history = list(agent.conversation.history)
            kept = stored_of(agent)
        assert server.left == 0
        # Each request has everything of the one before.
        validate(api, server.requests[-1].body)
    assert (ended.how, ended.text) == ("done", "That is all. 完")
    assert_consistent(history)
    assert_sane(heard)
    assert_readable(heard)
    found = comparable(history, place)
    assert comparable(kept, place) == found
    return found


def assert_readable(heard: list[Event]) -> None:
    """A program in another language can read every event, and ours reads it back."""
    decoder = msgspec.json.Decoder(Event)
    for event in heard:
        assert decoder.decode(msgspec.json.encode(event)) == event


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 1 + scaled(10)))
async def test_a_script_gives_the_same_transcript_through_every_api(
    seed: int, tmp_path: Path
) -> None:
    script = make_script(seed)
    places = [make_place(tmp_path / api) for api in APIS]
    told = await asyncio.gather(
        *(converse(api, script, place) for api, place in zip(APIS, places, strict=True))
    )
    first = told[0]
    results = [message for message in first if message["type"] == "toolResult"]
    assert len(results) > STEPS
    assert any(block["type"] == "image" for each in results for block in each["content"])
    for other in told[1:]:
        assert other == first


def validate(api: str, body: Any) -> None:
    """The types of the API's own SDK take the body."""
    _CHECKS[api](body)


def _check_completions(body: Any) -> None:
    from openai.types.chat import ChatCompletionMessageParam
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    assert set(body) <= set(get_type_hints(CompletionCreateParamsStreaming))
    _force(_adapter(list[ChatCompletionMessageParam]).validate_python(body["messages"]))


def _check_responses(body: Any) -> None:
    from openai.types.responses import ResponseInputItemParam
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    assert set(body) <= set(get_type_hints(ResponseCreateParamsStreaming))
    _force(_adapter(list[ResponseInputItemParam]).validate_python(body["input"]))


def _check_messages(body: Any) -> None:
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    _force(_adapter(MessageCreateParamsStreaming).validate_python(body, extra="forbid"))


def _check_google(body: Any) -> None:
    from google.genai import types

    for content in body["contents"]:
        types.Content.model_validate(content, extra="forbid")


_CHECKS: dict[str, Any] = {
    "openai-completions": _check_completions,
    "openai-responses": _check_responses,
    "anthropic-messages": _check_messages,
    "google-generative-ai": _check_google,
}


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _force(value: Any) -> None:
    """Look at everything that the SDK's types check lazily."""
    if isinstance(value, dict):
        for item in value.values():
            _force(item)
    elif not isinstance(value, str | int | float | None):
        for item in value:
            _force(item)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


PROOF = "c2lnbmF0dXJlIG9mIG9uZQ=="


@pytest.mark.parametrize(("before", "after"), [*permutations(APIS, 2)])
async def test_a_conversation_continues_with_another_api(
    before: Api, after: Api, tmp_path: Path
) -> None:
    place = make_place(tmp_path / "ws")
    looks = [call("read", {"path": "dot.png"}), call("grep", {"pattern": "alpha"})]
    script: list[Any] = [
        [think("Secretly.", PROOF), say("I look."), *looks],
        [say("A dot.")],
        [*looks],
        "Yes.",
    ]
    async with ScriptedServer(*script, then="Back.") as server:
        async with open_agent(config_for(server, before, after), place) as agent:
            picture = await agent.attach(place / "dot.png")
            await agent.send([Text("What is it?"), picture])
            agent.use_model(f"{after}/scripted-model")
            ended = await agent.send("Go on.")
            assert (ended.how, ended.text) == ("done", "Yes.")
            agent.use_model(f"{before}/scripted-model")
            assert (await agent.send("And back.")).text == "Back."
            history = agent.conversation.history
            assert_consistent(history)
        assert [received.api for received in server.requests] == [before] * 2 + [after] * 2 + [
            before
        ]
        for received in server.requests:
            validate(received.api, received.body)
    there = server.requests[2].body
    # Proofs of one model are nothing to another, and back at the first they are there again.
    assert not any(PROOF in text for text in _texts(there))
    if before != "openai-completions":
        assert any(PROOF in text for text in _texts(server.requests[-1].body))
    assert sum(isinstance(part, Image) for part in _parts(history)) == 3
    assert any(isinstance(part, Thinking) for part in _parts(history))


def _parts(history: list[Message]) -> Iterator[Any]:
    for message in history:
        if isinstance(message, Assistant | ToolResult) or hasattr(message, "content"):
            yield from message.content
