"""What a refusal of a service, or a failed connection, means: which kind of error, and what to do.

Services agree on little. The status decides where it is clear; where it is not (a 400 for a bad
key, a 429 for an empty account, a 500 for a conversation that is too long) the words do.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from clawkit.models.base import ErrorKind, ModelError
from clawkit.models.fault_waits import find_wait
from clawkit.models.fault_words import Said, read_said
from clawkit.models.known import PROVIDERS
from clawkit.redact import Redactor
from clawkit.redact.masking import regex
from clawkit.text import human_time, one_line, printable

if TYPE_CHECKING:
    from clawkit.net.base import NetError

_MAX_SAID = 300

_OVERFLOW = "|".join(
    (
        r"context_(?:length|window|size)_exceeded|exceed_context_size|request_too_large",
        r"max_prompt_tokens_exceeded",
        r"(?:maximum|max|available|model's|exceeds? the) (?:context|prompt|sequence|model) ?"
        r"(?:length|size|window)",
        r"exceeds? (?:the |this |its )?(?:model'?s? |maximum |configured )?context",
        r"context (?:length|window|size|limit) (?:is |was |has been )?exceed",
        r"context .{0,12}overflow|context length of only|greater than the context length",
        r"model token limit|maximum number of tokens allowed|too many total text bytes",
        r"(?:prompt|input|inputs|conversation) (?:is |are )?too long|prompt exceeds max",
        r"input token count|prompt token count of|range of input length should be",
        r"input length .{0,60}exceed|max_new_tokens`? must be",
        r"reduce the length of the (?:messages|prompt|input)",
        # More tokens in one request than are allowed in a minute: waiting does not help.
        r"request too large for|超长|超过.{0,12}上下文",
    )
)
_BILLING = "|".join(
    (
        r"insufficient[ _](?:balance|credits?|funds|quota)|credit balance|billing_(?:error|hard)",
        r"billing_not_active|billing hard limit|payment_required|exceeded_current_quota",
        r"exceeded your current quota|check your plan and billing|check your billing",
        r"(?:out of|no|used all available|requires more|any) credits|key limit exceeded",
        r"credits? (?:are |is |have been )?(?:depleted|exhausted)",
        r"(?:enable billing|billing to be enabled|billing_disabled)",
        r"(?:monthly|weekly|spending|spend|usage|credit|budget)[ _]limits?\b",
        r"monthly (?:included )?(?:quota|credits)|usage_limit|arrearage|overdue|good standing",
        r"\btop[- ]up\b|recharge|balance (?:is )?(?:insufficient|too low|not enough|exhausted)",
        r"balance_not_enough|subscription (?:has )?expired|per-day|余额不足|欠费",
    )
)
_NOT_FOUND = "|".join(
    (
        r"model_not_(?:found|exist|available|supported)|invalid_model|model_decommissioned",
        r"\bmodel\b.{0,80}?(?:not found|does(?:n't| not) exist|decommissioned)",
        r"model (?:is )?not (?:exist|supported|available)\b",
        r"models/\S{1,120} is not found|not found the model|try pulling it",
        r"not a valid model|unknown model|no such model|no endpoints found|invalid model\b",
        r"no models? (?:is |are )?loaded|unable to access model|does not have access to model",
        r"模型不存在",
    )
)
_AUTH = "|".join(
    (
        r"(?:invalid|incorrect|missing|no|expired)[ _](?:x-)?api[ _-]?key|invalidapikey",
        r"api[ _-]?key (?:is |was |has )?(?:not valid|invalid|expired|missing|not found)",
        r"api_key_(?:invalid|expired)|authentication_error|unauthenticated|unauthorized",
        r"invalid_authentication|token (?:has |is )?expired|permission_(?:denied|error)",
        r"location is not supported|unsupported_country|organization_restricted",
        r"(?:account|organization) (?:is |has been )?(?:deactivated|disabled|suspended)",
    )
)
_OVERLOADED = "|".join(
    (
        r"overload|(?:at|over|no) capacity|capacity (?:exceeded|exhausted)|slow_down",
        r"(?:server|service) (?:is )?busy|processing too many|high demand|no slot",
        r"loading model|model .{0,80}(?:is |currently )loading|model_not_ready|modelnotready",
    )
)
_UNWANTED = r"flagged|moderation|content[ _](?:policy|filter)|safety"
_RATE_LIMIT = r"rate[ _-]?limit|too[ _]many[ _]requests|throttl|resource_exhausted|tokens per min"

_BY_STATUS: Mapping[int, ErrorKind] = {
    401: "auth",
    402: "billing",
    403: "auth",
    404: "not_found",
    405: "not_found",
    407: "refused",
    408: "timeout",
    409: "server",
    410: "not_found",
    413: "overflow",
    424: "server",
    425: "server",
    429: "rate_limit",
    498: "overloaded",
    499: "server",
    504: "timeout",
    522: "timeout",
    524: "timeout",
    529: "overloaded",
}
# Names of errors, for those that come without a status: inside a stream, or with a 200.
_BY_NAME = (
    ("timeout", r"timeout_error|deadline_exceeded|timed?[ _-]?out"),
    ("server", r"api_error|server_error|internal|unavailable|bad gateway|upstream"),
    ("not_found", r"not_found"),
    ("invalid", r"invalid|bad_request|failed_precondition|unsupported|content_filter"),
)

_WHAT: Mapping[ErrorKind, str] = {
    "auth": "refuses the credential",
    "billing": "says that the account has no money or quota left",
    "rate_limit": "gets too many requests from this account",
    "overloaded": "has no capacity at the moment",
    "server": "failed",
    "timeout": "did not answer in time",
    "overflow": "cannot take a conversation this long",
    "not_found": "has no such model, or none at this address",
    "invalid": "refuses the request as it is",
    "malformed": "sent something that is no answer",
    "refused": "cannot be connected to",
    "network": "cannot be reached",
    "cut": "broke off in the middle of the answer",
}


class AbsentError(ModelError):
    """Nobody listens at an address of this machine: waiting will hardly change that."""


def from_response(
    provider: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    secrets: Iterable[str] = (),
    credential: str = "",
    now: float | None = None,
) -> ModelError:
    """The error that an HTTP answer means. `headers` have lower-case names.

    Also for errors inside a stream and for those that come with status 200: the body decides.
    `secrets` are what was sent as credential; they are masked wherever they come back.
    `credential` is the id of the one that was used.
    """
    said = read_said(body)
    kind = _kind(status, said)
    wait = find_wait(headers, said, time.time() if now is None else now)
    if kind == "rate_limit" and wait is None and regex(r"per day|daily").search(said.search):
        kind = "billing"
    words = shown(said.words, secrets)
    if said.is_page:
        words = "a web page instead of an answer" + (f", {words!r}" if words else "")
    elif said.is_binary:
        words = "bytes that are no text"
    elif status < 300 and not body.strip():
        words = "it is empty"
    place = headers.get("location", "") if 300 <= status < 400 else ""
    if place:
        words = f"it sends to {shown(place, secrets)!r}, which is not followed"
    what = _WHAT[kind]
    if status >= 300:
        what += f" (HTTP {status})"
    elif kind == "auth":
        # `credential:` would be taken for the name of a secret, and what follows be masked.
        what += " it was sent"
    message = f"{provider} {what}" + (f": {words.rstrip('. ')}" if words else "")
    return ModelError(
        kind,
        f"{message}. {_advice(provider, kind, wait, credential)}",
        status=status,
        retry_after_s=wait,
    )


def from_net(provider: str, error: NetError) -> ModelError:
    """The error that a connection means which failed before an answer came, or took too long."""
    kinds: Mapping[str, ErrorKind] = {
        "refused": "refused",
        # A certificate that is not trusted stays so: trying again is no use.
        "tls": "network" if "closed the connection" in str(error) else "refused",
        # A name that has no address will not have one soon.
        "dns": "not_found",
        "timeout": "timeout",
        "protocol": "malformed",
    }
    kind = kinds.get(error.kind, "network")
    advice = _advice(provider, kind)
    if error.kind == "absent":
        advice = f"Check models.providers.{provider}, and that the service runs."
    elif kind in ("refused", "network", "not_found"):
        known = PROVIDERS.get(provider)
        local = f", and that {provider} runs" if known and known.is_local else ""
        advice = f"Check models.providers.{provider} and the network{local}."
    made = AbsentError if error.kind == "absent" else ModelError
    return made(kind, f"{provider}: {shown(str(error), ()).rstrip('. ')}. {advice}")


def cut_off(provider: str, why: str = "") -> str:
    """The message for an answer that broke off."""
    what = f"{provider} {_WHAT['cut']}" + (f": {shown(why, ()).rstrip('. ')}" if why else "")
    return f"{what}. {_advice(provider, 'cut')}"


def unusable(provider: str, why: str) -> str:
    """The message for an answer that is not what the API says it is."""
    return f"{provider}: {shown(why, ()).rstrip('. ')}. {_advice(provider, 'malformed')}"


def brief(ref: object, error: ModelError) -> str:
    """What happened, in a few words for a status line."""
    # Without an answer it is the host that was not found.
    kind = error.kind if error.status or error.kind != "not_found" else "network"
    return f"{ref} {_WHAT[kind]}" + (f" (HTTP {error.status})" if error.status else "")


def shown(text: str, secrets: Iterable[str]) -> str:
    """Words of others as they may be shown: without secrets, on one line, cut."""
    masked = Redactor(secrets).strict(text)
    return printable(one_line(masked, _MAX_SAID))


def _kind(status: int, said: Said) -> ErrorKind:
    if status < 300 and not said.is_json:
        # A page is a wrong address, or asks to log in: the next time is no better.
        return "not_found" if said.is_page else "malformed"
    inner = said.status
    if inner and (status < 300 or (status in (500, 502, 503) and inner < 500)):
        status = inner
    found = _kind_by_words(status, said.search)
    if found is not None:
        return found
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return "invalid" if status == 501 else "server"
    if status >= 400:
        return "invalid"
    if status >= 300:
        return "not_found"
    return _kind_by_name(said)


def _kind_by_words(status: int, text: str) -> ErrorKind | None:
    """What the words say, where they say more than the status does."""
    if status == 407:
        return "refused"
    if status not in (401, 402, 403) and regex(_OVERFLOW).search(text):
        return "overflow"
    if status == 400 and "too many tokens" in text:
        return "overflow"
    if status == 429 or "resource_exhausted" in text:
        return _kind_of_limit(text)
    if status not in (401, 402) and status < 500 and regex(_NOT_FOUND).search(text):
        return "not_found"
    if status != 401 and regex(_BILLING).search(text):
        return "billing"
    if status == 403 and regex(_UNWANTED).search(text):
        return "invalid"
    if status not in (401, 403) and status < 500 and regex(_AUTH).search(text):
        return "auth"
    if (status < 400 or status >= 500) and regex(_OVERLOADED).search(text):
        return "overloaded"
    return None


def _kind_of_limit(text: str) -> ErrorKind:
    """What a 429 is: a limit that passes, an account that is used up, or a full service."""
    passes: ErrorKind = "overloaded" if regex(_OVERLOADED).search(text) else "rate_limit"
    if regex(r"perday|limit: 0\b").search(text):
        return "billing"
    if "resource_exhausted" in text:
        # Google says this for its limits per minute, too.
        text = regex(r"you exceeded your current quota|check your plan and billing").sub("", text)
    return "billing" if regex(_BILLING).search(text) else passes


def _kind_by_name(said: Said) -> ErrorKind:
    text = said.search
    if regex(_RATE_LIMIT).search(text):
        return "rate_limit"
    for kind, pattern in _BY_NAME:
        if regex(pattern).search(text):
            return kind  # type: ignore[return-value]  # the table holds kinds only
    # Without any word of an error, it is no error but something else than an answer.
    return "server" if said.is_json and (said.texts or said.codes) else "malformed"


def _key_advice(provider: str, credential: str) -> str:
    """Where to look for a key that is refused."""
    source, _, name = credential.partition(":")
    if source == "env":
        return f"Check the key in {name}."
    if name:
        return f"Check the profile {credential}, or sign in again."
    setting = f"models.providers.{provider}.apiKey"
    if credential.startswith("models."):
        return f"Check {credential}."
    known = PROVIDERS.get(provider)
    return (
        f"Check the key in {known.env[0]} or {setting}."
        if known and known.env
        else (f"Check {setting}.")
    )


def _advice(provider: str, kind: ErrorKind, wait: float | None = None, credential: str = "") -> str:
    """What a person can do about it: one sentence."""
    later = f"in {human_time(wait)}" if wait and wait >= 1 else "later"
    advice: Mapping[ErrorKind, str] = {
        "auth": _key_advice(provider, credential),
        "billing": f"Top up the account at {provider}, use another key, or set fallbacks.",
        "rate_limit": f"Try again {later}, or set fallbacks.",
        "overloaded": f"Try again {later}, or set fallbacks.",
        "server": f"Try again {later}, or set fallbacks.",
        "timeout": f"Try again, or raise models.providers.{provider}.timeoutSeconds.",
        "overflow": "Shorten the conversation, or choose a model with a larger context.",
        "not_found": f"Check the model's name and models.providers.{provider}.baseUrl.",
        "invalid": "Change the request, or choose another model.",
        "malformed": f"Check models.providers.{provider}.baseUrl and api, or try again.",
        "refused": f"Check models.providers.{provider}.request.",
    }
    return advice.get(kind, "Try again, or set fallbacks.")
