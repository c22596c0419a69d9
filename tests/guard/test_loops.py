"""Calls that lead nowhere: found, told, refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.guard.parts import Calls, detector_of, noticed, refused, warned
from tests.tables import table

from clawkit.content import Image
from clawkit.core.call import GuardedCall
from clawkit.core.result import Result
from clawkit.guard.loops import MAX_STREAKS

QUIET: dict[str, Any] = {"critical_threshold": 90, "global_circuit_breaker_threshold": 100}
"""Nothing is refused for long."""


def test_the_same_call_with_the_same_result_is_warned_of_then_refused() -> None:
    calls = Calls()
    results = [calls.read("a") for _ in range(21)]
    assert warned(results) == [11]
    assert refused(results) == [21]
    assert "'read' was called 10 times with the same parameters" in noticed(results[10])
    assert results[10].content[0].to_json()["text"] == "its content"
    assert not results[10].is_error
    reason = results[20].as_text()
    assert reason.startswith("not executed: 'read' was called 20 times with the same parameters")
    assert "try another way" in reason
    assert results[20].is_error
    assert results[20].details == {
        "status": "blocked",
        "tool": "read",
        "deniedReason": "tool-loop",
        "reason": reason,
        "code": 403,
        "intervention": {"detector": "generic_repeat", "level": "critical", "count": 20},
    }


def test_there_is_one_notice_in_ten_repeats() -> None:
    calls = Calls(**QUIET)
    assert warned(calls.read("a") for _ in range(40)) == [11, 21, 31]


def test_thresholds_are_those_that_are_set() -> None:
    calls = Calls(warning_threshold=2, critical_threshold=4, global_circuit_breaker_threshold=6)
    results = [calls.read("a") for _ in range(8)]
    assert warned(results) == [3]
    found = ["generic_repeat"] * 2 + ["global_circuit_breaker"] * 2
    assert [detector_of(result) for result in results] == [""] * 4 + found


def test_nothing_is_a_loop_while_results_change() -> None:
    calls = Calls()
    results = [calls.read("a", f"content {number}") for number in range(100)]
    assert warned(results) == refused(results) == []


def test_a_changed_result_begins_a_new_count() -> None:
    calls = Calls()
    for said in ("one", "two", "one"):
        assert warned(calls.read("a", said) for _ in range(11)) == [11]


def test_a_call_that_goes_back_and_forth_between_two_results_is_not_a_loop() -> None:
    calls = Calls()
    results = [calls.read("a", "on" if number % 2 else "off") for number in range(100)]
    assert warned(results) == refused(results) == []


def test_the_second_refusal_ends_the_turn_and_a_new_turn_begins_afresh() -> None:
    calls = Calls()
    results = [calls.read("a") for _ in range(22)]
    assert "terminate" not in results[20].details
    assert results[21].details["terminate"] is True
    assert "second loop" in results[21].as_text()
    calls.guard.begin()
    again = [calls.read("a") for _ in range(21)]
    assert refused(again) == [21]
    assert "terminate" not in again[20].details


def test_refusals_count_until_no_call_at_all_is_made() -> None:
    calls = Calls()
    results = [calls.read("a") for _ in range(31)]
    assert refused(results) == list(range(21, 32))
    assert detector_of(results[29]) == "generic_repeat"
    assert results[30].details["intervention"] == {
        "detector": "global_circuit_breaker",
        "level": "critical",
        "count": 30,
    }
    other = calls.read("something else")
    assert detector_of(other) == "global_circuit_breaker"
    assert other.details["terminate"] is True
    assert "No more calls run" in other.as_text()
    calls.guard.begin()
    assert not calls.read("something else").is_error


def test_detectors_can_be_turned_off_but_not_the_last_resort() -> None:
    calls = Calls(generic_repeat=False, known_poll_no_progress=False)
    for send in (partial(calls.read, "a"), calls.poll):
        calls.guard.begin()
        results = [send() for _ in range(31)]
        assert warned(results) == []
        assert refused(results) == [31]
        assert detector_of(results[30]) == "global_circuit_breaker"


@table("action", ["poll", "log", "status"])
def test_polling_without_progress_is_called_by_its_name(action: str) -> None:
    calls = Calls(generic_repeat=False)
    results = [calls.poll(action=action) for _ in range(21)]
    assert warned(results) == [11]
    assert "reported nothing new" in noticed(results[10])
    assert detector_of(results[20]) == "known_poll_no_progress"
    assert "wait longer in one call" in results[20].as_text()


def test_polling_what_makes_progress_goes_on() -> None:
    calls = Calls()
    results = [calls.poll(f"{number} %") for number in range(100)]
    assert warned(results) == refused(results) == []


@table("names", ["ab", "abc", "abcd", "aab", "aabb"])
def test_calls_in_turns_are_found(names: str) -> None:
    calls = Calls()
    results = [calls.read(names[number % len(names)]) for number in range(20)]
    assert warned(results) == [10]
    assert "alternated, 10 in a row" in noticed(results[9])
    assert refused(results) == [20]
    assert results[19].details["intervention"] == {
        "detector": "ping_pong",
        "level": "critical",
        "count": 20,
    }
    assert "the same calls ('read', 'read'" in results[19].as_text()


def test_calls_in_turns_are_not_looked_for_when_that_is_off() -> None:
    calls = Calls(ping_pong=False)
    results = [calls.read("ab"[number % 2]) for number in range(41)]
    assert warned(results) == [21, 22]
    assert detector_of(results[40]) == "generic_repeat"


def test_more_calls_in_turns_show_as_repeats() -> None:
    calls = Calls(**QUIET | {"critical_threshold": 20})
    results = [calls.read("abcde"[number % 5]) for number in range(104)]
    assert refused(results) == [104]
    assert detector_of(results[103]) == "generic_repeat"


def test_two_calls_before_they_are_repeated_are_not_in_turns() -> None:
    calls = Calls(warning_threshold=2, critical_threshold=3, global_circuit_breaker_threshold=9)
    results = [calls.read(name) for name in "abaca"]
    assert warned(results) == [5]
    assert refused(results) == []
    assert "in turns" not in noticed(results[4])


def test_calls_in_turns_with_results_that_change_are_not_loop() -> None:
    calls = Calls()
    results = []
    for number in range(50):
        results += [calls.read("a", f"{number} left"), calls.read("b", f"{number} done")]
    assert warned(results) == refused(results) == []


def test_what_was_in_turns_stays_refused_in_any_order() -> None:
    calls = Calls()
    for number in range(20):
        last = calls.read("ab"[number % 2])
    assert detector_of(last) == "ping_pong"
    for name in "abba":
        assert detector_of(calls.read(name)) == "ping_pong"
    assert not detector_of(calls.read("c"))
    assert detector_of(calls.read("b")) == "ping_pong"
    calls.edit("another")
    assert not detector_of(calls.read("b"))


def test_a_loop_that_is_refused_reaches_the_last_resort_by_any_of_its_calls() -> None:
    calls = Calls()
    results = [calls.read("ab"[number % 2]) for number in range(30)]
    assert refused(results) == list(range(20, 31))
    assert detector_of(results[28]) == "ping_pong"
    assert detector_of(results[29]) == "global_circuit_breaker"


def test_how_far_back_turns_are_looked_for_can_be_set() -> None:
    calls = Calls(history_size=3)
    assert warned(calls.read("abc"[number % 3]) for number in range(12)) == [10]
    calls.guard.begin()
    assert warned(calls.read("abcd"[number % 4]) for number in range(12)) == []


def test_a_tool_that_is_not_there_is_refused_whatever_it_is_given() -> None:
    calls = Calls()
    missing = Result.error("wether", "there is no tool called 'wether'")
    results = [calls.send("wether", {"city": number}, missing, known=False) for number in range(12)]
    assert refused(results) == [11, 12]
    assert detector_of(results[10]) == "unknown_tool_repeat"
    assert results[10].details["intervention"]["level"] == "critical"
    assert "no such tool exists" in results[10].as_text()
    assert results[11].details["terminate"] is True
    assert not detector_of(calls.send("wind", {}, missing, known=False))


def test_a_tool_that_is_not_there_leads_to_the_last_resort_as_well() -> None:
    calls = Calls()
    missing = Result.error("x", "no")
    results = [calls.send("x" * 1000, {}, missing, known=False) for _ in range(31)]
    assert detector_of(results[30]) == "global_circuit_breaker"
    assert len(results[30].as_text()) < 500


def test_tools_that_are_not_there_are_allowed_for_now_and_then() -> None:
    calls = Calls()
    missing = Result.error("x", "no")
    for number in range(50):
        assert not detector_of(calls.send("x", {}, missing, known=False))
        calls.edit(f"version {number}")


def fail(calls: Calls, command: str, said: str = "no route to host") -> Result:
    return calls.exec(command, said, code=1)


def test_commands_that_fail_in_the_same_way_are_found_whatever_they_are() -> None:
    calls = Calls()
    results = [fail(calls, f"ping 10.0.0.{number}", "attempt 1: down") for number in range(10)]
    results += [fail(calls, f"ping 10.0.0.{number}", "attempt 2: down") for number in range(10, 22)]
    assert warned(results) == [11]
    assert "10 commands in a row failed in the same way" in noticed(results[10])
    assert refused(results) == [21, 22]
    assert detector_of(results[20]) == "generic_repeat"
    assert results[21].details["intervention"]["count"] == 21


@pytest.mark.parametrize("what", ["read", "success", "another failure"])
def test_commands_that_fail_with_something_in_between_are_not_loop(what: str) -> None:
    calls = Calls()
    for number in range(50):
        assert not noticed(fail(calls, f"ping 10.0.0.{number}"))
        match what:
            case "read":
                calls.read(f"file {number}")
            case "success":
                calls.exec(f"true {number}")
            case _:
                fail(calls, f"ping {number}", f"unknown host {number}")


def test_a_few_sets_of_parameters_that_all_come_to_nothing_are_warned_of() -> None:
    calls = Calls(ping_pong=False)
    error = Result.error("edit", "the text is not there")
    results = [calls.send("edit", {"old": name}, error) for name in "abbaabababab"]
    assert warned(results) == [11, 12]
    assert "failed 10 times in a row" in noticed(results[10])


@table("names", ["abcdefghijklmno", "aaaaaaaaaaaab", "aaaaabbaaaaaaaac"])
def test_parameters_that_are_tried_seldom_are_not_churn(names: str) -> None:
    calls = Calls(ping_pong=False, **QUIET)
    error = Result.error("edit", "the text is not there")
    results = [calls.send("edit", {"old": name}, error) for name in names]
    assert "times in a row" not in "".join(map(noticed, results))


def test_churn_is_looked_for_as_far_back_as_is_set() -> None:
    calls = Calls(ping_pong=False, history_size=9)
    error = Result.error("edit", "the text is not there")
    results = [calls.send("edit", {"old": name}, error) for name in "abbaabababab"]
    assert warned(results) == []


def test_writing_what_is_there_already_is_not_progress() -> None:
    calls = Calls()
    same = Result.text("a is as it was", changed=False)
    results = [calls.send("write", {"path": "a"}, same, acts=True) for _ in range(21)]
    assert refused(results) == [21]


# What else happens in between


@pytest.mark.parametrize("command", ["pytest -q", "git status --short"])
def test_tests_after_each_edit_are_never_refused(command: str) -> None:
    calls = Calls()
    results = []
    for number in range(100):
        calls.edit(f"version {number}")
        results.append(calls.exec(command, "1 failed in 0.1s", code=1))
    assert refused(results) == []


def test_tests_after_each_silent_command_are_never_refused() -> None:
    calls = Calls()
    for number in range(100):
        assert not refused([calls.exec(f"sed -i s/{number}/x/ a.py")])
        assert not refused([calls.exec("pytest -q", "1 failed", code=1)])


def test_a_file_that_is_read_again_between_edits_is_never_refused() -> None:
    calls = Calls()
    results = []
    for number in range(100):
        results.append(calls.read("plan.md"))
        calls.edit(f"version {number}")
    assert refused(results) == []
    assert warned(results) == list(range(11, 101, 10))


def test_an_edit_that_is_made_and_unmade_is_a_loop() -> None:
    calls = Calls()
    results = []
    for number in range(5):
        results += [calls.edit("on"), calls.exec("pytest", "1 failed", code=1)]
        results += [calls.edit("off"), calls.exec("pytest", "2 failed", code=1)]
        assert len(results) == 4 * number + 4
    assert refused(results) == [20]
    assert detector_of(results[19]) == "ping_pong"


def test_a_loop_with_one_moving_part_is_a_loop() -> None:
    calls = Calls()
    results = []
    for number in range(21):
        calls.read(f"other file {number}")
        results.append(calls.read("a"))
    assert warned(results) == [11]
    assert refused(results) == [21]


def test_a_wait_that_is_longer_each_time_hides_no_poll() -> None:
    calls = Calls()
    results = []
    for number in range(21):
        calls.exec(f"sleep {number}", acts=False)
        results.append(calls.poll())
    assert refused(results) == [21]


def test_edits_that_fail_differently_hide_no_loop() -> None:
    calls = Calls()
    results = []
    for number in range(21):
        results.append(calls.read("a"))
        error = Result.error("edit", f"'{number}' is not there")
        calls.send("edit", {"old": number}, error, acts=True)
    assert refused(results) == [21]


def test_a_call_may_be_repeated_after_something_new() -> None:
    calls = Calls()
    results = []
    for number in range(100):
        calls.read(f"file {number}")
        calls.read(f"another {number}")
        results.append(calls.read("plan.md"))
        results.append(calls.poll())
    assert refused(results) == []


def test_what_was_refused_may_be_tried_again_after_something_new() -> None:
    calls = Calls()
    assert refused(calls.read("a") for _ in range(21)) == [21]
    calls.read("b")
    assert detector_of(calls.read("a"))
    calls.read("c")
    assert not detector_of(calls.read("a"))
    assert detector_of(calls.read("a"))


def test_keys_that_are_pressed_may_show_on_the_screen_only() -> None:
    calls = Calls()
    results = []
    for number in range(100):
        results.append(calls.send("press", {"key": "Down"}, "pressed", acts=True))
        calls.send("look", {}, f"row {number}")
    assert refused(results) == []


def test_keys_that_are_pressed_without_looking_are_refused() -> None:
    calls = Calls()
    results = [calls.send("press", {"key": "Down"}, "pressed", acts=True) for _ in range(21)]
    assert refused(results) == [21]


def test_what_is_forgotten_is_counted_afresh() -> None:
    calls = Calls()
    for _ in range(10):
        calls.read("a")
    for number in range(MAX_STREAKS):
        calls.read(f"file {number}")
    assert not noticed(calls.read("a"))


# Several calls in one message


def test_none_of_the_calls_of_a_message_is_carried_out() -> None:
    calls = Calls()
    for _ in range(20):
        calls.read("a")
    asked = [
        GuardedCall("ls", {}),
        GuardedCall("read", {"path": "a"}),
        GuardedCall("exec", {"command": "x"}),
    ]
    first, trigger, last = calls.guard.admit(asked).refusals
    assert [result.details["tool"] for result in (first, trigger, last)] == ["ls", "read", "exec"]
    assert "'read' was called 20 times" in trigger.as_text()
    for other in (first, last):
        assert other.is_error
        assert "Send this one separately" in other.as_text()
        assert other.details["intervention"]["detector"] == "generic_repeat"
    again = calls.guard.admit(asked).refusals
    assert "The turn ends here" in again[0].as_text()
    assert all(result.details["terminate"] for result in again)
    assert not detector_of(calls.send("ls"))


def both(calls: Calls, *order: int) -> list[Result]:
    """Two calls of one message; their results come in that order."""
    admission = calls.guard.admit([GuardedCall("read", {"path": name}) for name in "ab"])
    if admission.refusals:
        return list(admission.refusals)
    told = {
        number: calls.guard.note(admission.tickets[number], Result.text("x"), acts=False)
        for number in order
    }
    return [told[number] for number in sorted(told)]


def test_results_count_in_the_order_of_the_calls() -> None:
    calls = Calls()
    results = []
    for number in range(10):
        order = (1, 0) if number % 3 else (0, 1)
        results.append(both(calls, *order))
    assert [number for number, pair in enumerate(results, 1) if warned(pair)] == [6]
    assert detector_of(both(calls, 0, 1)[0]) == "ping_pong"


def test_a_call_that_was_broken_off_does_not_count() -> None:
    calls = Calls()
    for _ in range(50):
        assert not calls.guard.admit([GuardedCall("read", {"path": "a"})]).refusals
    assert warned(calls.read("a") for _ in range(11)) == [11]


def test_a_result_that_comes_after_the_next_message_counts() -> None:
    calls = Calls()
    late = [calls.guard.admit([GuardedCall("read", {"path": "a"})]).tickets[0] for _ in range(20)]
    for ticket in late:
        calls.guard.note(ticket, Result.text("its content"), acts=False)
    assert detector_of(calls.read("a")) == "generic_repeat"


def test_a_result_that_comes_after_the_turn_does_not_count() -> None:
    calls = Calls()
    late = [calls.guard.admit([GuardedCall("read", {"path": "a"})]).tickets[0] for _ in range(20)]
    calls.guard.begin()
    for ticket in late:
        calls.guard.note(ticket, Result.text("its content"), acts=False)
    assert not noticed(calls.read("a"))


# After the conversation was shortened


@pytest.mark.parametrize("enabled", [True, None])
def test_a_loop_that_goes_on_after_a_compaction_ends_the_turn(enabled: bool | None) -> None:
    calls = Calls(enabled=enabled)
    calls.guard.compacted()
    picture = Result((Image("AAAA", "image/png"),), {"path": "a"})
    first, second, third = (calls.send("read", {"path": "a"}, picture) for _ in range(3))
    assert first == second == picture
    assert third.details["terminate"] is True
    assert third.details["path"] == "a"
    assert third.content[0] == picture.content[0]
    assert "after the conversation was compacted" in noticed(third)
    assert detector_of(calls.read("b")) == "compaction_loop_persisted"
    calls.guard.begin()
    assert not detector_of(calls.read("b"))


@table("paths", [["a", "b", "a"], ["a", "a", "b"], ["a", "a", "c", "c", "c"]])
def test_other_calls_after_a_compaction_are_fine(paths: list[str]) -> None:
    calls = Calls(enabled=None)
    calls.guard.compacted()
    assert not any(detector_of(calls.read(path)) for path in paths)


def test_a_compaction_between_two_turns_is_not_forgotten() -> None:
    calls = Calls(enabled=None)
    calls.guard.compacted()
    calls.guard.begin()
    assert refused(calls.read("a") for _ in range(3)) == [3]


def test_a_compaction_means_nothing_when_the_guard_is_off() -> None:
    calls = Calls(enabled=False)
    calls.guard.compacted()
    assert refused(calls.read("a") for _ in range(100)) == []


def test_without_being_turned_on_it_looks_for_nothing_else() -> None:
    calls = Calls(enabled=None)
    results = [calls.read("a") for _ in range(100)]
    assert warned(results) == refused(results) == []


def test_what_was_read_before_a_compaction_may_be_read_again() -> None:
    calls = Calls()
    for _ in range(20):
        calls.read("a")
    calls.guard.compacted()
    assert not detector_of(calls.read("a"))
    assert not detector_of(calls.read("b"))


@table("ticket", [None, object(), 7])
def test_a_ticket_of_another_guard_changes_nothing(ticket: Any) -> None:
    result = Result.text("x")
    assert Calls().guard.note(ticket, result, acts=True) is result
