"""Safe programs: filters that need no approval as long as they only turn input into output.

The options listed in a profile neither open files nor start programs, whatever their value.
Everything else, including abbreviated flags, is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from clawkit.approvals import options as opts
from clawkit.approvals.arguments import find_steering, show
from clawkit.approvals.inline_code import is_interpreter, is_shell
from clawkit.approvals.types import ApprovalRules, Match, Program
from clawkit.config.sections.tools import SafeBinProfile
from clawkit.word_tables import read_words

NEVER = opts.words_of(
    """bwk busybox cmd cscript ed emacs env ex find git gmake java less make more nano nvim parallel
    psh rlwrap sqlite sqlite3 ssh su sudo doas toybox vi vim wscript xargs"""
)
"""They run code or programs, like interpreters and shells, so no list of flags makes them safe."""


class ArgumentProfile(NamedTuple):
    """The arguments that a program may be given."""

    options: opts.Table
    least: int = 0
    most: int | None = 0
    """Non-flag arguments, not counting `-` for standard input."""
    numbers: bool = False
    complete: bool = True
    """Whether the profile is built in, so that no flag value can be a file."""


def read_profiles(table: str) -> dict[str, ArgumentProfile]:
    """The built-in profiles in a table such as `safe_bins.txt`."""
    found: dict[str, dict[str, list[str]]] = {}
    for key, words in read_words(__file__, table).items():
        names, _, kind = key.rpartition(" ")
        for name in names.split(","):
            found.setdefault(name, {})[kind] = words
    return {name: _make_profile(**kinds) for name, kinds in found.items()}


def _make_profile(
    *,
    flag: list[str],
    arguments: list[str] | None = None,
    numbers: list[str] | None = None,
    **options: list[str],
) -> ArgumentProfile:
    texts = {kind: " ".join(words) for kind, words in options.items()}
    table = opts.make_table(flag=" ".join((*flag, "--help", "--version")), **texts)
    least, most = map(int, arguments or ("0", "0"))
    return ArgumentProfile(table, least, most, numbers is not None)


PROFILES: Mapping[str, ArgumentProfile] = MappingProxyType(read_profiles("safe_bins.txt"))


def find_profile(name: str, configured: Mapping[str, SafeBinProfile]) -> ArgumentProfile | None:
    """The operator's profile of a program, else the built-in one."""
    given = configured.get(name)
    if given is None:
        return PROFILES.get(name)
    least = given.min_positional or 0
    options = dict.fromkeys(given.allowed_flags, opts.FLAG)
    # Denied flags stay in the table, so that `-exec` is not read as `-e -x -e -c`.
    for kind, flags in (("value", given.allowed_value_flags), (opts.DENIED, given.denied_flags)):
        options |= dict.fromkeys((*flags, *(f"{flag}=" for flag in flags)), kind)
    most = None if given.max_positional is None else max(least, given.max_positional)
    return ArgumentProfile(options, least, most, complete=False)


_WORDS = opts.words_of(
    """add all and any arrays ascii_downcase ascii_upcase booleans ceil contains elif else empty end
    endswith false first flatten floor from_entries fromjson group_by has if index inside iterables
    join keys keys_unsorted last length ltrimstr map map_values max max_by min min_by not null nulls
    numbers objects or reverse round rtrimstr scalars select sort sort_by split startswith strings
    then to_entries tojson tonumber tostring true type unique unique_by values with_entries"""
)
_FILTER = re.compile(
    rf"""(?>(?:[ \t\r\n]+
    |"(?>(?:[^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{{4}})*)"
    |[0-9]+(?:\.[0-9]+)?
    |\.[A-Za-z_][A-Za-z0-9_]*
    |[A-Za-z_][A-Za-z0-9_]*(?=\s*:)    # a key
    |(?:{"|".join(_WORDS)})(?![A-Za-z0-9_])
    |(?:\.(?!\.)|==|!=|<=|>=|//|[][(){{}}:;,|?<>+-]))*)""",
    re.VERBOSE,
)
_MAX_FILTER = 4_096
_MAX_GROWTH = 8
"""Limit for operators that can multiply the output: each one could double it."""


