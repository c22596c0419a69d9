"""Detects secrets by name, shape or preceding text, and masks them."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from clawkit.text import regex

MASK = "***"

# Values in the place of a secret: $NAME, ${NAME}, $(command, ${{ name }}, {name}, {{ name }}, %s,
# %(name)s, %NAME%, dots, and the results of masking.
_PLACEHOLDER = (
    r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_][\w.]*\}?|\([\w./ -]*\)?|\{\{[\w. ]*\}{0,2}|[0-9@*#?!$])"
    r"[,;.)\]}]?|(?:\$\{[A-Za-z_]\w*\}){2,8}"
    r"|\{[\w.:!\[\]]*\}[,;.)\]]?|\{\{[^{}]{0,80}(?:\}\})?|\{(?:[A-Za-z]+:)?|\[|%\(?\w*\)?[sdrq]"
    r"|%\w+%|\.{2,}|\*+"
    r"|(?:\*\*\*|.{6}….{4})(?:[&,;)\]}].*)?"
    r"|(?i:null|none|nil|true|false|undefined)[,;.)\]}]*"
)


def mask(value: str) -> str:
    """The masked form of a secret. Long ones keep their ends, to tell them apart."""
    return MASK if len(value) < 18 else f"{value[:6]}…{value[-4:]}"


def is_placeholder(value: str) -> bool:
    """Whether a value is a reference, a placeholder or a mask rather than a secret."""
    return regex(_PLACEHOLDER).fullmatch(value) is not None


def mask_unless_placeholder(value: str) -> str:
    return value if not value or is_placeholder(value) else mask(value)


def conceal(value: str) -> str:
    """Hide a secret of unknown shape completely."""
    return value if not value or is_placeholder(value) else MASK


def mask_group(match: re.Match[str], hide: Callable[[str], str] = conceal) -> str:
    """For `re.sub`: the match with its last group, or all of it, hidden."""
    group = match.lastindex or 0
    start, end = match.span(group)
    before, after = match.string[match.start() : start], match.string[end : match.end()]
    return f"{before}{hide(match[group])}{after}"


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WORDS = _set("creds credential credentials jwt bearer cookie cvv cvc")
_ENDINGS = tuple(
    _set(
        "token secret passwd password passphrase authorization apikey secretkey privatekey"
        " accesskey accountkey"
    )
)
# What kind of key is secret: `private_key` is, `primary_key` and `sessionKey` are not.
_KEY_OF = _set(
    "access account admin api auth deploy encrypt encryption functions master private recovery"
    " secret service shared signing ssh storage subscription"
)
# Tokens that are pagination cursors or vocabulary marks.
_PLACE = _set(
    "bos cls continuation cursor end eos first last mask next page pad resume sep special start"
    " stop sync unk"
)
# Passwords and logins in configuration; in programs often a function, a path or a mode.
_SHORT_NAME_WORDS = _set("auth cred pass pwd")
_TRAILER = _set("base base64 current dev live new old plain prod raw staging test value")


_CREDENTIAL_HEADER = r"(?i)auth|cookie|cred|key|pass|secret|session|sig|token"
_PLAIN_HEADER = r"(?i)accept(?:-[a-z]+)?|content-type|user-agent|anthropic-(?:beta|version)"
_TOKEN_CHARS = 16


def is_secret_name(name: str) -> bool:
    """Whether something with this name holds a secret: `apiKey`, `DB_PASSWORD`, `X-Auth-Token`."""
    return _is_secret_name(name[-128:])


def is_secret_setting(name: str) -> bool:
    """Whether a configuration value with this name may be a secret: `pass`, `smtpAuth`."""
    return is_secret_name(name) or _last_words(name[-128:])[1] in _SHORT_NAME_WORDS


def header_secrets(headers: Mapping[str, str]) -> Iterator[str]:
    """The values of headers that may be credentials, with and without a word such as `Bearer`: by
    the name or, unless that never names one, every long word."""
    for name, value in headers.items():
        words = value.split()
        if regex(_CREDENTIAL_HEADER).search(name) or is_secret_setting(name):
            yield from (value, *words[-1:])
        elif not regex(_PLAIN_HEADER).fullmatch(name):
            yield from (word for word in words if len(word) >= _TOKEN_CHARS)


@lru_cache(maxsize=4096)
def _is_secret_name(name: str) -> bool:
    previous, last = _last_words(name)
    if last == "key":
        return previous in _KEY_OF
    if last == "token":
        return previous not in _PLACE
    if last == "pwd":
        return previous not in ("", "old")
    is_card = (previous, last) == ("card", "number")
    return is_card or last in _WORDS or last.endswith(_ENDINGS)


def _last_words(name: str) -> tuple[str, str]:
    """The last two words of a name in lower case, without trailing numbers and qualifiers."""
    spaced = regex(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])").sub("_", name)
    words = [word for word in regex(r"[^a-z0-9]+").split(spaced.lower()) if word]
    while len(words) > 1 and (words[-1] in _TRAILER or words[-1].isdigit()):
        words.pop()
    previous, last = ["", "", *words][-2:]
    return previous, last.rstrip("0123456789")


_W = r"[A-Za-z0-9_\-]"

# Text long enough to contain a token. It includes the preceding character, so that the search
# considers only the starts of words; every text goes through this expression.
_RUN = r"[^A-Za-z0-9_.\-+/:][A-Za-z0-9_.\-+/:]{16,}+"

_VENDOR = rf"""(?x)(?<![A-Za-z0-9])(?:
    sk-{_W}{{16,}}                                                  # OpenAI, Anthropic and others
  | [sr]k_(?:live|test)_{_W}{{16,}} | whsec_[A-Za-z0-9+/]{{20,}}    # Stripe
  | gh[pousr]_[A-Za-z0-9]{{20,}} | github_pat_\w{{20,}}
  | gl(?:pat|dt|rtr?|cbt|ptt|ft|imt|agent|soat|ffct|oas|wt)-[A-Za-z0-9_.\-]{{16,}}
  | GR1348941{_W}{{16,}}                                            # GitLab runners
  | gl(?:sa|c)_\w{{20,}}                                            # Grafana
  | xox[a-z]-{_W}{{10,}} | x(?:app|wfp)-{_W}{{10,}} | xai-{_W}{{16,}}
  | hooks\.slack\.com/(?:services|workflows|triggers)/[\w/]{{16,}}
  | discord(?:app)?\.com/api/(?:v\d{{1,2}}/)?webhooks/\d{{6,20}}/{_W}{{20,}}
  | [MNO]{_W}{{22,27}}\.{_W}{{6}}\.{_W}{{27,}}                      # Discord bots
  | (?:bot)?\d{{8,10}}:AA{_W}{{30,}}                                # Telegram bots
  | AIza{_W}{{30,}} | ya29\.{_W}{{16,}} | 1//0{_W}{{20,}} | GOCSPX-{_W}{{16,}}    # Google
  | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}(?![A-Za-z0-9])            # AWS
  | AKID[A-Za-z0-9]{{13,}} | LTAI[A-Za-z0-9]{{12,}}                 # Tencent, Alibaba
  | (?<![_\-])eyJ{_W}{{8,}}+\.{_W}*+\.{_W}{{8,}}(?:\.{_W}+){{0,2}}  # JSON web tokens
  | (?:gsk|hf|r8|fw|exa|fal|sbp|nfp|ntn|vcp)_[A-Za-z0-9]{{20,}}
  | fal_{_W}{{30,}} | npm_[A-Za-z0-9]{{30,}} | pypi-Ag{_W}{{16,}} | rubygems_[a-f0-9]{{32,}}
  | SG\.{_W}{{16,64}}\.{_W}{{16,}}                                  # SendGrid
  | do[opr]_v1_[a-f0-9]{{20,}} | dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.\-]{{20,}}
  | dckr_[po]at_{_W}{{16,}} | dapi[a-f0-9]{{32}}
  | tvly-{_W}{{16,}} | pplx-{_W}{{16,}} | HRKU-{_W}{{16,}} | apify_api_[A-Za-z0-9]{{20,}}
  | AT(?:ATT|CTT)3{_W}{{20,}} | ATBB[A-Za-z0-9]{{20,}}              # Atlassian
  | fm[12]_[A-Za-z0-9_\-+/]{{20,}}                                  # Fly
  | sb_secret_{_W}{{16,}} | shp(?:at|ca|pa|ss)_[A-Za-z0-9]{{20,}} | sntry[su]_{_W}{{20,}}
  | sq0(?:csp|atp)-{_W}{{16,}} | lin_api_[A-Za-z0-9]{{20,}} | (?:PMAK|NRAK)-{_W}{{16,}}
  | pscale_(?:tkn|pw|oauth)_{_W}{{16,}} | hv[sbr]\.{_W}{{20,}} | figd_{_W}{{20,}}
  | tskey-[a-z]{{3,12}}-{_W}{{16,}}                                 # Tailscale
  | AGE-SECRET-KEY-1[A-Z0-9]{{20,}} | SK[0-9a-f]{{32}}(?![A-Za-z0-9])
  | (?<![_\-])key-[0-9a-f]{{32}}(?![A-Za-z0-9])                      # Mailgun
){_W}*+"""

_PEM = r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)([^-]*+(?>(?:-(?!----)[^-]*+)*))"
_PEM_LINE = r"[A-Za-z0-9+/=]{16,}+"

_URL_LOGIN = r"://(?:[^\s/?#:@\"'<>]{0,128}:([^\s/?#\"'<>]{1,4096})@|([^\s/?#:@\"'<>]{20,4096})@)"
_DSN_LOGIN = r"(?<![^\s\"'=])[\w.\-]{1,64}:([^\s\"']{1,256})@(?:tcp|unix)\("
# Written by `docker login`: user and password in base64.
_DOCKER_AUTH = r"\"auth\\?\"[ \t]{0,4}:[ \t]{0,4}\\?\"([A-Za-z0-9+/=]{4,4096})\\?\""
_NETRC = r"\blogin[ \t]+[^\s]{1,128}\s{1,8}password[ \t]+([^\s]+)"


def mask_shapes(text: str) -> str:
    if "PRIVATE KEY" in text:
        text = regex(_PEM).sub(_mask_key, text)
    # The line end stands for the start of the text, where a token may begin.
    text = regex(_RUN).sub(lambda run: regex(_VENDOR).sub(_mask_token, run[0]), f"\n{text}")[1:]
    if "://" in text:
        text = regex(_URL_LOGIN).sub(_mask_login, text)
    if "@tcp(" in text or "@unix(" in text:
        text = regex(_DSN_LOGIN).sub(mask_group, text)
    if '"auth' in text:
        text = regex(_DOCKER_AUTH).sub(
            lambda found: mask_group(found) if is_login(found[1]) else found[0], text
        )
    if "machine " in text:
        text = regex(_NETRC).sub(mask_group, text)
    return text


def _mask_token(token: re.Match[str]) -> str:
    # `sk-learn-contrib-packages`: no vendor issues tokens without a digit or capital.
    if regex(r"[a-z_.\-/:]+").fullmatch(token[0]):
        return token[0]
    # The end of a token, if shown, could form a new one with what follows.
    glued = token.end() < len(token.string)
    return f"{token[0][:6]}…{MASK}" if glued else mask(token[0])


def is_login(value: str) -> bool:
    """Whether it is `user:password` in base64."""
    try:
        user, _, password = binascii.a2b_base64(value, strict_mode=True).decode().partition(":")
    except ValueError:
        return False
    return bool(user and password) and user.isprintable()


def _mask_key(key: re.Match[str]) -> str:
    """Keep the header, to show the kind of secret, and the number of lines. Without an END line,
    only key-like lines are masked."""
    header, body = key.groups()
    if regex(_PEM_LINE).search(body) is None:
        return key[0]
    if key.string.startswith("-----END", key.end()):
        ends = "\n" * body.count("\n")
        return f"{header}{ends[:1]}{MASK}{ends[1:]}"
    return f"{header}{regex(_PEM_LINE).sub(MASK, body)}"


def _mask_login(url: re.Match[str]) -> str:
    password, token = url.groups()
    if password is None and regex(r"[0-9]").search(token) is None:
        return url[0]
    return mask_group(url)


Span = tuple[int, int, str]
"""Start and end of a value, and its replacement."""

# What precedes a value, except plain assignments. The search skips to one of a few characters, and
# looks around only there.
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
_SIGN_LEAD = _LEAD.replace("BbKkZz", "", 1)
# Letters are frequent in prose, so they are examined only if one of these words occurs.
_LETTER_LEADS = _set("bearer cookie authoriz accesskey access_key accountkey account_key")
_ALSO_LETTERS = "\u0130\u0131\u017f\u212a"
"""Characters that a case-insensitive expression matches as i, s or k, but `lower` does not
convert."""
_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
# A first parameter counts only if others follow; otherwise `name=value` is an assignment.
_MORE_PARAMS = r"[^\s&\"'<>]{1,128}&[A-Za-z0-9_.\-]{1,60}="
# A name and the operator after it.
_NAMED = r"[^A-Za-z0-9_.\-]([A-Za-z_][A-Za-z0-9_.\-]{0,120}+)(?:\\?[\"'`])?[ \t]{0,4}(?::=|=>|[:=])"

# Values, each in the last group of its expression. Up to this length they are parsed; longer ones
# are masked to their end.
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
# Must start with a name: after the closing quote of `"Cookie:"` comes a comma, an operator or
# nothing.
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
    """Mask the values of secret parameters, flags and headers, and optionally of assignments."""
    if lead := _find_lead(text):
        text = _mask_found(lead, text, _lead_value)
    # The line end stands for the start of the text, where a name may begin.
    return _mask_found(regex(_NAMED), f"\n{text}", _assigned_value)[1:] if assignments else text


def _find_lead(text: str) -> re.Pattern[str] | None:
    """The expression for leads of values in this text; None if there can be none."""
    small = text.lower()
    if any(word in small for word in _LETTER_LEADS) or (
        not text.isascii() and any(letter in text for letter in _ALSO_LETTERS)
    ):
        return regex(_LEAD)
    return regex(_SIGN_LEAD) if "=" in text or "-" in text else None


def _mask_found(
    lead: re.Pattern[str], text: str, find: Callable[[str, re.Match[str]], Span | None]
) -> str:
    """Mask the value after each match of `lead`, if `find` returns one."""
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
    kind = lead.lastgroup
    if kind == "param":
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
    if kind == "header":
        name = _name_before(text, lead.end())[1]
        if regex(_CLOUD_NAME).fullmatch(name):
            return _span(_CLOUD_VALUE, text, lead)
        if lead[0][-1] != ":" or "_" in name or not is_secret_name(name):
            return None
        if name.lower().endswith(("authorization", "cookie")):
            return _auth_or_cookie(text, lead, name, strict=False)
        return _span(_HEADER_VALUE, text, lead)
    if kind == "bearer":
        return _span(_BEARER_VALUE, text, lead)
    # `-u` of curl, `-p` of sshpass, or a named flag.
    name = lead["flag"] or ("user" if kind == "user" else "password")
    if name.lower() in ("user", "proxy-user"):
        # Programs other than curl use -u differently.
        is_curl = "curl" in text[max(0, lead.start() - 400) : lead.start()]
        return _span(_USER_VALUE, text, lead, show=False) if is_curl else None
    if not is_secret_name(name) and not regex(_SHORT_NAME).fullmatch(name):
        return None
    span = _span(_FLAG_VALUE, text, lead, show="pass" not in name.lower())
    return None if span is not None and _is_help(name, text, span) else span


def _name_before(text: str, end: int) -> tuple[str, str]:
    """The name whose value starts at `end`, and the character before the name."""
    before = text[max(0, end - 80) : end].rstrip(" \t:=\\\"'`")
    rest = before.rstrip(_NAME_CHARS)
    return rest[-1:], before[len(rest) :]


def _is_help(flag: str, text: str, span: Span) -> bool:
    """Whether the text after a flag is not a value: `--token TOKEN`, `--token is required`."""
    value = text[span[0] : span[1]]
    word = value.strip(".,;:()[]")
    if word.isupper() and word.lower().replace("_", "-") in flag.lower():
        return True
    apart = text[span[0] - 1] in " \t"
    return apart and (value[0] in "-[" or regex(_PROSE).fullmatch(word) is not None)


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
    """The value after a lead, if any. With `show`, the ends of a long one stay visible."""
    found = regex(value).match(text, lead.end())
    if found is None or found.lastindex is None or is_placeholder(found[found.lastindex]):
        return None
    start, end = found.span(found.lastindex)
    if end - start == _LOOK:
        more = regex(_MORE).match(text, end)
        end = more.end() if more is not None else end
    return start, end, mask(text[start:end]) if show else MASK
