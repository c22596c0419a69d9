"""How node is called: code, script, or standard input."""

from __future__ import annotations

from collections.abc import Sequence

from clawkit.approvals.base import Arg
from clawkit.approvals.languages import (
    BRINGS,
    GOES_ON,
    IS_INPUT,
    PATTERN,
    READS,
    UNSURE,
    Call,
    is_input,
)
from clawkit.approvals.operands import may_be_option, words_of

_FLAGS = words_of(
    """
    -c --abort-on-uncaught-exception --check --cpu-prof --enable-source-maps --expose-gc
    --experimental-sqlite --experimental-strip-types --experimental-test-coverage
    --experimental-transform-types --experimental-vm-modules --frozen-intrinsics --heap-prof
    --jitless --no-deprecation --no-warnings --pending-deprecation --permission
    --preserve-symlinks --preserve-symlinks-main --prof --throw-deprecation --trace-deprecation
    --trace-exit --trace-sigint --trace-sync-io --trace-uncaught --trace-warnings
    --use-bundled-ca --use-openssl-ca --watch --watch-preserve-output
    """
)
_VALUES = words_of(
    """
    -C --conditions --diagnostic-dir --disable-warning --dns-result-order --redirect-warnings
    --test-concurrency --test-name-pattern --test-reporter --test-reporter-destination
    --test-shard --title --trace-event-categories --unhandled-rejections --watch-path
    """
)
# Those of the engine; a value never stands in a word of its own.
_ATTACHED = words_of(
    """
    --max-http-header-size --max-old-space-size --max-semi-space-size --stack-size
    --stack-trace-limit
    """
)
_LOADS = words_of(
    "-r --require --import --loader --experimental-loader --env-file --env-file-if-exists"
)
_CODE = frozenset({"-e", "--eval", "-p", "--print", "-pe"})
_READING = frozenset({"-i", "--interactive"})
_ABOUT = frozenset({"-v", "--version", "-h", "--help", "--v8-options"})


def read_node(argv: Sequence[Arg], cwd: str | None) -> Call:
    """How node was called; anything but the options in the tables is in doubt."""
    try:
        return _walk(argv, cwd)
    except LookupError:
        return Call(UNSURE, UNSURE, loads=True)


def _walk(argv: Sequence[Arg], cwd: str | None) -> Call:
    call = Call()
    tests = False
    index = 1
    while index < len(argv):
        arg = argv[index]
        if arg.glob and may_be_option(arg):
            return Call(PATTERN, PATTERN, loads=True)
        if arg.text == "-" or not may_be_option(arg):
            break
        index += 1
        if arg.text == "--":
            break
        name, attached, _ = arg.text.partition("=")
        name = name.replace("_", "-")
        if name in _ABOUT and not attached:
            return call
        if name == "--test":
            tests = True
        elif name in _READING:
            call.reads = GOES_ON
        else:
            index += _take(call, name, argv[index : index + 1], attached=bool(attached))
    if call.code != BRINGS and not tests:
        _script(call, argv, index, cwd)
    return call


def _take(call: Call, name: str, rest: Sequence[Arg], *, attached: bool) -> int:
    """Note an option; how many further words it takes. Raises `LookupError` for unknown ones."""
    if name in _FLAGS and not attached:
        return 0
    if name in _ATTACHED and attached:
        return 0
    if name in _CODE:
        call.code = BRINGS
    elif name in _LOADS:
        call.loads = True
        call.code = call.code or "its options load other code"
    elif name not in _VALUES:
        raise LookupError(name)
    if attached:
        return 0
    if rest[0].glob:
        raise LookupError(name)
    return 1


def _script(call: Call, argv: Sequence[Arg], index: int, cwd: str | None) -> None:
    if index == len(argv):
        call.reads = READS
        return
    call.script = index
    text = argv[index].text
    if text in ("inspect", "debug"):
        call.reads = GOES_ON
    elif is_input(text, cwd):
        call.reads = IS_INPUT
