"""Compilers and linkers: flags that neither load code, nor start programs, nor write elsewhere."""

from __future__ import annotations

import re

from clawkit.approvals.allow.dangers.known import Known, make_known, take, unknown
from clawkit.approvals.allow.dangers.sheet import RUNS, WRITES, Call, Option
from clawkit.approvals.operands import base_name

_COMPILER = make_known(
    """
    -c -S -E -v -w -x= -o=> -I= -L= -l= -D= -U= -isystem= -iquote= -idirafter= -include= -imacros=
    -pedantic -pedantic-errors -ansi -pipe -s -static -static-libgcc -static-libstdc++ -static-pie
    -shared -shared-libgcc -pie -no-pie -rdynamic -pthread -nostdlib -nostartfiles -nodefaultlibs
    -nolibc -nostdinc -nostdinc++ -ffreestanding -M -MM -MD -MMD -MP -MG -MF=> -MT= -MQ= -P -C -CC
    -dM -H -Q -z= -u= -e= -arch= -target= --target[=] -stdlib[=] --coverage -coverage -fsyntax-only
    --help -help --version -version -dumpversion -dumpfullversion -dumpmachine
    -print-search-dirs -print-libgcc-file-name -print-file-name[=] -print-prog-name[=]
    -print-multiarch -print-sysroot -print-resource-dir -print-target-triple
    """,
    single=True,
)
_ABOUT = re.compile(
    r"-?-help(?:=[\w,^-]+)?|-?-version|-dump(?:full)?version|-dumpmachine|-print-.+"
)
_JOINED = re.compile(r"-[DUIlL].+|-(?:isystem|iquote|idirafter)/.+", re.DOTALL)
_PLAIN = re.compile(
    r"-O(?:[0-3sgz]|fast)?"
    r"|-g(?:[0-3]|gdb[0-3]?|dwarf(?:-[2-5])?|split-dwarf|z(?:=\w+)?|line-tables-only)?"
    r"|-W[\w+=.-]*"
    r"|--?std=[\w+:]+"
    r"|-m(?:32|64|x32|(?:arch|tune|cpu|fpu|abi|float-abi|cmodel|tls-dialect)=[\w.+-]+"
    r"|(?:no-)?(?:sse|ssse|avx|fma|bmi|aes|popcnt|lzcnt|movbe|f16c|pclmul|sha|red-zone|thumb|neon"
    r"|altivec|vsx|general-regs-only|omit-leaf-frame-pointer)[\w.+-]*)"
    r"|-f(?:no-)?(?:PIC|pic|PIE|pie|plt|common|builtin(?:-\w+)?|inline(?:-[a-z-]+)?|unroll-loops"
    r"|fast-math|math-errno|finite-math-only|strict-aliasing|strict-overflow|wrapv|trapv"
    r"|exceptions|rtti|omit-frame-pointer|stack-protector(?:-\w+)?|stack-clash-protection"
    r"|cf-protection(?:=\w+)?|sanitize(?:-recover)?(?:=[\w,-]+)?|lto(?:=(?:auto|thin|full|\d+))?"
    r"|fat-lto-objects|openmp(?:-simd)?|visibility=\w+|visibility-inlines-hidden|data-sections"
    r"|function-sections|merge-constants|short-enums|signed-char|unsigned-char|char8_t"
    r"|coroutines|concepts|permissive|freestanding|hosted|asynchronous-unwind-tables"
    r"|unwind-tables|diagnostics-color(?:=\w+)?|color-diagnostics|message-length=\d+"
    r"|max-errors=\d+|error-limit=\d+|tree-vectorize|vectorize|ident|zero-initialized-in-bss"
    r"|delete-null-pointer-checks|semantic-interposition|profile-arcs|test-coverage"
    r"|analyzer|extended-identifiers|ms-extensions|gnu89-inline|threadsafe-statics)"
    r"|-fuse-ld=(?:bfd|gold|lld|mold)",
    re.ASCII,
)
_LANGUAGES = frozenset(
    ("c", "c++", "c-header", "c++-header", "assembler", "assembler-with-cpp", "none")
)
_SOURCE = re.compile(r".+\.(?:c|cc|cp|cpp|cxx|c\+\+|C|h|hh|hpp|hxx|i|ii|s|S|sx|m|mm)|-")
_NO_LINKING = frozenset(("-c", "-S", "-E", "-M", "-MM", "-fsyntax-only"))
_PLACES = frozenset(("-L", "-l", "-z", "-u", "-e"))

