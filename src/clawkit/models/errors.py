"""Classifies error responses and failed connections, with advice for each.

Providers agree on little. A clear status decides; if it is ambiguous (400 for a bad key, 429 for an
empty account, 500 for a conversation that is too long), the text decides.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from clawkit.models.known import PROVIDERS
from clawkit.models.protocols import ErrorKind, ModelError
from clawkit.redact import Redactor
from clawkit.text import human_time, one_line, printable, regex

if TYPE_CHECKING:
    from clawkit.net.route import NetError

PER_CREDENTIAL: frozenset[ErrorKind] = frozenset({"auth", "billing", "rate_limit"})
"""Errors that another credential may avoid."""
_MAX_SAID = 300

_OVERFLOW = (
    r"context_(?:length|window|size)_exceeded|exceed_context_size|request_too_large"
    r"|max_prompt_tokens_exceeded"
    r"|(?:maximum|max|available|model's|exceeds? the) (?:context|prompt|sequence|model) ?"
    r"(?:length|size|window)"
    r"|exceeds? (?:the |this |its )?(?:model'?s? |maximum |configured )?context"
    r"|context (?:length|window|size|limit) (?:is |was |has been )?exceed"
    r"|context .{0,12}overflow|context length of only|greater than the context length"
    r"|model token limit|maximum number of tokens allowed|too many total text bytes"
    r"|(?:prompt|input|inputs|conversation) (?:is |are )?too long|prompt exceeds max"
    r"|input token count|prompt token count of|range of input length should be"
    r"|input length .{0,60}exceed|max_new_tokens`? must be"
    r"|reduce the length of the (?:messages|prompt|input)"
    # More tokens in one request than are allowed per minute: waiting does not help.
    r"|request too large for|超长|超过.{0,12}上下文"
)
_BILLING = (
    r"insufficient[ _](?:balance|credits?|funds|quota)|credit balance|billing_(?:error|hard)"
    r"|billing_not_active|billing hard limit|payment_required|exceeded_current_quota"
    r"|exceeded your current quota|check your plan and billing|check your billing"
    r"|(?:out of|no|used all available|requires more|any) credits|key limit exceeded"
    r"|credits? (?:are |is |have been )?(?:depleted|exhausted)"
    r"|(?:enable billing|billing to be enabled|billing_disabled)"
    r"|(?:monthly|weekly|spending|spend|usage|credit|budget)[ _]limits?\b"
    r"|monthly (?:included )?(?:quota|credits)|usage_limit|arrearage|overdue|good standing"
    r"|\btop[- ]up\b|recharge|balance (?:is )?(?:insufficient|too low|not enough|exhausted)"
    r"|balance_not_enough|subscription (?:has )?expired|per-day|余额不足|欠费"
)
_NOT_FOUND = (
    r"model_not_(?:found|exist|available|supported)|invalid_model|model_decommissioned"
    r"|\bmodel\b.{0,80}?(?:not found|does(?:n't| not) exist|decommissioned)"
    r"|model (?:is )?not (?:exist|supported|available)\b"
    r"|models/\S{1,120} is not found|not found the model|try pulling it"
    r"|not a valid model|unknown model|no such model|no endpoints found|invalid model\b"
    r"|no models? (?:is |are )?loaded|unable to access model|does not have access to model"
    r"|模型不存在"
)
_AUTH = (
    r"(?:invalid|incorrect|missing|no|expired)[ _](?:x-)?api[ _-]?key|invalidapikey"
    r"|api[ _-]?key (?:is |was |has )?(?:not valid|invalid|expired|missing|not found)"
    r"|api_key_(?:invalid|expired)|authentication_error|unauthenticated|unauthorized"
    r"|invalid_authentication|token (?:has |is )?expired|permission_(?:denied|error)"
    r"|location is not supported|unsupported_country|organization_restricted"
    r"|(?:account|organization) (?:is |has been )?(?:deactivated|disabled|suspended)"
)
_OVERLOADED = (
    r"overload|(?:at|over|no) capacity|capacity (?:exceeded|exhausted)|slow_down"
    r"|(?:server|service) (?:is )?busy|processing too many|high demand|no slot"
    r"|loading model|model .{0,80}(?:is |currently )loading|model_not_ready|modelnotready"
)
_UNWANTED = r"flagged|moderation|content[ _](?:policy|filter)|safety"

_STATUSES: Mapping[ErrorKind, tuple[int, ...]] = {
    "auth": (401, 403),
    "billing": (402,),
    "not_found": (404, 405, 410),
    "refused": (407,),
    "timeout": (408, 504, 522, 524),
    "server": (409, 424, 425, 499),
    "overflow": (413,),
    "rate_limit": (429,),
    "overloaded": (498, 529),
    "invalid": (501,),
}
_BY_STATUS = {status: kind for kind, statuses in _STATUSES.items() for status in statuses}
# Names of errors without a status: inside a stream, or with status 200.
_NAMES: Mapping[ErrorKind, str] = {
    "rate_limit": r"rate[ _-]?limit|too[ _]many[ _]requests|throttl|resource_exhausted"
    r"|tokens per min",
    "timeout": r"timeout_error|deadline_exceeded|timed?[ _-]?out",
    "server": r"api_error|server_error|internal|unavailable|bad gateway|upstream",
    "not_found": r"not_found",
    "invalid": r"invalid|bad_request|failed_precondition|unsupported|content_filter",
}

_LATER = "Try again {later}, or set fallbacks."
# What the provider did, and advice for a person.
_MEANING: Mapping[ErrorKind, tuple[str, str]] = {
    "auth": ("rejected the credential", ""),
    "billing": (
        "reports that the account has no credit or quota left",
        "Top up the account at {provider}, use another key, or set fallbacks.",
    ),
    "rate_limit": ("received too many requests from this account", _LATER),
    "overloaded": ("has no capacity at the moment", _LATER),
    "server": ("failed", _LATER),
    "timeout": ("did not answer in time", "Try again, or raise {setting}.timeoutSeconds."),
    "overflow": (
        "cannot accept a conversation this long",
        "Shorten the conversation, or choose a model with a larger context window.",
    ),
    "not_found": (
        "does not have this model, or not at this address",
        "Check the model's name and {setting}.baseUrl.",
    ),
    "invalid": ("rejected the request", "Change the request, or choose another model."),
    "malformed": ("sent an invalid response", "Check {setting}.baseUrl and api, or try again."),
    "refused": ("cannot be connected to", "Check {setting}.request."),
    "network": ("cannot be reached", "Try again, or set fallbacks."),
    "cut": ("broke off in the middle of the answer", "Try again, or set fallbacks."),
}


class AbsentError(ModelError):
    """Nothing listens at an address of this machine: waiting will not help."""


def from_response(
    provider: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    secrets: Iterable[str] = (),
    credential: str = "",
    setting: str = "",
    now: float | None = None,
) -> ModelError:
    """The error for an HTTP response. `headers` have lower-case names.

    Also for errors inside a stream and with status 200; there the body decides. `secrets` are the
    credentials that were sent; they are masked in the message. `credential` is the id of the one
    used, `setting` the path of the service's settings, if not in `models.providers`.
    """
    said = read_said(body)
    kind = _kind(status, said)
    wait = find_wait(headers, said, time.time() if now is None else now)
    if kind == "rate_limit" and wait is None and regex(r"per day|daily").search(said.search):
        kind = "billing"
    words = shown(said.words, secrets)
    if 300 <= status < 400 and (place := headers.get("location", "")):
        words = f"it redirects to {shown(place, secrets)!r}, which is not followed"
    elif said.is_page:
        words = "a web page instead of an answer" + (f", {words!r}" if words else "")
    elif said.is_binary:
        words = "binary data"
    elif status < 300 and not body.strip():
        words = "it is empty"
    what = f"{provider} {_MEANING[kind][0]}"
    if status >= 300:
        what += f" (HTTP {status})"
    elif kind == "auth":
        # Not `credential:`, which would look like the name of a secret, so that the rest would be
        # masked.
        what += " it was sent"
    message = _sentence(what, words, _advice(provider, kind, wait or 0, credential, setting))
    return ModelError(kind, message, status=status, retry_after_s=wait)


def from_net(provider: str, error: NetError, setting: str = "") -> ModelError:
    """The error for a connection that failed before an answer, or timed out."""
    kinds: Mapping[str, ErrorKind] = {
        "refused": "refused",
        # Retrying does not help against an untrusted certificate.
        "tls": "network" if "closed the connection" in str(error) else "refused",
        # Retrying does not help against an unknown host name.
        "dns": "not_found",
        "timeout": "timeout",
        "protocol": "malformed",
    }
    kind = kinds.get(error.kind, "network")
    setting = setting or f"models.providers.{provider}"
    advice = _advice(provider, kind, setting=setting)
    if error.kind == "absent":
        advice = f"Check {setting}, and that the server is running."
    elif kind in ("refused", "network", "not_found"):
        known = PROVIDERS.get(provider)
        local = f", and that {provider} is running" if known and known.is_local else ""
        advice = f"Check {setting} and the network{local}."
    made = AbsentError if error.kind == "absent" else ModelError
    return made(kind, _sentence(provider, shown(str(error), ()), advice))


def cut_off(provider: str, why: str = "") -> str:
    """The message for an answer that was cut off."""
    what = f"{provider} {_MEANING['cut'][0]}"
    return _sentence(what, shown(why, ()), _advice(provider, "cut"))


def unusable(provider: str, why: str) -> str:
    """The message for an answer that does not follow the API."""
    return _sentence(provider, shown(why, ()), _advice(provider, "malformed"))


def _sentence(problem: str, words: str, advice: str) -> str:
    return problem + (f": {words.rstrip('. ')}" if words else "") + f". {advice}"


def brief(ref: object, error: ModelError) -> str:
    """The error in a few words, for a status line."""
    # Without a response, the host was not found.
    kind = error.kind if error.status or error.kind != "not_found" else "network"
    return f"{ref} {_MEANING[kind][0]}" + (f" (HTTP {error.status})" if error.status else "")


def shown(text: str, secrets: Iterable[str]) -> str:
    """Text from a provider for display: without secrets, on one line, truncated."""
    masked = Redactor(secrets).strict(text)
    return printable(one_line(masked, _MAX_SAID))


def _kind(status: int, body: ErrorBody) -> ErrorKind:
    if status < 300 and not body.is_json:
        # A web page means a wrong address or a login: retrying does not help.
        return "not_found" if body.is_page else "malformed"
    inner = body.status
    if inner and (status < 300 or (status in (500, 502, 503) and inner < 500)):
        status = inner
    found = _kind_by_words(status, body.search) or _BY_STATUS.get(status)
    if found:
        return found
    if status >= 300:
        return "server" if status >= 500 else "invalid" if status >= 400 else "not_found"
    for kind, pattern in _NAMES.items():
        if regex(pattern).search(body.search):
            return kind
    # Nothing indicates an error, so it is not from a model API.
    return "server" if body.is_json and (body.texts or body.codes) else "malformed"


def _kind_by_words(status: int, text: str) -> ErrorKind | None:
    """The kind according to the text, if that is more specific than the status."""
    if status == 407:
        return "refused"
    if status not in (401, 402, 403) and regex(_OVERFLOW).search(text):
        return "overflow"
    if status == 400 and "too many tokens" in text:
        return "overflow"
    if status == 429 or "resource_exhausted" in text:
        passes: ErrorKind = "overloaded" if regex(_OVERLOADED).search(text) else "rate_limit"
        if regex(r"perday|limit: 0\b").search(text):
            return "billing"
        if "resource_exhausted" in text:
            # Google uses this text for limits per minute as well.
            text = regex(r"you exceeded your current quota|check your plan and billing").sub(
                "", text
            )
        return "billing" if regex(_BILLING).search(text) else passes
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


def _advice(
    provider: str, kind: ErrorKind, wait: float = 0, credential: str = "", setting: str = ""
) -> str:
    """Advice for a person, in one sentence."""
    setting = setting or f"models.providers.{provider}"
    if kind != "auth":
        later = f"in {human_time(wait)}" if wait >= 1 else "later"
        return _MEANING[kind][1].format(provider=provider, setting=setting, later=later)
    source, _, name = credential.partition(":")
    if source == "env":
        return f"Check the key in {name}."
    if name:
        return f"Check the profile {credential}, or sign in again."
    if credential.startswith("models."):
        return f"Check {credential}."
    known = PROVIDERS.get(provider)
    variable = f"the key in {known.env[0]} or " if known and known.env else ""
    return f"Check {variable}{setting}.apiKey."


MAX_READ = 64 * 1024
"""Bytes of a body that are parsed; error messages are at the start."""
_MAX_WORDS = 4_000
_MAX_DEPTH = 8
_MAX_ITEMS = 16

_TEXT_KEYS = ("message", "msg", "status_msg", "error_description", "description", "title")
_NESTED_KEYS = (
    *("error", "errors", "detail", "details", "metadata", "raw", "base_resp", "violations"),
    *("response", "incomplete_details", "cause", "innererror", "fault"),
)
_CODE_KEYS = (
    *("type", "code", "status", "reason", "error_type", "error_code", "errorCode", "status_code"),
    *("__type", "quotaId"),
)
_WAIT_KEYS = ("retryDelay", "retry_after", "retry_after_seconds", "resets_in_seconds")


class ErrorBody(msgspec.Struct):
    """The content of an error body. Not for display: it may contain anything, including secrets."""

    texts: list[str] = []
    codes: list[str] = []
    """Names and numbers of errors, in lower case."""
    status: int = 0
    """The HTTP status that the body names; 0 for none."""
    waits: list[Any] = []
    """Wait times, as written."""
    is_page: bool = False
    is_binary: bool = False
    is_json: bool = False

    @property
    def words(self) -> str:
        """The provider's own words, truncated at a word boundary."""
        words = ": ".join(dict.fromkeys(self.texts))
        if len(words) <= _MAX_WORDS:
            return words
        return words[:_MAX_WORDS].rpartition(" ")[0]

    @property
    def search(self) -> str:
        """Words and codes in lower case, for matching."""
        return f"{self.words} {' '.join(self.codes)}".lower().replace("’", "'")


