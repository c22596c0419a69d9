"""Who is asked after a failure, when, and what is told about it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.tables import table

from clawkit.config.modelref import ModelRef, parse_ref
from clawkit.content import Assistant, Text, ToolCall, Usage
from clawkit.models import failover
from clawkit.models.errors import AbsentError
from clawkit.models.failover import ModelChain
from clawkit.models.protocols import (
    Again,
    Delta,
    ErrorKind,
    Facts,
    Model,
    ModelError,
    Request,
    TextDelta,
)
from clawkit.testing.answers import ScriptedModel

ASK = Request(system="", messages=())
TRANSIENT: tuple[ErrorKind, ...] = ("overloaded", "server", "network", "timeout", "cut")


class Clock(failover.Clock):
    """Time that passes only in sleeps; `factor` is what chance always gives."""

    def __init__(self, factor: float = 1.0) -> None:
        self.time = 0.0
        self.factor = factor
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds

    def chance(self) -> float:
        return self.factor


class Keys(ScriptedModel):
    """A scripted model with several credentials; one that fails rests."""

    def __init__(self, *answers: Any, keys: int, **more: Any) -> None:
        super().__init__(*answers, **more)
        self.ready = keys
        self.ask_in_s = 0.0

    async def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
        try:
            async for item in super().stream(request):
                yield item
        except ModelError as error:
            if error.kind in ("auth", "billing", "rate_limit"):
                self.ready -= 1
            raise

    def has_spare(self) -> bool:
        return self.ready > 0

    def rest_s(self) -> float:
        return self.ask_in_s if self.ready <= 0 else 0.0


class Breaking:
    """Streams some text and breaks off; answers the next time."""

    api = "scripted"
    ref: ModelRef = parse_ref("a/breaking")
    facts = Facts()

    def __init__(self, *texts: str, kind: ErrorKind = "cut", partial: Assistant | None = None):
        self.texts, self.kind, self.partial = list(texts), kind, partial
        self.closed = 0

    async def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
        try:
            text = self.texts.pop(0)
            yield TextDelta(text)
            if self.texts:
                raise ModelError(self.kind, "broke off", partial=self.partial)
            yield Assistant((Text(text),))
        finally:
            self.closed += 1


def error(kind: ErrorKind, message: str = "no.", **more: Any) -> ModelError:
    return ModelError(kind, message, **more)


def model(*answers: Any, ref: str = "a/one", **more: Any) -> ScriptedModel:
    return ScriptedModel(*answers, ref=ref, **more)


async def run(chain: ModelChain) -> list[Delta | Assistant]:
    return [item async for item in chain.stream(ASK)]


async def answer(chain: ModelChain) -> Assistant:
    last = (await run(chain))[-1]
    assert isinstance(last, Assistant)
    return last


def agains(items: list[Delta | Assistant]) -> list[Again]:
    return [item for item in items if isinstance(item, Again)]


async def failure(chain: ModelChain) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await run(chain)
    return caught.value


async def test_what_failed_attempts_received_is_not_kept() -> None:
    received = Assistant((Text("a long text"),), usage=Usage(cost=1.0))
    failed = [error("cut", partial=received) for _ in range(3)]
    said = await answer(ModelChain([model(*failed, "Done.")], clock=Clock()))
    assert said.usage.cost == 3.0
    # A traceback holds all that was being read.
    assert [(each.partial, each.__traceback__) for each in failed] == [(None, None)] * 3


async def test_an_answer_passes_through() -> None:
    one = model("Hello.", facts=Facts(name="One"), api="x")
    chain = ModelChain([one, model(ref="b/two")])
    items = await run(chain)
    assert isinstance(items[-1], Assistant)
    assert items[-1].text == "Hello."
    assert not agains(items)
    assert (chain.ref, chain.api, chain.facts.name) == (parse_ref("a/one"), "x", "One")


def test_a_chain_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ModelChain([])


@pytest.mark.parametrize("kind", ["invalid", "overflow"])
async def test_what_no_other_model_would_do_better_is_raised_at_once(kind: ErrorKind) -> None:
    two = model("never", ref="b/two")
    wanted = error(kind)
    chain = ModelChain([Keys(wanted, keys=2, ref="a/one"), two], clock=Clock())
    assert await failure(chain) is wanted
    assert not two.requests


@table("kind", ["auth", "billing", "not_found", "refused", "rate_limit"])
async def test_the_next_model_answers_at_once(kind: ErrorKind) -> None:
    clock, one = Clock(), model(error(kind, status=418))
    chain = ModelChain([one, model("From two.", ref="b/two", api="y")], clock=clock)
    items = await run(chain)
    (again,) = agains(items)
    assert (again.wait_s, again.model, again.kind) == (0.0, parse_ref("b/two"), kind)
    assert again.reason.startswith("a/one ")
    assert again.reason.endswith("(HTTP 418)")
    assert (len(one.requests), clock.slept) == (1, [])
    assert (str(chain.ref), chain.api) == ("b/two", "y")


@table("kind", ["auth", "billing", "rate_limit"])
async def test_the_next_credential_comes_before_the_next_model(kind: ErrorKind) -> None:
    one = Keys(error(kind), error(kind), "Third key.", keys=3, ref="a/one")
    two = model("never", ref="b/two")
    clock = Clock()
    items = await run(ModelChain([one, two], clock=clock))
    assert [again.model.id for again in agains(items)] == ["one", "one"]
    assert (len(one.requests), len(two.requests), clock.slept) == (3, 0, [])


async def test_when_no_credential_is_left_the_next_model_answers() -> None:
    one = Keys(error("auth"), error("auth"), keys=2, ref="a/one")
    chain = ModelChain([one, model("Two.", ref="b/two")], clock=Clock())
    assert (await answer(chain)).text == "Two."
    assert len(one.requests) == 2


@pytest.mark.parametrize("kind", ["not_found", "refused"])
async def test_another_credential_is_not_tried_for_this_error(kind: ErrorKind) -> None:
    one = Keys(error(kind), "never", keys=3, ref="a/one")
    assert (await failure(ModelChain([one], clock=Clock()))).kind == kind
    assert len(one.requests) == 1


async def test_credentials_that_never_run_out_do_not_go_on_for_ever() -> None:
    class Endless(Keys):
        def has_spare(self) -> bool:
            return True

    one = Endless(keys=1, ref="a/one", then=error("auth"))
    assert (await failure(ModelChain([one], clock=Clock()))).kind == "auth"
    assert len(one.requests) == 17


@table("kind", TRANSIENT)
async def test_a_passing_failure_is_waited_for_longer_every_time(kind: ErrorKind) -> None:
    clock = Clock()
    one = model(*[error(kind)] * 5, "At last.")
    items = await run(ModelChain([one], clock=clock))
    assert clock.slept == [0.5, 1, 2, 4, 8]
    assert [(again.wait_s, again.model.id) for again in agains(items)] == [
        (wait, "one") for wait in clock.slept
    ]


@table("kind", TRANSIENT)
async def test_a_failure_that_does_not_pass_ends_the_request(kind: ErrorKind) -> None:
    clock = Clock(factor=0.0)
    one = model(then=error(kind, "Gone."))
    wanted = await failure(ModelChain([one], clock=clock))
    assert (wanted.kind, str(wanted)) == (kind, "Gone. Tried 9 times.")
    assert len(clock.slept) == 8
    assert sum(clock.slept) <= 90


async def test_a_service_of_this_machine_that_does_not_run_is_not_waited_for_long() -> None:
    clock = Clock()
    one = model(then=AbsentError("network", "Nobody."))
    wanted = await failure(ModelChain([one], clock=clock))
    assert (wanted.kind, str(wanted)) == ("network", "Nobody. Tried 3 times.")
    assert clock.slept == [0.5, 1]


async def test_a_service_of_this_machine_may_be_starting_again() -> None:
    clock = Clock()
    nobody = AbsentError("network", "Nobody.")
    one = model(error("cut"), error("server"), nobody, nobody, error("overloaded"), "At last.")
    assert (await answer(ModelChain([one], clock=clock))).text == "At last."


async def test_instead_of_a_service_that_does_not_run_the_next_model_is_asked() -> None:
    clock = Clock()
    one = model(then=AbsentError("network", "Nobody."))
    two = model(*[error("server", "Down.")] * 5, "Two.", ref="b/two")
    assert (await answer(ModelChain([one, two], clock=clock))).text == "Two."
    assert (len(one.requests), len(two.requests)) == (3, 6)


async def test_waits_for_one_model_stay_within_their_bound() -> None:
    clock = Clock()
    one = model(then=error("overloaded", retry_after_s=40.0))
    await failure(ModelChain([one], clock=clock))
    assert clock.slept == [40, 40]


async def test_attempts_that_fail_slowly_are_not_repeated_for_long() -> None:
    clock = Clock()

    def slow(_: Request) -> ModelError:
        clock.time += 300
        return error("timeout")

    one = model(then=slow)
    await failure(ModelChain([one], clock=clock))
    assert len(one.requests) == 3


async def test_a_rate_limit_without_another_model_is_waited_for() -> None:
    clock = Clock()
    one = model(*[error("rate_limit")] * 6, "At last.")
    assert (await answer(ModelChain([one], clock=clock))).text == "At last."
    assert clock.slept == [2, 4, 8, 16, 30, 30]


async def test_a_rate_limit_is_asked_ten_times() -> None:
    clock = Clock()
    one = model(then=error("rate_limit"))
    assert (await failure(ModelChain([one], clock=clock))).kind == "rate_limit"
    assert len(one.requests) == 10
    assert max(clock.slept) == 30


@table("kind", ["rate_limit", "overloaded", "server"])
async def test_the_time_that_a_service_asks_for_is_given(kind: ErrorKind) -> None:
    clock = Clock()
    one = model(error(kind, retry_after_s=45.0), "Thanks.")
    assert (await answer(ModelChain([one], clock=clock))).text == "Thanks."
    assert clock.slept == [45]


@pytest.mark.parametrize("kind", ["rate_limit", "overloaded"])
async def test_a_service_that_asks_for_no_time_gets_some(kind: ErrorKind) -> None:
    clock = Clock()
    one = model(error(kind, retry_after_s=0.0), "Thanks.")
    await answer(ModelChain([one], clock=clock))
    assert clock.slept == [0.5]


@table("kind", ["rate_limit", "overloaded", "server"])
async def test_more_than_a_minute_is_not_waited_for(kind: ErrorKind) -> None:
    clock = Clock()
    one = model(error(kind, "Later.", retry_after_s=61.0), "never")
    wanted = await failure(ModelChain([one], clock=clock))
    assert (wanted.kind, wanted.retry_after_s, clock.slept) == (kind, 61.0, [])
    assert str(wanted) == "Later."


async def test_chance_spreads_waits_over_half_of_their_length() -> None:
    least, most = Clock(0.0), Clock(1.0)
    for clock in (least, most):
        await answer(ModelChain([model(error("server"), "ok")], clock=clock))
    assert (least.slept, most.slept) == ([0.25], [0.5])


async def test_answers_that_cannot_be_used_are_charged_so_there_are_three_at_most() -> None:
    clock = Clock()
    one = model(error("malformed"), error("overloaded"), then=error("malformed", "Bad."))
    wanted = await failure(ModelChain([one], clock=clock))
    assert (wanted.kind, str(wanted)) == ("malformed", "Bad. Tried 4 times.")
    assert clock.slept == [0.5, 1, 2]
    two = model(then=error("malformed"), ref="b/two")
    await failure(ModelChain([model(then=error("malformed")), two], clock=clock))
    assert len(two.requests) == 3


@table("kind", (*TRANSIENT, "malformed"))
async def test_with_another_model_there_patience_is_short(kind: ErrorKind) -> None:
    clock = Clock()
    one = model(then=error(kind))
    items = await run(ModelChain([one, model("Two.", ref="b/two")], clock=clock))
    assert clock.slept == [0.5, 1]
    assert [again.model.id for again in agains(items)] == ["one", "one", "two"]


async def test_if_the_other_model_fails_too_the_first_is_asked_again() -> None:
    clock = Clock()
    one = model(*[error("overloaded")] * 5, "Back again.")
    two = model(error("auth"), ref="b/two")
    chain = ModelChain([one, two], clock=clock)
    assert (await answer(chain)).text == "Back again."
    assert (len(one.requests), len(two.requests)) == (6, 1)
    assert clock.slept == [0.5, 1, 2, 4, 8]
    assert str(chain.ref) == "a/one"


async def test_of_two_models_the_one_that_is_ready_sooner_is_asked() -> None:
    clock = Clock()
    one = model(error("rate_limit", retry_after_s=50.0), "never")
    two = model(error("rate_limit", retry_after_s=5.0), "Two.", ref="b/two")
    assert (await answer(ModelChain([one, two], clock=clock))).text == "Two."
    assert clock.slept == [5]


async def test_a_pinned_model_has_no_fallbacks() -> None:
    two = model("never", ref="b/two")
    assert (await failure(ModelChain([model(error("auth")), two], strict=True))).kind == "auth"
    assert not two.requests


async def test_when_all_fail_every_model_is_named_with_its_reason() -> None:
    chain = ModelChain(
        [
            model(then=error("overloaded", "One is full.", status=529)),
            model(error("billing", "Two is empty.", status=402), ref="b/two"),
            model(error("not_found", "Three is gone.", status=404), ref="c/three"),
        ],
        clock=Clock(),
    )
    wanted = await failure(chain)
    assert str(wanted).splitlines() == [
        "No model answered.",
        "  a/one: One is full.",
        "  b/two: Two is empty.",
        "  c/three: Three is gone.",
    ]
    assert (wanted.kind, wanted.status) == ("billing", 402)


async def test_what_was_streamed_before_another_attempt_is_void() -> None:
    one = Breaking("Hal", "Hello.")
    items = await run(ModelChain([one], clock=Clock()))
    assert [type(item) for item in items] == [TextDelta, Again, TextDelta, Assistant]
    assert items[2] == TextDelta("Hello.")
    assert one.closed == 2


async def test_calls_of_a_partial_answer_are_void_too() -> None:
    partial = Assistant((ToolCall("1", "rm", {"path": "/"}),), "aborted")
    one = Breaking("Hal", "Hello.", partial=partial)
    assert not (await answer(ModelChain([one], clock=Clock()))).calls


async def test_the_last_attempt_leaves_its_partial_answer() -> None:
    partial = Assistant((Text("Hal"),), "aborted")
    one = Breaking("a", "Hal", "never", kind="refused", partial=partial)
    assert (await failure(ModelChain([one], clock=Clock()))).partial is partial


async def test_what_failed_attempts_cost_is_part_of_the_cost() -> None:
    partial = Assistant((Text("Hal"),), "aborted", usage=Usage(5, 1, cost=0.25))
    one = Breaking("a", "b", "Hello.", partial=partial)
    assert (await answer(ModelChain([one], clock=Clock()))).usage == Usage(cost=0.5)
    two = [Breaking("a", "b", kind="refused", partial=partial) for _ in range(2)]
    failed = await failure(ModelChain(two, clock=Clock()))
    assert failed.partial
    assert failed.partial.usage == Usage(5, 1, cost=0.5)


async def test_a_model_that_ends_without_an_answer_is_asked_again() -> None:
    class Silent(Breaking):
        async def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
            yield TextDelta(self.texts.pop(0))

    one = Silent("a", "b", "c")
    two = model("Two.", ref="b/two")
    assert (await answer(ModelChain([one, two], clock=Clock()))).text == "Two."
    assert one.texts == []


async def test_the_fallback_is_kept_until_the_first_model_has_rested() -> None:
    clock = Clock()
    one = model(error("auth"), "One is back.", "Still here.")
    two = model("Two.", "Two again.", ref="b/two")
    chain = ModelChain([one, two], clock=clock)
    assert (await answer(chain)).text == "Two."
    clock.time += 29
    assert (await answer(chain)).text == "Two again."
    clock.time += 2
    assert (await answer(chain)).text == "One is back."
    assert (await answer(chain)).text == "Still here."


async def test_rests_get_longer_until_an_answer_comes() -> None:
    clock = Clock()
    asked: list[float] = []

    def fail(_: Request) -> ModelError:
        asked.append(clock.time)
        return error("not_found")

    chain = ModelChain([model(then=fail), model(ref="b/two", then="Two.")], clock=clock)
    for _ in range(1_000):
        await answer(chain)
        clock.time += 1
    assert [later - sooner for sooner, later in itertools.pairwise(asked)] == [
        *(30, 60, 300),
        300,
        300,
    ]


@table(
    ("kind", "more", "rest"),
    [("billing", {}, 600), ("rate_limit", {"retry_after_s": 55.0}, 55), ("auth", {}, 30)],
)
async def test_how_long_a_model_rests_depends_on_the_reason(
    kind: ErrorKind, more: dict[str, Any], rest: float
) -> None:
    clock = Clock()
    one = model(error(kind, **more), "One.")
    chain = ModelChain([one, model(ref="b/two", then="Two.")], clock=clock)
    await answer(chain)
    clock.time += rest - 1
    assert (await answer(chain)).text == "Two."
    clock.time += 2
    assert (await answer(chain)).text == "One."


async def test_a_model_whose_credentials_are_all_cooling_down_is_skipped() -> None:
    one = Keys("One.", keys=0, ref="a/one")
    one.ask_in_s = 20
    chain = ModelChain([one, model(ref="b/two", then="Two.")], clock=Clock())
    assert (await answer(chain)).text == "Two."
    one.ready = 1
    assert (await answer(chain)).text == "One."


async def test_a_model_in_cooldown_is_asked_if_it_is_the_last_one() -> None:
    one = Keys("One.", keys=0, ref="a/one")
    one.ask_in_s = 20
    two = model(then=error("auth"), ref="b/two")
    assert (await answer(ModelChain([one, two], clock=Clock()))).text == "One."
    one.add("One again.")
    assert (await answer(ModelChain([one], clock=Clock()))).text == "One again."


async def test_all_resting_the_one_that_is_ready_soonest_is_asked() -> None:
    one, two = Keys("One.", keys=0, ref="a/one"), Keys("Two.", keys=0, ref="b/two")
    one.ask_in_s, two.ask_in_s = 600, 20
    assert (await answer(ModelChain([one, two], clock=Clock()))).text == "Two."


async def test_closing_the_stream_ends_the_request() -> None:
    one = Breaking("Hello.")
    stream: Any = ModelChain([one]).stream(ASK)
    assert await anext(stream) == TextDelta("Hello.")
    await stream.aclose()
    assert one.closed == 1


async def test_an_answer_counts_also_when_no_one_reads_on() -> None:
    clock = Clock()
    one = model(error("auth"), "One.", error("auth"), "One.")
    chain = ModelChain([one, model(ref="b/two", then="Two.")], clock=clock)
    await answer(chain)
    clock.time += 31
    stream: Any = chain.stream(ASK)
    async for item in stream:
        if isinstance(item, Assistant):
            break
    await stream.aclose()
    await answer(chain)
    # Had the answer not counted, this rest would be the longer, second one.
    clock.time += 31
    assert (await answer(chain)).text == "One."


async def test_cancelling_during_a_wait_is_not_a_reason_to_go_on() -> None:
    class Stuck(Clock):
        def __init__(self) -> None:
            super().__init__()
            self.reached = asyncio.Event()

        async def sleep(self, seconds: float) -> None:
            self.reached.set()
            await asyncio.Event().wait()

    clock, one = Stuck(), model(error("server"), "never")
    task = asyncio.create_task(run(ModelChain([one], clock=clock)))
    await clock.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(one.requests) == 1


async def test_the_clock_of_this_machine_waits_and_differs() -> None:
    clock = failover.Clock()
    before = clock.now()
    await clock.sleep(0)
    assert clock.now() >= before
    assert 0 <= clock.chance() < 1


async def test_a_stream_need_not_be_a_generator() -> None:
    class Once:
        def __init__(self, item: Assistant) -> None:
            self.items = [item]

        def __aiter__(self) -> Once:
            return self

        async def __anext__(self) -> Assistant:
            return self.items.pop()

    class Plain(Breaking):
        def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
            return Once(Assistant((Text("Hi."),)))

    assert (await answer(ModelChain([Plain()]))).text == "Hi."


def test_a_chain_is_a_model() -> None:
    kept: Model = ModelChain([model()])
    assert str(kept.ref) == "a/one"