def check_filter(text: str) -> str:
    """Why a jq filter is not known to be harmless; empty if it is. Only words that process the
    input are: none that reads the environment, files or more input, defines, imports or loops."""
    if len(text) > _MAX_FILTER:
        return "the filter is too long"
    if sum(text.count(each) for each in ("+", ",", "tojson")) > _MAX_GROWTH:
        return "the filter could make its output many times as large as its input"
    rest = _FILTER.sub("", text, count=1)
    return f"the filter has {show(rest)!r}, which is not known to be harmless" if rest else ""


_SYSTEM = frozenset(("/bin", "/sbin", "/usr/bin", "/usr/sbin"))
_TRUSTED = frozenset(("/bin", "/usr/bin"))
_MULTI_CALL = frozenset(("busybox", "toybox", "coreutils"))
"""Multi-call binaries act according to the name they are called by, so their own name proves
nothing."""
_WRITABLE_BY_OTHERS = 0o022
_SHOWN = 200
_ABOUT = frozenset(("--help", "--version"))
_PATTERNS = frozenset(("-e", "--regexp"))
BELOW = "/**"
"""Suffix of a pattern for all files of a tree."""


def check_safe_bin(program: Program, rules: ApprovalRules) -> Match | str:
    """A match for a harmless call of a safe program, or why it is not one."""
    name = opts.base_name(program.name)
    if name not in rules.safe_bins:
        return f"{show(name)} is not a safe program"
    if _runs_code(name, opts.base_name(program.resolved), opts.base_name(program.real)):
        return "it runs code, so it is never a safe program"
    profile = find_profile(name, rules.profiles)
    if profile is None:
        return f"it has no profile; add safeBinProfiles.{show(name)}"
    if not program.by_name and not program.name.startswith("/"):
        return "it was called by a relative path; call it by its name"
    if not is_trusted(program, rules):
        return f"{show(program.resolved)} is not in a trusted directory for safe programs"
    if variable := find_steering(program.assigned):
        return f"the variable {show(variable)} is set for it"
    call = read_call(name, profile, program)
    why = call if isinstance(call, str) else _check_count(name, profile, call)
    return why or Match("safe-bin", f"{name} (safe program)", children="named", changes=False)


def is_trusted(program: Program, rules: ApprovalRules) -> bool:
    """Whether a program is in a directory where only the operator installs programs."""
    if is_replaceable(program, rules):
        return False
    folders = _TRUSTED
    if rules.trusted_dirs:
        plain = map(_plain_folder, rules.trusted_dirs)
        folders = folders.union(each for each in plain if each and each != program.cwd)
    if _folder_of(program.resolved) in folders:
        return True
    same = opts.base_name(program.resolved) == opts.base_name(program.real)
    return same and _folder_of(program.real) in folders


def is_replaceable(program: Program, rules: ApprovalRules) -> bool:
    """Whether the agent could replace a program, or a link to it."""
    path, real = program.resolved, program.real
    return is_changeable(path, rules) or (real != path and is_changeable(real, rules))


def is_changeable(path: str, rules: ApprovalRules) -> bool:
    """Whether the agent could put another program in the place of one."""
    folder = _folder_of(path)
    return folder not in _SYSTEM and (rules.may_write(folder) or rules.may_write(path))


def is_open_place(path: str, rules: ApprovalRules) -> bool:
    """Whether the agent may write into the directory of a program."""
    folder = _folder_of(path)
    # If everything is writable, so are the system directories, and no rule about programs helps.
    return folder not in _SYSTEM and rules.may_write(folder)


def _folder_of(path: str) -> str:
    """`os.path.dirname`, but faster for most paths."""
    folder = path.rpartition("/")[0]
    return folder if folder and folder[-1] != "/" else os.path.dirname(path)


