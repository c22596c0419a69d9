"""Asking a model for one word, to see whether everything that was said about it is right."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from clawkit.cli.onboarding_plan import Key
from clawkit.config.load import Loaded
from clawkit.config.modelref import ModelRef
from clawkit.content import Assistant, Text, User
from clawkit.errors import ConfigError, SecretError
from clawkit.models.base import ErrorKind, ModelError, Request
from clawkit.models.client import HttpModel, Keys
from clawkit.models.credentials import Credential
from clawkit.models.known import PROVIDERS
from clawkit.models.resolve import Catalog
from clawkit.text import one_line, printable

PATIENCE_S, LOCAL_PATIENCE_S = 60.0, 180.0
"""A server on one's own machine may have to load the model first."""
MAX_TOKENS = 256
"""Enough for a word of models that think first."""
MAX_SHOWN = 60
_QUESTION = "Answer with the one word: ready"

_PLAIN: Mapping[str, str] = {
    "auth": "The service does not accept the key.",
    "billing": "The key is right, but the account has no money or quota left.",
    "rate_limit": "The key is right, but the account has sent too many requests lately.",
    "overloaded": "The service is there, but has no capacity at the moment.",
    "server": "The service is there, but fails at the moment.",
    "network": "The service cannot be reached.",
    "timeout": "No answer came in time.",
    "not_found": "The service has no such model, or it is not at this address.",
    "refused": "clawkit does not connect there.",
    "malformed": "What came back is not an answer of this API.",
    "cut": "The answer broke off.",
    "invalid": "The service does not accept the request.",
    "overflow": "The service says that even one word is too long.",
    "setting": "The settings of the service are not right.",
}


class Trial(NamedTuple):
    """How it went."""

    model: str
    seconds: float
    said: str = ""
    """What the model answered, to be shown."""
    kind: str = ""
    """What sort of failure it was; empty for none."""
    problem: str = ""
    was_answered: bool = True
    """Whether a failure is what the service answered; not when there was no answer at all."""

    @property
    def ok(self) -> bool:
        return not self.kind

    @property
    def plain_kind(self) -> str:
        """The sort of failure for a person, to whom a host that is not found is out of reach."""
        is_unknown_host = self.kind == "not_found" and not self.was_answered
        return "network" if is_unknown_host else self.kind

    @property
    def words(self) -> str:
        """One line for a person."""
        if not self.ok:
            return printable(f"{_PLAIN[self.plain_kind]}\n  {self.problem}")
        said = f": {self.said!r}" if self.said else ""
        return f"{self.model} answered in {self.seconds:.1f} s{said}"


class _OneKey:
    """The key that is to be tried, and no other."""

    def __init__(self, provider: str, name: str, secret: str) -> None:
        kind = "api-key" if secret else "none"
        self._credential = Credential(
            name, "api-key" if kind == "api-key" else "none", secret, provider
        )

    def for_provider(self, provider: str) -> Sequence[Credential]:
        return [self._credential]

    def missing(self, provider: str) -> ModelError:
        return ModelError("auth", f"there is no key for {provider}")

    async def ready(self, credential: Credential) -> Credential:
        return credential

    def cooldown_s(self, credential: Credential) -> float:
        return 0.0

    def mark_failed(self, credential: Credential, kind: ErrorKind) -> None:
        """Nothing is noted about a key that is not in use."""

    def mark_used(self, credential: Credential) -> None:
        """As little as for a failure."""


def try_model(loaded: Loaded, agent: str, ref: ModelRef, key: Key) -> Trial:
    """Ask the model of a configuration that is not written yet."""
    began = time.monotonic()
    try:
        answer = asyncio.run(_ask(loaded, agent, ref, key))
    except ModelError as error:
        took_s, answered = time.monotonic() - began, bool(error.status)
        return Trial(str(ref), took_s, "", error.kind, str(error), was_answered=answered)
    except (ConfigError, SecretError) as error:
        return Trial(str(ref), 0.0, kind="setting", problem=str(error))
    text = " ".join(part.text for part in answer.content if isinstance(part, Text))
    said = printable(one_line(text, MAX_SHOWN), "")
    return Trial(str(ref), time.monotonic() - began, said)


async def _ask(loaded: Loaded, agent: str, ref: ModelRef, key: Key) -> Assistant:
    from clawkit.net.client import Client

    catalog = Catalog.of(loaded, agent)
    endpoint = catalog.endpoint(ref)
    known = PROVIDERS.get(ref.provider)
    patience = LOCAL_PATIENCE_S if known and known.is_local else PATIENCE_S
    client = Client()
    try:
        model = HttpModel(
            replace(endpoint, params={**endpoint.params, **catalog.params(ref)}),
            client,
            keys=_keys(catalog, ref, key),
            settings=catalog.settings(ref),
            headers=catalog.headers(ref),
            route=catalog.route(ref),
            timeout_s=patience,
        )
        request = Request("", [User((Text(_QUESTION),))], max_tokens=MAX_TOKENS)
        async for item in model.stream(request):
            if isinstance(item, Assistant):
                return item
    finally:
        await client.close()
    raise ModelError("cut", f"{ref.provider} ended without an answer")


def _keys(catalog: Catalog, ref: ModelRef, key: Key) -> Keys:
    if key.source == "kept":
        return catalog.credentials
    if key.source != "env":
        return _OneKey(ref.provider, "typed", key.secret)
    secret = catalog.env.get(key.name, "").strip()
    if not secret:
        raise ModelError("auth", f"the variable {key.name} is not set here")
    return _OneKey(ref.provider, f"env:{key.name}", secret)
