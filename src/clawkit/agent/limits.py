"""When a turn ends, whatever the model wants; and what is said about calls that it cuts short."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from clawkit.agent.events import Ended
from clawkit.config.model import Config
from clawkit.config.sections.agents import Agent

MAX_STEPS = 200
"""Answers of the model in one turn, unless configured otherwise."""
CUT_OFF = (
    "the call was cut off: the answer reached its limit of tokens before the arguments were "
    "complete, so nothing was done. Send it again in smaller pieces"
)
ABORTED = "aborted by the person before it was done; it may have happened in part"
SILENT: Mapping[str, str] = {
    "refusal": "refused to answer; say it in another way, or choose another model",
    "length": "reached its limit of tokens before it said anything; ask for less at once, have it "
    "think less, or raise the model's maxTokens",
}
"""Why an answer is empty, where it tells itself: asking once more would not help."""


class Limits(msgspec.Struct, frozen=True):
    """What a turn, and the whole conversation, may take."""

    max_steps: int = MAX_STEPS
    max_cost: float | None = None
    """Dollars, over the whole conversation."""
    timeout_s: float | None = None


def limits_of(
    config: Config, agent: Agent, max_turns: int | None = None, max_cost: float | None = None
) -> Limits:
    """What is asked for, else what is configured for the agent, else for all of them."""
    defaults = config.agents.defaults
    return Limits(
        max_turns or agent.max_turns or defaults.max_turns or MAX_STEPS,
        max_cost or agent.max_cost or defaults.max_cost,
        defaults.timeout_seconds,
    )


class EndOfTurn(Exception):  # noqa: N818  # not an error
    """The turn is over, and this is how."""

    def __init__(self, how: Ended, error: str = "") -> None:
        self.how: Ended = how
        self.error = error
        super().__init__(error)