def read_said(body: bytes) -> ErrorBody:
    """Parse an error body; never raises."""
    said = ErrorBody()
    text = body[:MAX_READ].decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if text.startswith("<"):
        said.is_page = True
        if title := regex(r"(?is)<title[^>]{0,200}>([^<]{1,400})").search(text):
            said.texts.append(" ".join(title[1].split()))
        return said
    if text.count("\0") + text.count("�") > max(2, len(text) // 20):
        said.is_binary = True
        return said
    is_stream = text.startswith(("data:", "event:", ":"))
    event = regex(r"(?m)^data:[ \t]*([\[{].*)$").search(text) if is_stream else None
    value = _decoded(event[1] if event else text)
    said.is_json = value is not None
    _collect(text if value is None else value, said, _MAX_DEPTH)
    return said


def _decoded(text: str) -> Any:
    """The object or list in a text, else None."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _collect(value: Any, body: ErrorBody, depth: int) -> None:
    if depth == 0 or len(body.texts) >= _MAX_ITEMS:
        return
    if isinstance(value, list):
        for item in value[:_MAX_ITEMS]:
            _collect(item, body, depth - 1)
    elif isinstance(value, str):
        inner = _decoded(value)
        if inner is not None:
            _collect(inner, body, depth - 1)
        elif value.strip():
            body.texts.append(value)
    elif isinstance(value, Mapping):
        for key in _TEXT_KEYS:
            if isinstance(text := value.get(key), str):
                _collect(text, body, depth - 1)
        for item in map(value.get, _CODE_KEYS):
            if isinstance(item, int | str) and not isinstance(item, bool):
                code = str(item)[:80].strip().lower()
                if len(body.codes) < _MAX_ITEMS:
                    body.codes.append(code)
                if not body.status and regex(r"[45][0-9]{2}").fullmatch(code):
                    body.status = int(code)
        body.waits += [value[key] for key in _WAIT_KEYS if value.get(key) is not None]
        for key in _NESTED_KEYS:
            _collect(value.get(key), body, depth - 1)


_MAX_WAIT_S = 31 * 86_400.0
_EPOCH_S = 1_000_000_000
"""Larger numbers are points in time, not durations."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SPAN = r"(?:\d{1,9}(?:\.\d{1,12})?(?:ms|[smhd]))+"


def find_wait(headers: Mapping[str, str], body: ErrorBody, now: float) -> float | None:
    """Seconds to wait according to the headers or the body; None if they do not say."""
    texts = [f"{headers.get('retry-after-ms', '').strip()}ms", headers.get("retry-after", "")]
    phrase = regex(rf"(?:try again|retry|reset) (?:in|after) ({_SPAN}|\d{{1,9}}(?:\.\d+)?)")
    found = phrase.search(body.search)
    texts += [*map(str, body.waits), found[1] if found else ""]
    # Wait until the last of the exhausted limits is reset.
    resets = [
        _moment(headers.get(reset, ""), now)
        for what in ("requests", "tokens", "input-tokens", "output-tokens")
        for left, reset in (
            (f"x-ratelimit-remaining-{what}", f"x-ratelimit-reset-{what}"),
            (f"anthropic-ratelimit-{what}-remaining", f"anthropic-ratelimit-{what}-reset"),
        )
        if headers.get(left, "").strip() == "0"
    ]
    last = max((reset for reset in resets if reset is not None), default=None)
    names = ("anthropic-ratelimit-unified-reset", "x-ratelimit-reset", "ratelimit-reset")
    waits = [
        *(_moment(text, now) for text in texts),
        last,
        *(_moment(headers.get(name, ""), now) for name in names),
    ]
    wait = next((each for each in waits if each is not None and math.isfinite(each)), None)
    return None if wait is None else min(max(0.0, wait), _MAX_WAIT_S)


def _moment(text: str, now: float) -> float | None:
    """Seconds from now, given a number, a duration (`6m0s`), a timestamp or a date."""
    text = text.strip()[:64]
    if regex(r"\d{1,15}(?:\.\d{1,12})?").fullmatch(text):
        number = float(text)
        if number >= _EPOCH_S * 1_000:
            return number / 1_000 - now
        return number - now if number >= _EPOCH_S else number
    if regex(_SPAN).fullmatch(text):
        spans = re.findall(r"([\d.]+)(ms|[smhd])", text)
        return sum(float(number) * _UNITS[unit] for number, unit in spans)
    if len(text) < len("2025-01-01"):
        return None
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    try:
        when = datetime.fromisoformat(text) if text[:4].isdigit() else parsedate_to_datetime(text)
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return when.timestamp() - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
