"""What the shell does itself: which commands of its own are understood, which variables may be set.

All of it is decided by the words alone. What is not known to be harmless is a `Doubt`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from clawkit.approvals.base import Arg
from clawkit.approvals.shell.nodes import Doubt
from clawkit.process.blocked import why_refused
from clawkit.text import one_line


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


KEYWORDS = _names(
    """
    if then else elif fi case esac for select while until do done in function time { } ! [[ ]]
    coproc
    """
)
BUILTINS = _names(
    """
    . : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare
    dirs disown echo enable eval exec exit export false fc fg getopts hash help history jobs kill
    let local logout mapfile popd printf pushd pwd read readarray readonly return set shift shopt
    source suspend test times trap true type typeset ulimit umask unalias unset wait
    """
)
OWN_NAMES = KEYWORDS | BUILTINS
"""Names that bash looks up in no directory."""
CARRIERS = frozenset(("command", "exec"))
"""Builtins that start another command."""

_SPECIAL = _names(
    """
    _ IFS PATH PWD OLDPWD SHLVL UID EUID PPID RANDOM SRANDOM SECONDS LINENO FUNCNAME FUNCNEST
    GROUPS DIRSTACK HOSTNAME HOSTTYPE HOSTFILE OSTYPE MACHTYPE OPTARG OPTIND OPTERR REPLY COPROC
    MAPFILE PIPESTATUS PROMPT_COMMAND PROMPT_DIRTRIM PS0 PS1 PS2 PS3 PS4 TIMEFORMAT TMOUT TMPDIR
    POSIXLY_CORRECT GLOBIGNORE GLOBSORT EXECIGNORE FIGNORE CDPATH CHILD_MAX IGNOREEOF INPUTRC
    FCEDIT EMACS INSIDE_EMACS MAIL MAILCHECK MAILPATH AUTO_RESUME HISTCHARS ENV COMPREPLY
    """
)
_SPECIAL_STARTS = ("BASH", "COMP_", "EPOCH", "HIST", "LANG", "LC_", "READLINE_")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# No other character set: the shell reads the rest of a command by the one that is in force.
_LOCALE = re.compile(
    r"|(?:C|POSIX|[a-z]{2,3}(?:_[A-Z]{2})?(?=\.))(?:\.(?:UTF-8|utf8))?(?:@[a-z]+)?"
)

_TEST_UNARY = _names("-b -c -d -e -f -g -h -k -n -p -r -s -t -u -w -x -z -G -L -N -O -S")
_TEST_TEXT = frozenset(("=", "==", "!=", "<", ">", "-nt", "-ot", "-ef"))
_TEST_NUMBER = _names("-eq -ne -lt -le -gt -ge")
_TEST_NEVER = frozenset(("-v", "-R", "-a", "-o", "(", ")"))
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")

_CONVERSION = re.compile(r"%(?:%|[-+ 0#']{0,5}[0-9]{0,4}(?:\.[0-9]{0,4})?([a-zA-Z]))")
_OF_TEXT = frozenset("bcqs")
_OF_NUMBER = frozenset("aAdeEfFgGiouxX")
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,18}(?:\.[0-9]{0,18})?)?")

_SET_LETTERS = re.compile(r"[-+][eu]*o?")
_SET_OPTIONS = frozenset(("errexit", "nounset", "pipefail"))


def is_special(name: str) -> bool:
    """Whether a variable means something to bash itself."""
    return name in _SPECIAL or name.startswith(_SPECIAL_STARTS)


def check_name(name: str, value: str, at: int, *, in_shell: bool) -> None:
    """Raise `Doubt` unless a variable may be set by a command. `in_shell` is for one that the
    shell has itself from then on, not only the programs it starts."""
    upper = name.upper()
    why = ""
    if not _NAME.fullmatch(name):
        why = "is no name of a variable"
    elif upper.startswith("LC_") or upper in ("LANG", "LANGUAGE"):
        if in_shell:
            why = "changes how the shell reads a command; set it in front of a program"
        elif not _LOCALE.fullmatch(value):
            why = "may only name a language in UTF-8, such as C.UTF-8"
    elif is_special(upper):
        why = "means something to the shell itself"
    else:
        why = why_refused(name)
    if why:
        raise Doubt(f"the variable {one_line(name, 40)!r} {why}", at, "assignment")


def check_builtin(name: str, args: Sequence[Arg], at: int) -> None:
    """Raise `Doubt` unless a command of the shell itself is harmless with these arguments."""
    check = _CHECKS.get(name)
    if check is None:
        raise Doubt(f"what {name!r} does to the shell is not followed", at, "builtin")
    check(args, at)


def read_exports(args: Sequence[Arg], at: int) -> list[tuple[str, str]]:
    """The variables that `export` sets. Their names are yet to be checked."""
    _all_literal("export", args)
    pairs = []
    for arg in args:
        name, equals, value = arg.text.partition("=")
        if not equals:
            raise Doubt("export is only understood as export NAME=value", arg.at, "builtin")
        if value.startswith("~") or ":~" in value:
            raise Doubt("export may put the home directory in place of ~", arg.at, "builtin")
        pairs.append((name, value))
    if not pairs:
        raise Doubt("export without a variable shows all of them", at, "builtin")
    return pairs


def read_cd(args: Sequence[Arg], at: int) -> Arg:
    """The directory that `cd` is given."""
    _all_literal("cd", args)
    match args:
        case [Arg(text="--"), target]:
            pass
        case [target] if not target.text.startswith("-"):
            pass
        case _:
            raise Doubt("cd is only understood with one directory", at, "builtin")
    if target.text in ("", "-"):
        raise Doubt(f"where cd {target.text!r} leads is not known", target.at, "builtin")
    return target


def _anything(_args: Sequence[Arg], _at: int) -> None:
    """Whatever it is given, it does nothing with it but to show it."""


def _all_literal(name: str, args: Sequence[Arg]) -> None:
    for arg in args:
        if arg.glob:
            raise Doubt(f"a pattern could become an option of {name}", arg.at, "builtin")


def _only(name: str, form: re.Pattern[str], most: int) -> Callable[[Sequence[Arg], int], None]:
    """A check for builtins that take few words, all of one form."""

    def check(args: Sequence[Arg], at: int) -> None:
        _all_literal(name, args)
        if len(args) > most or not all(form.fullmatch(arg.text) for arg in args):
            raise Doubt(f"{name} is not understood with these arguments", at, "builtin")

    return check


def _command(args: Sequence[Arg], at: int) -> None:
    """Only as a question for what a name means."""
    _all_literal("command", args)
    if len(args) < 2 or args[0].text != "-v" or any(arg.text.startswith("-") for arg in args[1:]):
        raise Doubt("command is only understood with a program, or -v and names", at, "builtin")


def _set(args: Sequence[Arg], at: int) -> None:
    _all_literal("set", args)
    rest = [arg.text for arg in args]
    fine = bool(rest)
    while rest and fine:
        letters = rest.pop(0)
        fine = len(letters) > 1 and _SET_LETTERS.fullmatch(letters) is not None
        if fine and letters.endswith("o"):
            fine = bool(rest) and rest.pop(0) in _SET_OPTIONS
    if not fine:
        raise Doubt("set is only understood with -e, -u and -o pipefail", at, "builtin")


def _printf(args: Sequence[Arg], at: int) -> None:
    _all_literal("printf", args)
    texts = [arg.text for arg in args]
    if texts[:1] == ["--"]:
        texts.pop(0)
    elif texts and texts[0].startswith("-"):
        raise Doubt("options of printf can set variables", args[0].at, "builtin")
    if not texts:
        raise Doubt("printf has no format", at, "builtin")
    conversions = _read_format(texts[0])
    if conversions is None:
        raise Doubt("the format of printf is not understood", args[0].at, "builtin")
    # Some shells calculate where a number belongs, and what they calculate can be a command.
    for index, text in enumerate(texts[1:]):
        kind = conversions[index % len(conversions)] if conversions else "s"
        if kind in _OF_NUMBER and not _NUMBER.fullmatch(text):
            raise Doubt(f"{one_line(text, 40)!r} is no number for printf", at, "builtin")


def _read_format(text: str) -> list[str] | None:
    """The letters of its conversions; None if there is one that is not known."""
    letters = []
    place = text.find("%")
    while place >= 0:
        found = _CONVERSION.match(text, place)
        if found is None:
            return None
        if letter := found[1]:
            if letter not in _OF_TEXT and letter not in _OF_NUMBER:
                return None
            letters.append(letter)
        place = text.find("%", found.end())
    return letters


def _test(args: Sequence[Arg], at: int) -> None:
    _all_literal("test", args)
    if not _is_plain_test([arg.text for arg in args]):
        raise Doubt("this test is not understood", at, "builtin")


def _bracket(args: Sequence[Arg], at: int) -> None:
    if not args or args[-1].text != "]":
        raise Doubt("[ has no ]", at, "builtin")
    _test(args[:-1], at)
    _all_literal("[", args)


def _is_plain_test(words: list[str]) -> bool:
    """Whether it is one comparison or question that evaluates nothing. What an operator is depends
    on the number of words, as POSIX has it for up to four."""
    if not _TEST_NEVER.isdisjoint(words):
        return False
    match words:
        case [] | [_]:
            return True
        case [left, operator, right] if operator in _TEST_NUMBER:
            return all(_INTEGER.fullmatch(each) for each in (left, right))
        case [_, operator, _] if operator in _TEST_TEXT:
            return True
        case ["!", *rest] if len(rest) <= 3:
            return _is_plain_test(rest)
        case [operator, _]:
            return operator in _TEST_UNARY
    return False


_CHECKS: dict[str, Callable[[Sequence[Arg], int], None]] = {
    ":": _anything,
    "true": _anything,
    "false": _anything,
    "echo": _anything,
    "pwd": _only("pwd", re.compile("-[LP]+"), 2),
    "exit": _only("exit", re.compile("[0-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5]"), 1),
    "printf": _printf,
    "test": _test,
    "[": _bracket,
    "set": _set,
    "command": _command,
}
