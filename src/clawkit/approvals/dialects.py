"""Languages whose options are not known: read as strictly as can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clawkit.approvals.base import Arg
from clawkit.approvals.languages import BRINGS, GOES_ON, IS_INPUT, PATTERN, READS, Call, is_input
from clawkit.approvals.operands import may_be_option, words_of


class Options(NamedTuple):
    """What brings code along in a language."""

    letters: str = ""
    words: tuple[str, ...] = ()
    """Long options; a short form of one counts too."""
    exact: tuple[str, ...] = ()
    """Words that count as they are, such as sub-commands."""
    beside: str = ""
    """Letters whose code is no whole program: another one is still looked for."""


_C, _E, _EVAL = Options("c"), Options("e"), Options("e", ("eval",))
_PRINT = Options("ep", ("eval", "print"))
_ELIXIR = Options("e", ("eval", "rpc-eval", "erl"))
_CODE: dict[str, Options] = {
    **dict.fromkeys(("ipython", "jython", "micropython", "graalpy", "hy"), _C),
    **dict.fromkeys(
        ("R", "Rscript", "groovy", "raku", "ghc", "ghci", "runghc", "osascript", "ocaml", "d8"), _E
    ),
    **dict.fromkeys(
        ("js", "jsc", "rhino", "jruby", "truffleruby", "rbx", "swift", "janet", "newlisp"), _E
    ),
    **dict.fromkeys(("littler", "clojure", "bb", "sbcl", "racket", "octave", "octave-cli"), _EVAL),
    **dict.fromkeys(("coffee", "qjs", "fennel"), _EVAL),
    **dict.fromkeys(("ts-node", "tsx", "esno"), _PRINT),
    **dict.fromkeys(("elixir", "iex"), _ELIXIR),
    "bun": Options("ep", ("eval", "print"), ("exec",)),
    "deno": Options("ep", ("eval", "print"), ("eval",)),
    "julia": Options("eE", ("eval", "print")),
    "guile": Options("c", beside="e"),
    "scala": Options("e", ("execute-script", "script-snippet", "scala-snippet", "java-snippet")),
    "erl": Options(exact=("-eval", "-run", "-s")),
    "expect": Options("c", ("command",)),
    "gdb": Options(
        words=("ex", "iex", "eiex", "eval-command", "init-eval-command", "early-init-eval-command"),
        beside="x",
    ),
    "lldb": Options(words=("one-line", "source"), beside="oOsSkK"),
    "clisp": Options("x"),
    "swipl": Options(beside="gt"),
    "matlab": Options("r", ("batch",), ("-batch",)),
}
_NOTHING = Options()

# Whatever they run first, they go on with their standard input, or do so by default.
_ALWAYS_READ = words_of(
    """
    iex irb jirb pry ghci jshell jjs groovysh utop bpython ptpython gdb lldb swipl gprolog erl sbcl
    ecl ccl abcl scheme chez chezscheme mit-scheme csi gp maxima gforth scilab fsi fsharpi csharp
    picolisp pil newlisp phpdbg matlab R
    """
)
_STAYS = ("--interactive", "--persist", "--repl")
_STAYS_TOO = {"clojure": ("-r",), "deno": ("repl",), "bun": ("repl",)}
# The others may take an unknown option for nothing, and wait for code.
_TELL_VERSION = words_of(
    """
    R Rscript bun deno julia elixir guile groovy scala raku ocaml racket octave coffee ts-node tsx
    ipython jruby swift dart m4 clojure
    """
)


def read_dialect(language: str, argv: Sequence[Arg], cwd: str | None) -> Call:
    """How an interpreter was called, as far as that can be told; its script never is."""
    options = _CODE.get(language, _NOTHING)
    return Call(_code(language, options, argv), _reads(language, options, argv, cwd))


def _code(language: str, options: Options, argv: Sequence[Arg]) -> str:
    for arg in argv[1:]:
        if arg.glob and may_be_option(arg):
            return PATTERN
        if _may_be_code(language, options, arg.text):
            return BRINGS
    return ""


def _may_be_code(language: str, options: Options, text: str) -> bool:
    if text in options.exact:
        return True
    if text[:1] != "-":
        return False
    name = text.lstrip("-").partition("=")[0]
    if text.startswith("--") or language == "gdb":
        # Both ways: a short form of a known word, and a longer one that begins like it.
        if name and any(word.startswith(name) or name.startswith(word) for word in options.words):
            return True
        if text.startswith("--"):
            return False
    return any(letter in name for letter in options.letters + options.beside)


def _is_program(options: Options, text: str) -> bool:
    """Whether a word surely says that the next one, or its own rest, is the program."""
    if text in options.exact:
        return True
    if text.startswith("--"):
        return text[2:].partition("=")[0] in options.words
    return len(text) == 2 and text[0] == "-" and text[1] in options.letters


def _stays(language: str, text: str) -> bool:
    """Whether a word makes it go on with its standard input, or could."""
    if text in _STAYS_TOO.get(language, ()):
        return True
    if text.startswith("--"):
        return len(text) > 2 and any(word.startswith(text) for word in _STAYS)
    return text[:1] == "-" and "i" in text


def _reads(language: str, options: Options, argv: Sequence[Arg], cwd: str | None) -> str:
    rest = argv[1:]
    about = len(rest) == 1 and rest[0].text in ("--version", "--help")
    if about and language in _TELL_VERSION:
        return ""
    if language in _ALWAYS_READ or any(_stays(language, arg.text) for arg in rest):
        return GOES_ON
    if any(not arg.glob and is_input(arg.text, cwd) for arg in rest):
        return IS_INPUT
    if language == "tclsh" and rest and may_be_option(rest[0]):
        return READS  # an option in front, and the script is only an argument
    behind = False
    for arg in rest:
        if _is_program(options, arg.text):
            return ""
        if may_be_option(arg) or arg.text[:1] == "+":
            behind = arg.glob or "=" not in arg.text
        elif not behind:
            return ""
        else:
            behind = False  # it may be the value of the option before it
    return READS
