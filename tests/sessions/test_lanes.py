"""Turns of sessions: order, modes, limits, and what becomes of what was not read."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence

import pytest
from tests.tables import table

from clawkit.errors import ConflictError, ToolError
from clawkit.sessions.lanes import Lane, LaneLimits, Lanes, Mode, Slots


class Turn:
    """A turn that goes on until it is told to end."""

    def __init__(self, items: Sequence[str]) -> None:
        self.items = [*items]
        self.release = asyncio.Event()
        self.read: list[str] = []
        self.how = "running"


class Model:
    """Carries out turns, one by one, as a test says."""

    def __init__(self, slots: Slots | None = None, agent: str = "a") -> None:
        self.turns: list[Turn] = []
        self.inbox: list[str] = []
        self.began = asyncio.Condition()
        self.takes_steering = True
        self.lane: Lane[str, str] = Lane(self.turn, self.steer, self.take_back, agent, slots)

    async def turn(self, items: Sequence[str]) -> str:
        turn = Turn(items)
        self.turns.append(turn)
        async with self.began:
            self.began.notify_all()
        try:
            await turn.release.wait()
            turn.read, self.inbox[:] = [*self.inbox], []
            turn.how = "done"
        except asyncio.CancelledError:
            turn.how = "aborted"
        if "bad" in items:
            raise ToolError("the turn failed")
        return f"{turn.how}:{'+'.join(items)}"

    def steer(self, item: str) -> bool:
        if self.takes_steering:
            self.inbox.append(item)
        return self.takes_steering

    def take_back(self, item: str) -> bool:
        if item in self.inbox:
            self.inbox.remove(item)
            return True
        return False

    async def until(self, count: int) -> Turn:
        async with self.began:
            await self.began.wait_for(lambda: len(self.turns) >= count)
        return self.turns[count - 1]


def post(model: Model, *items: str, mode: Mode = "followup") -> list[asyncio.Future[str]]:
    return [model.lane.post(item, mode) for item in items]


async def finish(model: Model, futures: Sequence[asyncio.Future[str]]) -> list[str]:
    """Let every turn end as soon as it begins."""

    async def release() -> None:
        number = 1
        while True:
            (await model.until(number)).release.set()
            number += 1

    releasing = asyncio.ensure_future(release())
    try:
        return [str(each) for each in await asyncio.gather(*futures, return_exceptions=True)]
    finally:
        releasing.cancel()


async def test_one_turn_at_a_time_in_the_order_of_arrival() -> None:
    model = Model()
    futures = post(model, "one", "two", "three")
    await model.until(1)
    assert model.lane.is_busy
    assert model.lane.waiting == ["two", "three"]
    assert await finish(model, futures) == ["done:one", "done:two", "done:three"]
    await model.lane.idle()
    assert not model.lane.is_busy


@table(
    ("mode", "turns"),
    [
        ("followup", [["go"], ["x"], ["y"]]),
        ("collect", [["go"], ["x", "y"]]),
        ("steer", [["go"]]),
        ("interrupt", [["go"], ["x"], ["y"]]),
    ],
)
async def test_each_mode_queues_messages_differently(mode: Mode, turns: list[list[str]]) -> None:
    model = Model()
    first = post(model, "go")
    await model.until(1)
    futures = post(model, "x", "y", mode=mode)
    await finish(model, [*first, *futures])
    assert [each.items for each in model.turns] == turns
    assert model.turns[0].how == ("aborted" if mode == "interrupt" else "done")
    assert model.turns[0].read == (["x", "y"] if mode == "steer" else [])


async def test_steering_is_part_of_the_turn_that_read_it() -> None:
    model = Model()
    [first] = post(model, "go")
    turn = await model.until(1)
    [steered] = post(model, "quick", mode="steer")
    turn.release.set()
    assert (await first, await steered) == ("done:go", "done:go")


async def test_unread_messages_become_the_next_turn() -> None:
    model = Model()
    first = post(model, "go")
    turn = await model.until(1)
    steered = post(model, "a", "b", mode="steer")
    later = post(model, "c")
    model.lane.stop()
    await model.until(2)
    assert turn.how == "aborted"
    assert await finish(model, [*first, *steered, *later]) == [
        "aborted:go",
        "done:a+b",
        "done:a+b",
        "done:c",
    ]


async def test_steering_that_cannot_be_taken_waits() -> None:
    model = Model()
    model.takes_steering = False
    futures = post(model, "go", "x", mode="steer")
    assert await finish(model, futures) == ["done:go+x"] * 2
    first = post(model, "again")
    await model.until(2)
    [steered] = post(model, "y", mode="steer")
    assert model.lane.waiting == ["y"]
    assert await finish(model, [*first, steered]) == ["done:again", "done:y"]


async def test_only_what_belongs_together_is_put_together() -> None:
    model = Model()
    first = post(model, "go")
    await model.until(1)
    futures = [
        model.lane.post("a", "collect", group=1),
        model.lane.post("b", "collect", group=1),
        model.lane.post("c", "collect", group=2),
        model.lane.post("d", "followup", group=2),
        model.lane.post("e", "collect", group=2),
    ]
    await finish(model, [*first, *futures])
    assert [each.items for each in model.turns] == [["go"], ["a", "b"], ["c"], ["d"], ["e"]]


async def test_an_interrupt_goes_first_and_the_others_follow() -> None:
    model = Model()
    futures = post(model, "go", "x", "y")
    await model.until(1)
    futures += post(model, "stop!", "really", mode="interrupt")
    await finish(model, futures)
    assert [each.items for each in model.turns] == [["go"], ["stop!"], ["really"], ["x"], ["y"]]
    assert [each.how for each in model.turns] == ["aborted", *["done"] * 4]


async def test_a_turn_that_has_not_begun_says_what_it_is_about_before_it_is_stopped() -> None:
    model = Model()
    [first] = post(model, "go")
    await asyncio.sleep(0)  # the lane is at it, the turn is not
    assert model.turns == []
    [second] = post(model, "stop!", mode="interrupt")
    assert await finish(model, [first, second]) in (
        ["aborted:go", "done:stop!"],
        ["done:go", "done:stop!"],
    )
    assert {each.items[0] for each in model.turns} == {"go", "stop!"}


async def test_cancelling_takes_back_what_waits() -> None:
    model = Model()
    first, second, third = post(model, "one", "two", "three")
    await model.until(1)
    second.cancel()
    await finish(model, [first, second, third])
    assert [each.items for each in model.turns] == [["one"], ["three"]]


async def test_cancelling_takes_back_steering_that_was_not_read() -> None:
    model = Model()
    [first] = post(model, "go")
    turn = await model.until(1)
    unread, read = post(model, "unread", "read", mode="steer")
    unread.cancel()
    await asyncio.sleep(0)
    assert model.inbox == ["read"]
    model.inbox.clear()  # now it is read
    read.cancel()
    turn.release.set()
    assert await first == "done:go"
    await model.lane.idle()
    assert len(model.turns) == 1


async def test_cancelling_stops_the_turn_that_is_about_it_alone() -> None:
    model = Model()
    [first] = post(model, "one")
    turn = await model.until(1)
    await model.lane.cancel(first)
    assert turn.how == "aborted"
    assert first.cancelled()
    collected = post(model, "go")
    await model.until(2)
    collected += post(model, "a", "b", mode="collect")
    model.turns[1].release.set()
    both = await model.until(3)
    await model.lane.cancel(collected[1])
    assert both.how == "running"
    collected[2].cancel()
    await model.lane.idle()
    assert both.how == "aborted"


async def test_unread_messages_can_be_dropped() -> None:
    model = Model()
    [first] = post(model, "go")
    await model.until(1)
    [steered] = post(model, "s", mode="steer")
    [waiting] = post(model, "w")
    model.lane.drop(lambda item: item in "sw")
    assert steered.cancelled()
    assert waiting.cancelled()
    await finish(model, [first])
    await model.lane.idle()
    assert [each.items for each in model.turns] == [["go"]]
    assert model.turns[0].read == []


async def test_a_failed_turn_fails_for_all_it_was_about_and_the_next_one_comes() -> None:
    model = Model()
    futures = post(model, "bad", "good")
    turn = await model.until(1)
    [steered] = post(model, "s", mode="steer")
    turn.release.set()
    assert await finish(model, [*futures, steered]) == [
        "the turn failed",
        "done:good",
        "the turn failed",
    ]


async def test_a_failure_no_one_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    model = Model()
    [bad] = post(model, "bad")
    turn = await model.until(1)
    await model.lane.cancel(bad)
    await model.lane.idle()
    assert turn.how == "aborted"
    assert "a turn failed" in caplog.text


# How much may wait


async def test_a_full_queue_is_an_error() -> None:
    model, limits = Model(), LaneLimits(cap=2)
    futures = [model.lane.post(each, "followup", limits) for each in ("go",)]
    await model.until(1)
    futures += [model.lane.post(each, "followup", limits) for each in "ab"]
    with pytest.raises(
        ConflictError, match=r"2 messages are already waiting .* \(messages\.queue\.cap\)"
    ):
        model.lane.post("c", "followup", limits)
    assert await finish(model, futures) == ["done:go", "done:a", "done:b"]


async def test_closing_ends_all_and_tells_everybody() -> None:
    model = Model()
    futures = post(model, "go", "x")
    turn = await model.until(1)
    futures += post(model, "s", mode="steer")
    await model.lane.close()
    assert turn.how == "aborted"
    outcomes = await finish(model, futures)
    assert outcomes == ["aborted:go", *["the session was closed; it was not read"] * 2]
    with pytest.raises(ToolError, match="is closed"):
        model.lane.post("more")


async def test_closing_a_lane_that_waits_for_its_slot() -> None:
    slots, limits = Slots(), LaneLimits(max_turns=1)
    one, two = Model(slots), Model(slots)
    first = one.lane.post("one", "followup", limits)
    await one.until(1)
    second = two.lane.post("two", "followup", limits)
    await asyncio.sleep(0)
    await two.lane.close()
    assert "was closed" in str(second.exception())
    await finish(one, [first, one.lane.post("again", "followup", limits)])
    assert len(one.turns) == 2
    assert two.turns == []


async def test_no_turn_begins_while_the_lane_is_held() -> None:
    model = Model()
    with model.lane.paused():
        futures = post(model, "go")
        await asyncio.sleep(0)
        assert not model.lane.is_busy
    assert await finish(model, futures) == ["done:go"]


# Many sessions


async def test_no_more_turns_than_allowed_over_all_and_per_agent() -> None:
    slots, chance = Slots(), random.Random(1)
    running: dict[str, int] = {"a": 0, "b": 0, "c": 0}
    most: dict[str, int] = {"a": 0, "b": 0, "c": 0, "all": 0}

    def lane(agent: str) -> Lane[int, None]:
        async def turn(_items: Sequence[int]) -> None:
            running[agent] += 1
            most[agent] = max(most[agent], running[agent])
            most["all"] = max(most["all"], sum(running.values()))
            for _ in range(1 + chance.randrange(4)):
                await asyncio.sleep(0)
            running[agent] -= 1

        return Lane(turn, lambda _: False, lambda _: False, agent, slots)

    caps = {"a": 1, "b": 2, "c": None}
    futures = []
    for agent, cap in caps.items():
        for _ in range(5):
            each = lane(agent)
            limits = LaneLimits(max_turns=4, max_agent_turns=cap)
            futures += [each.post(number, "followup", limits) for number in range(8)]
    await asyncio.gather(*futures)
    assert (most["a"], most["b"], most["all"]) == (1, 2, 4)


@table("seed", range(20))
async def test_no_session_starves(seed: int) -> None:
    """However busy others are: between two turns of a session, no other one has more than two."""
    chance = random.Random(seed)
    slots = Slots()
    order: list[int] = []

    def lane(number: int) -> Lane[int, None]:
        async def turn(_items: Sequence[int]) -> None:
            order.append(number)
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)

        return Lane(turn, lambda _: False, lambda _: False, f"agent{number % 2}", slots)

    lanes = [lane(number) for number in range(6)]
    limits = LaneLimits(
        max_turns=chance.choice([1, 2, 3]), max_agent_turns=chance.choice([None, 2])
    )
    futures = [each.post(turn, "followup", limits) for turn in range(6) for each in lanes]
    await asyncio.gather(*futures)
    assert len(order) == 36
    for number in range(6):
        places = [at for at, each in enumerate(order) if each == number]
        for before, after in itertools.pairwise(places):
            between = order[before + 1 : after]
            assert max(map(between.count, range(6)), default=0) <= 2


async def test_a_turn_that_waits_for_another_gives_its_slot_away() -> None:
    slots, limits = Slots(), LaneLimits(max_turns=1)
    inner: Lane[int, str] = Lane(
        lambda _items: asyncio.sleep(0, "inner"),
        lambda _: False,
        lambda _: False,
        "b",
        slots,
    )

    async def turn(_items: Sequence[int]) -> str:
        with outer.resting(), outer.resting():
            both = await asyncio.gather(*(inner.post(n, "followup", limits) for n in range(2)))
        return "+".join(both)

    outer: Lane[int, str] = Lane(turn, lambda _: False, lambda _: False, "a", slots)
    assert await outer.post(1, "followup", limits) == "inner+inner"
    await outer.idle()
    with outer.resting():  # without a turn there is nothing to give away
        assert await inner.post(3, "followup", limits) == "inner"


async def test_a_slot_that_is_not_wanted_any_more_goes_to_the_next() -> None:
    slots, limits = Slots(), LaneLimits(max_turns=1)
    await slots.take("a", limits)
    gives_up = asyncio.ensure_future(slots.take("a", limits))
    waits = asyncio.ensure_future(slots.take("a", limits))
    await asyncio.sleep(0)
    gives_up.cancel()
    slots.free("a")
    await waits
    late = asyncio.ensure_future(slots.take("a", limits))
    await asyncio.sleep(0)
    slots.free("a")  # granted, and cancelled before it is noticed
    late.cancel()
    await asyncio.wait({gives_up, late})
    await slots.take("a", limits)


async def test_waits_are_followed_to_find_cycles() -> None:
    lanes = Lanes()
    lanes.waits_for = {"a": ["b", "x"], "b": ["c"], "c": ["b"]}
    assert lanes.leads_to("a", "c")
    assert not lanes.leads_to("c", "a")
    assert lanes.leads_to("x", "x")
    assert Lanes.of_running_loop("one") is Lanes.of_running_loop("one")
    assert Lanes.of_running_loop("one") is not Lanes.of_running_loop("two")
