from __future__ import annotations

import base64
import json
from datetime import date
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.content import Block, Image, Text
from clawkit.core.finalize import finalize, for_event, params_for_event
from clawkit.core.result import Result
from clawkit.redact import Redactor
from clawkit.text import weigh

PLAIN = Redactor()
PNG = Image(base64.b64encode(b"not really a picture").decode(), "image/png")
CANARY = "CANARY7f3aCANARY7f3aCANARY"
LINE = "one line of an ordinary listing\n"


def finish(result: Result, context_window: int | None = None) -> Result:
    return finalize(result, redactor=PLAIN, context_window=context_window)


@table(
    "result",
    [
        Result(),
        Result.text("hello", exitCode=0),
        Result((Text("a"), PNG, Text("字")), {"list": [1, {"n": None}]}),
        Result.json({"status": "ok", "tool": "demo"}),
    ],
)
def test_a_valid_result_is_returned_unchanged(result: Result) -> None:
    assert finish(result) is result


def test_secrets_are_masked_in_text_and_details() -> None:
    result = finish(Result.text(f"Bearer {CANARY}", apiKey="hunter2", line=f"sk-{CANARY}"))
    assert result.as_text() == "Bearer CANARY…NARY"
    assert result.details == {"apiKey": "***", "line": "sk-CAN…NARY"}


def test_registered_values_are_masked() -> None:
    result = finalize(
        Result.text("it is hunter22"), redactor=Redactor(["hunter22"]), context_window=None
    )
    assert result == Result.text("it is ***")


def test_json_text_masks_the_same_fields_as_its_details() -> None:
    result = finish(Result.json({"user": "bob", "password": "hunter2"}))
    assert json.loads(result.as_text()) == {"user": "bob", "password": "***"}


def test_other_text_beside_masked_details_stays() -> None:
    result = finish(Result((Text("done"), PNG), {"password": "hunter2"}))
    assert result.content == (Text("done"), PNG)


def test_details_that_are_not_json_become_text() -> None:
    result = finish(Result.text("done", day=date(2030, 1, 2)))
    assert result == Result.text("done", day="2030-01-02")


@table(("window", "cap"), [(None, 64_000), (150_000, 32_000), (50_000, 16_000), (5_000, 6_000)])
def test_long_text_is_cut_to_what_the_model_can_take(window: int | None, cap: int) -> None:
    shown = finish(Result.text(LINE * 5_000), window).as_text()
    assert cap * 0.75 < len(shown) <= cap
    assert "left out" in shown


def test_chinese_text_is_cut_earlier() -> None:
    shown = finish(Result.text("字" * 12_000), 32_000).as_text()
    assert weigh(shown) <= 32_000
    assert finish(Result.text("a" * 12_000), 32_000).as_text() == "a" * 12_000


def test_the_budget_is_divided_by_length_and_small_blocks_survive() -> None:
    blocks: tuple[Block, ...] = (
        Text("a note"),
        Text("x" * 300_000),
        PNG,
        Text("y" * 100_000),
        Text(""),
    )
    content = finish(Result(blocks)).content
    sizes = [len(block.text) for block in content if isinstance(block, Text)]
    assert content[0] == blocks[0]
    assert content[2] is PNG
    assert content[4] == Text("")
    assert sum(sizes) <= 64_000
    assert 2 < sizes[1] / sizes[2] < 3


def test_a_secret_at_the_cut_is_masked_before_the_cut() -> None:
    for shift in range(60):
        text = "x" * (15_900 - shift) + f" Bearer {CANARY} " + "y" * 20_000
        assert "CANARY7" not in finish(Result.text(text), 50_000).as_text()


@table(
    ("image", "reason"),
    [
        (Image("aGk=", "text/html"), "its type is 'text/html', which is not an image"),
        (Image("", "image/png"), "it has no data"),
        (Image("not base64!", "image/png"), "its data is not base64"),
        (Image("aGk", "image/png"), "its data is not base64"),
        (Image("字", "image/png"), "its data is not base64"),
    ],
)
def test_an_unusable_image_becomes_a_note(image: Image, reason: str) -> None:
    assert finish(Result((image,))).content == (Text(f"[an image was left out: {reason}]"),)


def test_text_that_no_encoder_accepts_is_repaired() -> None:
    result = finish(Result.text("name: caf\udce9 字"))
    assert result.as_text() == "name: caf? 字"


