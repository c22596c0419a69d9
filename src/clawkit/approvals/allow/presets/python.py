"""Python: scripts and a few modules, in the workspace.

What the agent writes there runs unasked, with everything that Python itself can do; what it cannot
do is start other programs. Code on the command line or on the input is refused, as nobody could
look at it later.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from clawkit.approvals.allow.presets.base import Call, Preset, may_use, show
from clawkit.approvals.base import Arg
from clawkit.approvals.operands import is_device, may_be_option

_LETTERS = frozenset("bBdEIOPqsSuv")
_ABOUT = (["-V"], ["-VV"], ["--version"], ["-h"], ["--help"])
_TUNING = frozenset({"dev", "utf8", "utf8=1", "utf8=0", "faulthandler", "importtime"})
_TESTS = frozenset({"pytest", "unittest"})
_FILES = frozenset({"py_compile", "compileall", "tokenize", "tabnanny", "ast", "dis"})
_ALONE = frozenset({"site", "sysconfig", "platform"})
_JSON = frozenset(
    ("--sort-keys", "--no-ensure-ascii", "--json-lines", "--tab", "--no-indent", "--compact")
)
MODULES = _TESTS | _FILES | _ALONE | {"json.tool"}


def read_python(call: Call) -> str:
    """Flags of Python, then a script or a module; what follows belongs to that."""
    rest = list(call.program.argv[1:])
    if [arg.text for arg in rest] in _ABOUT:
        return ""
    while rest and may_be_option(rest[0]) and rest[0].text != "-":
        arg = rest.pop(0)
        letters = arg.text[1:]
        if arg.glob:
            return f"{show(arg.text)} could become a flag"
        while letters and letters[0] in _LETTERS:
            letters = letters[1:]
        if letters[:1] == "m":
            return _check_module(call, letters[1:] or _pop(rest), rest)
        if letters[:1] in ("W", "X"):
            value = letters[1:] or _pop(rest)
            # A warning's category can be a module of one's own.
            if value not in _TUNING if letters[0] == "X" else "." in value or not value:
                return f"-{letters[0]} {show(value)} is not among what this preset allows"
        elif letters:
            return f"{show(f'-{letters[0]}')} is not among the flags that this preset allows"
    if not rest or rest[0].text == "-":
        return "it would take its program from its input"
    return _check_script(call, rest[0])


def _pop(rest: list[Arg]) -> str:
    return rest.pop(0).text if rest and not rest[0].glob else ""


def _check_script(call: Call, script: Arg) -> str:
    if script.glob:
        return f"which script {show(script.text)} means is not certain"
    if is_device(script.text, call.cwd):
        return "it would take its program from its input"
    if not may_use(call, script.text):
        return f"the script {show(script.text)} is not in the workspace"
    return ""


def _check_module(call: Call, name: str, rest: Sequence[Arg]) -> str:
    if name not in MODULES:
        return f"-m {show(name)} is not among the modules {', '.join(sorted(MODULES))}"
    if name in _ALONE:
        return f"-m {name} takes nothing more here" if rest else ""
    words = []
    for arg in rest:
        if may_be_option(arg) and arg.text != "-":
            if arg.glob:
                return f"{show(arg.text)} could become a flag"
            if why := _check_flag(call, name, arg.text):
                return why
        else:
            words.append(arg)
    if name == "json.tool" and len(words) > 1:
        return "-m json.tool with a second file writes it"
    for arg in words:
        # Of a test, the part behind the colons is no file.
        path = arg.text.partition("::")[0]
        if not arg.glob and (not may_use(call, path) or (path == "-" and name != "json.tool")):
            return f"{show(arg.text)} is not in the workspace"
        if arg.glob and (".." in path or not may_use(call, path.partition("*")[0])):
            return f"{show(arg.text)} could lead out of the workspace"
    return ""


def _check_flag(call: Call, name: str, text: str) -> str:
    flag, _, value = text.partition("=")
    if name == "json.tool":
        fine = flag in _JSON or (flag == "--indent" and value.isdecimal())
    elif name in _FILES:
        fine = text in ("-q", "-qq", "-f", "-l", "-v", "-e")
    else:
        # Tests are the workspace's own code; their flags may only not lead elsewhere.
        fine = not value or may_use(call, value)
    return "" if fine else f"{show(flag)} is not among the flags of -m {name} here"


PYTHON = Preset(
    "scripts of the workspace, and the modules " + ", ".join(sorted(MODULES)),
    frozenset({"python", "pypy"}),
    MappingProxyType({}),
    lambda _program: (),
    movable=True,
    read=read_python,
)
