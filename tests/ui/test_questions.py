"""Asking in the place where the person types."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from clawkit.core.approval import Answer, Lasting, Question
from clawkit.core.context import Scope
from clawkit.ui import questions
from clawkit.ui.questions import Questions

SETTLE_S = 0.05

QUESTION = Question(
    "exec",
    {},
    "Run it?",
    command="make \x1b[2J",
    description="make is not on the allowlist",
    lasting=(Lasting("exact", "this"), Lasting("program", "make"), Lasting("session", "this")),
)


@pytest.fixture(autouse=True)
def _types_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that come at the same moment do so exactly, so that a short pause is one."""
    monkeypatch.setattr(questions, "SETTLE_S", SETTLE_S)


class Person:
    """Somebody who looks and presses keys."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self._changed = asyncio.Event()
        self.line = ""
        self.questions = Questions(
            lambda rows, _style: self.rows.extend(rows),
            lambda: 80,
            self._changed.set,
            self.type_on,
        )

    def type_on(self, text: str) -> None:
        self.line += text

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def ready(self) -> None:
        await self.until(lambda: bool(self.questions.current and self.questions.current.is_ready))

    def ask(self, call_id: str = "") -> asyncio.Task[Answer]:
        return asyncio.ensure_future(self.questions.ask(replace(QUESTION, call_id=call_id)))


async def pause() -> None:
    """As long as a person takes for the next key, at the least."""
    await asyncio.sleep(SETTLE_S * 1.5)


async def press(person: Person, *keys: str) -> None:
    """What no pause is between comes at the same moment, however busy the machine is."""
    loop = asyncio.get_running_loop()
    for number, burst in enumerate(" ".join(keys).split("…")):
        if number:
            await pause()
        with patch.object(loop, "time", return_value=loop.time()):
            for key in burst.split():
                person.questions.press(key)


@pytest.mark.parametrize(
    ("keys", "verdict", "extent"),
    [
        ("y", "allow", None),
        ("Y enter", "allow", None),
        ("a … enter", "allow", "exact"),
        ("s … enter", "allow", "session"),
        ("s … n", "deny", None),
        ("p … enter", "allow", "program"),
        ("p … n", "deny", None),
        ("p … down … enter", "deny", None),
        ("p enter … no", "deny", None),
        ("n", "deny", None),
        ("no", "deny", None),
        ("enter", "deny", None),
        ("up … up … up … up … enter", "allow", None),
        ("down down down down enter", "allow", "exact"),
        ("y y", "allow", None),
        ("y e … enter", "deny", None),
        ("x … y", "allow", None),
        ("y p … enter", "deny", None),
        ("n y … n", "deny", None),
    ],
)
async def test_only_a_clear_yes_is_one(keys: str, verdict: str, extent: str | None) -> None:
    person = Person()
    asked = person.ask()
    await person.ready()
    await press(person, *keys.split())
    answer = await asked
    assert (answer.verdict, answer.extent) == (verdict, extent)
    assert answer.by == "the person at the terminal"
    assert r"\u{1b}[2J" in "\n".join(person.rows)


@pytest.mark.parametrize(
    ("keys", "line"),
    [("y e", "ye"), ("p l", "pl"), ("p … l", "pl"), ("h", "h"), ("y … ", ""), ("\x01", "")],
)
async def test_what_is_not_an_answer_goes_into_the_line(keys: str, line: str) -> None:
    person = Person()
    asked = person.ask()
    await person.ready()
    await press(person, *keys.split())
    assert person.line == line
    asked.cancel()


async def test_an_answer_that_lasts_is_only_marked_by_its_letter() -> None:
    person = Person()
    asked = person.ask()
    await person.ready()
    person.questions.press("p")
    await pause()
    assert not asked.done()
    assert person.questions.current is not None
    assert person.questions.current.confirms is not None
    assert person.questions.current.confirms.key == "p"
    person.questions.press("enter")
    assert (await asked).extent == "program"


async def test_keys_typed_before_the_question_was_visible_do_not_count() -> None:
    person = Person()
    asked = person.ask()
    await person.until(lambda: person.questions.current is not None)
    person.questions.press("y")
    await person.ready()
    await pause()
    assert not asked.done()
    person.questions.press("n")
    assert (await asked).verdict == "deny"


@pytest.mark.parametrize(
    ("who", "told"), [(("main", "main"), False), (("main", "s1"), True), (("ops", "main"), True)]
)
async def test_the_agent_is_shown_only_if_it_is_another_one(
    who: tuple[str, str], told: bool
) -> None:
    person = Person()
    person.questions.scope = lambda: Scope(*who)
    asked = person.ask()
    await person.until(lambda: person.questions.current is not None)
    assert ("  agent: main" in person.rows) is told
    asked.cancel()


async def test_the_command_and_the_reason_stand_right_above_the_choices() -> None:
    person = Person()
    asked = person.ask()
    await person.until(lambda: person.questions.current is not None)
    assert person.rows[0] == "Run this command?"
    at = next(number for number, row in enumerate(person.rows) if row.startswith("  | "))
    assert [row[:12] for row in person.rows[at:-1]] == [
        "  | make \\u{",
        "  warning: i",
    ]
    assert person.rows[-1] == "  why: make is not on the allowlist"
    asked.cancel()


async def test_a_reason_is_part_of_the_answer() -> None:
    person = Person()
    asked = person.ask()
    await person.ready()
    person.questions.give_reason("too early")
    person.questions.press("r")
    await person.until(
        lambda: bool(person.questions.current and person.questions.current.wants_reason)
    )
    person.questions.give_reason("  not \x1bnow ")
    assert (await asked).reason == r"not \u{1b}now"


async def test_questions_come_one_after_the_other_and_one_can_go_away() -> None:
    person = Person()
    first, second = person.ask(), person.ask()
    await person.ready()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert any("No longer pending" in row for row in person.rows)
    await person.ready()
    person.questions.press("y")
    assert (await second).verdict == "allow"
    assert person.rows[-1] == "  Allowed once."
    assert person.questions.current is None
    person.questions.press("y")
    person.questions.give_reason("nobody asked")


async def test_it_is_told_how_long_a_question_waits_also_behind_another() -> None:
    person, waits = Person(), []
    person.questions.waits = lambda call_id, is_asked: waits.append((call_id, is_asked))
    first, second = person.ask("c1"), person.ask("c2")
    await person.ready()
    assert waits == [("c1", True), ("c2", True)]
    person.questions.press("n")
    await first
    assert waits[2:] == [("c1", False)]
    second.cancel()
    await asyncio.wait({second})
    assert waits[3:] == [("c2", False)]
