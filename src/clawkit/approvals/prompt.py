"""The approval prompt: what a person must see before approving, without secrets.

Nothing in it is hidden, controls the terminal, or mentions anyone in a chat.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Literal

from clawkit.approvals.protocols import ExecRequest
from clawkit.approvals.types import Decision, Miss, Place
from clawkit.core.approval import Lasting, Question
from clawkit.process.protocols import NO_GRANTS
from clawkit.redact import MASK, Redactor, is_secret_name
from clawkit.terminal_text import wrap
from clawkit.text import one_line, printable

_ACTIVE = "$`;|&<>(){}[]\\'\"~!?# \t\n"
_TITLE = 200
_HOST_NAME = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})\.)+[A-Za-z]{2,63}"
_HOST = rf"(?:\[[0-9A-Fa-f:.]{{2,45}}\]|\d{{1,3}}(?:\.\d{{1,3}}){{3}}|localhost|{_HOST_NAME})"
_DESTINATION = re.compile(
    rf"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^\s/]*@)?(?P<url>{_HOST}|[^\s/:@?#'\"]+)"
    rf"|[\w.+-]+@(?P<target>{_HOST}|[\w.-]+)(?=[:/]|\Z)"
    rf"|(?<![\w.@/-])(?P<host>{_HOST})(?=[:/]|\Z)"
)
"""A URL, an ssh target or git remote such as `git@host:path`, or a host name."""
_MODES = {
    "background": "in the background",
    "detach": "detached, so it keeps running when clawkit exits",
    "pty": "in a terminal",
    "stdin": "with open input, so the agent can type into it",
}
_SESSION = "exactly this command for this session"
_ACCESS = "this access for every command of this session that requests it"

_PLACES: Mapping[Place, str] = {
    "sandbox": "in the sandbox",
    "entry": "on the host, confined",
    "host": "on the host, unconfined",
}


def make_question(
    request: ExecRequest, decision: Decision, redactor: Redactor, *, timeout_s: float
) -> Question:
    """The question for a person."""
    lasting = tuple(Lasting(each.extent, each.words) for each in decision.offers)
    if lasts_for_session(decision):
        lasting += (Lasting("session", _ACCESS if decision.code == "access" else _SESSION),)
    return Question(
        tool="exec",
        params={},
        title="run a command",
        description=show(decision.reason, redactor),
        asked_by=", ".join(decision.policy.sources),
        to_allow=decision.to_allow,
        timeout_s=timeout_s,
        agent=request.agent,
        session=request.session,
        command=show(request.command, redactor),
        cwd=request.cwd,
        host=request.host,
        place=_PLACES[decision.place],
        modes=tuple(_MODES[each] for each in request.modes),
        notes=tuple(show(note, redactor) for note in _notes(request, decision, redactor)),
        lasting=lasting,
        plain=not (request.assigned or request.modes or request.access != NO_GRANTS)
        and request.host != "node",
        call_id=request.call_id,
    )


def lasts_for_session(decision: Decision) -> bool:
    """Whether an approval can be reused for exactly the same command: not if its effect may vary,
    or if a person must see it every time."""
    return decision.doubt is None and not decision.human_only and decision.policy.ask != "always"


def _notes(request: ExecRequest, decision: Decision, redactor: Redactor) -> Iterator[str]:
    """Each part that is not allowed, unless the reason already says it; variables that are set; the
    number of allowed parts."""
    missed = Counter(
        (one_line(printable(judged.segment.text, ""), _TITLE), result.reason)
        for judged in decision.segments
        for result in judged.results
        if isinstance(result, Miss)
    )
    if len(missed) != 1 or next(iter(missed))[1] != decision.reason:
        for (text, why), times in missed.items():
            yield f"{text}: {why}" if times == 1 else f"{text}: {why} ({times:,} times)"
        if decision.doubt is not None and decision.doubt.reason not in decision.reason:
            yield f"cannot determine what this runs: {decision.doubt.reason}"
    for name in request.assigned:
        value = one_line(printable(request.env.get(name, ""), ""), _TITLE)
        shown = _reveal(value, MASK, redactor) if is_secret_name(name) else value
        yield f"with {name}={shown}"
    allowed = sum(1 for judged in decision.segments if not judged.misses)
    other = "" if allowed == len(decision.segments) else "other "
    if allowed:
        yield f"1 {other}part is allowed" if allowed == 1 else f"{allowed} {other}parts are allowed"


def show(text: str, redactor: Redactor) -> str:
    """Mask secrets, unless that would hide active shell syntax; destinations are never hidden."""
    masked = redactor.text(text)
    if masked is text or any(text.count(char) != masked.count(char) for char in _ACTIVE):
        return text
    words, others = re.split(r"([ \t\n])", text), re.split(r"([ \t\n])", masked)
    pairs = zip(words, others, strict=True)
    return "".join(old if old == new else _reveal(old, new, redactor) for old, new in pairs)


def _reveal(word: str, masked: str, redactor: Redactor) -> str:
    found = list(_DESTINATION.finditer(word))
    hosts = Counter(each["url"] or each["target"] or each["host"] for each in found)
    if all(masked.count(host) >= times for host, times in hosts.items()):
        return masked
    pieces, end = [], 0
    for each in found:
        before = word[end : each.start()]
        pieces.append(before if redactor.strict(before) == before else _mask_words(before))
        if each["url"]:
            pieces.append(each["scheme"] + (f"{MASK}@" if each["user"] else "") + each["url"])
        else:
            pieces.append(each[0])
        end = each.end()
    return "".join(pieces) + _mask_words(word[end:])


def _mask_words(text: str) -> str:
    return re.sub(rf"[^{re.escape(_ACTIVE)}/:=]+", MASK, text)


Surface = Literal["terminal", "plain", "markdown"]
"""A terminal, a chat that shows plain text, or one that renders Markdown."""

MAX_SHOWN = 16_384
"""Limit in characters; of a longer command, the beginning and the end are shown."""
MANY_LINES = 30
"""With more lines, the beginning may scroll out of sight."""
_COLUMNS = 80
MIN_WIDTH = 20
BAR = "  | "
"""Prefix of every row of a command, so that none of it can pass for our own text."""
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
"""Letters and marks without a visible glyph."""
_RIGHT = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\U00010800-\U00010fff\U0001e800-\U0001efff"
_RTL = re.compile(f"[{_RIGHT}](?:[ {_RIGHT}]*[{_RIGHT}])?")
"""Right-to-left letters, and blanks between them."""
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Invisible characters that change the order of text."""
_GAP = re.compile(r"[ \t\n]{40,}")
_NAME = re.compile(r"[^\s;|&()<>'\"]+")
_ALIKE = re.compile("[\u0370-\u058f\u13a0-\u13ff\uff21-\uff5a\U0001d400-\U0001d7ff]")
"""Letters of other scripts that look like Latin ones."""
_LETTER = re.compile("[A-Za-z]")
_OTHER_HOST = re.compile(r"(?:://|@)[^\s/?#]*[^\x00-\x7f]")
"""A host name in any other script, or with letters such as a dotless i."""
_WORDS = 3


