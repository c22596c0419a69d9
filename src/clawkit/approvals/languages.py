"""Interpreters by their names, and how a call of one is read: code, script, or standard input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from clawkit.approvals.base import Arg, Program
from clawkit.approvals.operands import base_name, is_device, may_be_option, words_of

POSIX_SHELLS = frozenset({"sh", "bash", "dash", "ash"})
OTHER_SHELLS = words_of(
    """
    ksh mksh lksh oksh pdksh yash zsh posh rbash rksh rzsh bosh pbosh mrsh loksh osh ysh csh tcsh
    fish nu nushell elvish xonsh ion oil rc es scsh pwsh powershell cmd hush msh lash git-shell
    rssh scponly
    """
)

_ALIASES: dict[str, str] = {
    **dict.fromkeys(("python", "pypy", "pythonw"), "python"),
    **dict.fromkeys(("node", "nodejs", "iojs"), "node"),
    **dict.fromkeys(("php", "php-cgi", "php-cli"), "php"),
    **dict.fromkeys(("lua", "luajit"), "lua"),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "goawk", "original-awk"), "awk"),
    **dict.fromkeys(("sed", "gsed", "ssed", "minised"), "sed"),
    **dict.fromkeys(("make", "gmake"), "make"),
    **dict.fromkeys(("perl6", "raku", "rakudo"), "raku"),
    **dict.fromkeys(("clojure", "clj"), "clojure"),
    **dict.fromkeys(("scala", "scala-cli", "amm"), "scala"),
    **dict.fromkeys(("erl", "werl"), "erl"),
    **dict.fromkeys(("tclsh", "wish", "jimsh", "expectk"), "tclsh"),
    **dict.fromkeys(("find", "gfind"), "find"),
    **dict.fromkeys(("xargs", "gxargs"), "xargs"),
}
# Read as strictly as can be without knowing their grammar.
LOOSE = words_of(
    """
    R Rscript littler bun deno julia elixir iex guile groovy groovysh scala clojure bb raku ghci
    runghc runhaskell erl escript osascript expect tclsh ocaml utop sbcl clisp ecl ccl abcl racket
    scheme chez chezscheme mit-scheme csi gsi gosh fennel janet hy gforth gst swipl gprolog octave
    octave-cli scilab matlab gp maxima irb pry jirb jshell jjs kotlin swift coffee ts-node tsx esno
    lsc qjs d8 js jsc rhino ipython bpython ptpython jython micropython graalpy jruby truffleruby
    rbx hhvm phpdbg luau dotnet-script csharp fsi fsharpi newlisp picolisp pil rexx regina squirrel
    dart gdb lldb m4
    """
)
EXACT = frozenset({"python", "ruby", "perl", "php", "lua"})
INTERPRETERS = EXACT | LOOSE | {"node", "awk", "sed"}
SHELLS = POSIX_SHELLS | OTHER_SHELLS

_KNOWN: dict[str, str] = {
    **{name: name for name in (*INTERPRETERS, *SHELLS, "ghc")},
    **_ALIASES,
}
_VERSIONED = re.compile(r"([A-Za-z]+(?:-[A-Za-z]+)*?)[-.]?\d", re.ASCII)
_LONGEST = 64
_MAX_NAME = 255
"""Characters of a name that count: no file has a longer one."""


@lru_cache(maxsize=1024)
def _family(name: str) -> str:
    name = name.removesuffix(".exe").removesuffix("-static").removesuffix("-dbg")
    if (found := _KNOWN.get(name)) is not None:
        return found
    versioned = _VERSIONED.match(name)
    if versioned is None or name.endswith("-config"):
        return ""
    return _KNOWN.get(versioned[1], "")


def family(name: str) -> str:
    """The language of an interpreter, or the shell, that a base name means; empty for others.

    A version makes no difference: `python3.11` is `python`.
    """
    return _family(name) if len(name) <= _LONGEST else ""


@lru_cache(maxsize=1024)
def _names(name: str, resolved: str, real: str) -> frozenset[str]:
    return frozenset(base_name(path)[:_MAX_NAME] for path in (name, resolved, real))


def names_of(program: Program) -> frozenset[str]:
    """The base names that a program goes by: as it was written, as it was found, without links."""
    name = program.name
    names = _names if len(name) <= _LONGEST else _names.__wrapped__
    return names(name, program.resolved, program.real)


@lru_cache(maxsize=1024)
def languages_of(names: frozenset[str]) -> frozenset[str]:
    """The languages, and shells, that base names mean."""
    return frozenset(filter(None, map(family, names)))


@dataclass(slots=True)
class Call:
    """How an interpreter was called."""

    code: str = ""
    """Why its arguments carry code, or could."""
    reads: str = ""
    """Why it takes code from its standard input, or could."""
    script: int = 0
    """Index of its script; 0 for none."""
    loads: bool = False
    """Whether it is also told to load something else, or where to look for things."""


class Grammar(NamedTuple):
    """The options of an interpreter, letter by letter."""

    flags: str = ""
    values: str = ""
    """With a value: the rest of the word, or the next one."""
    attached: str = ""
    """With a value that is the rest of the word, even if that is empty."""
    digits: str = ""
    """Followed by any number of octal digits."""
    code: str = ""
    """With a value that is the program."""
    modules: str = ""
    """With a value that names what is run in place of a script."""
    files: str = ""
    """With a value that is the script."""
    side_code: str = ""
    """With a value that can hold code beside the program."""
    loads: str = ""
    """Those of the above that load something else, or change where things are looked for."""
    reads: str = ""
    """Those of the above after which the standard input is read as code in any case."""
    final: str = ""
    """Those of the above after which everything belongs to the program."""
    about: str = ""
    """Letters that only tell something."""
    long_flags: frozenset[str] = frozenset()
    long_values: frozenset[str] = frozenset()
    long_code: frozenset[str] = frozenset()
    long_about: frozenset[str] = frozenset({"help", "version"})


GRAMMARS: dict[str, Grammar] = {
    "python": Grammar(
        flags="bBdEIOPqRsStuvxi",
        values="WX",
        code="c",
        modules="m",
        reads="i",
        final="cm",
        about="hV?",
        long_values=frozenset({"check-hash-based-pycs"}),
        long_about=frozenset({"help", "version", "help-all", "help-env", "help-xoptions"}),
    ),
    "ruby": Grammar(
        flags="acdlnpsSUvw",
        values="IrCXE",
        attached="Fix",
        digits="0TW",
        code="e",
        loads="IrCXSx",
        about="h",
        long_flags=frozenset({"verbose", "yjit", "jit", "rjit", "debug", "disable-gems"}),
        long_values=frozenset({"encoding", "external-encoding", "internal-encoding"}),
        long_about=frozenset({"help", "version", "copyright"}),
    ),
    "perl": Grammar(
        flags="acdfgnpsStTuUwWX",
        values="I",
        attached="CFixmM",
        digits="0l",
        code="eE",
        side_code="mM",
        loads="ISxmMd",
        reads="d",
        about="hvV",
    ),
    "php": Grammar(
        flags="aenlswqC",
        values="cztb",
        code="rBRE",
        modules="S",
        files="fF",
        side_code="d",
        loads="cz",
        reads="a",
        about="himv",
        long_flags=frozenset({"no-php-ini"}),
        long_code=frozenset({"run", "process-code", "process-begin", "process-end"}),
        long_about=frozenset({"help", "version", "info", "modules", "ini"}),
    ),
    "lua": Grammar(
        flags="iEWv", values="l", code="e", loads="l", reads="i", long_about=frozenset()
    ),
}
_OCTAL = frozenset("01234567")
_BLANK = re.compile(r"\s")
_PLAIN_MODULE = re.compile(r"-?[\w:]+(?:=[\w:,.-]*)?", re.ASCII)
# Of Python: modules that take code from the standard input, or from their arguments.
_READING = frozenset(
    {"code", "asyncio", "pdb", "IPython", "bpython", "ptpython", "idlelib", "this"}
)
_TAKING = frozenset({"timeit", "pdb", "cProfile", "profile", "trace", "runpy"})

BRINGS = "its program is among the arguments"
READS = "it takes its program from the standard input"
IS_INPUT = "its program is, or could be, the standard input"
GOES_ON = "it goes on with its standard input"
UNSURE = "with these options it cannot be told what is run"
PATTERN = "a pattern among the options could bring code"


def is_input(text: str, cwd: str | None) -> bool:
    """Whether a script named so is, or could be, the standard input."""
    return text == "-" or is_device(text, cwd)


class Walk:
    """Goes through the arguments of an interpreter, option by option."""

    __slots__ = ("argv", "cwd", "found", "grammar", "index", "language", "settled")

    def __init__(self, language: str, argv: Sequence[Arg], cwd: str | None) -> None:
        self.language = language
        self.grammar = GRAMMARS[language]
        self.argv = argv
        self.cwd = cwd
        self.index = 1
        self.found = Call()
        self.settled = False
        """Whether it is known what is run, without looking at the operands."""

    def call(self) -> Call:
        """How it was called."""
        try:
            ended = self._options()
        except LookupError:
            return Call(UNSURE, UNSURE, loads=True)
        # lua runs its script too, whatever was brought along.
        more = self.language == "lua" and self.index < len(self.argv)
        if not ended and (more or not self.settled):
            self._operand()
        return self.found

    def _operand(self) -> None:
        if self.index < len(self.argv):
            self._script(self.index, self.argv[self.index].text)
        elif not self._asks_version():
            self.found.reads = READS

    def _script(self, index: int, text: str) -> None:
        self.found.script = index
        if is_input(text, self.cwd):
            self.found.reads = IS_INPUT

    def _asks_version(self) -> bool:
        """`ruby -v` and `lua -v` print a version and end, unless there is more."""
        only = len(self.argv) == 2 and self.argv[1].text == "-v"
        return only and self.language in ("ruby", "lua")

    def _options(self) -> bool:
        """Up to the first operand; says whether everything else belongs to the program."""
        while self.index < len(self.argv):
            arg = self.argv[self.index]
            if arg.glob and may_be_option(arg):
                self.found = Call(PATTERN, PATTERN, loads=True)
                return True
            if arg.text == "-" or not may_be_option(arg):
                return False
            self.index += 1
            if arg.text == "--":
                return False
            if arg.text.startswith("--") and self.language != "perl":
                ended = self._long(arg.text[2:])
            else:
                ended = self._letters(arg.text[1:])
            if ended:
                return True
        return False

    def _next(self) -> Arg:
        """The next word as a value. Raises `LookupError` when it is missing or a pattern."""
        arg = self.argv[self.index]
        if arg.glob:
            raise LookupError(arg.text)
        self.index += 1
        return arg

    def _long(self, text: str) -> bool:
        name, attached, _ = text.partition("=")
        grammar = self.grammar
        if name in grammar.long_about and not attached:
            return True
        if name in grammar.long_code:
            self._code()
        elif name in grammar.long_values:
            # Python takes no `=`; whatever it makes of one, it runs nothing then.
            if not attached:
                self._next()
        elif name not in grammar.long_flags or attached:
            raise LookupError(text)
        return False

    def _letters(self, text: str) -> bool:
        grammar = self.grammar
        if self.language == "perl" and text in ("-version", "-help"):
            return True
        place = 0
        while place < len(text):
            letter = text[place]
            place += 1
            if letter in grammar.about:
                return True
            self.found.loads |= letter in grammar.loads
            if letter in grammar.reads:
                self.found.reads = GOES_ON
            if letter in grammar.digits:
                while text[place : place + 1] in _OCTAL:
                    place += 1
                if text[place : place + 1] in ("x", "X", ":"):
                    raise LookupError(letter)
            elif letter not in grammar.flags:
                self._value(letter, text[place:])
                return letter in grammar.final
        return False

    def _value(self, letter: str, rest: str) -> None:
        """One letter that takes the rest of its word, or the next."""
        grammar = self.grammar
        # After a blank, perl goes on with further options in the same word.
        if self.language == "perl" and letter not in grammar.code and _BLANK.search(rest):
            raise LookupError(letter)
        value = rest if rest or letter in grammar.attached else self._next().text
        if letter in grammar.code:
            self._code()
        elif letter in grammar.modules:
            self._module(value)
        elif letter in grammar.files:
            self.settled = True
            self._script(self.index - 1, value)
        elif letter in grammar.side_code:
            if self.language != "perl" or not _PLAIN_MODULE.fullmatch(value):
                self.found.code = "beside its program, the arguments carry code"
        elif letter not in grammar.values and letter not in grammar.attached:
            raise LookupError(letter)

    def _code(self) -> None:
        self.found.code = BRINGS
        self.settled = True

    def _module(self, name: str) -> None:
        self.settled = True
        name = name.partition(".")[0]
        if name in _READING:
            self.found.reads = f"the module {name} takes code from the standard input"
        if name in _TAKING:
            self.found.code = f"the module {name} takes code from its arguments"
