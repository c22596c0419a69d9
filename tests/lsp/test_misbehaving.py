"""Servers that are slow, broken or hostile: a check returns in time and never raises."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lsp.parts import Desk, fake, messages

from clawkit.lsp.protocols import Edited, Problems

Make = Callable[..., Desk]


async def test_problems_are_asked_for(desk: Make) -> None:
    made = desk(fake=fake("pull"))
    made.edit("a.fake", "good\nbad\n")
    problems = await made.write("a.fake", "good\nbad\nvery bad\n")
    assert problems.servers == ("fake",)
    assert [(each.line, each.column, each.code) for each in problems.found] == [(3, 6, "B1")]
    assert messages(problems) == ["this is bad"]


async def test_problems_are_awaited_for_the_version_that_was_sent(desk: Make) -> None:
    made = desk(fake=fake("push"))
    made.edit("a.fake", "good\n")
    assert messages(await made.write("a.fake", "good\nbad\n")) == ["this is bad"]
    assert messages(await made.write("a.fake", "good\nbad\nworse\n")) == []


async def test_without_versions_the_last_word_counts(desk: Make) -> None:
    made = desk(fake=fake("unversioned"))
    made.edit("a.fake", "good\n")
    assert messages(await made.write("a.fake", "good\nbad\n")) == ["this is bad"]
    assert messages(await made.write("a.fake", "good\nbad\n\nvery bad\n")) == ["this is bad"]


@pytest.mark.parametrize("mode", ["silent", "deaf"])
async def test_a_server_that_never_answers_is_late(desk: Make, mode: str) -> None:
    made = desk(fake=fake(mode), timeout_ms=200)
    assert await made.write("a.fake", "bad\n") == Problems(late=("fake",))
    assert await made.write("a.fake", "bad\nbad\n") == Problems(late=("fake",))


@pytest.mark.parametrize(
    "mode",
    ["garbage", "endless header", "giant body", "deep", "flood", "crash", "mute", "mojibake"],
)
async def test_a_server_that_breaks_the_rules_is_ended_and_says_nothing(
    desk: Make, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = desk(fake=fake(mode))
    for number in range(6):  # more often than it is started again
        assert await made.write("a.fake", "bad\n" * (number + 1)) == Problems()
    assert caplog.messages == []


@pytest.mark.parametrize("mode", ["silent", "deaf"])
async def test_a_server_that_does_not_answer_is_given_up(desk: Make, mode: str) -> None:
    made = desk(fake=fake(mode), patience_s=0.05)
    for number in range(6):
        assert await made.write("a.fake", "bad\n" * (number + 1)) == Problems()


async def test_problems_that_cannot_be_read_are_as_good_as_none(desk: Make) -> None:
    made = desk(fake=fake("nonsense"), timeout_ms=300)
    assert await made.write("a.fake", "bad\n") == Problems(late=("fake",))


async def test_a_refusal_is_not_an_answer(desk: Make) -> None:
    made = desk(fake=fake("refuse"))
    assert await made.write("a.fake", "bad\n") == Problems()


async def test_a_server_that_asks_to_be_asked_again_is(desk: Make) -> None:
    made = desk(fake=fake("hurried"))
    assert messages(await made.write("a.fake", "bad\n")) == ["this is bad"]


async def test_a_server_gets_little_of_what_it_asks_for(desk: Make) -> None:
    made = desk(fake=fake("wishes"))
    problems = await made.write("a.fake", "text\n")
    answers = dict(each.split(": ", 1) for each in messages(problems))
    assert answers.pop("workspace/workspaceFolders").startswith('[{"uri": "file:///')
    assert answers == {
        "workspace/applyEdit": "-32601",
        "window/showDocument": "-32601",
        "workspace/configuration": "[null, null]",
        "client/registerCapability": "null",
    }


async def test_problems_are_cut_to_a_bearable_size(desk: Make) -> None:
    made = desk(fake=fake("many"))
    problems = await made.write("a.fake", "x\n")
    assert len(problems.found) == 200
    for each in problems.found:
        assert len(each.message) <= 500
        assert each.message.isprintable()


async def test_places_and_severities_are_made_sound(desk: Make) -> None:
    made = desk(fake=fake("odd"))
    problems = await made.write("a.fake", "x\n")
    assert [(each.message, each.column, each.severity) for each in problems.found] == [
        ("far away", 1, "warning")
    ]


async def test_what_came_too_late_is_told_with_the_next_edit(desk: Make, tmp_path: Path) -> None:
    gate = tmp_path / "ws" / "gate"
    made = desk(fake=fake("slow", gate), timeout_ms=300)
    made.edit("a.fake", "good\n")
    assert await made.write("a.fake", "bad 1\n") == Problems(late=("fake",))
    assert await made.write("a.fake", "bad 1\nbad 2\n") == Problems(late=("fake",))
    gate.touch()
    problems = Problems(late=("fake",))
    text = "bad 1\nbad 2\nbad 3\n"
    while problems.late:
        text += "\n"
        problems = await made.write("a.fake", text)
    assert [each.line for each in problems.found] == [1, 2, 3]
    assert (await made.write("a.fake", text + "\n")).found == ()


async def test_a_slow_server_does_not_hold_up_the_answers_of_another(desk: Make) -> None:
    made = desk(slow=fake("silent"), quick=fake("pull"), timeout_ms=1000)
    # The quick one may take longer to start than the time there is, on a busy machine.
    problems = Problems()
    text = ""
    while "quick" not in problems.servers:
        text += "bad\n"
        problems = await made.write("a.fake", text)
    assert problems.late == ("slow",)
    assert {each.server for each in problems.found} == {"quick"}


async def test_files_that_servers_cannot_be_shown_are_left_out(desk: Make, tmp_path: Path) -> None:
    made = desk(fake=fake("pull"))
    large = "bad\n" * 1_000_000
    broken = "bad \udcff\n"
    place = str(made.ws / "a.fake")
    assert await made.service.check([Edited(place, "", large)]) == Problems()
    assert await made.service.check([Edited(place, "", broken)]) == Problems()
    assert await made.service.check([Edited(f"{made.ws}/\udcff.fake", "", "bad\n")]) == Problems()
    odd = Edited(f"{made.ws}/a\0.fake", "", "bad\n")
    assert messages(await made.service.check([odd])) == ["this is bad"]
    assert await made.service.check([Edited(f"{tmp_path}/out.fake", "", "bad\n")]) == Problems()
    assert messages(await made.write("b c%20ü#?.fake", "bad\n")) == ["this is bad"]


async def test_edits_of_one_file_at_the_same_time_lose_nothing(desk: Make) -> None:
    made = desk(fake=fake("pull"))
    edits = [made.edit("a.fake", "bad\n" * (number + 1)) for number in range(5)]
    answers = await asyncio.gather(*(made.service.check([each]) for each in edits))
    lines = [each.line for answer in answers for each in answer.found]
    assert sorted(set(lines)) == [1, 2, 3, 4, 5]


async def test_a_large_file_is_shown_whole(desk: Make) -> None:
    made = desk(fake=fake("pull"))
    made.edit("a.fake", "good\n" * 200_000)
    problems = await made.write("a.fake", "good\n" * 200_000 + "bad\n")
    assert [each.line for each in problems.found] == [200_001]


async def test_a_server_that_cannot_be_started_says_nothing(desk: Make) -> None:
    made = desk(fake=fake("pull"))
    made.cache.touch()  # there can be no directory for what it keeps
    for number in range(6):
        assert await made.write("a.fake", "bad\n" * (number + 1)) == Problems()


async def test_one_check_may_name_a_file_twice(desk: Make) -> None:
    made = desk(fake=fake("pull"))
    edits = [made.edit("a.fake", "bad\n"), made.edit("a.fake", "good\n")]
    assert (await made.service.check(edits)) == Problems(servers=("fake",))


async def test_nothing_is_started_when_it_is_switched_off(desk: Make) -> None:
    made = desk(enabled=False, fake=fake("pull"))
    assert await made.write("a.fake", "bad\n") == Problems()
    assert not os.path.exists(made.cache)
