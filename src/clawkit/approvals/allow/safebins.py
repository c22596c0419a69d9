"""Programs that need no approval as long as they only turn their input into output."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache

from clawkit.approvals.allow.arguments import find_steering, show
from clawkit.approvals.allow.profiles import NEVER, Profile, check_filter, find_profile, is_short
from clawkit.approvals.base import Match, Program, Rules
from clawkit.approvals.interpreters import is_interpreter, is_shell
from clawkit.approvals.operands import base_name

_SYSTEM = frozenset(("/bin", "/sbin", "/usr/bin", "/usr/sbin"))
_TRUSTED = frozenset(("/bin", "/usr/bin"))
_MANY_IN_ONE = frozenset(("busybox", "toybox", "coreutils"))
"""Act by the name they are called by, so being one of these says nothing."""
_WRITABLE_BY_OTHERS = 0o022
_SHOWN = 200
_ABOUT = frozenset(("--help", "--version"))
_PATTERNS = frozenset(("-e", "--regexp"))


def check_safe_bin(program: Program, rules: Rules) -> Match | str:
    """A match for a harmless call of a safe program, or why it is none."""
    name = base_name(program.name)
    if name not in rules.safe_bins:
        return f"{show(name)} is no safe program"
    if _runs_code(name, base_name(program.resolved), base_name(program.real)):
        return "it runs code, which no safe program does"
    profile = find_profile(name, rules.profiles)
    if profile is None:
        return "which of its arguments are harmless is not known"
    why = (
        _check_origin(program, rules)
        or _check_surroundings(program)
        or _Reading(name, profile, program).check()
    )
    return why or Match("safe-bin", f"{name} (safe program)", children="named")


def safe_bin_warnings(rules: Rules) -> list[str]:
    """What the operator should know about the safe programs and where they may come from."""
    return [*_name_warnings(rules), *_folder_warnings(rules)]


def is_trusted(program: Program, rules: Rules) -> bool:
    """Whether a program comes from a directory that only the operator puts programs into."""
    if is_replaceable(program, rules):
        return False
    folders = _TRUSTED
    if rules.trusted_dirs:
        plain = map(_plain_folder, rules.trusted_dirs)
        folders = folders.union(each for each in plain if each and each != program.cwd)
    if _folder_of(program.resolved) in folders:
        return True
    same = base_name(program.resolved) == base_name(program.real)
    return same and _folder_of(program.real) in folders


def is_replaceable(program: Program, rules: Rules) -> bool:
    """Whether whoever runs commands could make another program of one, or of a link to it."""
    path, real = program.resolved, program.real
    return is_changeable(path, rules) or (real != path and is_changeable(real, rules))


def is_changeable(path: str, rules: Rules) -> bool:
    """Whether whoever runs commands could put another program into the place of one."""
    folder = _folder_of(path)
    return folder not in _SYSTEM and (rules.may_write(folder) or rules.may_write(path))


def is_open_place(path: str, rules: Rules) -> bool:
    """Whether the directory of a program is one that whoever runs commands may write into."""
    folder = _folder_of(path)
    # Where everything may be written, so may these: then no rule about programs holds anyway.
    return folder not in _SYSTEM and rules.may_write(folder)


def _folder_of(path: str) -> str:
    """`os.path.dirname`, in less time for most paths."""
    folder = path.rpartition("/")[0]
    return folder if folder and folder[-1] != "/" else os.path.dirname(path)


def _name_warnings(rules: Rules) -> Iterator[str]:
    for name in rules.safe_bins:
        if _is_interpreting({name}):
            yield f"safeBins has {show(name)!r}, which runs code and is never taken for safe"
        elif find_profile(name, rules.profiles) is None:
            yield (
                f"safeBins has {show(name)!r}, but which of its arguments are harmless is not "
                f"known: add safeBinProfiles.{show(name)}"
            )


def _folder_warnings(rules: Rules) -> Iterator[str]:
    for folder in rules.trusted_dirs:
        start = f"safeBinTrustedDirs has {show(folder, _SHOWN)!r}, which"
        if not _plain_folder(folder):
            yield f"{start} is no absolute path"
            continue
        try:
            mode = os.stat(folder).st_mode
        except (OSError, ValueError):
            yield f"{start} is not there"
            continue
        if mode & _WRITABLE_BY_OTHERS:
            yield f"{start} others can write into"


def _plain_folder(folder: str) -> str:
    return os.path.normpath(folder) if folder.startswith("/") else ""


# Safe programs are few, and so are the names of the files that they are.
@lru_cache(maxsize=256)
def _runs_code(name: str, resolved: str, real: str) -> bool:
    return _is_interpreting({name, resolved, real} - _MANY_IN_ONE) or name in _MANY_IN_ONE


def _is_interpreting(names: set[str]) -> bool:
    stems = {name.rstrip("0123456789.-") for name in names}
    return not NEVER.isdisjoint(names | stems) or is_interpreter(names) or is_shell(names)


def _check_origin(program: Program, rules: Rules) -> str:
    if not program.by_name and not program.name.startswith("/"):
        return "not by a relative path; call it by its name"
    if not is_trusted(program, rules):
        return f"{show(program.resolved)} is in no directory that safe programs come from"
    return ""


def _check_surroundings(program: Program) -> str:
    if name := find_steering(program.assigned):
        return f"the variable {show(name)} is set for it"
    if program.notes:
        return program.notes[0]
    return ""


class _Reading:
    """Goes through the arguments of a call as the program would."""

    def __init__(self, name: str, profile: Profile, program: Program) -> None:
        self._name = name
        self._profile = profile
        self._cwd = program.cwd
        self._left = list(reversed(program.argv[1:]))
        self._seen: set[str] = set()
        self._words: list[str] = []

    def check(self) -> str:
        """Why the arguments are not harmless; empty when they are."""
        flags = True
        while self._left:
            arg = self._left.pop()
            text = arg.text
            if arg.glob:
                return f"{show(text)} stands for files"
            if flags and text == "--" and self._name != "jq":
                flags = False
            elif flags and text.startswith("-") and text != "-":
                if why := self._check_flag(text):
                    return why
            elif why := self._check_word(text):
                return why
        return self._check_count()

    def _check_flag(self, text: str) -> str:
        if self._profile.numbers and text[1:].isascii() and text[1:].isdigit():
            return ""
        if text.startswith("--"):
            return self._check_long(text)
        exact = text.partition("=")[0]
        if not self._profile.complete and not is_short(exact) and self._profile.knows(exact):
            return self._check_long(text)
        return self._check_letters(text)

    def _check_long(self, text: str) -> str:
        profile = self._profile
        name, equals, value = text.partition("=")
        flag = self._complete(name)
        if flag in profile.denied or not profile.knows(flag):
            return f"not with {show(name)}"
        self._seen.add(flag)
        if flag in profile.values:
            return self._check_value(flag, value) if equals else self._check_next(flag)
        if equals and flag not in profile.maybe:
            return f"{show(name)} takes no value"
        return ""

    def _complete(self, name: str) -> str:
        """The flag that a short form means; the form itself if it could be several."""
        profile = self._profile
        # jq knows no short forms, and of others not all flags may be known.
        if profile.knows(name) or not profile.complete or self._name == "jq":
            return name
        found = [each for each in profile.known if each.startswith(name)]
        return found[0] if len(found) == 1 else name

    def _check_letters(self, text: str) -> str:
        profile = self._profile
        for at in range(1, len(text)):
            flag = f"-{text[at]}"
            takes_value = flag in profile.values
            if flag in profile.denied or not (takes_value or flag in profile.flags):
                return f"not with {show(flag)}"
            self._seen.add(flag)
            if takes_value:
                value = text[at + 1 :]
                return self._check_value(flag, value) if value else self._check_next(flag)
        return ""

    def _check_next(self, flag: str) -> str:
        if not self._left:
            return f"{flag} has no value"
        arg = self._left.pop()
        if arg.glob:
            return f"{show(arg.text)} stands for files"
        return self._check_value(flag, arg.text)

    def _check_value(self, flag: str, value: str) -> str:
        if self._name == "jq":
            return "" if value.isascii() and value.isdigit() else f"{flag} takes a number"
        return self._check_file(value)

    def _check_word(self, text: str) -> str:
        # For tr it is a set of characters, for the others their input.
        if text != "-" or self._name == "tr":
            self._words.append(text)
            return self._check_file(text)
        return ""

    def _check_file(self, text: str) -> str:
        """Of a program that is not known here, every argument could be a file."""
        if self._profile.complete:
            return ""
        if "/" in text or text.startswith(("~", ".")):
            return f"{show(text)} could be a file"
        if self._cwd is None or os.path.lexists(os.path.join(self._cwd, text)):
            return f"{show(text)} is a file, or could be one"
        return ""

    def _check_count(self) -> str:
        profile = self._profile
        least, most = profile.least, profile.most
        if profile.complete and not self._seen.isdisjoint(_ABOUT):
            least = 0
        if profile.complete and not self._seen.isdisjoint(_PATTERNS) and self._name == "grep":
            least = most = 0
        count = len(self._words)
        if count < least:
            return "not without an argument beside its flags"
        if most is not None and count > most:
            return f"{show(self._words[most])} would be read as a file"
        if self._name == "jq":
            return next(filter(None, map(check_filter, self._words)), "")
        return ""
