"""Rules that would have saved questions, from what people have allowed so far."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from clawkit.approvals.allow.entries import entry_to_json
from clawkit.approvals.audit import was_asked
from clawkit.approvals.base import Arg, ArgRule, Entry
from clawkit.approvals.interpreters import is_interpreter, is_shell
from clawkit.approvals.wrappers import look_through

MIN_TIMES = 2
"""What was asked only once may never be asked again."""

Allowed = Callable[[Entry, Mapping[str, Any], str], bool]
"""Whether an entry would let a program of the log (a `ProgramFact`) run in a directory."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Never worth a rule of their own: their harm lies in their arguments, which differ from call to
# call.
_HARMFUL = _words(
    """
    rm rmdir unlink shred srm dd mv cp install ln truncate tee chmod chown chgrp chattr setfacl
    setcap kill pkill killall skill xkill reboot shutdown halt poweroff init systemctl service
    mount umount fdisk parted mkfs mkswap wipefs losetup cryptsetup crontab at batch useradd userdel
    usermod passwd chpasswd visudo iptables nft ufw ip ifconfig route curl wget http https httpie
    aria2c scp sftp rsync rclone ftp lftp tftp nc ncat netcat socat telnet openssl gpg gpg2 pass
    security docker-compose patch ed ex vi vim nvim emacs nano less more man clawkit
    """
)
_ALL = "*"
# Programs with sub-commands, and which of these have some of their own.
_GROUPS = {
    name: _words(groups)
    for name, groups in {
        "git": "stash remote worktree submodule notes bisect lfs bundle reflog sparse-checkout",
        **dict.fromkeys(("gh", "glab", "aws", "gcloud", "az"), _ALL),
        "docker": "compose container image network volume system builder context",
        "podman": "compose container image network volume system pod",
        "kubectl": "config rollout auth",
        **dict.fromkeys(("npm", "pnpm", "yarn"), "run run-script"),
        "bun": "run pm",
        "uv": "pip python cache",
        "go": "mod work",
        "rustup": "toolchain target component",
        "terraform": "state workspace",
        "helm": "repo get",
        "brew": "services",
        "jj": "git bookmark op",
        **dict.fromkeys(("conda", "poetry", "hatch"), "env cache"),
        **dict.fromkeys(("make", "just", "cargo", "pip", "pip3", "apt", "apt-get", "hg"), ""),
        **dict.fromkeys(("svn", "dotnet", "gradle", "mvn", "ruff"), ""),
    }.items()
}
# Sub-commands that can do whatever their arguments say.
_ANYTHING = {
    name: _words(subcommands)
    for name, subcommands in {
        "git": "filter-branch difftool mergetool rebase config",
        "docker": "run exec build",
        "podman": "run exec build unshare",
        "kubectl": "exec run debug attach cp apply delete",
        "npm": "exec x explore",
        "pnpm": "exec dlx",
        "yarn": "exec dlx node",
        "bun": "x exec",
        "uv": "run tool",
        "go": "run generate tool",
        "cargo": "run",
        "poetry": "run shell",
        "hatch": "run shell",
        "gh": "api alias extension auth secret",
    }.items()
}
_PROJECT = _words(
    """
    make just npm pnpm yarn bun cargo go gradle mvn pytest tox nox jest vitest mocha eslint tsc
    vite webpack cmake ninja meson bazel ctest rake bundle mix sbt poetry hatch uv dotnet
    """
)
_PROJECT_NOTE = "it runs what the files of the project say"
_WORD = re.compile(r"[a-z][a-z0-9:_-]{0,40}", re.ASCII)
_PLAIN_PATH = re.compile(r"(?:/[\w.,+@%=:-]+)+", re.ASCII)
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

    @property
    def arguments(self) -> list[str]:
        found: list[str] = self.fact["argv"][1:]
        return found


class _Prompt(NamedTuple):
    """A question that was answered with yes, and what it would have taken to save it."""

    command: str
    calls: tuple[tuple[_Key, _Call], ...]

    @property
    def keys(self) -> dict[_Key, None]:
        return {key: None for key, _ in self.calls}


def has_subcommands(name: str) -> bool:
    """Whether the first argument of a program says which of its many commands is meant."""
    return name in _GROUPS


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
    prompts: list[_Prompt] = []
    refused: set[_Key] = set()
    for record in filter(was_asked, records):
        calls = list(_missed(record))
        found = tuple((key, call) for key, call in calls if key is not None)
        if record.get("verdict") == "deny":
            refused.update(key for key, _ in found)
        # One program that no rule can be made for, and the question comes all the same.
        elif _could_be_saved(record) and 0 < len(calls) == len(found):
            prompts.append(_Prompt(str(record.get("command", "")), found))
    prompts = [prompt for prompt in prompts if refused.isdisjoint(prompt.keys)]
    uses: dict[_Key, list[_Call]] = {}
    for prompt in prompts:
        for key, call in prompt.calls:
            uses.setdefault(key, []).append(call)
    rules = {key: _choose(key, calls, allowed, presets) for key, calls in uses.items()}
    return _rank(prompts, {key: entry for key, entry in rules.items() if entry is not None})