@given(
    st.lists(st.sampled_from(["a", LINE, "字", "\U00020000", " error", "\ud800"]), max_size=5),
    st.integers(1, 4_000),
    st.sampled_from([None, 2_000, 40_000]),
)
def test_no_result_exceeds_its_limits(
    parts: list[str], times: int, context_window: int | None
) -> None:
    result = finish(Result(tuple(Text(part * times) for part in parts)), context_window)
    limit = {None: (64_000, 200_000), 2_000: (2_400, 2_000), 40_000: (16_000, 40_000)}
    chars, weight = limit[context_window]
    texts = [block.text for block in result.content if isinstance(block, Text)]
    assert len(texts) == len(parts)
    assert sum(map(len, texts)) <= chars
    assert sum(map(weigh, texts)) <= weight
    "".join(texts).encode()


def test_events_show_short_text_and_no_image_data() -> None:
    event = for_event(Result((Text(LINE * 1_000), PNG), {"exitCode": 0}), PLAIN)
    text, image = event["content"]
    assert len(text["text"]) <= 8_000
    assert "left out" in text["text"]
    assert image == {"type": "image", "mimeType": "image/png", "bytes": 20, "omitted": True}
    assert event["details"] == {"exitCode": 0}
    assert event["isError"] is False
    assert "error" not in event


def test_events_are_strictly_redacted() -> None:
    result = Result.text("TOKEN=hunter2", line="TOKEN=hunter2", nested={"password": "hunter2"})
    assert "hunter2" not in json.dumps(for_event(result, PLAIN))


def test_long_strings_in_the_details_of_events_are_cut() -> None:
    details = MappingProxyType({"list": [("x" * 9_000,)], "n": 1.5})
    shown = for_event(Result((), details), PLAIN)["details"]
    assert len(shown["list"][0][0]) <= 2_000
    assert shown["n"] == 1.5


@table(
    ("result", "error"),
    [
        (Result.error("exec", "first line\nsecond line"), "first line"),
        (
            Result.error("exec", f"bad TOKEN=hunter2 for sk-{CANARY}"),
            "bad TOKEN=*** for sk-CAN…NARY",
        ),
        (Result.text("\n no luck\nmore", exitCode=2), "no luck"),
        (Result.text("it failed", error=True), "it failed"),
        (Result((PNG,), {"ok": False}), ""),
        (Result.error("exec", "x" * 900), "x" * 399 + "…"),
    ],
)
def test_events_of_failures_carry_one_line_of_the_error(result: Result, error: str) -> None:
    event = for_event(result, PLAIN)
    assert event["isError"] is True
    assert event["error"] == error
    assert for_event(result, PLAIN, brief=True) == {"isError": True, "error": error}
    assert for_event(Result.text("fine"), PLAIN, brief=True) == {"isError": False}


def test_brief_events_contain_the_exit_of_a_failed_command() -> None:
    status = {"status": "completed", "exitReason": "exit", "aggregated": "no luck"}
    details = {**status, "exitCode": 7}
    event = for_event(Result.text("no luck", **details), PLAIN, brief=True)
    facts = {"exitCode": 7, "exitReason": "exit", "exitSignal": None}
    assert event == {"details": facts, "isError": False}
    done = Result.text("fine", **(details | {"exitCode": 0}))
    assert for_event(done, PLAIN, brief=True) == {"isError": False}


def test_events_contain_the_end_of_command_output() -> None:
    output = "\n".join(map(str, range(1, 5_001)))
    shown = for_event(Result.text("x", aggregated=output, other=output), Redactor())["details"]
    assert shown["aggregated"].endswith("\n4999\n5000")
    assert len(shown["aggregated"]) <= 2_000
    assert shown["other"].startswith("1\n2\n")
    assert for_event(Result.text("x", aggregated=[1]), Redactor())["details"]["aggregated"] == [1]


def test_events_show_parameters_cut_and_strictly_redacted() -> None:
    params = {
        "command": "TOKEN=hunter2 run",
        "content": "x" * 9_000,
        "env": {"password": "hunter2"},
    }
    shown = params_for_event(params, PLAIN)
    assert shown["command"] == "TOKEN=*** run"
    assert len(shown["content"]) <= 2_000
    assert shown["env"] == {"password": "***"}
    assert params["env"] == {"password": "hunter2"}
