"""Checks servers and models before they are saved: addresses, lists of models, a test request."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, NamedTuple

from clawkit.agent.model_selection import ModelSelection
from clawkit.cli.onboarding import write
from clawkit.cli.onboarding.write import ApiKey, AuthChoice, ConfigTarget, Setup
from clawkit.config.file_edit import ConfigChange
from clawkit.config.load import loads
from clawkit.config.modelref import ModelRef, normalize_provider, parse_ref
from clawkit.content import Assistant, Text, User
from clawkit.errors import ClawkitError, ConfigError
from clawkit.models import discover
from clawkit.models.catalog import Catalog
from clawkit.models.credentials import Credential, Credentials
from clawkit.models.known import LOCAL_WINDOW, PROVIDERS, base_url_of, known_model, read_address
from clawkit.models.protocols import Api, ErrorKind, Facts, ModelError, Request
from clawkit.net.addresses import Kind, ParsedUrl, kind_of, kind_of_name, parse_url, refusal
from clawkit.net.route import DIRECT, NetError, Route
from clawkit.text import human_time, one_line, printable

KEY_VARIABLE = "CUSTOM_API_KEY"
RESOLVE_S = 3.0
MAX_MODELS = 500
_WINDOWS = (
    "context_length",
    "max_model_len",
    "context_window",
    "max_input_tokens",
    "inputTokenLimit",
)
_AT_HOME = (".local", ".lan", ".home", ".internal", ".home.arpa")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class ModelList(NamedTuple):
    api: Api
    base_url: str
    models: Mapping[str, int]
    """Id to context window in tokens; 0 if the server does not say."""


def list_models(base_url: str, secret: str, route: Route = DIRECT) -> ModelList | None:
    """The models of a server and the API it seems to speak; None if it does not list any."""
    headers = {"accept": "application/json", "anthropic-version": "2023-06-01"}
    if secret:
        headers |= dict.fromkeys(("x-api-key", "x-goog-api-key"), secret)
        headers["authorization"] = f"Bearer {secret}"
    base = base_url.rstrip("/")
    for start in (base, f"{base}/v1"):
        data = discover.fetch_json("GET", f"{start}/models", headers=headers, route=route)
        if listing := read_listing(data, base, start):
            return listing
    return None


def read_listing(data: Any, base: str, start: str) -> ModelList | None:
    """Parse a list of models fetched from `start`; its format reveals the API."""
    rows = (data.get("data") or data.get("models")) if isinstance(data, dict) else None
    if not isinstance(rows, list):
        return None
    models = dict(filter(None, map(_read_row, rows[:MAX_MODELS])))
    if "data" not in data:
        return ModelList("google-generative-ai", start, models)
    if "has_more" in data:
        return ModelList("anthropic-messages", base, models)
    return ModelList("openai-completions", start, models)


def _read_row(row: Any) -> tuple[str, int] | None:
    name = (row.get("id") or row.get("name")) if isinstance(row, dict) else None
    if not isinstance(name, str) or not discover.is_model_id(name := name.removeprefix("models/")):
        return None
    return name, max(discover.window_size(row.get(key)) for key in _WINDOWS)


def window_of(model: str, listed: int = 0, url: str = "") -> tuple[int, bool]:
    """The context window of a model in tokens, and whether that is known or only a default."""
    if origin := discover.ollama_origin_of(url):
        # Capped: Ollama allocates memory for the whole window.
        return min(discover.show_model(origin, model).window or LOCAL_WINDOW, LOCAL_WINDOW), True
    known = (known_model(name, model) for name in PROVIDERS)
    size = listed or max((each.context_window for each in known if each), default=0)
    return (size, True) if size else (Facts().context_window, False)


class ServerAddress(NamedTuple):
    url: str
    host: str
    port: int | None
    is_private: bool
    is_near: bool
    """Whether it is on this machine."""


def kinds_by_name(target: ParsedUrl) -> list[Kind]:
    """The kind of an address as far as it is known without DNS; empty if unknown."""
    kind = kind_of(target.address) if target.address else kind_of_name(target.host)
    return [kind] if kind else []


def is_at_home(host: str) -> bool:
    """Whether a host name only exists in a private network."""
    return "." not in host or host.endswith(_AT_HOME)


def check_address(text: str, *, resolve: bool, private: bool = False) -> ServerAddress:
    """Parse an address and check that it can be used. Raises ValueError with the reason.

    With `resolve`, the name is looked up. A name that is not looked up or cannot be resolved
    counts as public, unless it is a local name or `private` is set.
    """
    try:
        read = read_address(text.strip(), "")
        target = parse_url(read.url)
    except ConfigError as error:
        words = (f"the address {each.message}. {each.hint}" for each in error.issues)
        raise ValueError(" ".join(words).strip()) from None
    except NetError as error:
        raise ValueError(str(error)) from None
    kinds = kinds_by_name(target)
    if not kinds and resolve:
        # The kinds of addresses of a name; empty if the lookup fails or takes too long.
        import socket
        from threading import Thread

        found: list[str] = []

        def look() -> None:
            with suppress(OSError, UnicodeError):
                rows = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
                found.extend(str(address[0]) for *_, address in rows)

        # A lookup that hangs cannot be cancelled, so it is abandoned.
        thread = Thread(target=look, daemon=True)
        thread.start()
        thread.join(RESOLVE_S)
        kinds = [kind_of(ip_address(each)) for each in found]
    encrypted, limit = target.scheme == "https", ""
    if not (kinds or encrypted or private or is_at_home(target.host)):
        kinds, limit = ["public"], "; http is for this machine and private networks"
    for kind in kinds:
        if why := refusal(kind, encrypted=encrypted, loopback=True, private=True):
            raise ValueError(f"{target.host} cannot be used: {why}{limit}")
    near = bool(kinds) and all(kind == "loopback" for kind in kinds)
    return ServerAddress(read.url, target.host, read.port, "private" in kinds, near)


def read_model_id(text: str, provider: str) -> str:
    """The id of a model, without the provider's name before it. Raises ValueError."""
    name = text.strip()
    with suppress(ValueError):
        ref = parse_ref(name)
        name = ref.id if ref.provider == provider else name
    if not discover.is_model_id(name):
        raise ValueError("invalid model id")
    return name


