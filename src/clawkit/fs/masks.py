"""Secrets in files: masking them, refusing to write masks back, and finding the values of `.env`
files that are masked in the output of commands."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from msgspec import Struct

from clawkit.errors import ToolInputError
from clawkit.redact import MASK, Redactor, is_secret_name, is_secret_setting
from clawkit.redact.masking import conceal
from clawkit.text import regex

MAX_REPORTED = 5
_LOOK = 64
"""Characters before a mask that are searched for its name."""

# `***`, or both ends of a long secret around an ellipsis.
_MASK = r"(?<!\*)\*{3}(?!\*)|.{6}…(?:\*{3}|.{4})"
_KEY = r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)([^-]*+(?>(?:-(?!----)[^-]*+)*))"
_ENV_NAME = (
    r"\.(?:env|envrc|flaskenv)(?:\d*|[._~-].*)"
    r"|.+\.(?:env|envrc)(?:~|\.(?:bak|old|orig|save|local))?"
)
_SETTING = r"(?P<head>\s*(?:export\s+)?(?P<name>[\w.-]+)\s*[=:]\s*)(?P<value>.*)"
_SHORT_NAME = r"(?i)(?:\A|_)(?:key|pin|pwd|pass|auth|signing|salt|cert|dsn)(?:_|\Z)"
"""Words that mean a secret in a `.env` file, but not elsewhere."""
_QUOTES = ("'", '"', "`")
_MIN_SECRET = 8
"""Minimum length of a value that is masked everywhere: shorter ones may be ordinary words."""
_VALUE_END = r"[\"'`,;\s})\]]|\Z"
_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_SIGNS = " \t\r\n\"'`=:>@(){}[],;|"

_FRESH_S = 30.0
"""How long the result of a search is used."""
_MAX_ENTRIES = 20_000
_MAX_BYTES = 256 * 1024
_SKIPPED = frozenset(("node_modules", ".git", ".venv", "venv", "site-packages", "__pycache__"))


class Masked(Struct, frozen=True):
    """A mask in place of a secret."""

    mask: str
    name: str
    """The name of the secret, if known."""
    line: int


_Sighting = tuple[str, str]
"""A mask in a text, and the text before it. That is empty for a mask with both ends of a secret,
which is recognizable by itself, unlike asterisks."""


def is_env_file(path: str) -> bool:
    """Whether a file is named like a `.env` file, whose values are mostly secrets: `.env`,
    `.env.local`, `prod.env`, `.envrc`."""
    return regex(_ENV_NAME).fullmatch(os.path.basename(path).casefold()) is not None


def mask_env(text: str, redactor: Redactor) -> str:
    """Mask a whole `.env` file, keeping its lines: the values of secret-looking names, also if they
    have several words or lines."""
    lines = text.split("\n")
    closing = ""
    for at, line in enumerate(lines):
        if closing:
            lines[at] = MASK
            closing = "" if closing in line else closing
        elif (setting := _read_secret(line)) is not None:
            value = setting["value"].rstrip()
            if value[:1] in _QUOTES and value[:1] not in value[1:]:
                closing = value[:1]
            if closing or re.search(r"\s", value) or not is_secret_name(setting["name"]):
                lines[at] = setting["head"] + (MASK if closing else conceal(value))
    return redactor.strict("\n".join(lines))


def secret_values(text: str) -> list[str]:
    """The values of secret-looking names in a `.env` file, without quotes, that are long enough to
    be masked everywhere."""
    found = []
    for setting in filter(None, map(_read_secret, text.split("\n"))):
        value = setting["value"].strip()
        if value[:1] in _QUOTES and (end := value.find(value[:1], 1)) > 0:
            value = value[1:end]
        else:
            value = value.partition(" #")[0].strip()
        if len(value) >= _MIN_SECRET and not value.startswith("$"):
            found.append(value)
    return found


def _read_secret(line: str) -> re.Match[str] | None:
    setting = re.match(_SETTING, line)
    if setting is None:
        return None
    name = setting["name"]
    is_secret = is_secret_setting(name) or re.search(_SHORT_NAME, name) is not None
    return setting if is_secret else None


def mask_settings(text: str) -> str:
    """Mask all values in a part of a `.env` file, which may start in the middle of a value."""

    def mask(line: str) -> str:
        setting = re.match(_SETTING, line)
        if setting is not None:
            return setting["head"] + (MASK if setting["value"].strip() else "")
        return line if not line.strip() or line.lstrip().startswith("#") else MASK

    return "\n".join(map(mask, text.split("\n")))


def hide_keys(text: str, start: int = 0, end: int | None = None) -> str:
    """Mask the bodies of private keys, keeping all lines; of a part of the text, if the start of a
    line and the end of one are given."""
    # A header is one line, and the next dashes end its body: no other line above matters.
    dashes = text.rfind("-----", 0, start)
    top = text.rfind("\n", 0, dashes) + 1 if dashes >= 0 else start
    part = text[top:end]
    if "PRIVATE KEY" in part:
        part = re.sub(_KEY, lambda key: key[1] + re.sub(r"\S+", MASK, key[2]), part)
    return part.split("\n", text.count("\n", top, start))[-1]


def may_have_masks(text: str) -> bool:
    """A cheap test before `find_masks`, which redacts the whole text."""
    return MASK in text or "…" in text


def first_mask(text: str) -> str:
    """The first text that looks like a mask; empty if there is none."""
    found = re.search(_MASK, text) if may_have_masks(text) else None
    return found[0] if found else ""


def find_masks(
    before: str | None, after: str, redactor: Redactor, *, env: bool = False
) -> list[Masked]:
    """The masks in `after` that were copied from the redacted `before`.

    These are masks that redacting `before` creates and that it does not contain itself. Masks with
    both ends of a secret are also found as the value of a secret-looking name. Asterisks in prose
    are not reported.
    """
    literal: frozenset[_Sighting] = frozenset()
    made: frozenset[_Sighting] = frozenset()
    if before is not None:
        literal = frozenset(each for each, _ in _sightings(before))
        shown = {redactor.text(before), *([mask_env(before, redactor)] if env else [])}
        made = frozenset(each for text in shown for each, _ in _sightings(text)) - literal
    # A model that saw masks in this file may write them in another form, or after another name.
    fields = bool(made)
    found: list[Masked] = []
    line, done = 1, 0
    for sighting, match in _sightings(after):
        if sighting in literal:
            continue
        in_field = (fields or match[0] != MASK) and _is_field(after, match)
        if in_field or sighting in made:
            line += after.count("\n", done, match.start())
            done = match.start()
            name, sign = _name_before(after, done)
            found.append(Masked(match[0], name if sign else "", line))
            if len(found) == MAX_REPORTED:
                break
    return found


async def refuse_masks(
    before: str | None, after: str, redactor: Redactor, *, path: str, env: bool
) -> None:
    """Raises `ToolInputError` if `after` contains masks instead of secrets. May take seconds for a
    large file."""
    if not may_have_masks(after):
        return
    from clawkit.core.tasks import in_thread  # imports asyncio: not needed to describe a tool

    found: list[Masked] = await in_thread(find_masks, before, after, redactor, env=env)
    if not found:
        return
    places = ", ".join(
        f"line {each.line} ({each.mask!r}{f' for {each.name!r}' if each.name else ''})"
        for each in found
    )
    raise ToolInputError(
        f"{path!r} would get masks in place of secrets: {places}. Secrets are shown masked, and "
        "writing the mask would destroy them; nothing was written. Use edit to change only other "
        "parts"
    )


def _sightings(text: str) -> Iterator[tuple[_Sighting, re.Match[str]]]:
    for match in re.finditer(_MASK, text):
        lead = "".join(_name_before(text, match.start())) if match[0] == MASK else ""
        yield (match[0], lead), match


def _name_before(text: str, end: int) -> tuple[str, str]:
    """The name of the value at `end`, and the sign between them."""
    window = text[max(0, end - _LOOK) : end]
    bare = window.rstrip(_SIGNS)
    sign = "".join(window[len(bare) :].replace('"', "").replace("'", "").split())
    return bare[len(bare.rstrip(_NAME_CHARS)) :], sign


def _is_field(text: str, match: re.Match[str]) -> bool:
    """Whether a mask is the whole value of a secret-looking name."""
    if re.compile(_VALUE_END).match(text, match.end()) is None:
        return False
    name, sign = _name_before(text, match.start())
    return sign.endswith(("=", ":", "=>")) and is_secret_name(name)


class EnvSecrets:
    """Searches a workspace for secrets and passes them to `learn`, so that they are masked."""

    def __init__(self, workspace: str, learn: Callable[[Iterable[str]], None]) -> None:
        self._workspace = workspace
        self._learn = learn
        self._looked = -_FRESH_S

    async def refresh(self) -> None:
        """Search for secrets, unless that was done recently."""
        from clawkit.core.tasks import in_thread

        now = time.monotonic()
        if now - self._looked >= _FRESH_S:
            self._looked = now
            self._learn(await in_thread(find_secrets, self._workspace))


def find_secrets(workspace: str) -> list[str]:
    """The `secret_values` of all `.env` files below a directory. Links are not followed, and in a
    very large workspace only the upper levels are searched. Blocks."""
    return [value for path in _find_files(workspace) for value in _read_secrets(path)]


def _find_files(workspace: str) -> Iterator[str]:
    todo, seen = deque([workspace]), 0
    while todo and seen < _MAX_ENTRIES:
        with suppress(OSError), os.scandir(todo.popleft()) as entries:
            for entry in entries:
                seen += 1
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _SKIPPED:
                        todo.append(entry.path)
                elif is_env_file(entry.name):
                    yield entry.path


def _read_secrets(path: str) -> Iterable[str]:
    # The path may be a pipe by now, on which opening would block.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError), open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return secret_values(file.read(_MAX_BYTES).decode("utf-8", "replace"))
    return ()
