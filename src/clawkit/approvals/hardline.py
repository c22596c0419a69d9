"""Commands that only a person can allow, whatever is configured."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise

from clawkit.approvals.options import words_of
from clawkit.approvals.types import Analysis, ApprovalRules, Arg, Program

_OWN = "it could change what clawkit itself allows"
_DISK = "it would overwrite a disk"
_TREE = "it would remove or change a whole system or home directory"
_BOMB = "it is a fork bomb"

# Most commands need only two of these patterns; the others are compiled on first use.
_DEVICE = (
    r"/dev/(?:sd[a-z]|hd[a-z]|vd[a-z]|xvd[a-z]|nvme\d|mmcblk\d|dm-\d|md\d|loop\d|zram\d|disk\d"
    r"|rdisk\d|mapper/|disk/|mem\b|kmem\b|port\b)"
)
_FORMATS = words_of(
    """wipefs blkdiscard fdisk sfdisk cfdisk gdisk sgdisk parted mkswap mke2fs mkdosfs mkntfs
    badblocks cryptsetup pvcreate pvremove vgremove lvremove zpool"""
)
_READ_ONLY_FLAGS = words_of("-l --list -V --version -h --help -d --dump -J")
_PRECIOUS = words_of(
    """/ /bin /boot /dev /etc /home /lib /lib64 /opt /proc /root /sbin /srv /sys /usr /var /Users
    /System /Library /Applications"""
)
_REMOVERS = frozenset(("rm", "chmod", "chown", "chgrp", "mv", "find"))
_WRITERS = frozenset(("dd", "shred", "tee", "cp", "cat"))
_COPIERS = frozenset(("cp", "rsync", "install"))
_FILLERS = _COPIERS | {"tar", "bsdtar", "gtar", "unzip", "cpio", "7z"}
"""They can write many files into a directory; all but copiers write into the current one."""
_CHANGERS = frozenset(("git", "patch"))
_GIT_READ_ONLY = frozenset(("status", "log", "diff", "show", "rev-parse", "branch", "--version"))
_CLAWKIT = frozenset(("clawkit", "openclaw"))
_CHECKED = _FORMATS | _REMOVERS | _WRITERS | _CLAWKIT
_READ_ONLY_VERBS = words_of(
    "pending get check log suggest list explain schema validate file --help -h --version"
)
_QUOTES = re.compile(r"[\"'\\]")
_NAME = r"[A-Za-z_:.][\w:.-]*"
_FORK = rf"(?:^|[\s;&|(])(?:function\s+)?({_NAME})\s*\(\s*\)\s*\{{"
_OWN_FILES = r"exec-approvals|approvals\.sqlite|clawkit\.json5?\b"
_TO_DEVICE = rf"(?:\bof=|>[>|&]?\s{{0,20}}){_DEVICE}"
_END = r"[;&|()<>`\n{}]"
_CANDIDATE = rf"(?<![\w.-])(?:{'|'.join(sorted(_CHECKED))}|(?:mkfs|newfs)\S{{0,20}})(?=[\s;&|)]|$)"
_MAX_CANDIDATES, _MAX_CHARACTERS, _MAX_ARGUMENTS, _MAX_FUNCTIONS = 64, 1_000, 20, 20
"""Limits for a command that is not understood; removing a directory takes less."""

_SUSPECT = re.compile(
    rf"mkfs|newfs|{'|'.join(sorted(_FORMATS))}|/dev/(?!null\b)|\brm\b|\bch(?:mod|own|grp)\b|\bmv\b"
    r"|-delete|clawkit|openclaw|exec-approvals|approvals\.sqlite|\(\s*\)\s*\{"
)


def may_be_hardline(command: str, own_names: Iterable[str] = ()) -> bool:
    """Whether a command needs a full check; `own_names` are names of clawkit's own files. Only for
    when everything else is allowed: a command in disguise is not detected."""
    plain = _QUOTES.sub("", command)
    return _SUSPECT.search(plain) is not None or any(name in plain for name in own_names)


def find_hardline(analysis: Analysis, rules: ApprovalRules, *, home: str) -> str:
    """Why only a person can allow a command; empty if others can."""
    if analysis.doubt is not None and (found := _read_text(analysis.command, home, rules)):
        return found
    for segment in analysis.segments:
        for file in segment.files:
            if file.writes and re.match(_DEVICE, file.path):
                return _DISK
            if rules.is_own(file.path):
                return _OWN
        for program in segment.programs:
            if found := _check(program, home, rules):
                return found
    return ""


def _read_text(command: str, home: str, rules: ApprovalRules) -> str:
    """Search the text of a command that is not understood, ignoring quotes and backslashes."""
    plain = _QUOTES.sub("", command)
    for name in islice(re.findall(_FORK, plain), _MAX_FUNCTIONS):
        body = plain.partition("{")[2]
        if body.count(name) > 1 and "|" in body and "&" in body:
            return _BOMB
    if re.search(_TO_DEVICE, plain):
        return _DISK
    if re.search(_OWN_FILES, plain):
        return _OWN
    plain = re.sub(r"\$(?:HOME\b|\{HOME\})", lambda _: home, plain)
    for found in islice(re.finditer(_CANDIDATE, plain), _MAX_CANDIDATES):
        piece = plain[found.start() : found.start() + _MAX_CHARACTERS]
        words = re.split(_END, piece, maxsplit=1)[0].split()[:_MAX_ARGUMENTS]
        program = Program(tuple(map(Arg, words)), "", "", None)
        if why := _check(program, home, rules):
            return why
    return ""


def _check(program: Program, home: str, rules: ApprovalRules) -> str:
    from clawkit.approvals.inline_code import names_of  # imported late: rarely needed

    names, cwd = names_of(program), program.cwd
    texts = [arg.text for arg in program.argv[1:]]
    # An interpreter can run clawkit as a module.
    modules = (name.partition(".")[0] for flag, name in pairwise(texts) if flag == "-m")
    if not _CLAWKIT.isdisjoint(modules):
        return _OWN
    if why := _by_name(names, texts, cwd, home):
        return why
    values = dict.fromkeys(_values(texts))
    start = f"{(cwd or '').rstrip('/')}/"
    named = (value if value[:1] == "/" else start + value for value in values if "\0" not in value)
    if any(re.search(_OWN_FILES, text) for text in texts) or any(
        map(rules.is_own, (cwd or "", *named))
    ):
        return _OWN
    changes = names & _CHANGERS and not ("git" in names and _GIT_READ_ONLY.intersection(texts[:1]))
    fills = names & _FILLERS and ("cp" not in names or _is_recursive(names, texts))
    if changes or fills:
        reached = {_place(text, cwd, home) for text in values}
        if not names & _COPIERS:
            reached.add(cwd or "/")
        if any(map(rules.holds_own, reached)):
            return _OWN
    return ""


def _by_name(names: frozenset[str], texts: Sequence[str], cwd: str | None, home: str) -> str:
    flags = [text for text in texts if text[:1] == "-"]
    if names & _CLAWKIT and not _is_read_only(texts):
        return _OWN
    if any(name.startswith(("mkfs", "newfs")) for name in names):
        return _DISK
    if names & _FORMATS and not (flags and _READ_ONLY_FLAGS.issuperset(flags)):
        return _DISK
    written = (text for text in texts if not text.startswith("if="))
    if names & _WRITERS and any(re.search(_DEVICE, text) for text in written):
        return _DISK
    if names & _REMOVERS and _is_recursive(names, texts):
        targets = [_place(text, cwd, home) for text in texts if text[:1] != "-"]
        if any(each in _PRECIOUS or each == home for each in targets):
            return _TREE
    return ""


def _is_read_only(texts: Sequence[str]) -> bool:
    """Whether clawkit is only queried. `clawkit tools call` runs tools outside this run."""
    words = [text for text in texts if text[:1] != "-"]
    match words:
        case [] | ["ps" | "logs" | "doctor", *_]:
            return "--fix" not in texts
        case ["approvals" | "config" | "tools", verb, *_]:
            return verb in _READ_ONLY_VERBS
        case ["approvals" | "config" | "tools"]:
            return True
    return False


def _is_recursive(names: frozenset[str], texts: Sequence[str]) -> bool:
    if "find" in names:
        return "-delete" in texts
    if "mv" in names:
        return True
    archive = "cp" in names and any(text == "--archive" or text[:2] == "-a" for text in texts)
    return archive or any(
        text.startswith("--rec")
        if text.startswith("--")
        else text[:1] == "-" and "r" in text.lower()
        for text in texts
    )


def _place(text: str, cwd: str | None, home: str) -> str:
    """The path of an argument; a glob for everything in a directory is that directory."""
    text = text[:-2] or "/" if text.endswith("/*") else text
    if text == "~" or text.startswith("~/"):
        text = home + text[1:]
    return os.path.normpath(os.path.join(cwd or "/", text)).replace("//", "/")


def _values(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        if text[:1] != "-":
            yield text
        elif "=" in text:
            yield text.partition("=")[2]
        elif text[:2] != "--" and len(text) > 2:
            yield text[2:]
