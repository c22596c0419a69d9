"""`/v1/responses`, with a client like the one of the API's own library."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest
from tests.gateway.conftest import TOKEN, Ground, serve
from tests.gateway.raw_http import BEARER, Answer, send
from tests.lacking import import_or_lack

from clawkit.content import Text, User
from clawkit.models.protocols import ModelError
from clawkit.testing import Gate, ScriptedModel, call, say

PATH = "/v1/responses"
ON: dict[str, Any] = {"gateway": {"http": {"endpoints": {"responses": {"enabled": True}}}}}
ORDER = [
    *("response.created", "response.in_progress", "response.output_item.added"),
    *("response.content_part.added", "response.output_text.delta", "response.output_text.done"),
    *("response.content_part.done", "response.output_item.done", "response.completed"),
]


class Library:
    """Builds a response from events, as the libraries of that API do, and checks their order."""

    def __init__(self, answer: Answer) -> None:
        assert answer.headers["content-type"].startswith("text/event-stream")
        *blocks, last, end = answer.body.decode().split("\n\n")
        assert (last, end) == ("data: [DONE]", "")
        self.events = [self._read(block) for block in blocks]
        self.names = [each["type"] for each in self.events]
        self.output: list[Any] = []
        self.final: Any = None
        for number, event in enumerate(self.events):
            assert event["sequence_number"] == number
            self._take(event)

    def _read(self, block: str) -> Any:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert event["type"] == name.removeprefix("event: ")
        return event

    def _take(self, event: Any) -> None:
        match event["type"]:
            case "response.output_item.added":
                assert event["output_index"] == len(self.output)
                self.output.append(event["item"])
            case "response.content_part.added":
                item = self._item(event)
                assert event["content_index"] == len(item["content"])
                item["content"].append(event["part"])
            case "response.output_text.delta":
                self._item(event)["content"][event["content_index"]]["text"] += event["delta"]
            case "response.completed" | "response.failed":
                self.final = event["response"]

    def _item(self, event: Any) -> Any:
        item = self.output[event["output_index"]]
        assert item["id"] == event["item_id"]
        return item

    @property
    def text(self) -> str:
        return "".join(part["text"] for item in self.output for part in item["content"])


def ask(given: object = "hi", **more: Any) -> dict[str, Any]:
    return {"model": "openclaw", "input": given, **more}


def said(model: ScriptedModel, number: int = 0) -> str:
    message = model.requests[number].messages[-1]
    assert isinstance(message, User)
    return "".join(part.text for part in message.content if isinstance(part, Text))


async def test_the_endpoint_is_disabled_by_default(ground: Ground) -> None:
    assert (await send(ground, "POST", PATH, ask())).status == 404
    other = {"gateway": {"http": {"endpoints": {"chatCompletions": {"enabled": True}}}}}
    async with serve(other) as made:
        assert (await send(made, "POST", PATH, ask())).status == 404


async def test_a_response_has_one_message() -> None:
    async with serve(ON, ScriptedModel("The answer.")) as ground:
        found = await send(ground, "POST", PATH, ask())
        assert found.status == 200
        shown = found.json
        assert (shown["object"], shown["status"]) == ("response", "completed")
        assert shown["id"].startswith("resp_")
        assert shown["model"] == "openclaw"
        assert isinstance(shown["created_at"], int)
        [item] = shown["output"]
        assert item.pop("id").startswith("msg_")
        assert item == {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "The answer.", "annotations": []}],
            "phase": "final_answer",
            "status": "completed",
        }
        used = shown["usage"]
        assert used["total_tokens"] == used["input_tokens"] + used["output_tokens"] > 0


async def test_each_session_has_its_own_key() -> None:
    async with serve({**ON, "agents": {"list": [{"id": "main"}, {"id": "work"}]}}) as ground:
        for model in ("openclaw", "openclaw/work"):
            assert (await send(ground, "POST", PATH, {**ask(), "model": model})).status == 200
        for key, agent in zip(sorted(ground.gateway.live._open), ("main", "work"), strict=True):
            space, _, id_ = key.removeprefix(f"agent:{agent}:").partition(":")
            assert space == "openresponses"
            uuid.UUID(id_)


@pytest.mark.parametrize("by", ["header", "user"])
async def test_a_session_is_kept_if_it_is_named(by: str) -> None:
    model = ScriptedModel(then="ok")
    async with serve(ON, model) as ground:
        headers = {"x-openclaw-session-key": "talk"} if by == "header" else {}
        more = {"user": "me"} if by == "user" else {}
        for text in ("one", "two"):
            assert (await send(ground, "POST", PATH, ask(text, **more), headers)).status == 200
        assert len(model.requests[1].messages) == 3
        assert said(model, 1) == "two"
        await send(ground, "POST", PATH, ask("three"))
        assert len(model.requests[2].messages) == 1


async def test_instructions_and_earlier_messages_reach_the_model() -> None:
    model = ScriptedModel("ok")
    items = [
        {"role": "developer", "content": "Use metres."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "first"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "yes"}], "id": "msg_1"},
        {"role": "user", "content": "second"},
    ]
    async with serve(ON, model) as ground:
        body = ask(items, instructions="Be brief.", temperature=0.1, store=False, metadata={})
        assert (await send(ground, "POST", PATH, body)).status == 200
    lines = ["Be brief.", "Use metres.", "User: first", "Assistant: yes", "User: second"]
    assert said(model) == "\n\n".join(lines)


async def test_events_build_the_same_response() -> None:
    async with serve(ON, ScriptedModel("The whole answer.")) as ground:
        made = Library(await send(ground, "POST", PATH, ask(stream=True)))
        assert list(dict.fromkeys(made.names)) == ORDER
        assert made.names.count("response.output_text.delta") > 1
        assert made.text == "The whole answer."
        first, final = made.events[0]["response"], made.final
        assert (first["status"], first["output"], first["usage"]) == ("in_progress", [], None)
        assert (final["status"], final["id"]) == ("completed", first["id"])
        assert final["output"][0]["content"][0]["text"] == "The whole answer."
        assert final["usage"]["output_tokens"] > 0


async def test_the_library_of_that_api_reads_it() -> None:
    openai = import_or_lack("openai")
    async with serve(ON, ScriptedModel(then="The whole answer.")) as ground:
        client = openai.AsyncOpenAI(api_key=TOKEN, base_url=f"{ground.http}/v1", max_retries=0)
        async with client:
            whole = await client.responses.create(model="openclaw", input="hi")
            assert whole.output_text == "The whole answer."
            async with client.responses.stream(model="openclaw", input="hi") as stream:
                text = "".join(
                    [e.delta async for e in stream if e.type == "response.output_text.delta"]
                )
                assert text == "The whole answer."
                assert (await stream.get_final_response()).output_text == text
            with pytest.raises(openai.BadRequestError, match="Unknown model"):
                await client.responses.create(model="gpt", input="hi")


async def test_tools_run_in_the_gateway_and_the_last_answer_counts() -> None:
    model = ScriptedModel([say("I look."), call("ls", {})], "Nothing there.")
    async with serve(ON, model) as ground:
        made = Library(await send(ground, "POST", PATH, ask(stream=True)))
        assert made.text == "I look.\n\nNothing there."
        assert made.final["output"][0]["content"][0]["text"] == "Nothing there."


async def test_what_the_gateway_answers_itself_is_an_answer() -> None:
    async with serve(ON) as ground:
        made = Library(await send(ground, "POST", PATH, ask("/stop", stream=True)))
        assert made.text == made.final["output"][0]["content"][0]["text"] != ""


async def test_a_failed_response_is_an_error() -> None:
    fault = ModelError("invalid", "the model is broken")
    async with serve(ON, ScriptedModel(then=fault)) as ground:
        found = await send(ground, "POST", PATH, ask())
        assert (found.status, found.json["error"]["type"]) == (500, "api_error")
        made = Library(await send(ground, "POST", PATH, ask(stream=True)))
        assert made.names[-1] == "response.failed"
        assert "response.completed" not in made.names
        assert made.final["status"] == "failed"
        assert made.final["error"]["code"] == "server_error"
        assert "broken" in made.final["error"]["message"]


async def test_a_reader_that_leaves_stops_the_answer() -> None:
    gate = Gate("never", after=0)
    async with serve(ON, ScriptedModel(gate)) as ground:
        reader, writer = await asyncio.open_connection("127.0.0.1", ground.port)
        body = json.dumps(ask(stream=True)).encode()
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {BEARER['Authorization']}"
            f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await reader.readuntil(b"content_part.added")
        await gate.reached.wait()
        [key] = list(ground.gateway.live._open)
        writer.transport.abort()
        async with asyncio.timeout(10):
            while ground.gateway.live.active(key):
                await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "gpt-5"}, "Unknown model; use one of openclaw"),
        ({"input": ""}, "last item of input"),
        ({"input": []}, "invalid body"),
        ({"input": None}, "invalid body"),
        ({"input": "  ", "instructions": "Be brief."}, "last item of input"),
        ({"input": [{"role": "assistant", "content": "x"}]}, "last item of input"),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0]: role must be one of user"),
        ({"input": [{"type": "reasoning"}]}, "input[0]: only items of type message"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "only parts of type"),
        ({"input": [{"role": "user", "content": 7}]}, "content must be text"),
        ({"tools": [{"type": "web_search"}]}, "tools are not supported"),
        ({"tool_choice": "required"}, "tools are not supported"),
        ({"previous_response_id": "resp_1"}, "x-openclaw-session-key"),
        ({"conversation": "conv_1"}, "x-openclaw-session-key"),
        ({"prompt": {"id": "p"}}, "send instructions and input"),
        ({"background": True}, "use stream"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format must be text"),
    ],
    ids=range(17),
)
async def test_unsupported_parameters_are_refused(change: dict[str, Any], message: str) -> None:
    async with serve(ON) as ground:
        found = await send(ground, "POST", PATH, ask() | change)
        assert found.status == 400
        assert found.json["error"]["type"] == "invalid_request_error"
        assert message in found.json["error"]["message"]
        assert ground.gateway.live._open == {}


async def test_defaults_that_libraries_send_are_accepted() -> None:
    more = {"tools": [], "tool_choice": "auto", "text": {"format": {"type": "text"}}}
    empty = {"instructions": None, "user": None, "previous_response_id": None, "stream": None}
    async with serve(ON) as ground:
        assert (await send(ground, "POST", PATH, ask(**more, **empty))).status == 200


async def test_others_are_kept_out() -> None:
    async with serve(ON) as ground:
        assert (await send(ground, "POST", PATH, ask(), login=False)).status == 401
        wrong = await send(ground, "GET", PATH)
        assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
        for headers in ({"Host": "evil.test"}, {"Origin": "http://evil.test"}):
            assert (await send(ground, "POST", PATH, ask(), headers)).status == 403
        big = {"Content-Length": str(10**12), "Content-Type": "application/json"}
        assert (await send(ground, "POST", PATH, b"", big)).status == 413
        plain = {"Content-Type": "text/plain"}
        assert (await send(ground, "POST", PATH, ask(), plain)).status == 400
