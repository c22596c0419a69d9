"""Binds an approval to what was shown: one of the offered answers, for the same command in the same
directory with the same programs and scripts.

The short time between the last check and the start of the command is not covered.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, Unpack, get_args

from msgspec.structs import asdict

from clawkit.approvals.types import Choice
from clawkit.core.approval import Answer, Lasting, Question
from clawkit.errors import ToolInputError
from clawkit.text import human_size, human_time, one_line

Binding = Mapping[str, Any]
"""JSON-compatible. Contains neither the text of the command nor the environment."""

VERSION = 2
MAX_CONTENT = 64 * 1024**2
MAX_QUESTION = 2 * 1024**2
"""Limit in bytes: no one reads more before approving."""
_CHUNK = 1024**2
_SHOWN = 200
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


class CommandFacts(TypedDict):
    """A command and everything that affects how it runs."""

    command: str
    run: str
    argv: Sequence[Sequence[str]]
    cwd: str
    env: Mapping[str, str]
    programs: Sequence[str]
    scripts: Sequence[str]
    agent: str
    session: str
    modes: NotRequired[Sequence[str]]


def bind(**facts: Unpack[CommandFacts]) -> Binding:
    """The binding of an approval. Raises `ToolInputError` if a file cannot be identified."""
    return _take(facts, os.urandom(16).hex())


def check(binding: Binding, **facts: Unpack[CommandFacts]) -> str:
    """What has changed since the question was asked; empty if nothing."""
    salt = binding.get("salt")
    if binding.get("version") != VERSION or not isinstance(salt, str):
        return "the approval has no record of what was shown"
    try:
        now = _take(facts, salt)
    except ToolInputError as error:
        return str(error)
    for key, words in _CHANGED.items():
        if binding.get(key) != now[key]:
            return words
    for kind in ("programs", "scripts"):
        before = binding.get(kind)
        if not isinstance(before, list) or len(before) != len(now[kind]):
            return f"the {kind} are not those that were shown"
        for old, new in zip(before, now[kind], strict=True):
            if old != new:
                path = one_line(new["path"], _SHOWN)
                return f"the {kind.removesuffix('s')} {path} has changed since it was shown"
    return ""


_CHANGED = {
    "agent": "the answer was given to another agent",
    "session": "the answer was given in another session",
    "modes": "it would run differently than shown (background, detach, pty or input)",
    "command": "the command is not the one that was shown",
    "run": "what the shell would get is not what was shown",
    "argv": "the arguments are not those that were shown",
    "cwd": "the working directory has changed",
    "env": "the environment has changed",
}


def _take(facts: CommandFacts, salt: str) -> dict[str, Any]:
    words = [part for each in facts["argv"] for part in (str(len(each)), *each)]
    pairs = [part for pair in sorted(facts["env"].items()) for part in pair]
    return {
        "version": VERSION,
        "salt": salt,
        "agent": facts["agent"],
        "session": facts["session"],
        "modes": list(facts.get("modes", ())),
        "command": _digest(facts["command"]),
        "run": _digest(facts["run"]),
        "argv": _digest(*words),
        "cwd": _place(facts["cwd"]),
        # Salted, because values may be short secrets: equal ones must not have equal digests.
        "env": _digest(salt, *pairs),
        "programs": [_identify(path, always=False) for path in facts["programs"]],
        "scripts": [_identify(path, always=True) for path in facts["scripts"]],
    }


def _digest(*parts: str) -> str:
    """Hash several texts; the lengths keep different splits of the same text apart."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8, "big"))
        found.update(data)
    return found.hexdigest()


def _place(cwd: str) -> dict[str, Any]:
    real = _real(cwd)
    try:
        info = os.stat(real, follow_symlinks=False)
    except OSError as error:
        raise _unbound(cwd, error) from error
    if not stat.S_ISDIR(info.st_mode):
        raise _unbound(cwd, "is not a directory")
    return {"path": cwd, "real": real, "device": info.st_dev, "inode": info.st_ino}


def _identify(path: str, *, always: bool) -> dict[str, Any]:
    """Identity of a file, with its content if `always` or if this user can change it; a missing one
    is bound as missing. The content of directories and the files that a script loads are not
    covered."""
    real = _real(path)
    found: dict[str, Any] = {"path": path, "real": real}
    try:
        info = os.stat(real, follow_symlinks=False)
        if not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):
            raise _unbound(path, "is neither a file nor a directory")
        found |= _about(info)
        if stat.S_ISREG(info.st_mode) and (always or _is_ours(real, info)):
            found |= _content(real, path, always=always)
    except FileNotFoundError:
        return found
    except OSError as error:
        raise _unbound(path, error) from error
    return found


def _about(info: os.stat_result) -> dict[str, int]:
    """Values that change if a file is replaced or modified; of the times, only ctime cannot be
    forged."""
    return {
        "device": info.st_dev,
        "inode": info.st_ino,
        "size": info.st_size,
        "mtime_ns": info.st_mtime_ns,
        "ctime_ns": info.st_ctime_ns,
    }


def _is_ours(real: str, info: os.stat_result) -> bool:
    is_open = info.st_uid != 0 or bool(info.st_mode & 0o022)
    return is_open or os.access(real, os.W_OK, effective_ids=True)


