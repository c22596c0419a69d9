"""Checks of the options of an agent before anything is opened."""

from __future__ import annotations

from typing import Any, get_args

from clawkit.agent.system_prompt import Mode
from clawkit.config.sections.shared import Thinking
from clawkit.core.argument_checks import check_choice, check_list, check_type, show

_MODEL = ("ref", "api", "facts", "stream")


def check_model(model: object, fallbacks: object) -> None:
    is_object = not isinstance(model, type) and all(hasattr(model, name) for name in _MODEL)
    if not (model is None or isinstance(model, str) or is_object):
        raise TypeError(
            f"model: expected 'provider/model', or an object with {', '.join(_MODEL)} (see "
            f"clawkit.Model), not {show(model)}"
        )
    check_list("fallbacks", fallbacks)


def check_conversation(*, session: Any, instructions: Any, thinking: Any, mode: Any) -> None:
    check_type("session", session, (str, type(None)), "a name or an id")
    check_type("instructions", instructions, str, "a text")
    check_choice("mode", mode, get_args(Mode))
    if thinking is not None:
        check_thinking(thinking)


def check_thinking(level: object) -> None:
    check_choice("thinking level", level, get_args(Thinking))