def usual_name(address: ServerAddress) -> str:
    host = "local" if address.is_near else address.host
    name = re.sub(r"[^a-z0-9]+", "-", f"{host}-{address.port or ''}".lower()).strip("-")[:48]
    return f"{name}-custom" if normalize_provider(name) in PROVIDERS or not name else name


def check_name(text: str) -> str:
    """The name of a server, in lower case. Raises ValueError if it is invalid or taken."""
    name = text.lower()
    if not _NAME.fullmatch(name):
        raise ValueError("use lower-case letters, digits, - and _")
    if normalize_provider(name) in PROVIDERS:
        raise ValueError("this is the name of a built-in provider; use another one")
    return name


def offered_models(target: ConfigTarget, choice: AuthChoice) -> list[str]:
    env = target.loaded.env
    if choice.provider == "ollama":
        return discover.local_models(env)
    listing = list_models(base_url_of(PROVIDERS[choice.provider], env), "")
    return list(listing.models) if listing else []


def known_setup(
    target: ConfigTarget, choice: AuthChoice, key: ApiKey, model: str, *, look: bool
) -> Setup:
    """The setup for a model of a built-in provider; with `look`, Ollama is asked about it."""
    url = write.address_of(choice, write.configured_url(target.loaded, choice.provider))
    entry: dict[str, object] | None = None
    if choice.provider == "ollama" and look:
        origin = base_url_of(PROVIDERS["ollama"], target.loaded.env).removesuffix("/v1")
        shown = discover.show_model(origin, model)
        images = bool(discover.infer_images(model))
        sees = images if shown.images is None else shown.images
        window = {"contextWindow": shown.window} if 0 < shown.window < LOCAL_WINDOW else {}
        # Only write what differs from the default assumptions.
        if sees != images or window:
            entry = {"id": model, "input": ["text", "image"] if sees else ["text"], **window}
    return Setup(ModelRef(choice.provider, model), key, url, entry=entry)


PATIENCE_S, LOCAL_PATIENCE_S = 60.0, 180.0
"""A local server may have to load the model first."""
_QUESTION = Request(
    "",
    (User((Text("Answer with the one word: ready"),)),),
    # Enough for one word, even from models that think first.
    max_tokens=256,
    session="probe",
)