def _content(real: str, path: str, *, always: bool) -> dict[str, Any]:
    try:
        fd = os.open(real, _OPEN)
    except PermissionError:
        # A program may be executable but not readable.
        if always:
            raise
        return {}
    with os.fdopen(fd, "rb", buffering=0) as file:
        before = _about(os.fstat(fd))
        if before["size"] > MAX_CONTENT:
            if always:
                raise _unbound(path, f"is larger than {human_size(MAX_CONTENT)}")
            return before
        digest, left = hashlib.sha256(), MAX_CONTENT + 1
        while left > 0 and (data := file.read(min(_CHUNK, left))):
            digest.update(data)
            left -= len(data)
        if _about(os.fstat(fd)) != before:
            raise _unbound(path, "is being written to")
    return before | {"sha256": digest.hexdigest()}


def _real(path: str) -> str:
    if not os.path.isabs(path) or "\0" in path:
        raise _unbound(path, "is not an absolute path")
    return os.path.realpath(path)


def _unbound(path: str, why: str | OSError) -> ToolInputError:
    if isinstance(why, OSError):
        why = f"cannot be inspected: {(why.strerror or str(why)).lower()}"
    return ToolInputError(
        f"an approval cannot be bound to {one_line(path, _SHOWN)!r}, because it {why}"
    )


def why_invalid(question: Question, answer: object) -> str:
    """Why an answer is invalid for a question; empty if it is valid."""
    if not isinstance(answer, Answer) or answer.verdict not in ("allow", "deny"):
        return "it must be allow or deny"
    if answer.silent:
        return "an answer must not be silent"
    texts: tuple[object, ...] = answer.reason, answer.by
    if not all(isinstance(text, str) for text in texts):
        return "reason and by must be strings"
    if answer.extent is None:
        return ""
    if answer.verdict == "deny":
        return "only an approval can be made permanent"
    offered = [each.extent for each in question.lasting]
    if answer.extent in offered:
        return ""
    if not offered:
        return "only a one-time approval was offered"
    shown = one_line(str(answer.extent), 40)
    return f"{shown!r} was not offered, only {' or '.join(map(repr, offered))}"


def answer_for(
    question: Question, choice: str, extent: str | None = None, *, reason: str = "", by: str = ""
) -> Answer:
    """The answer for a choice; `allow-always` is `exact` by default. Raises `ToolInputError`."""
    if choice not in get_args(Choice):
        known = ", ".join(get_args(Choice))
        raise ToolInputError(f"unknown decision {one_line(str(choice), 40)!r}; use one of {known}")
    if extent is not None and choice != "allow-always":
        raise ToolInputError(f"an extent requires allow-always, not {choice}")
    lasting: Any = (extent or "exact") if choice == "allow-always" else None
    verdict: Literal["allow", "deny"] = "deny" if choice == "deny" else "allow"
    answer = Answer(verdict, reason, lasting, by)
    if wrong := why_invalid(question, answer):
        raise ToolInputError(f"invalid answer: {wrong}")
    return answer


def choice_of(answer: Answer) -> Choice:
    if answer.verdict != "allow":
        return "deny"
    return "allow-once" if answer.extent is None else "allow-always"


def no_answer(timeout_s: float) -> Answer:
    """The answer to a question that timed out."""
    shown = human_time(timeout_s) if math.isfinite(timeout_s) else "the time limit"
    return Answer("deny", f"no answer within {shown}", silent=True)


def encode(value: Any) -> bytes:
    """JSON that preserves every text, including lone surrogates. Raises ValueError."""
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
        )
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return text.encode("utf-8", "surrogatepass")


def _plain(value: Any) -> Any:
    if isinstance(value, Lasting):
        return {"extent": value.extent, "words": value.words}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be shown")


def decode(data: bytes) -> Any:
    """The inverse of `encode`. Raises ValueError."""
    try:
        return json.loads(data.decode("utf-8", "surrogatepass"), parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def read_question(data: object) -> Question:
    """A question from its fields. Raises ValueError for invalid ones."""
    import msgspec

    return msgspec.convert(data, Question)


def pack_question(question: Question, binding: Binding) -> tuple[bytes, bytes, bytes]:
    """The fields of a question, its parameters and its binding, encoded for storage. Raises
    `ToolInputError` if they cannot be shown to a person."""
    fields = asdict(question)
    params = fields.pop("params")
    try:
        packed = encode(fields), encode(params), encode(binding)
        unpack_question(*packed[:2])
        if (size := sum(map(len, packed))) > MAX_QUESTION:
            limit = human_size(MAX_QUESTION)
            raise ValueError(f"the question is {human_size(size)}, larger than {limit}")
    except ValueError as error:
        raise ToolInputError(f"a person cannot be asked about this: {error}") from error
    return packed


def unpack_question(fields: bytes, params: bytes) -> Question:
    """The inverse of `pack_question`. Raises ValueError or TypeError for invalid data."""
    return read_question({**decode(fields), "params": decode(params)})


def identify_process() -> str:
    """Identifies this process: its pid, start time, and pid namespace."""
    from clawkit.process import process_table, records

    me = process_table.look(os.getpid())
    return f"{os.getpid()} {me.started if me is not None else 0} {records.here()}"


def has_ended(process: str) -> bool:
    """Whether the process that asked has certainly ended. Raises ValueError for invalid text."""
    from clawkit.process import process_table, records

    pid, since, place = process.split(" ", 2)
    found, here = process_table.look(int(pid)), records.here()
    if place == here != "":
        return found is None or found.exited or found.started != int(since)
    # Processes of another container are unknown; those before a reboot have ended.
    return place != "" and place.split(" ")[0] != here.split(" ")[0]