_LINK_VALUES = frozenset(
    """
    -rpath --rpath -rpath-link --rpath-link -z -soname --soname -h -u --undefined -e --entry
    --defsym -install_name
    """.split()  # noqa: SIM905  # a list of words is easier to read and to add to
)
_LINK_VALUE = re.compile(r"[^-@,][^,]*")
_LINK = re.compile(
    r"-(?:s|S|x|E|O[0-3]?|pie|no-undefined|Bstatic|Bdynamic|Bsymbolic(?:-functions)?|dead_strip"
    r"|[lL][^,]+|\(|\))"
    r"|--(?:strip-all|strip-debug|discard-all|(?:no-)?as-needed|(?:no-)?gc-sections"
    r"|print-gc-sections|no-undefined|start-group|end-group|(?:no-)?whole-archive|export-dynamic"
    r"|build-id(?:=\w+)?|hash-style=\w+|enable-new-dtags|disable-new-dtags"
    r"|(?:no-)?copy-dt-needed-entries|allow-multiple-definition|unresolved-symbols=[a-z-]+"
    r"|(?:no-)?fatal-warnings|warn-common|sort-common|(?:no-)?relax|icf=\w+|threads(?:=\d+)?"
    r"|no-allow-shlib-undefined|allow-shlib-undefined|exclude-libs=[\w.,-]+|version-script=[^,]+)"
    r"|--?(?:rpath|rpath-link|soname|defsym|undefined|entry)=[^,]*",
    re.ASCII,
)
_LINKER = make_known(
    """
    -o=> -L= -l= -m= -r -static -shared -pie -v -V --version --help -melf_x86_64 -nostdlib
    -dynamic-linker= --dynamic-linker= -q -d
    """,
    single=True,
)
_ASSEMBLER = make_known(
    """
    -o=> -I= -g -W --32 --64 --x32 --warn --no-warn --fatal-warnings --gdwarf-4 --gdwarf-5 -march=
    -mtune= --noexecstack --version --help -v
    """,
    single=True,
)


def check_compiler(call: Call) -> str:
    """Nothing but flags that are known, and files that end up where one works."""
    found, why = _read(call, _COMPILER)
    if why:
        return why
    if any(flag == "-x" and value not in _LANGUAGES for flag, value in found):
        return "what -x makes of its files is not known"
    flags = {flag for flag, _ in found}
    operands = [value for flag, value in found if not flag]
    if not operands or any(map(_ABOUT.fullmatch, call.arguments)):
        return ""
    names = ["."] if "-o" in flags else [".", *_outputs(operands, flags)]
    if not all(map(call.may_write, names)):
        return f"where it runs, it {WRITES}"
    # A library can be a text that says where the output goes.
    others = not flags.isdisjoint(_PLACES) or not all(map(_SOURCE.fullmatch, operands))
    if others and "-o" not in flags and flags.isdisjoint(_NO_LINKING):
        return "where its output goes could be said in what it links; add -o"
    return ""


def _outputs(operands: list[str], flags: set[str]) -> list[str]:
    """What the output is called unless something else is said."""
    if flags.isdisjoint(_NO_LINKING):
        return ["a.out"]
    endings = [end for flag, end in (("-c", ".o"), ("-S", ".s")) if flag in flags]
    stems = [base_name(each).rpartition(".")[0] for each in operands]
    return [f"{stem}{end}" for stem in stems for end in endings]


def check_linker(call: Call) -> str:
    """The same for what puts programs together, and for what makes machine code of text."""
    assembles = base_name(call.program.name).endswith("as")
    found, why = _read(call, _ASSEMBLER if assembles else _LINKER)
    if why:
        return why
    if "-o" not in {flag for flag, _ in found} and any(not flag for flag, _ in found):
        return "where its output goes could be said in what it links; add -o"
    return ""


def _read(call: Call, known: Known) -> tuple[list[Option], str]:
    rest = list(reversed(call.arguments))
    found: list[Option] = []
    while rest:
        text = rest.pop()
        if text.startswith("@"):
            return found, f"a file with more arguments could be one that {RUNS}"
        if text[:1] != "-" or text == "-":
            found.append(Option("", text))
        elif why := _read_flag(call, known, text, rest, found):
            return found, why
    return found, ""


def _read_flag(call: Call, known: Known, text: str, rest: list[str], found: list[Option]) -> str:
    name, attached, value = text.partition("=")
    kind = known.kinds.get(text)
    if kind is not None:
        return take(call, text, kind, None, rest, found)
    kind = known.kinds.get(name)
    if attached and kind is not None and kind != "flag":
        return take(call, name, kind, value, rest, found)
    if text.startswith("-o"):
        return take(call, "-o", "write", text[2:], rest, found)
    if text.startswith("-Wl,"):
        return _check_linking(text.split(",")[1:])
    if known is _COMPILER and _JOINED.fullmatch(text):
        found.append(Option(text[:2], text[2:]))
        return ""
    if known is _LINKER:
        if text in _LINK_VALUES and rest:
            return _check_linking([text, rest.pop()])
        return _check_linking([text])
    if _ABOUT.fullmatch(text) or (known is _COMPILER and _PLAIN.fullmatch(text)):
        return ""
    return unknown(text)


def _check_linking(pieces: list[str]) -> str:
    """Every piece of what is handed on to the linker."""
    rest = iter(pieces)
    for piece in rest:
        known = _LINK.fullmatch(piece)
        if piece in _LINK_VALUES:
            known = _LINK_VALUE.fullmatch(next(rest, ""))
        if known is None:
            return f"flags for the linker could be ones that {RUNS}"
    return ""
