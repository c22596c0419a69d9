"""What a model is shown of old results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.tables import table

from clawkit.agent.compact import PrunedHistory
from clawkit.config.sections.agents import ContextPruning, HardClear, PruningTools
from clawkit.content import Assistant, Message, Text, ToolCall, ToolResult, User

WINDOW = 100_000


def conversation(*sizes: int, tool: str = "read") -> list[Message]:
    history: list[Message] = [User((Text("go"),))]
    for number, size in enumerate(sizes):
        call_id = f"c{number}"
        history.append(Assistant((ToolCall(call_id, tool),), "tool_calls"))
        history.append(ToolResult(call_id, tool, (Text("x" * size),)))
    return history


def lengths(messages: Iterable[Message]) -> list[int]:
    results = [message for message in messages if isinstance(message, ToolResult)]
    return [len(block.text) for each in results for block in each.content if type(block) is Text]


def test_a_conversation_with_room_is_shown_as_it_is() -> None:
    history = conversation(1_000, 30_000, 5)
    shown = PrunedHistory(WINDOW).show(history)
    assert all(one is other for one, other in zip(shown, history, strict=True))


def test_the_oldest_results_are_cut_when_all_together_are_too_much() -> None:
    history = conversation(*[31_000] * 9)
    view = PrunedHistory(WINDOW)
    shown = view.show(history)
    assert lengths(shown)[-3:] == [31_000] * 3
    assert max(lengths(shown)[:4]) <= 2_000
    assert sum(lengths(shown)) <= WINDOW * 2
    assert lengths(history) == [31_000] * 9


def test_what_was_cut_stays_cut_in_the_same_words() -> None:
    history = conversation(*[31_000] * 9)
    view = PrunedHistory(WINDOW)
    first = view.show(history)
    history += conversation(10)[1:]
    second = view.show(history)
    assert all(one is other for one, other in zip(first, second, strict=False))


def test_small_results_are_not_touched() -> None:
    history = conversation(*[1_500] * 200)
    assert lengths(PrunedHistory(WINDOW).show(history)) == [1_500] * 200


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def pruned(history: list[Message], clock: Clock, **settings: Any) -> PrunedHistory:
    pruning = ContextPruning(mode="cache-ttl", ttl="5m", **settings)
    return PrunedHistory(WINDOW, pruning, clock=clock)


def test_nothing_is_pruned_while_the_cache_holds() -> None:
    history = conversation(*[20_000] * 9)
    clock = Clock()
    view = pruned(history, clock)
    view.show(conversation(5))
    clock.now = 299
    assert lengths(view.show(history)) == [20_000] * 9
    clock.now = 600
    shown = lengths(view.show(history))
    assert shown[-3:] == [20_000] * 3
    assert max(shown[:6]) < 3_200


def test_nothing_is_pruned_while_there_is_much_room() -> None:
    history = conversation(*[10_000] * 9)
    assert lengths(pruned(history, Clock()).show(history)) == [10_000] * 9


def test_when_ends_are_still_too_much_results_are_cleared() -> None:
    history = conversation(*[3_900] * 80)
    shown = pruned(history, Clock()).show(history)
    texts = [m.content[0].text for m in shown if isinstance(m, ToolResult)]  # type: ignore[union-attr]
    assert texts[0] == "[Old tool result content cleared]"
    assert sum(map(len, texts)) < WINDOW * 2
    assert texts[-1] == "x" * 3_900
    kept = pruned(history, Clock(), hard_clear=HardClear(enabled=False)).show(history)
    assert all("cleared" not in str(message) for message in kept)


@table(
    ("tools", "is_pruned"),
    [
        (PruningTools(), True),
        (PruningTools(allow=["exec"]), False),
        (PruningTools(allow=["re*"]), True),
        (PruningTools(deny=["read"]), False),
    ],
)
def test_only_results_of_some_tools_are_pruned(tools: PruningTools, is_pruned: bool) -> None:
    history = conversation(*[20_000] * 9)
    shown = lengths(pruned(history, Clock(), tools=tools).show(history))
    assert (shown[0] < 20_000) is is_pruned


def test_very_many_results_are_cleared_at_once() -> None:
    history = conversation(*[50] * 10_000)
    shown = pruned(history, Clock()).show(history)
    assert lengths(shown) == [33] * 9_997 + [50] * 3