def show_command(text: str, *, keep: str = "\n\t") -> str:
    """A command with invisible characters escaped; the middle of a long one is cut."""
    if len(text) > MAX_SHOWN:
        half = MAX_SHOWN // 2
        cut = f"[… {len(text) - 2 * half:,} characters are not shown …]"
        parts = show_command(text[:half], keep=keep), cut, show_command(text[-half:], keep=keep)
        return ("\n" if "\n" in keep else " ").join(parts)
    shown = printable(text, keep)
    if shown.isascii():
        return shown
    spelled = _BLANK.sub(lambda found: _spell_out(found[0]), shown)
    return _RTL.sub(r"[rtl:\g<0>]", spelled)


def warnings_about(command: str) -> Iterator[str]:
    """Warnings about a command that may not be what it looks like."""
    yield from _odd_names(command)
    shown = command[:MAX_SHOWN]
    if _RTL.search(shown):
        yield (
            "it has right-to-left text, marked [rtl:…], which may be displayed in a different "
            "order than the shell reads it"
        )
    if _BIDI.search(shown):
        yield "it has characters that reverse the order of text, shown as \\u{…}"
    elif _BLANK.search(shown) or printable(shown, "\n\t") != shown:
        yield "it has invisible characters, shown as \\u{…}"
    if _GAP.search(command):
        yield "it has a long run of blanks, which may push text out of sight"
    if (lines := command.count("\n") + 1) > MANY_LINES:
        yield f"it has {lines:,} lines; check the first ones too"
    if len(command) > MAX_SHOWN:
        yield f"it is {len(command):,} characters long; only its beginning and end are shown"
    elif lines <= MANY_LINES and len(command) > MANY_LINES * _COLUMNS:
        yield f"it is {len(command):,} characters long; check its beginning too"


