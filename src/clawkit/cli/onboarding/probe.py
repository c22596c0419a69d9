"""Servers and models before they are saved: addresses, lists of models, one word as a test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from clawkit.cli.onboarding.write import Key
from clawkit.config.load import Loaded
from clawkit.config.modelref import ModelRef, parse_ref
from clawkit.content import Assistant, Text, User
from clawkit.errors import ClawkitError, ConfigError, SecretError
from clawkit.models.catalog import Catalog
from clawkit.models.client import HttpModel, Keys
from clawkit.models.credentials import Credential
from clawkit.models.discover import ollama_models
from clawkit.models.known import LOCAL_WINDOW, PROVIDERS, known_model, read_address
from clawkit.models.protocols import Api, ErrorKind, Facts, ModelError, Request
from clawkit.net.addresses import env_proxy
from clawkit.net.route import DIRECT, NetError, Route
from clawkit.text import one_line, printable

if TYPE_CHECKING:
    from clawkit.net.addresses import Kind
    from clawkit.net.client import Client


Found = TypeVar("Found")

LOOK_S = 5.0
RESOLVE_S = 3.0
MAX_BODY = 4 << 20
MAX_MODELS = 500
_OLLAMA_PORT = 11434
_WINDOWS = ("context_length", "max_model_len", "context_window", "max_input_tokens")
MIN_WINDOW, MAX_WINDOW = 1_024, 100_000_000
"""Tokens. In less there is no room for a question and its answer."""
_AT_HOME = (".local", ".lan", ".home", ".internal", ".home.arpa")


class ModelList(NamedTuple):
    """What a server says it has."""

    api: Api
    base_url: str
    models: Mapping[str, int]
    """Id to the tokens that it takes; 0 where that is not said."""


class OllamaModel(NamedTuple):
    """What Ollama says about a model."""

    window: int = 0
    images: bool | None = None


def local_models(env: Mapping[str, str]) -> list[str]:
    """Models of an Ollama on this machine; none when there is no Ollama."""

    async def look(client: Client) -> list[str]:
        async def get(url: str, timeout_s: float) -> tuple[int, bytes]:
            return await _fetch(client, "GET", url, timeout_s=timeout_s)

        return [ref.id for ref in await ollama_models(env, get)]

    return asyncio.run(_with_client(look))


def show_model(origin: str, model: str) -> OllamaModel:
    """What Ollama at an address knows about one of its models."""

    async def look(client: Client) -> OllamaModel:
        body = msgspec.json.encode({"model": model})
        data = await _json(client, "POST", f"{origin}/api/show", body=body)
        info = data.get("model_info") if isinstance(data, dict) else None
        items = info.items() if isinstance(info, dict) else ()
        found = [_count(size) for key, size in items if str(key).endswith(".context_length")]
        can = data.get("capabilities") if isinstance(data, dict) else None
        return OllamaModel(
            max(found, default=0), "vision" in can if isinstance(can, list) else None
        )

    return asyncio.run(_with_client(look))


def ollama_origin_of(url: str) -> str:
    """The start of the address of an Ollama server; empty when a server is none, by its port."""
    scheme, _, rest = url.partition("://")
    place = rest.partition("/")[0]
    return f"{scheme}://{place}" if place.endswith(f":{_OLLAMA_PORT}") else ""


def list_models(base_url: str, secret: str, route: Route = DIRECT) -> ModelList | None:
    """The models of a server, and which API it seems to speak; None when it does not say."""
    headers = {"accept": "application/json", "anthropic-version": "2023-06-01"}
    if secret:
        headers |= {"authorization": f"Bearer {secret}", "x-api-key": secret}
        headers |= {"x-goog-api-key": secret}
    base = base_url.rstrip("/")

    async def look(client: Client) -> ModelList | None:
        for start in (base, f"{base}/v1"):
            data = await _json(client, "GET", f"{start}/models", headers=headers, route=route)
            if listing := read_listing(data, base, start):
                return listing
        return None

    return asyncio.run(_with_client(look))


def read_listing(data: Any, base: str, start: str) -> ModelList | None:
    """A list of models that was found below `start`; its form reveals the API."""
    rows = (data.get("data") or data.get("models")) if isinstance(data, dict) else None
    if not isinstance(rows, list):
        return None
    models = dict(filter(None, map(_row, rows[:MAX_MODELS])))
    if "data" not in data:
        return ModelList("google-generative-ai", start, models)
    if "has_more" in data:
        return ModelList("anthropic-messages", base, models)
    return ModelList("openai-completions", start, models)


def _row(row: Any) -> tuple[str, int] | None:
    """Id and window of one model in a list."""
    if not isinstance(row, dict):
        return None
    name = row.get("id") or row.get("name")
    if not isinstance(name, str) or not is_model(name := name.removeprefix("models/")):
        return None
    return name, max(_count(row.get(key)) for key in (*_WINDOWS, "inputTokenLimit"))


def is_model(name: str) -> bool:
    """Whether a text can be the id of a model."""
    try:
        return parse_ref(f"x/{name}").id == name
    except ValueError:
        return False


def _count(value: Any) -> int:
    """A number of tokens that a model takes; 0 for anything that cannot be one."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and MIN_WINDOW <= value <= MAX_WINDOW else 0


