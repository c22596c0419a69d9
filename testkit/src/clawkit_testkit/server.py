"""A server that speaks the four APIs over real HTTP, with answers from a script.

async with ScriptedServer("Hello.", fault.status(429, retry_after=1), "Now?") as server:
    config = {"models": {"providers": {"fake": server.provider_config("openai-responses")}}}

As a program: `python -m clawkit_testkit.server SCRIPT.json [--port N] [--api NAME]`.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from clawkit.models.protocols import Api
from clawkit.testing.answers import Gate, Saying, Script, ScriptEndedError, encode
from clawkit_testkit.fault import Complaint, Fault
from clawkit_testkit.forms.completions import Completions
from clawkit_testkit.forms.google import Google
from clawkit_testkit.forms.messages import Messages
from clawkit_testkit.forms.protocol import Form
from clawkit_testkit.forms.responses import Responses
from clawkit_testkit.http11 import READ_LIMIT, BadRequestError, Line, Received, read_request
from clawkit_testkit.listing import list_models
from clawkit_testkit.playback import UNREADABLE, Exchange, make_plan
from clawkit_testkit.script import ScriptError, read_script

Answer = Saying | Fault | Gate | Callable[[Received], Any]
"""One answer; a function, plain or async, is given the request and returns one."""

FORMS: Mapping[Api, Form] = {
    "openai-completions": Completions(),
    "openai-responses": Responses(),
    "anthropic-messages": Messages(),
    "google-generative-ai": Google(),
}
_BASE: Mapping[Api, str] = {
    "openai-completions": "/v1",
    "openai-responses": "/v1",
    "anthropic-messages": "",
    "google-generative-ai": "/v1beta",
}
_ENDINGS: tuple[tuple[str, Api], ...] = (
    ("/chat/completions", "openai-completions"),
    ("/responses", "openai-responses"),
    ("/v1/messages", "anthropic-messages"),
)
_GOOGLE = re.compile(r"/models/[^/]+:streamGenerateContent$")
_servers = itertools.count(1)


class ScriptedServer:
    """Gives scripted answers in order, whatever the API, and records the requests."""

    def __init__(
        self,
        *answers: Answer,
        then: Answer | None = None,
        models: Iterable[str] = ("scripted-model",),
        ollama: bool = False,
        port: int = 0,
        keep: int | None = None,
        piece_chars: int = 0,
    ) -> None:
        """`then` answers every request after the last answer; by default they get an error.

        `ollama` adds Ollama's own list of models. The last `keep` requests are recorded. Text is
        sent in a few pieces, or in pieces of `piece_chars`.
        """
        self.requests: list[Received] = []
        """The requests for answers, in order."""
        self.others: list[Received] = []
        """All other requests."""
        self._script = Script(answers, then)
        self._models = tuple(models)
        self._ollama, self._port, self._keep, self._piece_chars = ollama, port, keep, piece_chars
        self._number = next(_servers)
        self._count = 0
        self._came = asyncio.Event()
        self._failure: Exception | None = None
        self._lines: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(
            self._connected, "127.0.0.1", self._port, limit=READ_LIMIT
        )
        self._port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server. Raises an exception that a function of the script raised."""
        if self._listener:
            self._listener.close()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)
        # Transports close in the next iteration of the event loop.
        await asyncio.sleep(0)
        if self._failure and error is None:
            raise self._failure

    @property
    def url(self) -> str:
        if self._listener is None:
            raise RuntimeError("the scripted server has no address until `async with` starts it")
        return f"http://127.0.0.1:{self._port}"

    @property
    def count(self) -> int:
        """Number of requests for answers so far, including those not recorded."""
        return self._count

    @property
    def left(self) -> int:
        """Number of answers not used yet."""
        return self._script.left

    def base_url(self, api: Api) -> str:
        """The address to configure for an API."""
        return self.url + _BASE[api]

    def provider_config(
        self, api: Api, models: Iterable[str | Mapping[str, Any]] | None = None
    ) -> dict[str, Any]:
        """An entry of `models.providers`; models are ids, or entries with an id."""
        wanted = self._models if models is None else models
        return {
            "baseUrl": self.base_url(api),
            "api": api,
            "apiKey": "scripted-key",
            "models": [{"id": one} if isinstance(one, str) else dict(one) for one in wanted],
        }

    def add(self, *answers: Answer) -> None:
        """Append answers to the script."""
        self._script.add(*answers)

    def gate(self, answer: Saying = "done", *, after: int = 0) -> Gate:
        """Add an answer that waits until the gate is released."""
        gate = Gate(answer, after=after)
        self.add(gate)
        return gate

    async def wait_for(self, count: int = 1) -> Received:
        """Wait for so many requests; returns the last one."""
        while self._count < count:
            self._came.clear()
            await self._came.wait()
        return self.requests[-1]

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._talk(reader, writer))
        self._lines.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._lines.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._failure = self._failure or error

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer)
        try:
            while (received := await read_request(reader)) is not None:
                if not await self._serve(received, line):
                    break
        except BadRequestError as error:
            line.send(400, encode({"error": str(error)}), {"connection": "close"})
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            # Do not wait for a client that does not read.
            writer.transport.abort()
            raise
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, received: Received, line: Line) -> bool:
        """Answer one request; False if the connection cannot be used again."""
        api = _api_of(received)
        if api is None:
            self.others.append(received)
            status, body = list_models(received, self._models, self._ollama)
            line.send(status, body)
            return received.keeps_alive
        received.api = api
        self._remember(received)
        exchange = Exchange(FORMS[api], received, line, self._seed(), self._piece_chars)
        try:
            exchange.read()
        except UNREADABLE:
            words = "We could not parse the JSON body of your request."
            return await exchange.play(Complaint("invalid", message=words))
        try:
            plan = make_plan(await self._script.next(received))
        except ScriptEndedError as error:
            plan = Complaint("invalid", message=str(error))
        except Exception as error:  # noqa: BLE001  # the script's own; raised when the server closes
            self._failure = self._failure or error
            plan = Complaint("server", message=f"the script failed: {error!r}")
        return await exchange.play(plan) and received.keeps_alive

    def _seed(self) -> str:
        return f"{self._number:08x}{self._count:08x}"

    def _remember(self, received: Received) -> None:
        self._count += 1
        self.requests.append(received)
        if self._keep is not None and len(self.requests) > self._keep:
            del self.requests[0]
        self._came.set()


