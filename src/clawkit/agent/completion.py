"""Single answers of a model, outside of any conversation, for tools."""

from __future__ import annotations

from typing import Any, Protocol

from clawkit.agent.model_selection import ModelSelection
from clawkit.config.modelref import OPERATOR
from clawkit.config.sections.shared import Thinking
from clawkit.content import Assistant, Text, User
from clawkit.errors import ToolError, ToolInputError
from clawkit.models.protocols import ModelError, Request


class Account(Protocol):
    """Who pays: the conversation of a session."""

    def why_spent(self) -> str: ...
    def spend(self, answer: Assistant) -> None: ...


class Completions:
    """The models that a run may use. Their cost counts for the session."""

    def __init__(self, models: ModelSelection, account: Account | None = None) -> None:
        """Without an `account`, there is no session, and this object closes the models."""
        self._models = models
        self._account = account

    async def close(self) -> None:
        if self._account is None:
            await self._models.close()

    def find(self, name: str) -> str:
        """`provider/id` of a model, or of the configured one if the name is empty. Raises
        `ToolInputError` for one that is unknown or may not be chosen, or if none is configured."""
        ref = self._models.find(name) if name else self._models.model().ref
        if ref == OPERATOR:
            raise ToolInputError("no model is configured")
        return str(ref)

    async def complete(
        self,
        model: str,
        system: str,
        text: str,
        *,
        profile: str = "",
        thinking: Thinking = "off",
        max_tokens: int | None = None,
        **params: Any,
    ) -> Assistant:
        """Ask one model, without fallbacks; `profile` is the only credential to use, `params` are
        further fields of the request. Raises `ToolError` if it does not answer, or if the session's
        cost limit is used up."""
        from clawkit.models.failover import ModelChain

        if self._account is not None and (why := self._account.why_spent()):
            raise ToolError(why)
        said = (User((Text(text),)),)
        request = Request(system, said, thinking=thinking, max_tokens=max_tokens, params=params)
        answer = Assistant()
        try:
            one = self._models.plain_model(self._models.find(model), profile)
            async for each in ModelChain([one], strict=True).stream(request):
                answer = each if isinstance(each, Assistant) else answer
        except ModelError as error:
            raise ToolError(str(error)) from None
        if self._account is not None:
            self._account.spend(answer)
        return answer
