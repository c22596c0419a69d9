"""Secrets known by what stands before them: a parameter, a flag, a header, an assignment."""

from __future__ import annotations

import re
from collections.abc import Callable

from clawkit.redact.masking import MASK, is_stand_in, mask, regex
from clawkit.redact.names import is_secret_name

Span = tuple[int, int, str]
"""Where a value begins and ends, and what to put in its place."""

# What comes before a value, plain assignments apart. The search skips to one of a few characters
# that are rare in prose and in code; only there does it look around.
_LEAD = r"""(?x)[=\-BbKkZz](?:
    (?<=(?i:ken|ret|ord|swd|ase|key|pwd|ass|sig|ure|uth|jwt|ial|als|ion|rer|cvv|cvc)=)(?P<param>)
  | (?<=-)(?<![A-Za-z0-9_\-].)(?:-(?P<flag>[A-Za-z0-9][A-Za-z0-9_\-]{0,60}+)(?:=|[ \t]{1,4})
                                |(?P<user>u)[ \t]{0,4}
                                |(?<=(?i:sshpass)[ \t]-)(?P<sshpass>p)[ \t]{0,4})
  | (?:(?<=-)(?i:auth|key|password|secret|token) | (?<=(?i:authoriz))(?i:ation)
      |(?<=(?i:cook))(?i:ie) | (?<=(?i:accessk|ccess_k|ccountk|count_k))(?i:ey)
    )(?P<header>(?:\\?["'`])?[ \t]{0,4}[:=])
  | (?<=[Bb])(?<![A-Za-z0-9_].)(?P<bearer>(?i:earer)[ \t]{1,4})
)"""
_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
# A first parameter is one only if others follow; elsewhere `name=value` is an assignment.
_MORE_PARAMS = r"[^\s&\"'<>]{1,128}&[A-Za-z0-9_.\-]{1,60}="
# A name and the sign that gives it a value.
_NAMED = r"[^A-Za-z0-9_.\-]([A-Za-z_][A-Za-z0-9_.\-]{0,120}+)(?:\\?[\"'`])?[ \t]{0,4}(?::=|=>|[:=])"

# Values, each the last group of its expression. They are looked at this far; what goes on longer is
# masked to its end.
_LOOK = 4_096
_MORE = r"[^\s\"'`]*"
_DIGIT = r"(?=[^\s\"'`<>\\,;&#0-9]{0,64}[0-9])"
_GAP = r"[ \t]{0,4}(?:\\?[\"'`])?"
_QUOTED = r"\\?([\"'`])((?:(?!\\?\1)[^\r\n]){1,4096})"

_QUERY_VALUE = r"([^\s\"'`<>\\&#]{1,4096})"
_RANDOM_VALUE = _DIGIT + r"([^\s\"'`<>\\&#]{12,4096})"
_FLAG_VALUE = rf"(?:{_QUOTED}|([^\s\"'`]{{1,4096}}))"
_USER_VALUE = r"[\"']?[^\s:\"'/]{1,64}:([^\s\"'`]{1,4096})"
_BEARER_VALUE = _DIGIT + r"([A-Za-z0-9._~+/=\-]{18,4096})"
_HEADER_VALUE = _GAP + r"([^\s\"'`<>\\,;]{6,4096})"
_SCHEME_THEN = _GAP + r"(?:([A-Za-z][A-Za-z0-9_\-]{1,30})[ \t]{1,4})?"
_AUTH_VALUE = _SCHEME_THEN + r"([^\s\"'`<>\\,;]{6,4096}|\*{3})"
_AUTH_RANDOM_VALUE = _SCHEME_THEN + _DIGIT + r"([^\s\"'`<>\\,;]{6,4096})"
# It begins with a name: after the quote that closes `"Cookie:"` comes a comma, a sign or nothing.
_COOKIE_VALUE = _GAP + r"((?=[\w!#$%&*.^|~\-][^=\r\n\"'`]{0,199}=)[^\r\n\"'`\\]{3,4096})"
_FIELD_VALUE = rf"[ \t]{{0,4}}\[?[ \t]{{0,4}}(?:{_QUOTED}|([^\s\x00\"'`]{{1,4096}}))"
_CLOUD_VALUE = _GAP + r"([A-Za-z0-9/+]{40,88}={0,2})(?![A-Za-z0-9/+])"

_SHORT_NAME = r"(?i:pass|pwd)"
_RANDOM_NAME = r"(?i:key|auth|sig|signature|x-amz-signature|x-goog-signature)"
_CLOUD_NAME = r"(?i:.*(?:secret_?access_?key|account_?key|shared_?access_?key))"
_SCHEME = r"(?i:apikey|basic|bearer|bot|digest|key|negotiate|splunk|token)"
# Words that follow a flag's name in help texts.
_PROSE = (
    r"(?i:an?|and|are|argument|as|can|flags?|for|from|has|if|in|instead|is|it|may|must|not|of|on"
    r"|options?|or|parameter|prompts|required|set|should|string|text|the|this|to|token|used|value"
    r"|was|when|will|with)"
)


def mask_values(text: str, *, assignments: bool) -> str:
    """Mask the values of secret parameters, flags and headers, and of assignments if asked."""
    text = _mask_found(regex(_LEAD), text, _lead_value)
    # The line end stands for the beginning of the text, where a name may begin.
    return _mask_found(regex(_NAMED), f"\n{text}", _assigned_value)[1:] if assignments else text


