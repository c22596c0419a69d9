"""The environment of commands: what they get of clawkit's own, and what a call may add."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.process.blocked import (
    INHERITED,
    OWN,
    PAGERS,
    PROXIES,
    is_inherited,
    why_blocked,
    why_refused,
)
from clawkit.redact import Redactor, is_secret_name
from clawkit.text import human_size, one_line

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

MAX_VARIABLES = 256
MAX_BYTES = 128 * 1024
"""Of one variable, with its name: the kernel starts no program with a longer one."""
MAX_TOTAL_BYTES = 512 * 1024

_MAX_SHOWN = 64
_PROTOCOLS = ("git", "http", "https", "ssh")

# Credentials that are not named like one elsewhere: in a program, `key` is often no secret.
_CREDENTIAL = (
    r"(?:\w+_)?(?:AUTH|CONNECTION_?STRING|CREDS?|DSN|KEYS?|PASS|PASSWORDS|SECRETS|TOKENS"
    r"|WEBHOOKS?|WEBHOOK_URL)"
)
# What everyone on the machine can know; a secret that happens to be part of it is not worth losing
# the home directory for.
_PUBLIC = ("HOME", "LOGNAME", "PATH", "USER")


def inherited(
    environ: Mapping[str, str], *, keep: Iterable[str] = (), secrets: Iterable[str] = ()
) -> dict[str, str]:
    """What commands get of an environment: nothing that steers programs, no credentials.

    `keep` are names that are passed on although they look like credentials; `secrets` are values
    that are not passed on under any other name.
    """
    kept = frozenset(keep)
    redactor = Redactor(secrets)
    return {
        name: _tame(name, value)
        for name, value in environ.items()
        if _is_name(name)
        and not why_blocked(name)
        and (name in kept or (_may_pass(name) and _is_open(name, value, redactor)))
    }


def _is_name(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None


def _may_pass(name: str) -> bool:
    """Whether a variable is passed on, as far as its name tells."""
    plain = name.upper()
    if plain in INHERITED:
        return True
    if plain in OWN or (why_refused(plain) and not is_inherited(plain)):
        return False
    return not is_secret_name(name) and re.fullmatch(_CREDENTIAL, plain) is None


def _is_open(name: str, value: str, redactor: Redactor) -> bool:
    """Whether a value holds no secret. Without a proxy's password there would be no network."""
    return name.upper() in PROXIES or name in _PUBLIC or redactor.text(value) == value


def _tame(name: str, value: str) -> str:
    """The value as it is passed on: git fetches over the usual protocols only."""
    match name.upper():
        case "GIT_ALLOW_PROTOCOL":
            # May become empty, which allows none: whoever allowed others did not allow these.
            return ":".join(word for word in value.split(":") if word in _PROTOCOLS)
        case "GIT_PROTOCOL_FROM_USER":
            return "0"
    return value


def check_overrides(given: Mapping[str, str]) -> dict[str, str]:
    """The variables of a call as they may be set.

    Raises `ToolAuthorizationError` for those that steer programs, `ToolInputError` for what cannot
    be a variable.
    """
    if len(given) > MAX_VARIABLES:
        raise ToolInputError(f"env has {len(given)} variables; {MAX_VARIABLES} is the most")
    total = sum(_size(name, value) for name, value in given.items())
    if total > MAX_TOTAL_BYTES:
        most = human_size(MAX_TOTAL_BYTES)
        raise ToolInputError(f"env has {human_size(total)}; {most} is the most. Use a file")
    accepted = {name: _without_pager(name, value) for name, value in given.items()}
    refused = [
        f"{_shown(name)} ({why})"
        for name in given
        if (why := why_refused(name)) and not (name.upper() in PAGERS and not accepted[name])
    ]
    if refused:
        hint = "leave them out of env" if len(refused) > 1 else "leave it out of env"
        if any(name.upper() == "PATH" for name in given):
            hint += "; to run a program from elsewhere use its absolute path, or have its "
            hint += "directory added to tools.exec.pathPrepend"
        raise ToolAuthorizationError(
            f"Not to be set for a command: {', '.join(refused)}. Nothing was run; {hint}",
            reason="environment",
        )
    return accepted


def _size(name: str, value: str) -> int:
    """The bytes a variable takes. Raises `ToolInputError` if it cannot be one."""
    if not _is_name(name):
        raise ToolInputError(
            f"env has a variable {json.dumps(name[:_MAX_SHOWN])}; a name has letters from A to Z, "
            "digits and _, and does not begin with a digit"
        )
    if "\0" in value:
        raise ToolInputError(f"The value of {_shown(name)} in env has a NUL character; remove it")
    try:
        size = len(name) + len(value.encode("utf-8", "surrogateescape")) + 2
    except UnicodeEncodeError:
        raise ToolInputError(
            f"The value of {_shown(name)} in env has half of a character; send whole ones"
        ) from None
    if size > MAX_BYTES:
        raise ToolInputError(
            f"{_shown(name)} in env has {human_size(size)}; {human_size(MAX_BYTES)} is the most. "
            "Use a file"
        )
    return size


def _without_pager(name: str, value: str) -> str:
    return "" if name.upper() in PAGERS and value == "cat" else value


def _shown(name: str) -> str:
    return one_line(name, _MAX_SHOWN)


def join_path(own: str, login: str, prepend: Sequence[str]) -> str:
    """One PATH: the directories put in front, what only clawkit's own has, the login shell's.

    Only absolute ones: others, and empty ones, would find programs wherever a command runs.
    """
    from_login = list(absolute_dirs(login))
    known = {_bare(folder) for folder in from_login}
    from_own = [folder for folder in absolute_dirs(own) if _bare(folder) not in known]
    in_front = [folder for entry in prepend for folder in absolute_dirs(entry)]
    joined: dict[str, str] = {}
    for folder in (*in_front, *from_own, *from_login):
        joined.setdefault(_bare(folder), folder)
    return ":".join(joined.values()) or DEFAULT_PATH


def absolute_dirs(path: str) -> Iterator[str]:
    """The directories of a PATH that are absolute."""
    for folder in path.split(":"):
        if folder.startswith("/") and "\0" not in folder and "\n" not in folder:
            yield folder


def _bare(folder: str) -> str:
    return folder.rstrip("/") or "/"


def build(
    base: Mapping[str, str], given: Mapping[str, str], *, path: str, extra: Mapping[str, str]
) -> dict[str, str]:
    """All variables of one command; `extra` are clawkit's own, which nothing replaces."""
    return {**base, **given, "PATH": path, **extra}