MAX_SHOWN = 60
_PLAIN: Mapping[str, str] = {
    "auth": "The provider rejected the key.",
    "billing": "The key is valid, but the account has no credit or quota left.",
    "rate_limit": "The key is valid, but the account has sent too many requests recently.",
    "overloaded": "The provider is reachable, but has no capacity at the moment.",
    "server": "The provider is reachable, but is failing at the moment.",
    "network": "The provider cannot be reached.",
    "timeout": "The request timed out.",
    "not_found": "The provider has no such model, or the address is wrong.",
}


class Trial(NamedTuple):
    model: str
    seconds: float
    answer: str = ""
    """The answer, for display."""
    kind: str = ""
    """The kind of failure; empty on success."""
    problem: str = ""
    was_answered: bool = True
    """Whether the provider reported the failure; False if it did not respond at all."""

    @property
    def ok(self) -> bool:
        return not self.kind

    def to_json(self) -> dict[str, Any]:
        why = {"kind": self.kind or None, "problem": self.problem or None}
        return {"ok": self.ok, "seconds": round(self.seconds, 3), **why}

    @property
    def plain_kind(self) -> str:
        """The kind of failure for people: an unknown host counts as unreachable."""
        is_unknown_host = self.kind == "not_found" and not self.was_answered
        return "network" if is_unknown_host else self.kind

    @property
    def words(self) -> str:
        if not self.ok:
            what = _PLAIN.get(self.plain_kind, "The model cannot be used.")
            return printable(f"{what}\n  {self.problem}")
        said = f": {self.answer!r}" if self.answer else ""
        return f"{self.model} answered in {self.seconds:.1f} s{said}"


class _OneKey(Credentials):
    def __init__(self, catalog: Catalog, provider: str, name: str, secret: str) -> None:
        super().__init__(catalog.config, catalog.env, catalog.folder, services=catalog.services)
        self._key = Credential(name, "api-key" if secret else "none", secret, provider)

    def for_provider(self, provider: str) -> list[Credential]:
        return [self._key]

    async def ready(self, credential: Credential) -> Credential:
        # Unchanged: a key stored under the same name is a different one.
        return credential

    def mark_failed(self, credential: Credential, kind: ErrorKind) -> None:
        """Records nothing: the key is not in use yet."""

    def mark_used(self, credential: Credential) -> None:
        """Records nothing: the key is not in use yet."""


def try_setup(target: ConfigTarget, change: ConfigChange, setup: Setup) -> Trial:
    """Test the model of a configuration that has not been written yet."""
    ref, key = setup.ref, setup.key
    known = PROVIDERS.get(ref.provider)
    patience_s = LOCAL_PATIENCE_S if known and known.is_local else PATIENCE_S

    async def ask() -> Trial:
        selection = ModelSelection(loads(change.after, file=target.file), target.agent)
        catalog = selection.catalog
        secret = key.secret or catalog.env.get(key.name, "").strip()
        if key.source == "env" and not secret:
            why = f"the variable {key.name} is not set"
            return Trial(str(ref), 0.0, kind="auth", problem=why)
        if key.source != "kept":
            name = f"env:{key.name}" if key.source == "env" else "typed"
            catalog.credentials = _OneKey(catalog, ref.provider, name, secret)
        try:
            return await ask_for_word(selection, ref, patience_s)
        finally:
            await selection.close()

    try:
        return asyncio.run(ask())
    except ConfigError as error:
        return Trial(str(ref), 0.0, kind="setting", problem=str(error))


async def ask_for_word(selection: ModelSelection, ref: ModelRef, timeout_s: float) -> Trial:
    """Ask a model for one word. Failures are part of the result."""
    began = time.monotonic()

    def fail(kind: str, problem: str, *, was_answered: bool = False) -> Trial:
        took_s = time.monotonic() - began
        return Trial(str(ref), took_s, "", kind, problem, was_answered=was_answered)

    try:
        async with asyncio.timeout(timeout_s):
            async for item in selection.plain_model(ref).stream(_QUESTION):
                if isinstance(item, Assistant):
                    said = printable(one_line(item.text, MAX_SHOWN), "")
                    return Trial(str(ref), time.monotonic() - began, said)
    except ModelError as error:
        return fail(error.kind, str(error), was_answered=bool(error.status))
    except ClawkitError as error:
        return fail("setting", str(error))
    except TimeoutError:
        return fail("timeout", f"no answer within {human_time(timeout_s)}")
    return fail("cut", f"{ref.provider} ended without an answer")