def window_of(model: str, listed: int = 0, url: str = "") -> tuple[int, bool]:
    """Tokens a model takes, and whether that is known or only usual."""
    if origin := ollama_origin_of(url):
        # It sets aside memory for all of it.
        shown = show_model(origin, model).window
        return min(shown or LOCAL_WINDOW, LOCAL_WINDOW), True
    known = (known_model(name, model) for name in PROVIDERS)
    size = listed or max((each.context_window for each in known if each), default=0)
    return (size, True) if size else (Facts().context_window, False)


class ServerAddress(NamedTuple):
    """The address of your own server."""

    url: str
    host: str
    port: int | None
    is_private: bool
    """Whether it is in a private network."""
    is_near: bool
    """Whether it is on this machine."""


def is_at_home(host: str) -> bool:
    """Whether a name is only known in a private network."""
    return "." not in host or host.endswith(_AT_HOME)


def check_address(text: str, *, resolve: bool, private: bool = False) -> ServerAddress:
    """An address that can be used. Raises ValueError, which says what is wrong with it.

    With `resolve` a name is looked up. One that is not, or that cannot be resolved
    now, counts as public, unless it is a local name or `private` says otherwise.
    """
    from clawkit.net.addresses import kind_of, kind_of_name, parse_url, refusal

    try:
        read = read_address(text.strip(), "")
        target = parse_url(read.url)
    except ConfigError as error:
        words = (f"the address {each.message}. {each.hint}" for each in error.issues)
        raise ValueError(" ".join(words).strip()) from None
    except NetError as error:
        raise ValueError(str(error)) from None
    kinds = [kind_of(target.address)] if target.address else []
    if named := kind_of_name(target.host):
        kinds = [named]
    if not kinds and resolve:
        kinds = _kinds(target.host, target.port)
    encrypted, limit = target.scheme == "https", ""
    if not (kinds or encrypted or private or is_at_home(target.host)):
        kinds, limit = ["public"], "; http is for this machine and private networks"
    for kind in kinds:
        if why := refusal(kind, encrypted=encrypted, loopback=True, private=True):
            raise ValueError(f"{target.host} cannot be used: {why}{limit}")
    near = bool(kinds) and all(kind == "loopback" for kind in kinds)
    return ServerAddress(read.url, target.host, read.port, "private" in kinds, near)


def _kinds(host: str, port: int) -> list[Kind]:
    """The kinds of addresses of a name; none when it cannot be looked up now."""
    import socket
    from ipaddress import ip_address
    from threading import Thread

    from clawkit.net.addresses import kind_of

    found: list[str] = []

    def look() -> None:
        with suppress(OSError, UnicodeError):
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.extend(str(address[0]) for *_, address in rows)

    # Nothing can end a lookup that hangs, so it is left alone.
    thread = Thread(target=look, daemon=True)
    thread.start()
    thread.join(RESOLVE_S)
    return [kind_of(ip_address(each)) for each in found]


def route_to(url: str, env: Mapping[str, str], *, private: bool) -> Route:
    """How to connect to your own server."""
    return Route(private=private, proxy=env_proxy(url, env))


async def _with_client(look: Callable[[Client], Awaitable[Found]]) -> Found:
    from clawkit.net.client import Client

    client = Client()
    try:
        return await look(client)
    finally:
        await client.close()


async def _json(
    client: Client,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    route: Route = DIRECT,
) -> Any:
    try:
        status, data = await _fetch(client, method, url, headers=headers, body=body, route=route)
        return msgspec.json.decode(data) if status == 200 else None
    except (ClawkitError, OSError, msgspec.DecodeError, RecursionError):
        return None


async def _fetch(
    client: Client,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    route: Route = DIRECT,
    timeout_s: float = LOOK_S,
) -> tuple[int, bytes]:
    request = client.stream(
        method, url, headers=headers or {}, body=body, route=route, timeout_s=timeout_s
    )
    async with request as response:
        return response.status, await response.read(MAX_BODY)


PATIENCE_S, LOCAL_PATIENCE_S = 60.0, 180.0
"""A local server may have to load the model first."""
MAX_TOKENS = 256
"""Enough for a word of models that think first."""
MAX_SHOWN = 60
_QUESTION = "Answer with the one word: ready"

_PLAIN: Mapping[str, str] = {
    "auth": "The service does not accept the key.",
    "billing": "The key is valid, but the account has no credit or quota left.",
    "rate_limit": "The key is valid, but the account has sent too many requests recently.",
    "overloaded": "The service is up, but has no capacity at the moment.",
    "server": "The service is up, but fails at the moment.",
    "network": "The service cannot be reached.",
    "timeout": "No answer came in time.",
    "not_found": "The service has no such model, or it is not at this address.",
    "refused": "clawkit does not connect there.",
    "malformed": "The response is not an answer of this API.",
    "cut": "The answer broke off.",
    "invalid": "The service does not accept the request.",
    "overflow": "The service says that even one word is too long.",
    "setting": "The settings of the service are invalid.",
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
