"""Interpreters: whether a call contains code, and which script it runs.

Being strict costs little, because a command not known to be harmless runs in the sandbox. So an
unknown option, and any call of a rare interpreter, counts as code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from clawkit.approvals import options as opts
from clawkit.approvals.protocols import ScriptFile
from clawkit.approvals.types import Arg, Program, Segment

POSIX_SHELLS = frozenset({"sh", "bash", "dash", "ash"})
OTHER_SHELLS = opts.words_of(
    """ksh mksh lksh oksh pdksh yash zsh posh rbash rksh rzsh bosh pbosh mrsh loksh osh ysh csh tcsh
    fish nu nushell elvish xonsh ion oil rc es scsh pwsh powershell cmd hush msh lash git-shell
    rssh scponly"""
)
SHELLS = POSIX_SHELLS | OTHER_SHELLS

# Interpreters whose options are not known: those that run a script and exit, and those that
# continue with standard input.
_RARE = opts.words_of(
    """Rscript littler lua julia elixir guile groovy scala scala-cli amm clojure clj bb raku rakudo
    perl6
    runghc runhaskell ghc escript osascript expect expectk tclsh wish jimsh ocaml clisp racket gosh
    fennel janet hy gst octave octave-cli kotlin swift coffee ts-node tsx esno lsc qjs d8 js jsc
    rhino ipython jython micropython graalpy jruby truffleruby rbx hhvm luau dotnet-script rexx
    regina squirrel dart m4 php php-cgi php-cli bun deno"""
)
_INTERACTIVE = opts.words_of(
    """R iex irb jirb pry ghci jshell jjs groovysh utop bpython ptpython gdb lldb swipl gprolog erl
    werl sbcl ecl ccl abcl scheme chez chezscheme mit-scheme csi gsi gp maxima gforth scilab fsi
    fsharpi csharp picolisp pil newlisp phpdbg matlab"""
)

# Kinds: `flag`, `value`, `attached`; `code`: the value is code; `loads`: the value is loaded first;
# `module`: the value names what runs; `file`: the value is the script; `about`: prints something
# and exits; `runs`: needs no script.
_OPTIONS = {
    "python": opts.make_table(
        flag="bBdEIOPqRsStuvx",
        value="WX --check-hash-based-pycs",
        code="c",
        module="m",
        about="hV? --help --version --help-all --help-env --help-xoptions",
    ),
    "node": opts.make_table(
        flag="""-c --check --enable-source-maps --expose-gc --experimental-strip-types
        --experimental-vm-modules --no-deprecation --no-warnings --trace-warnings --watch""",
        value="-C --conditions --test-name-pattern --test-reporter --title",
        attached="--max-old-space-size= --stack-size=",
        loads="""-r --require --import --loader --experimental-loader --env-file
        --env-file-if-exists""",
        code="-e --eval -p --print -pe",
        runs="--test",
        about="-v --version -h --help --v8-options",
    ),
    "ruby": opts.make_table(
        flag="aclnpsUw --verbose --yjit --jit --debug",
        value="E --encoding --external-encoding --internal-encoding",
        attached="Fi",
        loads="IrCX",
        code="e",
        about="h --help --version --copyright",
    ),
    "perl": opts.make_table(
        flag="aclnpstTUwWX", attached="CFi", loads="IM", code="eE", about="hvV --help --version"
    ),
    "awk": opts.make_table(
        flag="bcnPrsS --csv --posix --re-interval --sandbox --traditional",
        value="Fv --assign --field-separator",
        code="e --source",
        file="f --file",
        about="hV --help --version",
    ),
    "sed": opts.make_table(
        flag="""bEnrsuz --debug --follow-symlinks --in-place --null-data --posix --quiet
        --regexp-extended --sandbox --separate --silent --unbuffered --zero-terminated""",
        value="l --line-length",
        attached="i --in-place=",
        code="e --expression",
        file="f --file",
        about="h --help --version",
    ),
    "make": opts.make_table(
        flag="""bBdeikLmnpqrRsStw --always-make --debug --dry-run --ignore-errors --jobs
        --just-print --keep-going --no-builtin-rules --no-print-directory --print-directory
        --question --quiet --silent --touch --trace --warn-undefined-variables""",
        value="CIoW --directory --include-dir",
        attached="jlO --debug= --jobs= --load-average= --output-sync= --shuffle=",
        code="E --eval",
        file="f --file --makefile",
        about="hv --help --version",
    ),
}
_UNGROUPED = frozenset({"node"})
"""Where `-ab` does not mean `-a -b`."""
_PERMUTING = frozenset({"sed", "make"})
"""Where options may follow operands."""
_OPERANDS = {"awk": "program", "sed": "program", "make": "target"}
"""The meaning of the first operand; for other interpreters it is a script."""
INTERPRETERS = _RARE | _INTERACTIVE | (_OPTIONS.keys() - {"make"})

_KNOWN: dict[str, str] = {
    **{name: name for name in (*INTERPRETERS, *SHELLS)},
    **dict.fromkeys(("pypy", "pythonw"), "python"),
    **dict.fromkeys(("nodejs", "iojs"), "node"),
    "luajit": "lua",
    **dict.fromkeys(("gawk", "mawk", "nawk", "goawk", "original-awk"), "awk"),
    **dict.fromkeys(("gsed", "ssed", "minised"), "sed"),
    **dict.fromkeys(("make", "gmake"), "make"),
    **dict.fromkeys(("xargs", "gxargs"), "xargs"),
}
_LONGEST = 64
"""Longer names cannot be a version of a known one."""
_VERSIONED = re.compile(r"([A-Za-z]+(?:-[A-Za-z]+)*?)[-.]?\d", re.ASCII)
_MAX_NAME = 255
"""Longer names are cut, because no file name is longer."""
_ABOUT = ("--version", "--help")
# make executes `X!=command`, and some variables contain commands or options.
_ASSIGNS_CODE = re.compile(
    r"\s*(?:[^\s=]*!|(?:(?:GNU)?MAKEFLAGS|MAKEFILES|\.?SHELL(?:FLAGS)?)\s*[:+?]*)=", re.ASCII
)
# Python modules that run code from their arguments or standard input.
_TAKING = opts.words_of(
    """code asyncio pdb IPython bpython ptpython idlelib this timeit cProfile profile trace runpy"""
)

MAX_SCRIPTS = 8
_READERS = opts.words_of(
    """ls cat head tail wc grep rg date sleep which mkdir chmod pip pip3 id whoami uname hostname
    printenv clear"""
)
_SETTLES = frozenset({"code", "module", "file", "runs", "operand"})

_GOES_ON = frozenset({"inspect", "debug", "repl"})
"""Operands after which some interpreters read standard input."""

_BRINGS = "its arguments contain or load code"
_READS = "it may read its program from standard input"
_UNSURE = "cannot determine what it runs with these arguments"


@dataclass(slots=True)
class Called:
    """How a call runs code."""

    code: str = ""
    """Why the arguments contain code, or may; empty if they do not."""
    reads: str = ""
    """Why it reads code from standard input, or may; empty if it does not."""
    script: Arg | None = None
    """The script that it runs; None if not certain."""
    by_shell: bool = False


@lru_cache(maxsize=1024)
def family(name: str) -> str:
    """The language or shell that a base name stands for, ignoring versions (`python3.11` is
    `python`); empty for other programs."""
    if len(name) > _LONGEST:
        return ""
    name = name.removesuffix(".exe").removesuffix("-static").removesuffix("-dbg")
    if (found := _KNOWN.get(name)) is not None:
        return found
    versioned = _VERSIONED.match(name)
    if versioned is None or name.endswith("-config"):
        return ""
    return _KNOWN.get(versioned[1], "")


def names_of(program: Program) -> frozenset[str]:
    """The base names of a program: as typed, as found, and with links resolved."""
    names = _names if len(program.name) <= _LONGEST else _names.__wrapped__
    return names(program.name, program.resolved, program.real)


@lru_cache(maxsize=1024)
def _names(*paths: str) -> frozenset[str]:
    return frozenset(opts.base_name(path)[:_MAX_NAME] for path in paths)


@lru_cache(maxsize=1024)
def _languages_of(names: frozenset[str]) -> frozenset[str]:
    return frozenset(filter(None, map(family, names)))


def is_interpreter(names: Collection[str]) -> bool:
    """Whether any of these base names is an interpreter other than a shell."""
    return any(family(name) in INTERPRETERS for name in names)


def is_shell(names: Collection[str]) -> bool:
    """Whether any of these base names is a shell."""
    return any(family(name) in SHELLS for name in names)


def how_called(program: Program) -> Called:
    """How a program runs code, judged by its names and arguments."""
    languages = _languages_of(names_of(program))
    if not languages:
        return Called()
    by_shell = not languages.isdisjoint(SHELLS)
    if languages <= SHELLS:
        # All shells take scripts in the same way, and `sh` is usually a link to another shell.
        languages = frozenset((min(languages),))
    calls = [_read(language, program.argv, program.cwd) for language in sorted(languages)]
    code = next((call.code for call in calls if call.code), "")
    reads = next((call.reads for call in calls if call.reads), "")
    script = calls[0].script if len(calls) == 1 and not (code or reads) else None
    is_certain = script is not None and not script.glob and script.text
    return Called(code, reads, script if is_certain else None, by_shell)


def find_scripts(segments: Sequence[Segment]) -> list[ScriptFile]:
    """The Python and JavaScript files that a command runs, if their directory is certain, up to a
    part that may write files: the current file may not be the one that will run."""
    found: dict[ScriptFile, None] = {}
    may_write = False
    for segment in segments:
        piped = any(program.piped for program in segment.programs)
        if (may_write and not piped) or len(found) >= MAX_SCRIPTS:
            break
        for program in segment.programs:
            if (script := _find_script(program)) is not None:
                found[script] = None
        names = {
            opts.base_name(program.name) for program in segment.programs if not program.wrapper
        }
        may_write |= not names <= _READERS or any(file.writes for file in segment.files)
    return list(found)[:MAX_SCRIPTS]


def _find_script(program: Program) -> ScriptFile | None:
    languages = _languages_of(names_of(program))
    operand = how_called(program).script
    if not languages.isdisjoint(("bun", "deno")):
        # They accept options anywhere, few of which are known.
        words = [arg for arg in program.argv[1:4] if arg.text != "run"]
        operand = words[0] if words and not words[0].glob else None
        languages = frozenset({"node"})
    if operand is None or operand.text in ("", "-"):
        return None
    path = operand.text
    while path.startswith("./"):
        path = path[2:].lstrip("/")
    if not path.startswith("/") and program.cwd is None:
        return None
    path = os.path.join(program.cwd or "/", path)
    if "python" in languages:
        # Python 2, or a file whose first line is not Python.
        options = [arg.text for arg in program.argv[1:] if arg.text[:1] == "-"]
        if opts.base_name(program.name).startswith("python2") or "-x" in options:
            return None
        return ScriptFile("python", path)
    is_script = "node" in languages and path.endswith((".js", ".mjs", ".cjs"))
    return ScriptFile("javascript", path) if is_script else None


def _read(language: str, argv: Sequence[Arg], cwd: str | None) -> Called:
    if language in SHELLS:
        # A shell without options; the code of `-c` is analyzed as a command, not here.
        if len(argv) == 1:
            return Called(reads=_READS)
        first = argv[1]
        if first.glob:
            return Called(reads=_UNSURE)
        if first.text[:1] in ("-", "+"):
            known = first.text == "-c" or (first.text in _ABOUT and len(argv) == 2)
            return Called(reads="" if known else _UNSURE)
        return Called(reads=_READS if _is_input(first.text, cwd) else "", script=first)
    if language == "xargs":
        return Called("it runs a program with arguments from standard input")
    if language in _INTERACTIVE:
        return Called(_UNSURE, _READS)
    if language in _RARE:
        scripts = len(argv) > 1 and not any(
            opts.may_be_option(arg) or arg.text[:1] == "+" or _is_input(arg.text, cwd)
            for arg in argv[1:]
        )
        return Called(_UNSURE, "" if scripts else _UNSURE)
    try:
        return _read_table(language, argv, cwd)
    except LookupError:
        return Called(_UNSURE, _UNSURE)


def _is_input(text: str, cwd: str | None) -> bool:
    return text == "-" or text in _GOES_ON or opts.is_device(text, cwd)


def _read_table(language: str, argv: Sequence[Arg], cwd: str | None) -> Called:
    """Read a call by its table. Raises `LookupError` if that is not certain."""
    operand, call = _OPERANDS.get(language, "script"), Called()
    settled = False  # whether it is known what runs
    groups, permutes = language not in _UNGROUPED, language in _PERMUTING
    for option in opts.read_options(argv, _OPTIONS[language], groups=groups, permutes=permutes):
        match option.kind:
            case "about":
                return call
            case "code" | "loads":
                call.code = _BRINGS
            case "module" if (name := option.value.partition(".")[0]) in _TAKING:
                call.code = call.reads = f"the module {name} can run arbitrary code"
            case "file":
                if operand == "target":
                    call.code = "its arguments choose the makefile"
                if _is_input(option.value, cwd):
                    call.reads = _READS
            case "operand":
                arg = argv[option.at]
                if operand == "target":
                    if arg.glob or "$" in arg.text or _ASSIGNS_CODE.match(arg.text):
                        call.code = _BRINGS
                elif operand == "program" and not settled:
                    call.code = _BRINGS
                elif operand == "script":
                    if not settled:
                        call.script = arg
                        call.reads = _READS if _is_input(arg.text, cwd) else call.reads
                    return call
        settled = settled or option.kind in _SETTLES
        if language == "python" and option.kind in ("code", "module"):
            return call
    if not settled and operand == "program":
        call.code = _BRINGS
    elif not settled and operand == "script":
        call.reads = _READS
    return call