def _could_be_saved(record: Mapping[str, Any]) -> bool:
    """Whether a rule was all that was missing, as far as the record tells everything."""
    asked = record.get("verdict") == "allow" and record.get("code") == "miss"
    return asked and not record.get("cut")


def _rank(prompts: list[_Prompt], rules: dict[_Key, Entry]) -> list[Suggestion]:
    """The rules that save questions often enough, if all of them are added."""
    while True:
        saved: dict[tuple[str, Entry], list[str]] = {}
        for prompt in prompts:
            if rules.keys() >= prompt.keys.keys():
                for rule in {(key.agent, rules[key]): None for key in prompt.keys}:
                    saved.setdefault(rule, []).append(prompt.command)
        kept = {
            key: entry
            for key, entry in rules.items()
            if len(saved.get((key.agent, entry), ())) >= MIN_TIMES
        }
        if len(kept) == len(rules):
            break
        rules = kept
    found = [_suggestion(*rule, commands) for rule, commands in saved.items()]
    return sorted(found, key=lambda each: (-each.count, each.agent, each.words))


def _suggestion(agent: str, entry: Entry, commands: list[str]) -> Suggestion:
    data = entry_to_json(entry)
    args = data.get("args")
    words = ["clawkit", "approvals", "allowlist", "add", entry.pattern, "--agent", agent]
    if args is not None:
        words += ["--args", args if isinstance(args, str) else json.dumps(args)]
    project = os.path.basename(entry.pattern) in _PROJECT
    note = _PROJECT_NOTE if project else ""
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
            yield None, _Call({"argv": []}, cwd)
        elif fact.get("code", "miss") != "":
            yield _key(agent, fact, cwd), _Call(fact, cwd)


def _is_fact(fact: object) -> bool:
    if not isinstance(fact, Mapping) or not isinstance(fact.get("resolved"), str):
        return False
    argv = fact.get("argv")
    return isinstance(argv, list) and bool(argv) and all(isinstance(each, str) for each in argv)


def _key(agent: str, fact: Mapping[str, Any], cwd: str) -> _Key | None:
    resolved: str = fact["resolved"]
    if fact.get("code", "miss") != "miss" or fact.get("wrapper") or not _is_steady(resolved, cwd):
        return None
    name = os.path.basename(resolved)
    if _is_unfit(frozenset({name, os.path.basename(fact["argv"][0])}), fact["argv"]):
        return None
    if name not in _GROUPS:
        return _Key(agent, resolved, "")
    words = _subcommand(name, fact["argv"][1:])
    return _Key(agent, resolved, words) if words else None


def _is_steady(path: str, cwd: str) -> bool:
    """Whether a path means one program, which is not part of what is worked on."""
    if not _PLAIN_PATH.fullmatch(path) or any(part in (".", "..") for part in path.split("/")):
        return False
    inside = cwd.rstrip("/") and path.startswith(cwd.rstrip("/") + "/")
    return not inside and not path.startswith(_SHARED)


def _is_unfit(names: frozenset[str], argv: list[str]) -> bool:
    if not _HARMFUL.isdisjoint(names) or is_interpreter(names) or is_shell(names):
        return True
    return look_through(names, [Arg(each) for each in argv]) is not None


def _subcommand(name: str, arguments: list[str]) -> str:
    """The sub-command of a call, one or two words; empty when it is not worth a rule."""
    if (
        not arguments
        or not _WORD.fullmatch(arguments[0])
        or arguments[0] in _ANYTHING.get(name, ())
    ):
        return ""
    if _GROUPS[name].isdisjoint((_ALL, arguments[0])):
        return arguments[0]
    second = arguments[1] if len(arguments) > 1 else ""
    return f"{arguments[0]} {second}" if _WORD.fullmatch(second) else ""


def _choose(
    key: _Key, calls: list[_Call], allowed: Allowed | None, presets: Collection[str]
) -> Entry | None:
    """The narrowest rule for all calls; None when there is none that would do."""
    rules: list[ArgRule | str | None] = []
    name = os.path.basename(key.resolved)
    if allowed is not None and name in presets:
        rules.append(name)
    firsts = {call.arguments[0] if call.arguments else "" for call in calls}
    if key.subcommand:
        rules.append(ArgRule(subcommand=(key.subcommand,)))
    elif len(firsts) == 1 and _WORD.fullmatch(first := next(iter(firsts))):
        rules.append(ArgRule(subcommand=(first,)))
    else:
        if all(_INSIDE.fullmatch(each) for call in calls for each in call.arguments):
            rules.append(ArgRule(paths="workspace"))
        rules.append(None)
    for rule in rules:
        entry = Entry(key.resolved, args=rule)
        if allowed is None or all(allowed(entry, call.fact, call.cwd) for call in calls):
            return entry
    return None
