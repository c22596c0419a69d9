"""Many clients use a gateway that is restarted repeatedly, and disconnect and reconnect at random.
Every message must be posted exactly once, and answered."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from websockets.exceptions import ConnectionClosed, InvalidHandshake

from bench.figure import Figure
from bench.gateway_parts import GatewayProcess, GatewayUser, PacedModel, join

CLIENTS, RESTART_S = 50, 30.0
RESTARTS = round(float(os.environ.get("CLAWKIT_SOAK_S", "300")) / RESTART_S)
LEAVES = 0.3
"""Probability that a client disconnects during a message."""
ANSWER_S = 60.0
"""Seconds that a client waits for an answer, across all of its connections."""
_GONE = (ConnectionClosed, InvalidHandshake, OSError, EOFError, TimeoutError)


class SoakOutcome(NamedTuple):
    """The result of a soak test."""

    accepted: int
    lost: list[str]
    """Accepted messages that are missing in the conversation."""
    twice: list[str]
    unanswered: list[str]

    @property
    def faults(self) -> list[str]:
        found = (("lost", self.lost), ("twice", self.twice), ("unanswered", self.unanswered))
        return [f"{what}: {each}" for what, names in found for each in names]


class Talker:
    """One client, with a session of its own."""

    def __init__(self, gateway: GatewayProcess, number: int, chance: random.Random) -> None:
        self._gateway, self._chance = gateway, chance
        self.session = f"soak-{number}"
        self.accepted: list[str] = []

    async def talk(self, enough: asyncio.Event) -> None:
        for count in itertools.count():
            if enough.is_set():
                return
            with suppress(TimeoutError):  # it has no answer, which the history will show
                await self._say(f"{self.session}-{count}")

    async def _say(self, text: str) -> None:
        """Send a message until it is accepted, and wait until its run is over."""
        leaves = self._chance.random() < LEAVES
        async with asyncio.timeout(ANSWER_S):
            while True:
                try:
                    async with join(self._gateway.url) as user:
                        if leaves:
                            # It disconnects at a random moment before, during or after the answer.
                            leaves = False
                            moment = self._chance.uniform(0, 0.2)
                            await asyncio.wait_for(self._exchange(user, text), moment)
                        return await self._exchange(user, text)
                except _GONE:
                    await asyncio.sleep(self._chance.uniform(0.05, 0.3))
                except RuntimeError as error:  # the gateway refused: it starts or stops
                    if "shutting down" not in str(error) and "not ready" not in str(error):
                        raise
                    await asyncio.sleep(0.2)

    async def _exchange(self, user: GatewayUser, text: str) -> None:
        """Messages without confirmation are sent again, with the same key."""
        if text not in self.accepted:
            said = {"sessionKey": self.session, "message": text, "idempotencyKey": text}
            await user.call("chat.send", **said)
            self.accepted.append(text)
        while (await user.call("agent.wait", runId=text, timeoutMs=5_000))["status"] == "timeout":
            if ("assistant", f"re {text}") in await self.history(user):
                return  # by a gateway that has forgotten the run
            await asyncio.sleep(0.2)

    async def history(self, user: GatewayUser) -> list[tuple[str, str]]:
        """The messages with their roles, in order."""
        found: list[tuple[str, str]] = []
        offset: int | None = 0
        while offset is not None:
            page = await user.call(
                "chat.history", sessionKey=self.session, limit=200, offset=offset
            )
            found[:0] = [(each["role"], _words(each)) for each in page["messages"]]
            offset = page.get("nextOffset")
        return found


def _words(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(each.get("text", "") for each in content)


def judge(accepted: list[str], history: list[tuple[str, str]]) -> SoakOutcome:
    """Compare the accepted messages of a session with its conversation."""
    said = Counter(words for role, words in history if role == "user")
    answers = {words for role, words in history if role == "assistant"}
    return SoakOutcome(
        len(accepted),
        [each for each in accepted if not said[each]],
        [each for each, count in said.items() if count > 1],
        [each for each in accepted if said[each] and f"re {each}" not in answers],
    )


def _answer(request: dict[str, Any]) -> tuple[list[str], float]:
    last = next(each for each in reversed(request["messages"]) if each["role"] == "user")
    return ["re ", _words(last)], 0.02


async def _restart(gateway: GatewayProcess, every_s: float, how: signal.Signals) -> None:
    await asyncio.sleep(every_s)
    await asyncio.to_thread(gateway.stop, how)
    await asyncio.to_thread(gateway.start)


async def soak(
    place: Path, restarts: int, clients: int, restart_s: float, seed: int
) -> SoakOutcome:
    """Restart the gateway repeatedly, each time this long after its start."""
    model = PacedModel(_answer)
    chance, enough = random.Random(seed), asyncio.Event()
    async with await model.serve():
        gateway = GatewayProcess(place, model.url)
        await asyncio.to_thread(gateway.start)
        try:
            talkers = [Talker(gateway, number, chance) for number in range(clients)]
            work = asyncio.gather(*(each.talk(enough) for each in talkers))
            for _ in range(restarts):
                await _restart(gateway, restart_s, signal.SIGTERM)
            enough.set()
            await work
            async with join(gateway.url) as user:
                found = [judge(each.accepted, await each.history(user)) for each in talkers]
        finally:
            await asyncio.to_thread(gateway.stop)
    return SoakOutcome(
        sum(each.accepted for each in found),
        [name for each in found for name in each.lost],
        [name for each in found for name in each.twice],
        [name for each in found for name in each.unanswered],
    )


def measure() -> Iterable[Figure]:
    with tempfile.TemporaryDirectory() as place:
        found = asyncio.run(soak(Path(place), RESTARTS, CLIENTS, RESTART_S, seed=1))
    note = f"{found.accepted:,} messages, {RESTARTS} restarts; {'; '.join(found.faults[:3])}"
    yield Figure("gateway soak, lost", len(found.lost), "messages", 0, note)
    yield Figure("gateway soak, said twice", len(found.twice), "messages", 0)
    yield Figure("gateway soak, unanswered", len(found.unanswered), "messages", 0)