def safe_bin_warnings(rules: ApprovalRules) -> Iterator[str]:
    """Problems of the operator's safe programs and trusted directories."""
    for name in rules.safe_bins:
        if is_interpreting({name}):
            yield f"safeBins has {show(name)!r}, which runs code and is never considered safe"
        elif find_profile(name, rules.profiles) is None:
            shown = show(name)
            yield f"safeBins has {shown!r}, which has no profile: add safeBinProfiles.{shown}"
    for folder in rules.trusted_dirs:
        start = f"safeBinTrustedDirs has {show(folder, _SHOWN)!r}, which"
        if not _plain_folder(folder):
            yield f"{start} is not an absolute path"
            continue
        try:
            mode = os.stat(folder).st_mode
        except (OSError, ValueError):
            yield f"{start} does not exist"
            continue
        if mode & _WRITABLE_BY_OTHERS:
            yield f"{start} is writable by others"


def _plain_folder(folder: str) -> str:
    return os.path.normpath(folder) if folder.startswith("/") else ""


# Cached: there are few safe programs.
@lru_cache(maxsize=256)
def _runs_code(name: str, resolved: str, real: str) -> bool:
    return is_interpreting({name, resolved, real} - _MULTI_CALL) or name in _MULTI_CALL


def is_interpreting(names: set[str]) -> bool:
    """Whether a program with one of these names runs code from its arguments or input."""
    stems = {name.rstrip("0123456789.-") for name in names}
    return not NEVER.isdisjoint(names | stems) or is_interpreter(names) or is_shell(names)


class SafeCall(NamedTuple):
    """A call whose flags are all known to be harmless."""

    flags_seen: frozenset[str]
    words: tuple[str, ...]
    """Its other arguments, except `-` for standard input."""

    def has_pattern(self, name: str) -> bool:
        """Whether the search pattern is the value of a flag."""
        return name in ("grep", "rg") and not self.flags_seen.isdisjoint(_PATTERNS)


def read_call(
    name: str, profile: ArgumentProfile, program: Program, *, looks: bool = False
) -> SafeCall | str:
    """A call, or why it is not harmless. `looks`: files are allowed, and whole trees as `/**`."""
    if name == "jq" and any(arg.text == "--" for arg in program.argv):
        return "not with --"
    seen: set[str] = set()
    words: list[str] = []
    try:
        for option in opts.read_options(
            program.argv, profile.options, permutes=True, numbers=profile.numbers
        ):
            if option.kind == opts.DENIED:
                return f"not with {show(option.name)}"
            if option.kind == opts.OPERAND:
                if program.argv[option.at].glob and not (looks and option.value.endswith(BELOW)):
                    return f"{show(option.value)} is a glob pattern"
                # For tr it is a set of characters, for others standard input.
                if option.value == "-" and name != "tr":
                    continue
                words.append(option.value)
            else:
                seen.add(option.name)
                if option.kind == opts.FLAG:
                    continue
                is_number = option.value.isascii() and option.value.isdigit()
                if name == "jq" and not is_number:
                    return f"{option.name} takes a number"
            if not profile.complete and (why := _check_file(option.value, program.cwd)):
                return why
    except opts.OptionError as error:
        shown = show(error.name)
        return f"{shown} {error.problem}" if error.problem else f"not with {shown}"
    return SafeCall(frozenset(seen), tuple(words))


def _check_file(text: str, cwd: str | None) -> str:
    """Any argument of a program without a built-in profile could be a file."""
    if "/" in text or text.startswith(("~", ".")):
        return f"{show(text)} could be a file"
    if cwd is None or os.path.lexists(os.path.join(cwd, text)):
        return f"{show(text)} is a file, or could be one"
    return ""


def _check_count(name: str, profile: ArgumentProfile, call: SafeCall) -> str:
    least, most = profile.least, profile.most
    if profile.complete and not call.flags_seen.isdisjoint(_ABOUT):
        least = 0
    if profile.complete and call.has_pattern(name):
        least = most = 0
    if len(call.words) < least:
        return "it needs an argument besides its flags"
    if most is not None and len(call.words) > most:
        return f"{show(call.words[most])} would be read as a file"
    if name == "jq":
        return next(filter(None, map(check_filter, call.words)), "")
    return ""
