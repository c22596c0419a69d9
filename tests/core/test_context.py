"""What a tool is handed along with its parameters."""

from __future__ import annotations

from typing import Protocol

import pytest

from clawkit.config.modelref import ModelRef
from clawkit.core.context import Context, Scope, Sender
from clawkit.core.result import Result
from clawkit.errors import ToolError


class Clock(Protocol):
    def now(self) -> float: ...


class Stopped:
    def now(self) -> float:
        return 5.0


def test_a_context_exposes_its_scope() -> None:
    sender = Sender(owner=True, id="7")
    scope = Scope(agent="a", session="s", model=ModelRef("openai", "gpt"), sender=sender)
    ctx = Context("1", scope, "/ws")
    assert (ctx.agent, ctx.session, ctx.sender, str(ctx.model)) == ("a", "s", sender, "openai/gpt")


def test_a_sender_is_not_the_owner_by_default() -> None:
    assert Scope().sender.owner is False


def test_scopes_are_equal_by_content_and_can_be_remembered() -> None:
    assert Scope(allow=("a",)) == Scope(allow=("a",))
    assert len({Scope(), Scope(), Scope(depth=1)}) == 2


def test_services_are_looked_up_by_protocol() -> None:
    ctx = Context("1", Scope(), "/ws", {Clock: Stopped()})
    assert ctx.use(Clock).now() == 5.0


def test_a_missing_service_is_named() -> None:
    with pytest.raises(ToolError, match="no Clock service"):
        Context("1", Scope(), "/ws").use(Clock)


async def test_updates_go_to_listeners_if_there_are_any() -> None:
    seen: list[Result] = []

    async def keep(update: Result) -> None:
        seen.append(update)

    await Context("1", Scope(), "/ws").update("lost")
    ctx = Context("1", Scope(), "/ws", send_update=keep)
    await ctx.update("half")
    await ctx.update(Result.text("done", percent=100))
    assert seen == [Result.text("half"), Result.text("done", percent=100)]


def test_a_notice_without_a_listener_is_ignored() -> None:
    seen: list[Result] = []
    Context("1", Scope(), "/w").notify(Result.text("ended"))
    Context("2", Scope(), "/w", notify=seen.append).notify(Result.text("ended"))
    assert [each.as_text() for each in seen] == ["ended"]
