"""Second opinions on how a command is read: bash itself, and shfmt."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.lacking import lack

from clawkit.approvals.shell_words import (
    BraceGroup,
    Command,
    CommandChain,
    CommandList,
    For,
    If,
    Pipeline,
    Redirect,
    Simple,
    Tilde,
    Variable,
    Word,
)

HOME = "/nowhere/home"
_BASH = "/bin/bash"
_SHFMT = Path(sys.executable).with_name("shfmt")

# Nothing can be found, so that every command ends in the handler, which notes what it was given in
# a file of its own: parts of a pipeline run at once.
_DRIVER = r"""
command_not_found_handle() {
  local body; IFS= read -r -d '' -u 0 body
  printf '%s\0' "$@" "$body" >"$NOTES/$index_.$BASHPID"
}
set -f
mapfile -d '' -t given_
for ((index_ = 0; index_ < ${#given_[@]}; index_ += 2)); do
  text_=${given_[index_+1]}
  if eval "f() {
$text_
}"; then printf 1; else printf 0; fi
  unset -f f
  if [[ ${given_[index_]} == run ]]; then (eval -- "$text_") </dev/null >/dev/null; fi
done
"""


class Calls(NamedTuple):
    """What a command starts, and texts that come with it."""

    words: Counter[tuple[str, ...]]
    bodies: Counter[tuple[tuple[str, ...], str]]
    """Those that are known, with the words of their commands."""


class Told(NamedTuple):
    """What bash makes of a command: whether it can be read, and what it starts."""

    ok: bool
    calls: Calls


def need_shfmt() -> None:
    """Skip a test without shfmt, unless all tests are asked for."""
    if not _SHFMT.exists():
        lack("shfmt is not installed: pip install shfmt-py")


def ask_bash(scripts: Sequence[tuple[str, bool]], place: Path, **env: str) -> list[Told]:
    """For each text, with whether it is to be run, what bash makes of it."""
    given = "".join(f"{'run' if run else 'read'}\0{text}\0" for text, run in scripts)
    notes, work = place / "notes", place / "work"
    for folder in (notes, work):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    done = subprocess.run(
        [_BASH, "--noprofile", "--norc", "-c", _DRIVER],
        input=given.encode(),
        env={"PATH": str(place / "empty"), "HOME": HOME, "NOTES": str(notes)} | env,
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=50,
        check=False,
    )
    assert len(done.stdout) == len(scripts)
    told = [Told(each == ord("1"), Calls(Counter(), Counter())) for each in done.stdout]
    for note in notes.iterdir():
        *words, body, _ = note.read_bytes().decode(errors="surrogateescape").split("\0")
        calls = told[int(note.stem) // 2].calls
        calls.words[tuple(words)] += 1
        calls.bodies[tuple(words), body] += 1
    return told


class _UnknownError(Exception):
    """What a command does depends on more than its text."""


@functools.cache
def _builtins() -> frozenset[str]:
    command = [_BASH, "--noprofile", "--norc", "-c", "compgen -bk"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return frozenset((*names, "command_not_found_handle", "f"))


def foresee(script: CommandList) -> Calls | None:
    """What bash would start, were every program missing; None when that cannot be told."""
    calls = Calls(Counter(), Counter())
    try:
        _run_script(script, {}, calls)
    except _UnknownError:
        return None
    return calls


Values = Mapping[str, str]


def _run_script(script: CommandList, values: Values, calls: Calls) -> bool:
    good = True
    for chain in script.chains:
        good = _run_pipeline(chain.first, values, calls)
        for operator, pipeline in chain.rest:
            if good == (operator == "&&"):
                good = _run_pipeline(pipeline, values, calls)
    return good


def _run_pipeline(pipeline: Pipeline, values: Values, calls: Calls) -> bool:
    results = [_run_command(command, values, calls) for command in pipeline.commands]
    return results[-1] != pipeline.negated


def _run_command(command: Command, values: Values, calls: Calls) -> bool:
    for redirect in command.redirects:
        _check_opens(redirect)
    match command:
        case Simple():
            _run_simple(command, values, calls)
            return True
        case BraceGroup(body):
            return _run_script(body, values, calls)
        case If(branches, otherwise):
            for condition, body in branches:
                if _run_script(condition, values, calls):
                    return _run_script(body, values, calls)
            return _run_script(otherwise, values, calls) if otherwise else True
        case For(name, words, body):
            good = True
            for word in words:
                good = _run_script(body, {**values, name: _value(word, values)}, calls)
            return good


def _run_simple(command: Simple, values: Values, calls: Calls) -> None:
    if any(each.name in values for each in command.assignments):
        raise _UnknownError
    for assignment in command.assignments:
        _value(assignment.value, values)
    if not command.words:
        return
    words = tuple(_value(word, values) for word in command.words)
    name = words[0]
    if not name or "/" in name or name.startswith("%") or name in _builtins():
        raise _UnknownError
    calls.words[words] += 1
    inputs = [each for each in command.redirects if each.fd == 0 or each.operator[0] == "<"]
    match inputs:
        case [Redirect("<<", None | 0, None, body)]:
            calls.bodies[words, body] += 1
        case [Redirect("<<<", None | 0, Word() as target)]:
            calls.bodies[words, _value(target, values) + "\n"] += 1


def _check_opens(redirect: Redirect) -> None:
    """Whether opening it works, as far as that is known."""
    target = redirect.target.literal if redirect.target else ""
    match redirect.operator:
        case ">" | ">>" | ">|" | "&>" | "&>>":
            known = bool(re.fullmatch(r"[a-z0-9]+|/dev/null", target or "/"))
        case "<":
            known = target == "/dev/null"
        case ">&" | "<&":
            known = target in ("1", "2")
        case _:
            known = True
    if not known:
        raise _UnknownError


def _value(word: Word, values: Values) -> str:
    """The characters of a word, with patterns switched off."""
    text = ""
    for part in word.parts:
        match part:
            case Variable(name, quoted):
                value = values.get(name)
                if value is None or not (quoted or re.fullmatch(r"\w+", value, re.ASCII)):
                    raise _UnknownError
                text += value
            case Tilde():
                text += HOME
            case _:
                text += part.value
    return text


def ask_shfmt(text: str) -> Any:
    """How shfmt reads a text: lists of its parts, or why it cannot."""
    command = [str(_SHFMT), "-ln", "bash", "--to-json"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if done.returncode:
        return done.stderr.decode()
    data = text.encode()
    return [_stmt(each, data) for each in json.loads(done.stdout).get("Stmts", ())]


def like_shfmt(script: CommandList, text: str) -> Any:
    """The same lists as `ask_shfmt` gives, from what was read here."""
    return [_from_chain(chain, text) for chain in script.chains]


def _stmt(stmt: Any, data: bytes) -> Any:
    redirects = [_redirect(each, data) for each in stmt.get("Redirs", ())]
    return [_cmd(stmt.get("Cmd"), data), redirects, stmt.get("Negated", False)]


def _cmd(cmd: Any, data: bytes) -> Any:
    def stmts(name: str, of: Any = None) -> Any:
        return [_stmt(each, data) for each in (of or cmd).get(name, ())]

    match cmd and cmd["Type"]:
        case None:
            return ["simple", [], []]
        case "CallExpr":
            assigned = [
                [each["Name"]["Value"], _word(each.get("Value"), data)]
                for each in cmd.get("Assigns", ())
            ]
            return ["simple", assigned, [_word(each, data) for each in cmd.get("Args", ())]]
        case "BinaryCmd":
            return [cmd["Op"], _stmt(cmd["X"], data), _stmt(cmd["Y"], data)]
        case "TimeClause":
            name = "time -p" if cmd.get("PosixFormat") else "time"
            return [name, _stmt(cmd["Stmt"], data)]
        case "Subshell" | "Block" as kind:
            return [kind, stmts("Stmts")]
        case "IfClause":
            branches = []
            while cmd and "Cond" in cmd:
                branches.append([stmts("Cond", cmd), stmts("Then", cmd)])
                cmd = cmd.get("Else")
            return ["if", branches, stmts("Then", cmd) if cmd else None]
        case "ForClause":
            loop = cmd["Loop"]
            words = [_word(each, data) for each in loop.get("Items", ())]
            return ["for", loop["Name"]["Value"], words, stmts("Do")]
        case other:
            return [other]


def _word(word: Any, data: bytes) -> Any:
    if word is None:
        return None
    start, end = word["Pos"]["Offset"], word["End"]["Offset"]
    if start == end:
        return None
    raw = _whole(data[start:end].decode())
    return [raw, _unless_braces(raw, "".join(_piece(each) for each in word["Parts"]))]


def _whole(raw: str) -> str:
    """A word without the continued ends of lines in and around it."""
    return raw.replace("\\\n", "")


def _unless_braces(raw: str, value: str) -> str:
    """Braces are not taken apart by shfmt."""
    return "" if "{" in raw and "," in raw else value


def _piece(part: Any, *, quoted: bool = False) -> str:
    value: str = part.get("Value", "")
    match part["Type"]:
        case "Lit":
            found = r'\\([\\"$`])|\\\n' if quoted else r"\\(.)|\\\n"
            return re.sub(found, lambda each: each[1] or "", value)
        case "SglQuoted":
            return re.sub(r"\\(.)", _ansi, value) if part.get("Dollar") else value
        case "DblQuoted" if not part.get("Dollar"):
            return "".join(_piece(each, quoted=True) for each in part.get("Parts", ()))
        case "ParamExp":
            return "$" + str(part["Param"]["Value"])
        case other:
            return f"<{other}>"


def _ansi(found: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t"}.get(found[1], found[1])


def _redirect(redirect: Any, data: bytes) -> Any:
    operator, fd = redirect["Op"], redirect.get("N", {}).get("Value")
    if operator in ("<<", "<<-"):
        parts = redirect.get("Hdoc", {}).get("Parts", ())
        body = "".join(each.get("Value", each["Type"]) for each in parts)
        return ["<<", fd, re.sub(r"(?m)^\t+", "", body) if operator == "<<-" else body]
    return [operator, fd, _word(redirect["Word"], data)]


def _from_chain(chain: CommandChain, text: str) -> Any:
    result = _from_pipeline(chain.first, text)
    for operator, pipeline in chain.rest:
        result = [[operator, result, _from_pipeline(pipeline, text)], [], False]
    return result


def _from_pipeline(pipeline: Pipeline, text: str) -> Any:
    result = _from_command(pipeline.commands[0], text)
    for both, command in zip(pipeline.errors, pipeline.commands[1:], strict=True):
        result = [["|&" if both else "|", result, _from_command(command, text)], [], False]
    if pipeline.timed:
        result = [[pipeline.timed, result], [], False]
    if pipeline.negated:
        result = [*result[:2], True]
    return result


def _from_command(command: Command, text: str) -> Any:
    def stmts(script: CommandList | None) -> Any:
        return script and like_shfmt(script, text)

    def words(given: Sequence[Word]) -> Any:
        # Those out of one pair of braces have their place in common.
        return [_from_word(each, text) for each in {word.start: word for word in given}.values()]

    result: Any
    match command:
        case Simple(assignments, given):
            assigned = [[each.name, _from_word(each.value, text)] for each in assignments]
            result = ["simple", assigned, words(given)]
        case BraceGroup(body, subshell=True):
            result = ["Subshell", stmts(body)]
        case BraceGroup(body):
            result = ["Block", stmts(body)]
        case If(branches, otherwise):
            pairs = [[stmts(condition), stmts(body)] for condition, body in branches]
            result = ["if", pairs, stmts(otherwise)]
        case For(name, given, body):
            result = ["for", name, words(given), stmts(body)]
    return [result, [_from_redirect(each, text) for each in command.redirects], False]


def _from_redirect(redirect: Redirect, text: str) -> Any:
    fd = None if redirect.fd is None else str(redirect.fd)
    if redirect.target is None:
        return ["<<", fd, redirect.body]
    return [redirect.operator, fd, _from_word(redirect.target, text)]


def _from_word(word: Word, text: str) -> Any:
    if word.start == word.end:
        return None
    raw = _whole(text[word.start : word.end])
    pieces: list[str] = []
    for part in word.parts:
        match part:
            case Variable(name):
                pieces.append(f"${name}")
            case Tilde():
                pieces.append("~")
            case _:
                pieces.append(part.value)
    return [raw, _unless_braces(raw, "".join(pieces))]
