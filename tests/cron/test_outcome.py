"""What follows from a run."""

from __future__ import annotations

import pytest

from clawkit.cron.outcome import without_token


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("NO_REPLY", ""),
        (" HEARTBEAT_OK\n", ""),
        ("**HEARTBEAT_OK**", ""),
        ("`NO_REPLY`.", ""),
        ("HEARTBEAT_OK all is well", ""),
        ("all is well\n\nHEARTBEAT_OK", ""),
        ("HEARTBEAT_OK " + "x" * 301, "x" * 301),
        ("x" * 301 + " NO_REPLY", "x" * 301),
        ("I will answer NO_REPLY next time.", "I will answer NO_REPLY next time."),
        ("NO_REPLYING", "NO_REPLYING"),
        ("The disk is full.", "The disk is full."),
        ("", ""),
    ],
)
def test_a_token_for_silence_is_not_an_answer(said: str, left: str) -> None:
    assert without_token(said) == left
