"""Programs that only start another one, and shells that are given text: what they really run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from clawkit.approvals.base import Arg
from clawkit.approvals.carriers import Opaque as Opaque
from clawkit.approvals.carriers import carried, carrier_kind
from clawkit.approvals.languages import OTHER_SHELLS, POSIX_SHELLS, family
from clawkit.approvals.operands import base_name, is_device, words_of


@dataclass(frozen=True, slots=True)
class Inner:
    """It does nothing but start the command that begins there."""

    index: int


@dataclass(frozen=True, slots=True)
class ShellText:
    """The argument there is text for a POSIX-like shell."""

    index: int


class Grammar(NamedTuple):
    """The options of a wrapper that change nothing about what is started."""

    flags: str = ""
    values: str = ""
    """Letters with a value: the rest of their word, or the next one."""
    long: Mapping[str, bool] = MappingProxyType({})
    """Long names, and whether they take a value."""


# Complete for what is accepted; anything else, `--help` and short forms too, is in doubt.
_GRAMMARS: dict[str, Grammar] = {
    "nice": Grammar(values="n", long={"adjustment": True}),
    "nohup": Grammar(),
    "stdbuf": Grammar(values="ioe", long={"input": True, "output": True, "error": True}),
    "timeout": Grammar(
        flags="vfp",
        values="ks",
        long={
            "foreground": False,
            "preserve-status": False,
            "verbose": False,
            "kill-after": True,
            "signal": True,
        },
    ),
    "time": Grammar(
        flags="pqv",
        values="f",
        long={"portability": False, "quiet": False, "verbose": False, "format": True},
    ),
}
_PROGRAMS = frozenset({"env", *_GRAMMARS})
_BUILTINS = frozenset({"command", "exec"})
_DURATION = re.compile(r"\d{1,9}(?:\.\d{1,9})?[smhd]?", re.ASCII)
_NICENESS = re.compile(r"-\d{1,2}", re.ASCII)
_USUAL_PLACES = ("/bin", "/usr/bin")

# Without one of these names, the single program of the coreutils runs what its options say.
_COREUTILS = words_of(
    """
    [ arch b2sum base32 base64 basename basenc cat chcon chgrp chmod chown chroot cksum comm cp
    csplit cut date dd df dir dircolors dirname du echo env expand expr factor false fmt fold groups
    head hostid hostname id install join kill link ln logname ls md5sum mkdir mkfifo mknod mktemp mv
    nice nl nohup nproc numfmt od paste pathchk pinky pr printenv printf ptx pwd readlink realpath
    rm rmdir runcon seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split
    stat stdbuf stty sum sync tac tail tee test timeout touch tr true truncate tsort tty uname
    unexpand uniq unlink uptime users vdir wc who whoami yes
    """
)


def look_through(names: frozenset[str], argv: Sequence[Arg]) -> Inner | ShellText | Opaque | None:
    """What a program starts with these arguments; None for one that is no wrapper.

    `names` are the base names it is known by: as typed, as found, without links. A shell that is
    given a script file is no wrapper either: `script_operand` tells the file.
    """
    typed = base_name(argv[0].text)
    known = (names | {typed}) - {""}
    shared = {name for name in known if _is_multi_call(name)}
    if shared:
        single = any(name.startswith("coreutils") for name in shared)
        if typed in shared or (single and typed not in _COREUTILS):
            return Opaque("it holds many programs, and its arguments choose one", "carrier")
        known = frozenset({typed})
    kinds = {_kind(name) for name in known}
    wrappers = kinds - {""}
    if not wrappers:
        return None
    if len(wrappers) > 1:
        return Opaque("its name leads to a program of another kind", "blocked-wrapper")
    kind = wrappers.pop()
    found = _look(kind, argv)
    if isinstance(found, Inner | ShellText):
        return _doubt(kind, argv, found, sure=len(kinds) == 1, plain=not shared) or found
    return found


def _is_multi_call(name: str) -> bool:
    return name.startswith(("busybox", "toybox", "coreutils"))


def _kind(name: str) -> str:
    if name in _BUILTINS or name in _PROGRAMS:
        return name
    if name.startswith("g") and name[1:] in _PROGRAMS:
        return name[1:]
    shell = family(name)
    if shell in POSIX_SHELLS:
        return "shell"
    return "other-shell" if shell in OTHER_SHELLS else carrier_kind(name)


def _look(kind: str, argv: Sequence[Arg]) -> Inner | ShellText | Opaque | None:
    match kind:
        case "shell":
            return _shell(argv)
        case "other-shell":
            return Opaque("the language of this shell is not understood", "shell")
        case "env":
            return _env(argv)
        case "command" | "exec":
            return _builtin(kind, argv)
        case _ if kind in _GRAMMARS:
            return _wrapper(kind, argv)
    return carried(kind, argv)


def _doubt(
    kind: str, argv: Sequence[Arg], found: Inner | ShellText, *, sure: bool, plain: bool
) -> Opaque | None:
    """Why what seems to be a wrapper is not trusted to be the one whose grammar is known."""
    if argv[found.index].glob:
        return Opaque("a pattern decides what is started", "glob")
    if not sure:
        return Opaque("its name leads to a program of another kind", "blocked-wrapper")
    place, slash, _ = argv[0].text.rpartition("/")
    # Even a link to the real stdbuf loads a library from the directory it is called in.
    if slash and (place not in _USUAL_PLACES or isinstance(found, ShellText) or kind in _BUILTINS):
        return Opaque("it is looked through only when called by its plain name", "blocked-wrapper")
    if not plain and any(arg.text[:1] == "-" for arg in argv[1 : found.index]) and kind != "shell":
        return Opaque("the options of this edition of it are not known", "blocked-wrapper")
    return None


def _shell(argv: Sequence[Arg]) -> ShellText | Opaque | None:
    if len(argv) == 1:
        return Opaque("the shell takes commands from its standard input", "stdin")
    first = argv[1]
    if first.glob:
        return Opaque("a pattern decides what the shell runs", "glob")
    if first.text == "-c":
        if len(argv) != 3 or argv[2].text[:1] in ("-", "+"):
            return Opaque("only `-c` and one text is understood", "shell-options")
        return ShellText(2)
    if first.text[:1] in ("", "-", "+"):
        return Opaque("options of the shell change what the text means", "shell-options")
    if is_device(first.text):
        return Opaque("the shell takes commands from its standard input", "stdin")
    return None


def _env(argv: Sequence[Arg]) -> Inner | Opaque:
    index = 1
    if len(argv) > 1 and argv[1].text == "--":
        index = 2
    if index == len(argv):
        return Opaque("it prints the environment, where secrets may be", "environment")
    text = argv[index].text
    if text.startswith(("-S", "--s")):
        return Opaque("it makes a command of one argument", "carrier")
    if text.startswith("-"):
        return Opaque("its options change the environment or directory", "blocked-wrapper")
    if "=" in text:
        return Opaque("it sets variables for what it starts", "assignment")
    return Inner(index)


def _builtin(name: str, argv: Sequence[Arg]) -> Inner | Opaque | None:
    index = 1
    if len(argv) > 1:
        text = argv[1].text
        if name == "command" and text in ("-v", "-V") and not argv[1].glob:
            return None
        # To dash, `--` after exec is the name of a program.
        if text == "--" and name == "command":
            index = 2
        elif text.startswith("-"):
            return Opaque(f"options of {name} change what is started", "blocked-wrapper")
    if index == len(argv):
        return Opaque(f"{name} names no program", "blocked-wrapper")
    return Inner(index)


def _wrapper(name: str, argv: Sequence[Arg]) -> Inner | Opaque:
    index = _skip_options(name, argv)
    if index is None:
        return Opaque(f"these options of {name} are not known to be harmless", "blocked-wrapper")
    if name == "timeout" and index < len(argv):
        if argv[index].glob or not _DURATION.fullmatch(argv[index].text):
            return Opaque("the duration is no plain number", "blocked-wrapper")
        index += 1
    if index >= len(argv):
        return Opaque(f"{name} names no program", "blocked-wrapper")
    return Inner(index)


def _skip_options(name: str, argv: Sequence[Arg]) -> int | None:
    """Index of the first operand, as getopt finds it; None when an option is in doubt."""
    grammar = _GRAMMARS[name]
    index = 1
    while index < len(argv):
        text = argv[index].text
        if argv[index].glob:
            return None
        if text == "--":
            return index + 1
        if len(text) < 2 or text[0] != "-":
            return index
        if name == "nice" and _NICENESS.fullmatch(text):
            taken: int | None = 0
        elif text.startswith("--"):
            taken = _long(text[2:], grammar)
        else:
            taken = _cluster(text, grammar)
        if taken is None or any(arg.glob for arg in argv[index + 1 : index + 1 + taken]):
            return None
        index += 1 + taken
    return index


def _long(text: str, grammar: Grammar) -> int | None:
    """How many further words a long option takes; None when it is not known."""
    name, attached, _ = text.partition("=")
    takes = grammar.long.get(name)
    if takes is None or (attached and not takes):
        return None
    return 1 if takes and not attached else 0


def _cluster(text: str, grammar: Grammar) -> int | None:
    """How many further words a group of letters takes; None when one is not known."""
    for place, letter in enumerate(text[1:], 2):
        if letter in grammar.values:
            return 1 if place == len(text) else 0
        if letter not in grammar.flags:
            return None
    return 0