def _mask_found(
    lead: re.Pattern[str], text: str, find: Callable[[str, re.Match[str]], Span | None]
) -> str:
    """Mask the value after each match of `lead`, as far as `find` says that there is one."""
    parts: list[str] = []
    done = at = 0
    while match := lead.search(text, at):
        # The last character of one lead can be the first of the next.
        at = max(match.end() - 1, match.start() + 1)
        if (span := find(text, match)) is not None:
            start, at, shown = span
            parts += (text[done:start], shown)
            done = at
    return "".join((*parts, text[done:])) if parts else text


def _lead_value(text: str, lead: re.Match[str]) -> Span | None:
    match lead.lastgroup:
        case "param":
            return _param_value(text, lead)
        case "flag":
            return _flag_value(text, lead, lead["flag"])
        case "user":
            return _user_value(text, lead)
        case "sshpass":
            return _flag_value(text, lead, "password")
        case "header":
            return _header_value(text, lead, _name_before(text, lead.end())[1])
        case _:
            return _span(_BEARER_VALUE, text, lead)


def _name_before(text: str, end: int) -> tuple[str, str]:
    """The name whose value begins at `end`, and the character before the name."""
    before = text[max(0, end - 80) : end].rstrip(" \t:=\\\"'`")
    rest = before.rstrip(_NAME_CHARS)
    return rest[-1:], before[len(rest) :]


def _param_value(text: str, lead: re.Match[str]) -> Span | None:
    before, name = _name_before(text, lead.end())
    begins = before in ("?", "&", ";", "#", '"', "'", "`")
    if not begins and not regex(_MORE_PARAMS).match(text, lead.end()):
        npmrc = before == ":" and name in ("_auth", "_authToken", "_password")
        return _span(_QUERY_VALUE, text, lead) if npmrc else None
    if begins and regex(_RANDOM_NAME).fullmatch(name):
        return _span(_RANDOM_VALUE, text, lead)
    if not is_secret_name(name) and not regex(_SHORT_NAME).fullmatch(name):
        return None
    return _span(_QUERY_VALUE, text, lead, show="pass" not in name.lower())


def _flag_value(text: str, lead: re.Match[str], name: str) -> Span | None:
    if name.lower() in ("user", "proxy-user"):
        return _user_value(text, lead)
    if not is_secret_name(name) and not regex(_SHORT_NAME).fullmatch(name):
        return None
    span = _span(_FLAG_VALUE, text, lead, show="pass" not in name.lower())
    return None if span is not None and _is_help(name, text, span) else span


def _user_value(text: str, lead: re.Match[str]) -> Span | None:
    # Other programs than curl use -u for other things.
    is_curl = "curl" in text[max(0, lead.start() - 400) : lead.start()]
    return _span(_USER_VALUE, text, lead, show=False) if is_curl else None


def _is_help(flag: str, text: str, span: Span) -> bool:
    """Whether what follows a flag is no value: `--token TOKEN`, `--token is required`."""
    value = text[span[0] : span[1]]
    word = value.strip(".,;:()[]")
    if word.isupper() and word.lower().replace("_", "-") in flag.lower():
        return True
    apart = text[span[0] - 1] in " \t"
    return apart and (value[0] in "-[" or regex(_PROSE).fullmatch(word) is not None)


def _header_value(text: str, lead: re.Match[str], name: str) -> Span | None:
    if regex(_CLOUD_NAME).fullmatch(name):
        return _span(_CLOUD_VALUE, text, lead)
    if lead[0][-1] != ":" or "_" in name or not is_secret_name(name):
        return None
    if name.lower().endswith(("authorization", "cookie")):
        return _auth_or_cookie(text, lead, name, strict=False)
    return _span(_HEADER_VALUE, text, lead)


def _assigned_value(text: str, lead: re.Match[str]) -> Span | None:
    name = lead[1]
    if not is_secret_name(name):
        return None
    if name.lower().endswith(("authorization", "cookie")):
        return _auth_or_cookie(text, lead, name, strict=True)
    return _span(_FIELD_VALUE, text, lead, show=False)


def _auth_or_cookie(text: str, lead: re.Match[str], name: str, *, strict: bool) -> Span | None:
    if name.lower().endswith("cookie"):
        return _span(_COOKIE_VALUE, text, lead, show=False)
    found = regex(_AUTH_VALUE).match(text, lead.end())
    known = found is not None and found[1] and regex(_SCHEME).fullmatch(found[1])
    return _span(_AUTH_VALUE if known or strict else _AUTH_RANDOM_VALUE, text, lead)


def _span(value: str, text: str, lead: re.Match[str], *, show: bool = True) -> Span | None:
    """The value after a lead, if there is one. `show` lets the ends of a long one be seen."""
    found = regex(value).match(text, lead.end())
    if found is None or found.lastindex is None or is_stand_in(found[found.lastindex]):
        return None
    start, end = found.span(found.lastindex)
    if end - start == _LOOK:
        more = regex(_MORE).match(text, end)
        end = more.end() if more is not None else end
    return start, end, mask(text[start:end]) if show else MASK