def _api_of(received: Received) -> Api | None:
    if received.method != "POST":
        return None
    path = received.path.partition("?")[0]
    for ending, api in _ENDINGS:
        if path.endswith(ending):
            return api
    return "google-generative-ai" if _GOOGLE.search(path) else None


async def _run(answers: list[Any], port: int, api: Api | None) -> None:
    # Do not record requests, which may be many and large.
    async with ScriptedServer(*answers, then="done", port=port, keep=1, ollama=True) as server:
        print(server.base_url(api) if api else server.url, flush=True)
        await asyncio.Event().wait()


def main(arguments: list[str] | None = None) -> int:
    """Serve a script from a file until interrupted."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="python -m clawkit_testkit.server",
        description="Speak the model APIs on this machine, with answers from a file.",
        epilog="The first line of output is the address to configure. After the last answer of "
        'the script every further one is "done".',
    )
    parser.add_argument("script", help="JSON file with a list of answers")
    parser.add_argument(
        "--port", type=int, default=0, help="port to listen on (default: a free one)"
    )
    parser.add_argument("--api", choices=FORMS, help="print the base URL for this API")
    options = parser.parse_args(arguments)
    try:
        answers = read_script(options.script)
        asyncio.run(_run(answers, options.port, options.api))
    except (ScriptError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
