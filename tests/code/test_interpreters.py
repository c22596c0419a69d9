"""Interpreters that keep their variables, with real children."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.lacking import needs

from clawkit.code import child as child_program
from clawkit.code.interpreters import KeptInterpreters
from clawkit.code.protocols import Language, Ran
from clawkit.errors import ToolError
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import Launch
from clawkit.process.supervisor import Supervisor

LONG_S = 120.0
SHORT_S = 1.0
needs_node = needs(shutil.which("node"), "node")
LANGUAGES = [pytest.param("python"), pytest.param("javascript", marks=needs_node)]


class Bench:
    """Interpreters, the commands they are made of, and a directory to run in."""

    def __init__(self, place: Path, **settings: Any) -> None:
        folder = str(place / "commands")
        self.workspace = place / "ws"
        self.workspace.mkdir()
        self.commands = Supervisor({"gateway": lambda: LocalHost(folder)}, folder)
        self.interpreters = KeptInterpreters(self.commands, **settings)
        # The interpreter of the tests, without a shim in front of it.
        path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        self.launch = Launch("", str(self.workspace), {"PATH": path})

    async def run(
        self,
        code: str,
        language: Language = "python",
        *,
        owner: str = "main",
        timeout_s: float = LONG_S,
        **changes: Any,
    ) -> Ran:
        return await self.interpreters.run(
            owner,
            language,
            code,
            host="gateway",
            launch=self.launch._replace(**changes),
            timeout_s=timeout_s,
        )

    async def value(self, code: str, language: Language = "python", **options: Any) -> str | None:
        ran = await self.run(code, language, **options)
        assert ran.traceback is None
        assert ran.lost == ""
        return ran.value

    async def close(self) -> None:
        await self.interpreters.close()
        await self.commands.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    opened = Bench(tmp_path)
    yield opened
    await opened.close()


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(LONG_S):
        while is_alive(pid):
            await asyncio.sleep(0.02)


async def until_there(path: Path) -> None:
    async with asyncio.timeout(LONG_S):
        while not path.exists():
            await asyncio.sleep(0.02)


async def test_variables_imports_and_functions_are_kept(bench: Bench) -> None:
    assert await bench.value("import math\nx = 20\ndef double(n): return 2 * n") is None
    assert await bench.value("double(x) + math.floor(2.5)") == "42"


async def test_the_last_expression_is_the_value_and_a_statement_has_none(bench: Bench) -> None:
    assert await bench.value("1; 'two'") == "'two'"
    assert await bench.value("'a'\ny = 3") is None
    assert await bench.value("None") is None
    assert await bench.value("") is None


async def test_output_and_errors_come_apart(bench: Bench) -> None:
    ran = await bench.run(
        "import sys, os\nprint('out')\nprint('err', file=sys.stderr)\n"
        "os.system('echo sub; echo bad >&2')"
    )
    assert (ran.stdout, ran.stderr, ran.value) == ("out\nsub\n", "err\nbad\n", "0")


RAISING = [
    ("y = 1\n1 / 0", "ZeroDivisionError: division by zero"),
    ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
    ("import sys; sys.exit(3)", "SystemExit: 3"),
    ("exit()", "SystemExit: None"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ("x =", "SyntaxError: invalid syntax"),
    ("input()", "EOFError: EOF when reading a line"),
    ("a\0b", "null bytes"),
    ("'\ud800'", "surrogates not allowed"),
    ("(" * 500, "SyntaxError: too many nested parentheses"),
    ("10 ** 5000", "Exceeds the limit"),
    ("class A:\n def __repr__(self): return 1 / 0\nA()", "ZeroDivisionError"),
    ("class E(Exception):\n def __str__(self): raise SystemExit\nraise E", "E"),
    ("raise MemoryError", "MemoryError"),
    ("import asyncio\nawait asyncio.sleep(0)\nawait nothing", "NameError"),
]


async def test_an_exception_is_returned_and_variables_are_kept(
    bench: Bench, subtests: pytest.Subtests
) -> None:
    await bench.run("kept = 'still here'")
    for code, said in RAISING:
        with subtests.test(code=code[:50]):
            ran = await bench.run(code)
            assert said in (ran.traceback or "")
            assert "python_child" not in (ran.traceback or "")
            assert (ran.value, ran.lost) == (None, "")
            assert await bench.value("kept") == "'still here'"


async def test_a_traceback_shows_the_lines_of_earlier_calls(bench: Bench) -> None:
    await bench.run("def broken():\n    return missing")
    ran = await bench.run("broken()")
    assert ran.traceback is not None
    assert 'File "<call 1>", line 2, in broken\n    return missing\n' in ran.traceback


async def test_await_works_at_top_level_and_tasks_go_on_in_later_calls(bench: Bench) -> None:
    await bench.run(
        "import asyncio\ndone = asyncio.Event()\n"
        "async def later():\n    done.set()\n    return 5\n"
        "await asyncio.sleep(0)\ntask = asyncio.create_task(later())"
    )
    assert await bench.value("await done.wait()\nawait task") == "5"


async def test_what_is_printed_without_end_is_cut_and_says_so(bench: Bench) -> None:
    ran = await bench.run("for n in range(40_000): print(n)")
    assert ran.stdout.startswith("0\n1\n2\n")
    assert ran.stdout.endswith("39999\n")
    assert f"[… {ran.cut:,} bytes left out here …]" in ran.stdout
    assert len(ran.stdout) < 101_000
    ran = await bench.run("import sys\nwhile True: sys.stdout.write('x' * 1000)", timeout_s=SHORT_S)
    assert ran.timed_out
    assert "KeyboardInterrupt" in (ran.traceback or "")
    assert len(ran.stdout) < 101_000


@pytest.mark.parametrize(
    ("code", "length"), [("'x' * 3_000_000", 3_000_002), ("list(range(100_000))", 688_890)]
)
async def test_a_huge_value_is_cut(bench: Bench, code: str, length: int) -> None:
    value = await bench.value(code)
    assert value is not None
    assert 100_000 < len(value) < 101_000 < length
    assert "left out here" in value


async def test_closed_or_replaced_streams_are_restored(bench: Bench) -> None:
    for broken in (
        "import sys, os; sys.stdout.close(); sys.stderr.close(); sys.stdin.close()",
        "sys.stdout = sys.stderr = sys.stdin = None",
        "os.close(0); os.close(1); os.close(2)",
        "import io; sys.stdout = io.StringIO()",
    ):
        await bench.run(broken)
        ran = await bench.run("print('out'); print('err', file=sys.stderr)")
        assert (ran.stdout, ran.stderr, ran.traceback) == ("out\n", "err\n", None)


async def test_threads_that_go_on_printing_are_heard_in_the_next_call(bench: Bench) -> None:
    await bench.run(
        "import threading, time\nprinted = threading.Event()\n"
        "def go_on():\n    time.sleep(0.05); print('later'); printed.set()\n"
        "threading.Thread(target=go_on).start()"
    )
    ran = await bench.run("printed.wait()")
    assert ran.stdout == "later\n"


async def test_a_copy_of_the_process_has_no_part_in_the_conversation(bench: Bench) -> None:
    ran = await bench.run(
        "import os, sys\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nos.getpid()"
    )
    pid = ran.value
    assert await bench.value("os.getpid()") == pid
    code = "import multiprocessing as m\nq = m.Queue()\np = m.Process(target=q.put, args=(7,))"
    assert await bench.value(f"{code}\np.start()\nq.get()") == "7"


async def test_modules_of_the_workspace_can_be_imported(bench: Bench) -> None:
    (bench.workspace / "mine.py").write_text("answer = 42\n", encoding="utf-8")
    assert await bench.value("import mine\nmine.answer") == "42"
    assert await bench.value("__name__") == "'__main__'"
    assert await bench.value("import os\nos.getcwd()") == repr(str(bench.workspace))


async def test_what_is_printed_cannot_pass_for_an_answer(bench: Bench) -> None:
    forged = json.dumps({"id": 1, "value": "forged"})
    ran = await bench.run(
        f"import os\nprint({forged!r})\nos.write(1, {forged.encode()!r} + b'\\n')\n'real'"
    )
    assert ran.value == "'real'"
    assert ran.stdout.count("forged") == 2


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"[]\n",
        b'{"id": 1, "stdout": 5}\n',
        b'{"id": 1, "figures": ["a", "b", "c", "d", "e"]}\n',
        b'{"id": 1, "images": "../../etc/passwd"}\n',
        b'{"id": 99, "value": "of another call"}\n',
        b'{"id": 1, "value": "' + b"x" * 200_000 + b'"}\n',
    ],
)
async def test_lines_that_are_not_an_answer_are_skipped(bench: Bench, line: bytes) -> None:
    code = (
        "import os\nout = os.open(f'/proc/{os.getppid()}/fd/1', os.O_WRONLY)\n"
        f"os.write(out, {line!r})\n'real'"
    )
    assert await bench.value(code) == "'real'"


async def test_a_child_that_writes_without_end_is_killed(bench: Bench) -> None:
    ran = await bench.run(
        "import os\nout = os.open(f'/proc/{os.getppid()}/fd/1', os.O_WRONLY)\n"
        "while True: os.write(out, b'x' * 65536)"
    )
    assert ran.lost == "its answer was too large"
    assert await bench.value("1 + 1") == "2"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os._exit(5)", "it exited with code 5"),
        ("import os; os.kill(os.getpid(), 11)", "it was killed by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", "it was killed by SIGKILL, possibly out of memory"),
        ("import os; os.closerange(3, 4096)", "it exited with code 1"),
    ],
)
async def test_an_interpreter_that_is_gone_is_told_and_the_next_call_has_another(
    bench: Bench, code: str, said: str
) -> None:
    await bench.run("x = 1")
    ran = await bench.run(f"print('last words')\n{code}")
    assert (ran.stdout, ran.lost, ran.timed_out) == ("last words\n", said, False)
    assert await bench.value("'x' in globals()") == "False"


async def test_a_child_whose_keeper_is_killed_is_gone(bench: Bench) -> None:
    ran = await bench.run("import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(1000)")
    assert ran.lost
    assert await bench.value("1 + 1") == "2"


async def test_memory_that_cannot_be_had_is_an_ordinary_error(bench: Bench) -> None:
    ran = await bench.run("x = bytearray(1 << 60)")
    assert "MemoryError" in (ran.traceback or "")
    assert ran.lost == ""


ENDLESS = [
    "while True: pass",
    "import time; time.sleep(1000)",
    "import asyncio; await asyncio.sleep(1000)",
    "import asyncio; asyncio.run(asyncio.sleep(1000))",
    "import subprocess; subprocess.run(['sleep', '1000'])",
    "import threading; threading.Event().wait()",
]


async def test_code_that_takes_too_long_is_interrupted_and_keeps_its_variables(
    bench: Bench, subtests: pytest.Subtests
) -> None:
    await bench.run("x = 'kept'")
    for code in ENDLESS:
        with subtests.test(code=code):
            ran = await bench.run(f"print('begun')\n{code}", timeout_s=SHORT_S)
            assert (ran.stdout, ran.timed_out, ran.lost) == ("begun\n", True, "")
            assert (ran.traceback or "").endswith("KeyboardInterrupt")
            assert await bench.value("x") == "'kept'"


async def test_code_that_ignores_the_interrupt_is_killed(bench: Bench) -> None:
    code = (
        "import os, signal, time\nsignal.signal(2, signal.SIG_IGN)\n"
        "open('pid', 'w').write(str(os.getpid()))"
    )
    ran = await bench.run(f"{code}\nwhile True: time.sleep(0.1)", timeout_s=2 * SHORT_S)
    assert ran.timed_out
    assert ran.lost == "it ignored the interrupt and was killed"
    await until_gone(int((bench.workspace / "pid").read_text()))
    assert await bench.value("'os' in globals()") == "False"


async def test_a_cancelled_call_is_interrupted_and_loses_nothing(bench: Bench) -> None:
    await bench.run("x = 'kept'")
    begun = bench.workspace / "begun"
    task = asyncio.create_task(bench.run("open('begun', 'w')\nwhile True: pass"))
    await until_there(begun)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await bench.value("x") == "'kept'"


async def test_a_cancelled_call_that_ignores_the_interrupt_is_killed_and_told_later(
    bench: Bench,
) -> None:
    task = asyncio.create_task(
        bench.run(
            "import signal, time\nsignal.signal(2, signal.SIG_IGN)\nopen('begun', 'w')\n"
            "while True: time.sleep(0.1)"
        )
    )
    await until_there(bench.workspace / "begun")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ran = await bench.run("1 + 1")
    assert (ran.value, ran.lost) == ("2", "")
    assert "cancelled call" in ran.fresh


async def test_an_interrupt_that_comes_too_late_does_nothing(bench: Bench) -> None:
    ran = await bench.run("import os, signal\nx = 1\nos.getpid()")
    os.kill(int(ran.value or ""), signal.SIGINT)
    assert await bench.value("x") == "1"


async def test_calls_of_one_child_wait_in_turn_and_children_do_not_wait_for_each_other(
    bench: Bench,
) -> None:
    await bench.run("n = 0")
    step = "m = n\nimport time; time.sleep(0.02)\nn = m + 1"
    await asyncio.gather(*(bench.run(step) for _ in range(5)))
    assert await bench.value("n") == "5"
    blocked = asyncio.create_task(bench.run("import time\nwhile n: time.sleep(0.01)"))
    assert await bench.value("1", owner="other") == "1"
    assert await bench.interpreters.reset("main", "python")
    assert (await blocked).lost == "it was reset"


async def test_each_owner_has_its_own_interpreters(bench: Bench) -> None:
    await bench.run("x = 1", owner="one")
    assert await bench.value("'x' in globals()", owner="two") == "False"
    assert await bench.value("x", owner="one") == "1"


async def test_a_reset_ends_the_child_and_all_it_started(bench: Bench) -> None:
    pid = await bench.value("import subprocess\nsubprocess.Popen(['sleep', '1000']).pid")
    assert await bench.interpreters.reset("main", "python")
    await until_gone(int(pid or ""))
    assert not await bench.interpreters.reset("main", "python")
    ran = await bench.run("'subprocess' in globals()")
    assert (ran.value, ran.fresh) == ("False", "")


async def test_closing_ends_every_child(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    pids = [await bench.value("import os; os.getpid()", owner=owner) for owner in ("one", "two")]
    await bench.interpreters.close()
    for pid in pids:
        await until_gone(int(pid or ""))
    await bench.close()


async def test_a_child_that_is_not_used_is_ended_and_the_next_call_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path, idle_s=0.05)
    pid = await bench.value("import os; os.getpid()")
    await until_gone(int(pid or ""))
    ran = await bench.run("'os' in globals()")
    assert ran.value == "False"
    assert "without use" in ran.fresh
    await bench.close()


async def test_a_child_that_ended_by_itself_is_replaced_with_a_notice(bench: Bench) -> None:
    pid = await bench.value("import os; os.getpid()")
    os.kill(int(pid or ""), signal.SIGKILL)
    async with asyncio.timeout(LONG_S):
        # Its end may be noticed before the next call or in it.
        ran = await bench.run("'os' in globals()")
        assert ran.fresh or ran.lost
        assert await bench.value("'os' in globals()") == "False"


async def test_another_place_or_other_restrictions_mean_another_child(
    bench: Bench, tmp_path: Path
) -> None:
    await bench.run("x = 1")
    ran = await bench.run("import os; os.getcwd()", cwd=str(tmp_path))
    assert ran.value == repr(str(tmp_path))
    assert "another place" in ran.fresh


async def test_children_are_not_listed_as_commands_of_the_owner(bench: Bench) -> None:
    await bench.run("1")
    assert bench.commands.all("main") == []


async def test_a_missing_interpreter_is_named(bench: Bench, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ToolError, match="python3 is not in the PATH of commands"):
        await bench.run("1", env={"PATH": str(empty)})
    (empty / "python3").symlink_to(sys.executable)
    with pytest.raises(ToolError, match="node is not in the PATH of commands"):
        await bench.run("1", "javascript", env={"PATH": str(empty)})
    (empty / "python3").unlink()
    (empty / "python3").write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    (empty / "python3").chmod(0o755)
    with pytest.raises(ToolError, match="could not be started: exit code 3"):
        await bench.run("1", env={"PATH": str(empty)})


async def test_an_unknown_language_is_refused(bench: Bench) -> None:
    with pytest.raises(ToolError, match="unknown language 'cobol'"):
        await bench.run("1", "cobol")  # type: ignore[arg-type]


def test_interpreters_live_in_one_event_loop_and_begin_anew_in_another(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    pid = asyncio.run(bench.value("import os; x = 1; os.getpid()"))

    async def again() -> None:
        assert await bench.value("'x' in globals()") == "False"
        await until_gone(int(pid or ""))
        await bench.close()

    asyncio.run(again())


# --- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
async def test_new_files_and_changed_images_are_named(bench: Bench, language: Language) -> None:
    (bench.workspace / "old.txt").write_text("old", encoding="utf-8")
    (bench.workspace / "old.png").write_bytes(b"old")
    write: dict[str, str] = {
        "python": "open({!r}, 'w').write('xx')",
        "javascript": "require('fs').writeFileSync({!r}, 'xx')",
    }

    async def after(*paths: str) -> Ran:
        return await bench.run("\n".join(write[language].format(path) for path in paths), language)

    ran = await after("a.txt", "old.txt", "b.png")
    assert sorted(ran.files) == ["a.txt", "b.png"]
    assert ran.images == ("b.png",)
    assert (await after("a.txt")).files == ()
    ran = await after("old.png")
    assert (ran.files, ran.images) == ((), ("old.png",))
    (bench.workspace / "sub" / "inner").mkdir(parents=True)
    (bench.workspace / ".hidden").mkdir()
    ran = await after("sub/inner/c.gif", ".hidden/d.txt", "e.txt")
    assert sorted(ran.files) == ["e.txt", "sub/inner/c.gif"]
    assert ran.images == ("sub/inner/c.gif",)
    ran = await after("sub/inner/f.txt")
    assert ran.files == ("sub/inner/f.txt",)


async def test_the_number_of_named_files_and_images_is_limited(bench: Bench) -> None:
    ran = await bench.run("for n in range(60): open(f'{n}.png', 'w')")
    assert (len(ran.files), ran.more_files) == (50, 10)
    assert (len(ran.images), ran.more_images) == (4, 56)


def test_directories_with_too_many_names_are_not_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "many").mkdir()
    for number in range(20):
        (tmp_path / "many" / str(number)).touch()
    monkeypatch.setattr(child_program, "MAX_NAMES", 10)
    tree = child_program.ChangedFiles(str(tmp_path))
    (tmp_path / "many" / "new").touch()
    (tmp_path / "seen").touch()
    assert tree.changes() == (["seen"], [])


def test_directories_that_went_away_and_came_back_are_watched_again(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    tree = child_program.ChangedFiles(str(tmp_path))
    shutil.rmtree(tmp_path / "sub")
    assert tree.changes() == ([], [])
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one.png").touch()
    assert tree.changes() == (["sub/one.png"], ["sub/one.png"])
    (tmp_path / "sub" / "one.png").unlink()
    assert tree.changes() == ([], [])


async def test_open_figures_come_as_pictures_once(bench: Bench) -> None:
    package = bench.workspace / "matplotlib"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "pyplot.py").write_text(
        "drawn = []\n"
        "def plot(data): drawn.append(data)\n"
        "def get_fignums(): return list(range(1, len(drawn) + 1))\n"
        "class Figure:\n"
        "    def __init__(self, data): self.data = data\n"
        "    def savefig(self, file, *, format, bbox_inches): file.write(self.data)\n"
        "def figure(number): return Figure(drawn[number - 1])\n"
        "def close(what): assert what == 'all'; drawn.clear()\n",
        encoding="utf-8",
    )
    ran = await bench.run(
        "import os, matplotlib.pyplot as plt\nplt.plot(b'one'); plt.plot(b'x' * 2_000_000)\n"
        "plt.plot(b'two')\nprint(os.environ['MPLBACKEND'])\n1 / 0"
    )
    assert ran.figures == (b"one", b"two")
    assert ran.stdout == "Agg\n"
    assert "figure 2 is too large" in ran.stderr
    assert "ZeroDivisionError" in (ran.traceback or "")
    assert (await bench.run("1")).figures == ()
    ran = await bench.run("for n in range(9): plt.plot(b'many')")
    assert len(ran.figures) == 4


# --- JavaScript --------------------------------------------------------------------------------


@needs_node
async def test_javascript_keeps_its_variables(bench: Bench) -> None:
    assert (
        await bench.value("const x = 20; let y = 1; function f(n) { return 2 * n }", "javascript")
        is None
    )
    assert await bench.value("f(x) + y", "javascript") == "41"
    assert await bench.value("const x = 5; ({ x, list: [1, 2n] })", "javascript") == (
        "{ x: 5, list: [ 1, 2n ] }"
    )


VALUES = [
    ("await new Promise((done) => setTimeout(() => done(7), 10))", "7"),
    ("(await import('node:path')).sep", "'/'"),
    ("typeof require('fs').readFileSync", "'function'"),
    ("'import(x)' + `import(y)` // import(z)", "'import(x)import(y)'"),
    ("require('./mine.js') + (await import('./mine.js')).default", "84"),
    ("process.cwd() === __cwd", "true"),
    ("[NaN, -0, undefined]", "[ NaN, -0, undefined ]"),
    ("-0", "-0"),
    ("10n", "10n"),
    ("Symbol('s')", "Symbol(s)"),
    ("null", "null"),
    ("'\\ud800'", "'\\ud800'"),
    ("'\\0'", "'\\x00'"),
]


@needs_node
async def test_values_of_javascript(bench: Bench, subtests: pytest.Subtests) -> None:
    (bench.workspace / "mine.js").write_text("module.exports = 42;\n", encoding="utf-8")
    await bench.run(f"globalThis.__cwd = {json.dumps(str(bench.workspace))}", "javascript")
    for code, value in VALUES:
        with subtests.test(code=code):
            assert await bench.value(code, "javascript") == value


THROWING = [
    ("throw new TypeError('boo')", "TypeError: boo\n    at call-2.js:1:7"),
    ("throw 'text'", "'text'"),
    ("1 +", "SyntaxError: Unexpected end of input"),
    ("function f() { return f() } f()", "RangeError: Maximum call stack size exceeded"),
    ("import fs from 'fs'", "use require(…) or await import(…)"),
    ("process.exit(3)", "process.exit(3) was called; the interpreter keeps running"),
    ("await Promise.reject(new Error('no'))", "Error: no"),
    ("({ get [Symbol.toStringTag]() { throw new Error('hostile') } })", "hostile"),
]


@needs_node
async def test_a_javascript_error_is_returned_and_variables_are_kept(
    bench: Bench, subtests: pytest.Subtests
) -> None:
    await bench.run("var kept = 'still here'", "javascript")
    for code, said in THROWING:
        with subtests.test(code=code):
            ran = await bench.run(code, "javascript")
            assert said in (ran.traceback or "")
            assert "node_child" not in (ran.traceback or "")
            assert await bench.value("kept", "javascript") == "'still here'"


@needs_node
@pytest.mark.parametrize("code", ["while (true) {}", "await new Promise(() => {})"])
async def test_javascript_that_takes_too_long_is_interrupted(bench: Bench, code: str) -> None:
    await bench.run("var x = 'kept'", "javascript")
    ran = await bench.run(f"console.log('begun'); {code}", "javascript", timeout_s=SHORT_S)
    assert (ran.stdout, ran.traceback, ran.timed_out, ran.lost) == (
        "begun\n",
        "Interrupted",
        True,
        "",
    )
    assert await bench.value("x", "javascript") == "'kept'"


@needs_node
async def test_what_javascript_prints_comes_apart_and_later_errors_end_nothing(
    bench: Bench,
) -> None:
    first = await bench.run(
        "console.log('out'); console.error('err');"
        "require('child_process').spawnSync('echo', ['sub'], { stdio: 'inherit' });"
        "setTimeout(() => { throw new Error('later') }, 1); 0",
        "javascript",
    )
    assert first.stdout == "out\nsub\n"
    then = await bench.run("await new Promise((done) => setTimeout(done, 100))", "javascript")
    # On a slow machine the timer fires before what the first call printed has been collected.
    printed = first.stderr + then.stderr
    assert printed.startswith("err\nUncaught Error: later\n")
    assert printed.count("Uncaught") == 1
    assert (first.lost, then.lost) == ("", "")


@needs_node
async def test_a_crash_of_javascript_is_reported(bench: Bench) -> None:
    ran = await bench.run("process.abort()", "javascript")
    assert ran.lost == "it was killed by SIGABRT"
    assert await bench.value("1 + 1", "javascript") == "2"