def _odd_names(command: str) -> Iterator[str]:
    command = command[:MAX_SHOWN]
    if command.isascii():
        return
    first, *others = _NAME.findall(command) or [""]
    odd = [
        word
        for word in others
        if (_ALIKE.search(word) and _LETTER.search(word)) or _OTHER_HOST.search(word)
    ]
    if not first.isascii():
        yield f"the program name has look-alike letters: {_spell_out(first)}"
    if odd:
        shown = ", ".join(map(_spell_out, list(dict.fromkeys(odd))[:_WORDS]))
        yield f"it has look-alike letters: {shown}"


def _spell_out(word: str) -> str:
    return "".join(f"\\u{{{ord(char):x}}}" if ord(char) > 126 else char for char in word[:80])


def render(question: Question, surface: Surface = "terminal", *, width: int | None = None) -> str:
    """Everything needed for a decision, as plain lines, with the command and the reason at the end.

    With a terminal `width`, lines are wrapped here with a prefix, so that no part of a long line
    can pass for a separate one.
    """

    def lines(facts: Iterable[tuple[str, str]]) -> list[str]:
        return [f"{label}: {_line(text, surface)}" for label, text in facts if text]

    title, command = _line(question.title, surface), show_command(question.command)
    warnings = (("warning", warning) for warning in warnings_about(question.command))
    before = lines(_facts(question))
    # Last, so that they are read right before the answer.
    after = lines(chain(warnings, (("why", question.description),)))
    if width is None:
        fenced = [_fence(command, surface)] if command else []
        return "\n".join([title, *before, *fenced, *after])
    width = max(width, MIN_WIDTH)
    if command:
        # The title would only repeat the command.
        title = "Run this command?"

    def wrapped(lines: list[str], first: str = "  ", rest: str = "      ") -> Iterator[str]:
        return (row for line in lines for row in wrap(line, width, first, rest, marks=1))

    shown = wrapped(command.split("\n"), BAR, BAR) if command else ()
    rows = [*wrapped([title], "", ""), *wrapped(before), *shown, *wrapped(after)]
    return "\n".join(rows)


def _facts(question: Question) -> Iterator[tuple[str, str]]:
    same = question.session in ("", "main", question.agent)
    yield "agent", question.agent if same else f"{question.agent}, session {question.session}"
    yield "asked by", question.asked_by
    for each in question.lasting:
        label = "this session" if each.extent == "session" else f"always ({each.extent})"
        yield label, each.words
    if question.params:
        import json

        yield "parameters", json.dumps(dict(question.params), ensure_ascii=False, default=str)
    for note in question.notes:
        yield "note", note
    # The local machine is not worth mentioning.
    elsewhere = question.host if question.host != "gateway" else ""
    place = " on ".join(each for each in (question.cwd, elsewhere) if each)
    yield "where", ", ".join(each for each in (place, question.place) if each)
    yield "how", ", ".join(question.modes)


def _line(text: str, surface: Surface) -> str:
    return _escape(show_command(text, keep=""), surface)


def _fence(text: str, surface: Surface) -> str:
    if surface == "terminal":
        return "\n".join(f"    {line}" for line in text.split("\n"))
    if surface == "plain":
        return _escape(text, surface)
    ticks = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}\n{text}\n{fence}"


def _escape(text: str, surface: Surface) -> str:
    if surface == "terminal":
        return text
    text = text.replace("@", "\\u{40}")
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", text) if surface == "markdown" else text
