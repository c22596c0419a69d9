"""Which names hold secrets, and what to show instead of a secret."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache

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


@cache
def regex(pattern: str) -> re.Pattern[str]:
    """Compile an expression when it is first needed."""
    return re.compile(pattern)


def mask(value: str) -> str:
    """A secret as it may be shown. Long ones keep their ends, to tell them apart."""
    return MASK if len(value) < 18 else f"{value[:6]}…{value[-4:]}"


def is_placeholder(value: str) -> bool:
    """Whether a value is a reference, a placeholder or a mask rather than a secret."""
    return regex(_PLACEHOLDER).fullmatch(value) is not None


def mask_unless_placeholder(value: str) -> str:
    return value if not value or is_placeholder(value) else mask(value)


def conceal(value: str) -> str:
    """Hide a secret of unknown shape completely."""
    return value if not value or is_placeholder(value) else MASK


def mask_group(found: re.Match[str], hide: Callable[[str], str] = conceal) -> str:
    """For `re.sub`: the match with its last group, or all of it, hidden."""
    group = found.lastindex or 0
    start, end = found.span(group)
    before, after = found.string[found.start() : start], found.string[end : found.end()]
    return f"{before}{hide(found[group])}{after}"


_WORD = (
    r"secret|passw(?:or)?d|passphrase|authorization|creds|credentials?|jwt|bearer|cookie|cvv|cvc"
    r"|.*(?:token|secret|passw(?:or)?d|passphrase|authorization|apikey|secretkey|privatekey"
    r"|accesskey|accountkey)"
)
# What kind of key is secret: `private_key` is, `primary_key` and `sessionKey` are not.
_KEY_OF = (
    r"access|account|admin|api|auth|deploy|encrypt|encryption|functions|master|private|recovery"
    r"|secret|service|shared|signing|ssh|storage|subscription"
)
# Tokens that are pagination cursors or vocabulary marks.
_PLACE = (
    r"bos|cls|continuation|cursor|end|eos|first|last|mask|next|page|pad|sep|special|start|stop|sync"
    r"|unk"
)
# Passwords and logins in configuration; in programs often a function, a path or a mode.
_SHORT_NAME_WORDS = r"auth|cred|pass|pwd"
_TRAILER = r"base|base64|current|dev|live|new|old|plain|prod|raw|staging|test|value|[0-9]+"


def is_secret_name(name: str) -> bool:
    """Whether something with this name holds a secret: `apiKey`, `DB_PASSWORD`, `X-Auth-Token`."""
    return _is_secret_name(name[-128:])


def is_secret_setting(name: str) -> bool:
    """Whether a configuration value with this name may be a secret: `pass`, `smtpAuth`."""
    return (
        is_secret_name(name)
        or regex(_SHORT_NAME_WORDS).fullmatch(_last_words(name[-128:])[1]) is not None
    )


@lru_cache(maxsize=4096)
def _is_secret_name(name: str) -> bool:
    previous, last = _last_words(name)
    if last == "key":
        return regex(_KEY_OF).fullmatch(previous) is not None
    if last == "token":
        return regex(_PLACE).fullmatch(previous) is None
    if last == "pwd":
        return previous not in ("", "old")
    return (previous, last) == ("card", "number") or regex(_WORD).fullmatch(last) is not None


def _last_words(name: str) -> tuple[str, str]:
    """The last two words of a name in lower case, without trailing numbers and qualifiers."""
    spaced = regex(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])").sub("_", name)
    words = [word for word in regex(r"[^a-z0-9]+").split(spaced.lower()) if word]
    while len(words) > 1 and regex(_TRAILER).fullmatch(words[-1]):
        words.pop()
    previous, last = ["", "", *words][-2:]
    return previous, last.rstrip("0123456789")
