"""What can be allowed permanently: offers in a question, and suggestions from the log.

Only what really lets the same command pass the next time is offered: every offer is tried.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from clawkit.approvals.allowlist import Call, content_of
from clawkit.approvals.arguments import bare_names
from clawkit.approvals.audit import was_asked
from clawkit.approvals.decide import may_leave
from clawkit.approvals.entries import (
    describe_entry,
    describe_grants,
    entry_to_json,
    hash_call,
    is_literal,
)
from clawkit.approvals.interpreters import is_interpreter, is_shell, names_of
from clawkit.approvals.launchers import look_through
from clawkit.approvals.options import base_name, words_of
from clawkit.approvals.presets import PRESETS
from clawkit.approvals.safe_bins import is_replaceable
from clawkit.approvals.types import (
    Arg,
    ArgRule,
    Decision,
    Entry,
    Miss,
    Offer,
    Program,
    Rules,
)
from clawkit.core.approval import StoredExtent
from clawkit.process.protocols import NO_GRANTS

MIN_TIMES = 2
"""What was asked only once may never be asked again."""

Allowed = Callable[[Entry, Mapping[str, Any], str], bool]
"""Whether an entry would let a program of the log (a `ProgramFact`) run in a directory."""

# Never worth a rule of their own: their harm lies in their arguments, which differ from call to
# call.
_HARMFUL = words_of(
    """
    rm rmdir unlink shred dd mv cp install ln truncate tee chmod chown chgrp chattr setfacl kill
    pkill killall reboot shutdown systemctl service mount umount useradd userdel usermod passwd
    iptables nft ip ifconfig curl wget http aria2c scp sftp rsync rclone ftp lftp nc ncat netcat
    telnet openssl gpg pass patch ed ex vi vim nvim emacs nano less more man clawkit
    """
)
_SUBCOMMANDS = words_of(
    """
    git gh glab hg svn jj docker podman kubectl helm terraform aws gcloud az brew apt apt-get npm
    pnpm yarn bun uv pip pip3 poetry hatch conda cargo rustup go make just dotnet gradle mvn ruff
    """
)
# Where the first word is only the subject, and the second says what is done.
_NESTED = frozenset({"gh", "glab", "aws", "gcloud", "az"})
_SUBJECTS = words_of(
    """
    stash remote worktree submodule notes bisect lfs bundle reflog sparse-checkout compose container
    image network volume system builder context pod rollout auth run run-script pm pip python cache
    mod work toolchain target component state workspace repo get services bookmark op env
    """
)
# Sub-commands that can do whatever their arguments, or files, say.
_ANYTHING = re.compile(
    r"git (filter-branch|difftool|mergetool|rebase|config)|(docker|podman) (run|exec|build|unshare)"
    r"|kubectl (exec|run|debug|attach|cp|apply|delete)|go (run|generate|tool)|cargo run"
    r"|(poetry|hatch) (run|shell)|gh (api|alias|extension|auth|secret)"
)
_PROJECT = words_of(
    """
    make just npm pnpm yarn bun cargo go gradle mvn pytest tox nox jest vitest mocha eslint tsc
    vite webpack cmake ninja meson bazel ctest rake bundle mix sbt poetry hatch uv dotnet
    """
)
_PROJECT_NOTE = "it runs what the files of the project say"
_WORD = re.compile(r"[a-z][a-z0-9:_-]{0,40}", re.ASCII)
_PLAIN_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[\w.,+@%=:-]+)+", re.ASCII)
_INSIDE = re.compile(r"(?!.*\.\.)(?!.*(?:^|[=,:])[/~])[\w./=,:@+-]*", re.ASCII)
_SHARED = ("/tmp/", "/var/tmp/", "/dev/", "/proc/")  # noqa: S108  # never worth a rule


class Suggestion(NamedTuple):
    """A rule that somebody may want to add."""

    pattern: str
    args: dict[str, Any] | str | None
    """As in the approvals document."""
    count: int  # type: ignore[assignment]  # the method of tuples is not missed
    """How many questions it would have saved, alone or with the others."""
    example: str
    """The newest of the commands."""
    words: str
    """What to type to add it."""
    agent: str = "main"
    note: str = ""
    """What to know before that; mostly nothing."""


class _Key(NamedTuple):
    """What a rule would be for."""

    agent: str
    resolved: str
    subcommand: str


class _Call(NamedTuple):
    fact: Mapping[str, Any]
    cwd: str


_Keyed = list[tuple[_Key, _Call]]


def has_subcommands(name: str) -> bool:
    """Whether the first argument of a program says which of its many commands is meant."""
    return name in _SUBCOMMANDS


def suggest(
    records: Iterable[Mapping[str, Any]],
    allowed: Allowed | None = None,
    *,
    presets: Collection[str] = (),
) -> list[Suggestion]:
    """Rules for what people allowed again and again, the most useful first.

    `records` are those of the log (`clawkit.approvals.audit.Record`), oldest first. What somebody
    refused is never proposed. `allowed` tries a rule on a call; without it, no preset is proposed.
    """
    prompts: list[tuple[str, _Keyed]] = []
    refused: set[_Key] = set()
    for record in filter(was_asked, records):
        calls = list(_missed(record))
        keyed = [(key, call) for key, call in calls if key is not None]
        missed = record.get("verdict") == "allow" and record.get("code") == "miss"
        if record.get("verdict") == "deny":
            refused.update(key for key, _ in keyed)
        # One program that no rule can be made for, and the question comes all the same.
        elif missed and not record.get("cut") and 0 < len(keyed) == len(calls):
            prompts.append((str(record.get("command", "")), keyed))
    prompts = [each for each in prompts if refused.isdisjoint(key for key, _ in each[1])]
    uses: dict[_Key, list[_Call]] = {}
    for _, keyed in prompts:
        for key, call in keyed:
            uses.setdefault(key, []).append(call)
    rules = {key: _choose(key, calls, allowed, presets) for key, calls in uses.items()}
    return _rank(prompts, {key: entry for key, entry in rules.items() if entry is not None})


def _rank(prompts: list[tuple[str, _Keyed]], rules: dict[_Key, Entry]) -> list[Suggestion]:
    while True:
        saved: dict[tuple[str, Entry], list[str]] = {}
        for command, keyed in prompts:
            keys = {key for key, _ in keyed}
            if rules.keys() >= keys:
                for rule in {(key.agent, rules[key]) for key in keys}:
                    saved.setdefault(rule, []).append(command)
        enough = {rule for rule, commands in saved.items() if len(commands) >= MIN_TIMES}
        kept = {key: entry for key, entry in rules.items() if (key.agent, entry) in enough}
        if len(kept) == len(rules):
            break
        rules = kept
    found = [_suggestion(*rule, commands) for rule, commands in saved.items()]
    return sorted(found, key=lambda each: (-each.count, each.agent, each.words))


def _suggestion(agent: str, entry: Entry, commands: list[str]) -> Suggestion:
    args = entry_to_json(entry).get("args")
    words = ["clawkit", "approvals", "allowlist", "add", entry.pattern, "--agent", agent]
    if args is not None:
        words += ["--args", args if isinstance(args, str) else json.dumps(args)]
    note = _PROJECT_NOTE if base_name(entry.pattern) in _PROJECT else ""
    return Suggestion(
        entry.pattern, args, len(commands), commands[-1], shlex.join(words), agent, note
    )


def _missed(record: Mapping[str, Any]) -> Iterator[tuple[_Key | None, _Call]]:
    """The programs that a question was about; without a key when no rule is to be made for one."""
    agent, cwd, programs = (record.get(name) for name in ("agent", "cwd", "programs"))
    if not isinstance(agent, str) or not isinstance(cwd, str) or not isinstance(programs, list):
        return
    for fact in programs:
        if not _is_fact(fact):
            yield None, _Call({}, cwd)
        elif fact.get("code", "miss") != "":
            yield _find_key(agent, fact, cwd), _Call(fact, cwd)


def _is_fact(fact: object) -> bool:
    if not isinstance(fact, Mapping) or not isinstance(fact.get("resolved"), str):
        return False
    argv = fact.get("argv")
    return isinstance(argv, list) and bool(argv) and all(isinstance(each, str) for each in argv)


def _find_key(agent: str, fact: Mapping[str, Any], cwd: str) -> _Key | None:
    path, argv = str(fact["resolved"]), fact["argv"]
    # What is part of the work, or lies where anybody writes, may be another program tomorrow.
    inside = cwd.rstrip("/") and path.startswith(cwd.rstrip("/") + "/")
    if not _PLAIN_PATH.fullmatch(path) or inside or path.startswith(_SHARED):
        return None
    names = frozenset({base_name(path), base_name(argv[0])})
    if fact.get("code", "miss") != "miss" or fact.get("wrapper") or not _HARMFUL.isdisjoint(names):
        return None
    if is_interpreter(names) or is_shell(names) or look_through(names, [*map(Arg, argv)]):
        return None
    if (name := base_name(path)) not in _SUBCOMMANDS:
        return _Key(agent, path, "")
    first, second = [*argv[1:3], "", ""][:2]
    words = [first, second] if name in _NESTED or first in _SUBJECTS else [first]
    if _ANYTHING.fullmatch(f"{name} {first}") or not all(map(_WORD.fullmatch, words)):
        return None
    return _Key(agent, path, " ".join(words))


def _choose(
    key: _Key, calls: list[_Call], allowed: Allowed | None, presets: Collection[str]
) -> Entry | None:
    """The narrowest rule for all calls; None when there is none that would do."""
    rules: list[ArgRule | str | None] = []
    if allowed is not None and base_name(key.resolved) in presets:
        rules.append(base_name(key.resolved))
    firsts = {each for call in calls for each in call.fact["argv"][1:2] or [""]}
    if key.subcommand or (len(firsts) == 1 and _WORD.fullmatch(*firsts)):
        rules.append(ArgRule(subcommand=(key.subcommand or firsts.pop(),)))
    else:
        if all(_INSIDE.fullmatch(each) for call in calls for each in call.fact["argv"][1:]):
            rules.append(ArgRule(paths="workspace"))
        rules.append(None)
    for rule in rules:
        entry = Entry(key.resolved, args=rule)
        if allowed is None or all(allowed(entry, call.fact, call.cwd) for call in calls):
            return entry
    return None


_SUBCOMMAND = re.compile(r"[a-z][a-z0-9-]{0,40}")
_EXTENTS: tuple[StoredExtent, ...] = ("exact", "subcommand", "preset", "program")
_NARROW = ("git-read",)
"""Presets that are offered before others of the same program."""


class _Missed(NamedTuple):
    """A program that no rule allows yet, and what decides how far it may be allowed for good."""

    call: Call
    subject: str
    """What an entry has to name: for a shell that runs a script, the script."""
    changeable: str
    """The file of the program, or of its script, that whoever runs it could change."""
    linked: bool
    """Whether only the link to the program could be changed."""


def make_offers(decision: Decision, rules: Rules, *, home: str) -> tuple[Offer, ...]:
    """The lasting answers to a question, the narrowest first; none when only once is possible. To
    leave the sandbox, only the very same call can be allowed."""
    if decision.doubt is not None or decision.human_only or decision.policy.ask == "always":
        return ()
    missed: list[_Missed] = []
    for program in _find_missed(decision):
        each = None if program is None else _examine(program, rules, home)
        if each is None:
            return ()
        missed.append(each)
    if not missed:
        return ()
    if decision.code == "elevated" and any(each.linked for each in missed):
        return ()
    is_single = sum(len(judged.segment.programs) for judged in decision.segments) == 1
    # An entry is about one program: of several, each could leave by itself afterwards.
    leaving = _EXTENTS[:1] if is_single else ()
    extents = leaving if decision.code == "elevated" else _EXTENTS
    offers = (_offer(extent, missed, leaves=is_single) for extent in extents)
    return tuple(offer for offer in offers if offer is not None)


def offer_access(decision: Decision) -> tuple[Offer, ...]:
    """The lasting answer to a command that asks for more than the sandbox gives; any other command
    may then ask for the same."""
    entry = Entry("", source="allow-always", extent="access", grants=decision.grants)
    words = f"{describe_grants(decision.grants)}, to every command that asks for it"
    return (Offer("access", (entry,), words),)


def _find_missed(decision: Decision) -> Iterator[Program | None]:
    """The programs that no rule allows; None for a miss that is no program. Those that may not
    leave the sandbox as well, when that is what the command asks for."""
    for judged in decision.segments:
        programs = judged.segment.programs
        for number, result in enumerate(judged.results):
            is_program = number < len(programs)
            leaves = decision.code == "elevated" and is_program and not may_leave(result)
            if isinstance(result, Miss) or (leaves and not programs[number].wrapper):
                yield programs[number] if is_program else None


def _examine(program: Program, rules: Rules, home: str) -> _Missed | None:
    """None for what may never be allowed for good."""
    if program.wrapper:
        return None
    call = Call(program, rules, home)
    subject, called = program.resolved, call.called
    if called.by_shell and called.script is not None and program.cwd is not None:
        subject = os.path.normpath(os.path.join(program.cwd, called.script.text))
    if call.called.code or not is_literal(subject) or call.refuse():
        return None
    files = filter(None, (call.script, program.real))
    changeable = next(filter(rules.may_write, files), "")
    linked = not changeable and is_replaceable(program, rules)
    return _Missed(call, subject, program.real if linked else changeable, linked)


def _offer(extent: StoredExtent, missed: list[_Missed], *, leaves: bool) -> Offer | None:
    entries: dict[Entry, str] = {}
    for each in missed:
        entry = _entry(extent, each, leaves=leaves)
        if entry is None or not each.call.is_allowed_by(entry):
            return None
        preset = PRESETS.get(entry.args) if isinstance(entry.args, str) else None
        entries[entry] = describe_entry(entry) if preset is None else preset.words
    return Offer(extent, tuple(entries), "; ".join(entries.values()))


def _entry(extent: StoredExtent, missed: _Missed, *, leaves: bool) -> Entry | None:
    program = missed.call.program
    if extent == "exact":
        if program.cwd is None:
            return None
        return Entry(
            missed.subject,
            arg_pattern=hash_call(program.cwd, program.argv[1:]),
            source="allow-always",
            extent=extent,
            cwd=program.cwd,
            content=content_of(missed.changeable) if missed.changeable else "",
            # What was approved ran outside the sandbox, and is to work the same again.
            unconfined=leaves and not missed.linked,
            grants=NO_GRANTS if missed.linked else None,
        )
    if extent == "preset":
        return next(filter(missed.call.is_allowed_by, _preset_entries(program)), None)
    names = names_of(program)
    if missed.changeable or missed.call.called.by_shell or is_interpreter(names):
        return None
    rule = None
    if extent == "subcommand":
        first = program.argv[1:2]
        if not first or first[0].glob or not _SUBCOMMAND.fullmatch(first[0].text):
            return None
        if not any(map(has_subcommands, names)):
            return None
        rule = ArgRule(subcommand=(first[0].text,))
    return Entry(program.resolved, args=rule, source="allow-always", extent=extent)


def _preset_entries(program: Program) -> Iterator[Entry]:
    names = bare_names(program)
    for preset in dict.fromkeys((*_NARROW, *PRESETS)):
        if not PRESETS[preset].programs.isdisjoint(names):
            yield Entry(program.resolved, args=preset, source="allow-always", extent="preset")
