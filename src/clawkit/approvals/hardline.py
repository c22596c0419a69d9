"""Commands that nothing allows silently, whatever is configured: a person has to say yes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, pairwise

from clawkit.approvals.base import Analysis, Arg, Program, Rules
from clawkit.approvals.languages import names_of


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OWN = "it could change what clawkit itself allows"
_DISK = "it would overwrite a disk"
_TREE = "it would remove or change a whole system or home directory"
_BOMB = "it starts copies of itself without end"

_DEVICE = re.compile(
    r"/dev/(?:sd[a-z]|hd[a-z]|vd[a-z]|xvd[a-z]|nvme\d|mmcblk\d|dm-\d|md\d|loop\d|zram\d|disk\d"
    r"|rdisk\d|mapper/|disk/|mem\b|kmem\b|port\b)"
)
_FORMATS = _names(
    """wipefs blkdiscard fdisk sfdisk cfdisk gdisk sgdisk parted mkswap mke2fs mkdosfs mkntfs
    badblocks cryptsetup pvcreate pvremove vgremove lvremove zpool"""
)
_LOOKS = frozenset(("-l", "--list", "-V", "--version", "-h", "--help", "-d", "--dump", "-J"))
"""What makes partition tools only look."""
_PRECIOUS = _names(
    """/ /bin /boot /dev /etc /home /lib /lib64 /opt /proc /root /sbin /srv /sys /usr /var /Users
    /System /Library /Applications"""
)
_REMOVERS = frozenset(("rm", "chmod", "chown", "chgrp", "mv", "find"))
_WRITERS = frozenset(("dd", "shred", "tee", "cp", "cat"))
_COPIERS = frozenset(("cp", "rsync", "install"))
_FILLERS = _COPIERS | {"tar", "bsdtar", "gtar", "unzip", "cpio", "7z"}
"""What can put many files into a directory at once, all but copiers into the one they start in."""
_CHANGERS = frozenset(("git", "patch"))
"""What changes many files of the directory it starts in."""
_GIT_LOOKS = frozenset(("status", "log", "diff", "show", "rev-parse", "branch", "--version"))
_ITSELF = frozenset(("clawkit", "openclaw"))
_LOOKED_AT = _FORMATS | _REMOVERS | _WRITERS | _ITSELF
_LOOKING = _names(
    """pending get check log suggest list explain schema validate file --help -h
    --version"""
)
"""What one may do with clawkit itself."""
_QUOTES = re.compile(r"[\"'\\]")
_NAME = r"[A-Za-z_:.][\w:.-]*"
_FORK = re.compile(rf"(?:^|[\s;&|(])(?:function\s+)?({_NAME})\s*\(\s*\)\s*\{{")
_OWN_FILES = re.compile(r"exec-approvals|approvals\.sqlite|clawkit\.json5?\b")
_TEXT = (
    (re.compile(rf"(?:\bof=|>[>|&]?\s{{0,20}}){_DEVICE.pattern}"), _DISK),
    (_OWN_FILES, _OWN),
)
_END = re.compile(r"[;&|()<>`\n{}]")
_CANDIDATE = re.compile(
    rf"(?<![\w.-])(?:{'|'.join(sorted(_LOOKED_AT))}|(?:mkfs|newfs)\S{{0,20}})(?=[\s;&|)]|$)"
)
_MAX_LOOKS, _MAX_CHARACTERS, _MAX_ARGUMENTS, _MAX_FUNCTIONS = 64, 1_000, 20, 20
"""Of a command that is not understood; nobody needs more to remove a directory."""


_SUSPECT = re.compile(
    r"mkfs|newfs|mkswap|mke2fs|mkdosfs|mkntfs|wipefs|blkdiscard|fdisk|gdisk|parted|badblocks"
    r"|cryptsetup|[pvl]v(?:create|remove)|vgremove|zpool|/dev/(?!null\b)"
    r"|\brm\b|\bch(?:mod|own|grp)\b|\bmv\b|-delete|clawkit|openclaw|exec-approvals"
    r"|approvals\.sqlite|\(\s*\)\s*\{"
)


def may_be_hardline(command: str, own: Iterable[str] = ()) -> bool:
    """Whether a command is worth a closer look; `own` are names of clawkit's own files. Only for
    where everything else is allowed: whoever hides well is not found."""
    plain = _QUOTES.sub("", command)
    return _SUSPECT.search(plain) is not None or any(name in plain for name in own)


def find_hardline(analysis: Analysis, rules: Rules, *, home: str) -> str:
    """Why only a person can allow a command; empty when that is not so."""
    if analysis.doubt is not None and (found := _read_text(analysis.command, home, rules)):
        return found
    for segment in analysis.segments:
        for file in segment.files:
            if file.writes and _DEVICE.match(file.path):
                return _DISK
            if rules.is_own(file.path):
                return _OWN
        for program in segment.programs:
            if found := _look_at(program, home, rules):
                return found
    return ""


def _read_text(command: str, home: str, rules: Rules) -> str:
    """What can be seen of a command that is not understood. Quotes and backslashes hide nothing."""
    plain = _QUOTES.sub("", command)
    for name in islice(_FORK.findall(plain), _MAX_FUNCTIONS):
        body = plain.partition("{")[2]
        if body.count(name) > 1 and "|" in body and "&" in body:
            return _BOMB
    if why := next((words for pattern, words in _TEXT if pattern.search(plain)), ""):
        return why
    plain = re.sub(r"\$(?:HOME\b|\{HOME\})", lambda _: home, plain)
    for found in islice(_CANDIDATE.finditer(plain), _MAX_LOOKS):
        piece = plain[found.start() : found.start() + _MAX_CHARACTERS]
        words = _END.split(piece, maxsplit=1)[0].split()[:_MAX_ARGUMENTS]
        program = Program(tuple(map(Arg, words)), "", "", None)
        if why := _look_at(program, home, rules):
            return why
    return ""


def _look_at(program: Program, home: str, rules: Rules) -> str:
    names = names_of(program)
    texts = [arg.text for arg in program.argv[1:]]
    if "-m" in texts and _runs_itself(texts):
        return _OWN
    if _is_looked_at(names) and (why := _by_name(names, texts, program.cwd, home)):
        return why
    if any(map(_OWN_FILES.search, texts)) or _names_own(texts, program.cwd, rules):
        return _OWN
    changes = names & _CHANGERS and not ("git" in names and _GIT_LOOKS.intersection(texts[:1]))
    fills = names & _FILLERS and ("cp" not in names or _is_recursive(names, texts))
    if changes or fills:
        reached = islice(_targets(program, home, texts), bool(names & _COPIERS), None)
        if any(map(rules.holds_own, dict.fromkeys(reached))):
            return _OWN
    return ""


@lru_cache(maxsize=1024)
def _is_looked_at(names: frozenset[str]) -> bool:
    return not _LOOKED_AT.isdisjoint(names) or any(map(_makes_disk, names))


def _makes_disk(name: str) -> bool:
    return name.startswith(("mkfs", "newfs"))


def _by_name(names: frozenset[str], texts: Sequence[str], cwd: str | None, home: str) -> str:
    """What programs of some names do with their arguments."""
    if names & _ITSELF and not _only_looks(texts):
        return _OWN
    if any(map(_makes_disk, names)):
        return _DISK
    if names & _FORMATS and not _LOOKS.issuperset(text for text in texts if text[:1] == "-"):
        return _DISK
    if names & _FORMATS and not any(text[:1] == "-" for text in texts):
        return _DISK
    if names & _WRITERS and any(map(_DEVICE.search, _written(texts))):
        return _DISK
    if names & _REMOVERS and _is_recursive(names, texts):
        targets = [_place(text, cwd, home) for text in texts if text[:1] != "-"]
        if any(each in _PRECIOUS or each == home for each in targets):
            return _TREE
    return ""


def _targets(program: Program, home: str, texts: Sequence[str]) -> Iterator[str]:
    """The directory it starts in, and those that its arguments name."""
    yield program.cwd or "/"
    yield from (_place(text, program.cwd, home) for text in _values(texts))


def _runs_itself(texts: Sequence[str]) -> bool:
    """Whether an interpreter is to run it as a module."""
    return any(
        flag == "-m" and module.partition(".")[0] in _ITSELF for flag, module in pairwise(texts)
    )


def _only_looks(texts: Sequence[str]) -> bool:
    """Whether clawkit is only asked something. `clawkit tools call` runs tools of another run."""
    words = [text for text in texts if text[:1] != "-"]
    match words:
        case [] | ["ps" | "logs" | "doctor", *_]:
            return "--fix" not in texts
        case ["approvals" | "config" | "tools", verb, *_]:
            return verb in _LOOKING
        case ["approvals" | "config" | "tools"]:
            return True
    return False


def _written(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        if not text.startswith("if="):
            yield text


def _is_recursive(names: frozenset[str], texts: Sequence[str]) -> bool:
    if "find" in names:
        return "-delete" in texts
    if "mv" in names:
        return True
    flags = [text for text in texts if text[:1] == "-"]
    if "cp" in names and any(flag == "--archive" or flag[1:2] == "a" for flag in flags):
        return True
    return any(
        flag.startswith("--rec") if flag.startswith("--") else "r" in flag.lower() for flag in flags
    )


def _place(text: str, cwd: str | None, home: str) -> str:
    """Where an argument leads; a pattern for all that is in a directory is the directory."""
    text = text[:-2] or "/" if text.endswith("/*") else text
    if text == "~" or text.startswith("~/"):
        text = home + text[1:]
    return os.path.normpath(os.path.join(cwd or "/", text)).replace("//", "/")


def _values(texts: Sequence[str]) -> Iterator[str]:
    """What may name a file: arguments, and the values that are part of flags."""
    for text in texts:
        if text[:1] != "-":
            yield text
        elif "=" in text:
            yield text.partition("=")[2]
        elif text[:2] != "--" and len(text) > 2:
            yield text[2:]


def _names_own(texts: Sequence[str], cwd: str | None, rules: Rules) -> bool:
    """Whether an argument, or the directory it starts in, leads to what is clawkit's own."""
    if cwd is not None and rules.is_own(cwd):
        return True
    start = f"{(cwd or '').rstrip('/')}/"
    for value in dict.fromkeys(_values(texts)):
        if "\0" not in value and rules.is_own(value if value[:1] == "/" else start + value):
            return True
    return False
