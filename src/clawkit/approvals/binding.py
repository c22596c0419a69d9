"""A yes is only for what was shown: one of the answers that were offered, to a command that is
still the same, in a place and with programs and scripts that are still the same.

Between the last look and the start of the command there is a moment that nothing here covers.
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
"""What JSON can hold. No text of the command and nothing of the environment is in it."""

VERSION = 2
MAX_CONTENT = 64 * 1024**2
MAX_QUESTION = 2 * 1024**2
"""Bytes: nobody reads more before saying yes."""
_CHUNK = 1024**2
_SHOWN = 200
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


class Facts(TypedDict):
    """What a command is, and is to run with."""

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


def bind(**facts: Unpack[Facts]) -> Binding:
    """What a yes to a command is about. Raises `ToolInputError` for what cannot be held to it."""
    return _take(facts, os.urandom(16).hex())


def check(binding: Binding, **facts: Unpack[Facts]) -> str:
    """What is no longer as it was when the question was put; empty when nothing is."""
    salt = binding.get("salt")
    if binding.get("version") != VERSION or not isinstance(salt, str):
        return "it is not known what the answer was about"
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


def _take(facts: Facts, salt: str) -> dict[str, Any]:
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
        # Values may be secrets that are short: two equal ones must not look alike.
        "env": _digest(salt, *pairs),
        "programs": [_identify(path, always=False) for path in facts["programs"]],
        "scripts": [_identify(path, always=True) for path in facts["scripts"]],
    }


def _digest(*parts: str) -> str:
    """Of texts, such that no other texts have the same by being cut elsewhere."""
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
    """Which file it is; with its content when that matters `always`, or we could change it.

    A file that is not there is bound to that. A directory has no content: what is in it, like
    whatever else a script loads, is not part of the answer.
    """
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
    """What differs when a file was replaced or written to; only the last cannot be set back."""
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
        # A program may be one that can be started but not read.
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


def fault(question: Question, answer: object) -> str:
    """Why something is no answer to a question; empty when it is one."""
    if not isinstance(answer, Answer) or answer.verdict not in ("allow", "deny"):
        return "it is neither a yes nor a no"
    if answer.silent:
        return "silence does not count as an answer"
    texts: tuple[object, ...] = answer.reason, answer.by
    if not all(isinstance(text, str) for text in texts):
        return "its reason and its author must be texts"
    if answer.extent is None:
        return ""
    if answer.verdict == "deny":
        return "only an approval can be made to last"
    offered = [each.extent for each in question.lasting]
    if answer.extent in offered:
        return ""
    if not offered:
        return "only an approval for once was offered"
    shown = one_line(str(answer.extent), 40)
    return f"{shown!r} was not offered, only {' or '.join(map(repr, offered))}"


def answer_for(
    question: Question, choice: str, extent: str | None = None, *, reason: str = "", by: str = ""
) -> Answer:
    """What a choice means as the answer to a question; `allow-always` is `exact` unless said."""
    if choice not in get_args(Choice):
        known = ", ".join(get_args(Choice))
        raise ToolInputError(f"unknown decision {one_line(str(choice), 40)!r}; use one of {known}")
    if extent is not None and choice != "allow-always":
        raise ToolInputError(f"an extent requires allow-always, not {choice}")
    lasting: Any = (extent or "exact") if choice == "allow-always" else None
    verdict: Literal["allow", "deny"] = "deny" if choice == "deny" else "allow"
    answer = Answer(verdict, reason, lasting, by)
    if wrong := fault(question, answer):
        raise ToolInputError(f"this answer cannot be given: {wrong}")
    return answer


def choice_of(answer: Answer) -> Choice:
    if answer.verdict != "allow":
        return "deny"
    return "allow-once" if answer.extent is None else "allow-always"


def silence(timeout_s: float) -> Answer:
    """The answer to a question that nobody answered in its time."""
    shown = human_time(timeout_s) if math.isfinite(timeout_s) else "the time limit"
    return Answer("deny", f"no answer within {shown}", silent=True)


def encode(value: Any) -> bytes:
    """JSON that gives back every text as it was, lone surrogates too. Raises ValueError."""
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
    """What was encoded. Raises ValueError."""
    try:
        return json.loads(data.decode("utf-8", "surrogatepass"), parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def question_fields(question: Question) -> dict[str, Any]:
    return asdict(question)


def read_question(data: object) -> Question:
    """A question out of its fields. Raises ValueError for what is none."""
    import msgspec

    return msgspec.convert(data, Question)


def pack_question(question: Question, binding: Binding) -> tuple[bytes, bytes, bytes]:
    """The fields of a question, its parameters and what it is bound to, to be kept. Raises
    `ToolInputError` for what cannot be shown to anybody."""
    fields = question_fields(question)
    params = fields.pop("params")
    try:
        packed = encode(fields), encode(params), encode(binding)
        unpack_question(*packed[:2])
    except ValueError as error:
        raise ToolInputError(f"a person cannot be asked about this: {error}") from error
    if (size := sum(map(len, packed))) > MAX_QUESTION:
        raise ToolInputError(
            f"a person cannot be asked about this: the question is {human_size(size)}, "
            f"larger than {human_size(MAX_QUESTION)}"
        )
    return packed


def unpack_question(fields: bytes, params: bytes) -> Question:
    """A question that was kept. Raises ValueError, or TypeError, for what is none."""
    return read_question({**decode(fields), "params": decode(params)})


def asker() -> str:
    """This process: its number, when it began, and where numbers mean what they do here."""
    from clawkit.process import process_table, records

    me = process_table.look(os.getpid())
    return f"{os.getpid()} {me.started if me is not None else 0} {records.here()}"


def is_gone(asker: str) -> bool:
    """Whether the process that asked has surely ended. Raises ValueError for what names none."""
    from clawkit.process import process_table, records

    pid, since, place = asker.split(" ", 2)
    found, here = process_table.look(int(pid)), records.here()
    if place == here != "":
        return found is None or found.gone or found.started != int(since)
    # Of another container nothing can be told; an earlier run of the machine is over.
    return place != "" and place.split(" ")[0] != here.split(" ")[0]
