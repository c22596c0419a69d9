"""Commands that the kernel keeps to the programs that were named."""

from __future__ import annotations

import _thread
import asyncio
import os
import platform
import shutil
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.contracts.exec_host import ExecHostContract, Ground, read
from tests.contracts.test_exec_host import LocalGround
from tests.lacking import lack, needs
from tests.process.watching import keepers, open_handles, own, until

from clawkit.errors import ToolError
from clawkit.process import landlock
from clawkit.process.confine import Confiner, NotConfinedError, add_loaders, loader_of
from clawkit.process.landlock import enter, make_start_rules
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import ExecHost, Exit, Launch, Running

start = Confiner().start
held = needs(landlock.available(), "Landlock")
Make = Callable[..., Launch]
PATH = "/usr/bin:/bin"
PYTHON = sys.executable
LAYERS = 16
"""Of restrictions on top of each other; the kernel refuses more."""


def where(*names: str) -> tuple[str, ...]:
    """Where programs are."""
    found = [shutil.which(name, path=PATH) for name in names]
    if None in found:
        lack(f"not all of {', '.join(names)} are here")
    return tuple(each for each in found if each)


class Hand:
    """Runs commands in a directory."""

    def __init__(self, host: LocalHost, place: Path) -> None:
        self.host = host
        self.place = place

    async def run(
        self, text: str, programs: tuple[str, ...] | None, **options: Any
    ) -> tuple[Exit, str]:
        """How it ended and what it said."""
        launch = Launch(text, str(self.place), {"PATH": PATH}, programs=programs)
        running = await self.host.start(launch._replace(**options), own(os.urandom(4).hex()))
        exit_ = await running.wait()
        return exit_, (await read(running.output)).decode()

    def within(self, name: str) -> Hand:
        """The same in a new directory below."""
        place = self.place / name
        place.mkdir()
        return Hand(self.host, place)


@pytest.fixture
def hand(host: LocalHost, tmp_path: Path) -> Hand:
    place = tmp_path / "place"
    place.mkdir()
    return Hand(host, place)


# What cannot be started

BUILTINS = "cd . && [ -d . ] && printf '%s' x && echo y > f && read -r z < f && type -p ls"
TOUCH = "touch new"
PY_STARTS = f'{PYTHON} -c \'import os; os.execvp("touch", ["touch", "new"])\''
PY_NAMELESS = f"""{PYTHON} -c '
import os
made = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o755)
os.write(made, open("/usr/bin/touch", "rb").read())
again = os.open(f"/proc/self/fd/{{made}}", os.O_RDONLY)
os.close(made)
os.execve(again, ["touch", "new"], {{}})
'"""

OVERLOOKED = [
    (TOUCH, ()),
    ("/usr/bin/touch new", ()),
    ("/proc/self/root/usr/bin/touch new", ()),
    ("exec touch new", ()),
    ("command touch new", ()),
    ("(touch new)", ()),
    ("{ touch new; } | ls", ()),
    ("touch new & wait", ()),
    (": $(touch new)", ()),
    ("ls <(touch new)", ()),
    ("coproc touch new; wait", ()),
    ("trap 'touch new' EXIT", ()),
    ("t=touch; eval $t new", ()),
    ("f() { touch new; }; f", ()),
    ("PATH=/usr/bin touch new", ()),
    ("echo touch new > text; . ./text", ()),
    ("echo touch new | bash", ("bash",)),
    ("bash -c 'touch new'", ("bash",)),
    ("/proc/self/exe -c 'touch new'", ()),
    ("sh -c 'touch new'", ()),
    ("sh -c 'touch new'", ("sh",)),
    ("env touch new", ("env",)),
    ("timeout 9 touch new", ("timeout",)),
    ("xargs touch <<< new", ("xargs",)),
    ("find . -maxdepth 0 -exec touch new ';'", ("find",)),
    ("cp /usr/bin/touch ls; ./ls new", ("cp",)),
    ("cp /usr/bin/touch ls; PATH=.; ls new", ("cp",)),
    ("cp /usr/bin/touch ls; cp ls here; mv here ls; ./ls new", ("cp", "mv")),
    ("cp /usr/bin/touch t; ln t ls; ./ls new", ("cp", "ln")),
    ("ln -s /usr/bin/touch ls; ./ls new", ("ln",)),
    ("printf '#!/bin/sh\\ntouch new' > s; chmod +x s; ./s", ("chmod",)),
    ("printf '#!/bin/bash\\ntouch new' > s; chmod +x s; ./s", ("chmod", "bash")),
    (PY_STARTS, (PYTHON,)),
    (PY_NAMELESS, (PYTHON,)),
]


@held
async def test_what_was_overlooked_is_not_started(hand: Hand, subtests: pytest.Subtests) -> None:
    """Each of them would create a file if the kernel let it."""
    for number, (text, others) in enumerate(OVERLOOKED):
        with subtests.test(text, others=others):
            named = where("ls", *(name for name in others if "/" not in name))
            case = hand.within(f"case{number}")
            _, said = await case.run(text, (*named, *(name for name in others if "/" in name)))
            assert not (case.place / "new").exists()
            assert "permission denied" in said.lower()
            _, said = await case.run(text, None)
            assert (case.place / "new").exists(), said


@held
async def test_the_refusal_is_that_of_a_file_without_the_right_to_run(
    hand: Hand, subtests: pytest.Subtests
) -> None:
    (touch,) = where("touch")
    (hand.place / "script").write_text("#!/bin/sh\ntouch new\n")
    (hand.place / "script").chmod(0o755)
    cases: list[tuple[str, int, str | None]] = [
        (TOUCH, 126, "/bin/bash: line 1: {touch}: Permission denied\n"),
        ("{touch} new", 126, "/bin/bash: line 1: {touch}: Permission denied\n"),
        ("./script", 126, "/bin/bash: ./script: /bin/sh: bad interpreter: Permission denied\n"),
        ("touch new; echo $?; ls new", 2, None),
        ("ls | touch new", 126, None),
        ("touch new || ls -d .", 0, None),
    ]
    for text, code, said in cases:
        with subtests.test(text):
            exit_, found = await hand.run(text.replace("{touch}", touch), where("ls"))
            assert exit_.code == code
            assert f"{touch}: Permission denied\n" in found or text == "./script"
            if said is not None:
                assert exit_.reason == "not-executable"
                assert found == said.replace("{touch}", touch)


@held
async def test_programs_that_start_others_are_told_like_everybody(hand: Hand) -> None:
    code = "import subprocess; subprocess.run(['touch', 'new'])"
    exit_, said = await hand.run(f'{PYTHON} -c "{code}"', (PYTHON,))
    assert exit_.code == 1
    assert "PermissionError: [Errno 13] Permission denied: 'touch'" in said


@held
async def test_some_programs_hide_that_they_were_refused(hand: Hand) -> None:
    exit_, said = await hand.run("awk 'BEGIN { exit system(\"touch new\") }'", where("awk"))
    assert (exit_.reason, exit_.code != 0) == ("not-found", True) or "denied" in said
    assert not (hand.place / "new").exists()


@held
@pytest.mark.parametrize("call", ["link", "rename"])
async def test_nothing_can_be_put_where_it_could_be_started(hand: Hand, call: str) -> None:
    (hand.place / "named").mkdir()
    shutil.copy("/usr/bin/touch", hand.place / "t")
    code = f"import os; os.{call}('t', 'named/t')"
    _, said = await hand.run(f'{PYTHON} -c "{code}"', (PYTHON, f"{hand.place}/named"))
    assert "Invalid cross-device link" in said


# What the kernel does not see to

LOADER = loader_of("/bin/bash") or "none"


@held
@pytest.mark.skipif(LOADER == "none", reason="the shell needs no loader")
async def test_the_loader_can_be_made_to_start_anything(hand: Hand) -> None:
    """It must be startable for the programs that need it: it is for the analysis never to let a
    command name it."""
    exit_, _ = await hand.run(f"{LOADER} /usr/bin/touch new", ())
    assert exit_.code == 0
    assert (hand.place / "new").exists()


@held
async def test_a_program_can_start_what_it_holds_in_memory(hand: Hand) -> None:
    """Landlock knows files by their directories, and this one has none. Whoever can do so could as
    well start the loader."""
    code = """
import os
made = os.memfd_create("made")
os.write(made, open("/usr/bin/touch", "rb").read())
os.execve(made, ["touch", "new"], {})
"""
    exit_, said = await hand.run(f"{PYTHON} -c '{code}'", (PYTHON,))
    assert (exit_.code, said) == (0, "")
    assert (hand.place / "new").exists()


@held
async def test_what_is_written_where_anything_can_be_started_can_be_started(hand: Hand) -> None:
    """Only directories that nobody writes to are fit to be named."""
    (hand.place / "named").mkdir()
    exit_, _ = await hand.run(
        "cp /usr/bin/touch named/t && named/t new", (*where("cp"), f"{hand.place}/named")
    )
    assert exit_.code == 0
    exit_, _ = await hand.run("cp /usr/bin/id ls && ./ls -u", (*where("cp"), f"{hand.place}/ls"))
    assert exit_.code == 126, "it was not there when the command began"


# What can be started


@held
async def test_what_was_named_runs_beside_what_the_shell_does_itself(hand: Hand) -> None:
    ls = where("ls")
    exit_, said = await hand.run(f"{BUILTINS} && ls -d .", ls)
    assert (exit_.code, said) == (0, f"x{ls[0]}\n.\n")


@held
async def test_pipes_of_what_was_named(hand: Hand) -> None:
    text = "seq 1 100 | grep 7 | sort -rn | head -n 2; echo ${PIPESTATUS[@]}"
    _, said = await hand.run(text, where("seq", "grep", "sort", "head"))
    assert said == "97\n87\n0 0 0 0\n"


@held
async def test_reading_writing_and_moving_go_on_as_before(hand: Hand) -> None:
    text = """
        mkdir a b && echo text > a/f && mv a/f b/g && ln b/g a/h && chmod 700 a/h && cat a/h
        rm a/h && touch -d @0 b/g && : > b/g && ls a; cat /etc/passwd > /dev/null && ls b
    """
    programs = where("mkdir", "mv", "ln", "chmod", "cat", "rm", "touch", "ls")
    exit_, said = await hand.run(text, programs)
    if landlock.abi() > 1:
        assert (exit_.code, said) == (0, "text\ng\n")


@held
async def test_a_confined_process_cannot_change_its_user(hand: Hand) -> None:
    grep = where("grep")
    text = "grep NoNewPrivs: /proc/self/status"
    assert (await hand.run(text, grep))[1].split() == ["NoNewPrivs:", "1"]
    assert (await hand.run(text, None))[1].split() == ["NoNewPrivs:", "0"]


@held
async def test_a_path_may_hold_anything(hand: Hand, subtests: pytest.Subtests) -> None:
    names = ["plain", "a b", "-n", "line\nbreak", "quote'\"$`\\", "ü☃", "\u202e", "*[!a]?"]
    for name in (*names, "x" * 255):
        with subtests.test(name):
            program = hand.place / name
            shutil.copy(where("id")[0], program)
            exit_, said = await hand.run('"$P" -u', (str(program),), env={"P": str(program)})
            assert (exit_.code, said) == (0, f"{os.getuid()}\n")


@held
async def test_a_path_that_is_not_text(hand: Hand) -> None:
    program = os.path.join(hand.place, "\udcff\udcfe")
    shutil.copy(where("id")[0], program)
    exit_, _ = await hand.run('"$P" -u', (program,), env={"P": program})
    assert exit_.code == 0


@held
async def test_a_link_stands_for_where_it_leads(hand: Hand) -> None:
    (hand.place / "chain").mkdir()
    (hand.place / "chain" / "third").symlink_to(where("id")[0])
    (hand.place / "chain" / "second").symlink_to("third")
    (hand.place / "first").symlink_to("chain/second")
    for name in ("first", "chain/third"):
        for started in ("./first -u", "chain/second -u", "id -u"):
            exit_, said = await hand.run(started, (f"{hand.place}/{name}",))
            assert (exit_.code, said) == (0, f"{os.getuid()}\n")


@held
async def test_what_is_not_there_does_no_harm(hand: Hand) -> None:
    (hand.place / "loop").symlink_to("loop")
    (hand.place / "dangling").symlink_to("missing")
    (hand.place / "file").write_text("")
    os.mkfifo(hand.place / "pipe")
    names = ["loop", "dangling", "missing", "file/below", "pipe", "x" * 300, "nul\0", "\ud800"]
    paths = (*(f"{hand.place}/{name}" for name in names), "/dev/null", "/proc/1/no", *where("ls"))
    exit_, said = await hand.run("ls -d .", paths)
    assert (exit_.code, said) == (0, ".\n")


@held
async def test_two_hundred_programs(hand: Hand) -> None:
    folder = hand.place / "bin"
    folder.mkdir()
    (id_,) = where("id")
    programs = tuple(f"{folder}/p{number}" for number in range(200))
    for program in programs:
        shutil.copy(id_, program)
    exit_, said = await hand.run("bin/p0 -u && bin/p199 -u && id", programs)
    assert exit_.code == 126
    assert said.split()[:2] == [str(os.getuid())] * 2


@held
async def test_a_directory_stands_for_all_in_it(hand: Hand) -> None:
    (hand.place / "bin" / "deep").mkdir(parents=True)
    for name in ("bin/t", "bin/deep/t", "t"):
        shutil.copy(where("id")[0], hand.place / name)
    exit_, said = await hand.run("bin/t -u && bin/deep/t -u && ./t -u", (f"{hand.place}/bin",))
    assert exit_.code == 126
    assert said.split()[:2] == [str(os.getuid())] * 2


@held
async def test_the_programs_of_git(hand: Hand) -> None:
    (git,) = where("git")
    _, said = await hand.run("git --exec-path", (git,))
    folder = said.strip()
    text = f"git init -q . && git add . && git status --short && {folder}/git-add --dry-run ."
    (hand.place / "f").write_text("")
    exit_, said = await hand.run(text, (git, folder), env={"PATH": PATH, "HOME": str(hand.place)})
    assert (exit_.code, said) == (0, "A  f\n")


SCRIPT = "#!/usr/bin/env python3\nprint('ran')\n"


@held
@pytest.mark.parametrize("missing", ["", "script", "env", "python3"])
async def test_a_script_needs_all_its_interpreters(hand: Hand, missing: str) -> None:
    script = hand.place / "script"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    (hand.place / "python3").symlink_to(PYTHON)
    needed = {"script": str(script), "env": "/usr/bin/env", "python3": f"{hand.place}/python3"}
    needed.pop(missing, None)
    env = {"PATH": f"{hand.place}:{PATH}"}
    exit_, said = await hand.run("./script", tuple(needed.values()), env=env)
    assert (exit_.code, said) == (0, "ran\n") if not missing else exit_.code == 126


CODE = {
    "x86_64": (62, b"\xb8\x3c\0\0\0\xbf\x2a\0\0\0\x0f\x05"),
    "aarch64": (183, b"\x40\x05\x80\xd2\xa8\x0b\x80\xd2\x01\0\0\xd4"),
}
"""The number of a machine, and its code to exit with 42."""


@held
@pytest.mark.skipif(platform.machine() not in CODE, reason="no code for this machine")
async def test_a_program_without_a_loader(hand: Hand) -> None:
    machine, code = CODE[platform.machine()]
    at = 0x400000
    size = 120 + len(code)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 2, machine, 1, at + 120, 64, 0, 0, 64, 56, 1, *(0,) * 3
    )
    row = struct.pack("<IIQQQQQQ", 1, 5, 0, at, at, size, size, 4096)
    program = hand.place / "static"
    program.write_bytes(head + row + code)
    program.chmod(0o755)
    assert loader_of(str(program)) == ""
    assert (await hand.run("./static", (str(program),)))[0].code == 42
    assert (await hand.run("./static", where("ls")))[0].code == 126


@pytest.fixture
def short_place() -> Iterator[str]:
    """A directory whose name is short enough to take the place of another in a program."""
    with tempfile.TemporaryDirectory(prefix="l", dir="/tmp") as name:
        yield name


@held
@pytest.mark.skipif(LOADER == "none", reason="the shell needs no loader")
async def test_a_program_with_a_loader_of_its_own(hand: Hand, short_place: str) -> None:
    own_loader = f"{short_place}/ld"
    shutil.copy(LOADER, own_loader)
    data = Path(where("id")[0]).read_bytes()
    old, new = (os.fsencode(path) + b"\0" for path in (LOADER, own_loader))
    if len(new) > len(old) or old not in data:
        pytest.skip("this program cannot be changed")
    program = hand.place / "id"
    program.write_bytes(data.replace(old, new.ljust(len(old), b"\0"), 1))
    program.chmod(0o755)
    assert loader_of(str(program)) == own_loader
    exit_, said = await hand.run("./id -u", (str(program),))
    assert (exit_.code, said) == (0, f"{os.getuid()}\n")


# Loaders


def make_program(
    *,
    wide: bool = True,
    order: str = "<",
    name: bytes = b"/lib/ld.so\0",
    kinds: tuple[int, ...] = (6, 3, 1),
    **changes: int,
) -> bytes:
    """The head of a program, with its table somewhere behind and the name of its loader there."""
    at = changes.get("at", 200)
    row = struct.Struct(f"{order}IIQQQQQQ" if wide else f"{order}8I")
    where_ = changes.get("where", 6000)
    length = changes.get("length", len(name))
    rows = b""
    for kind in kinds:
        start_, long = (where_, length) if kind == 3 else (0, 0)
        cells = (kind, 0, start_, 0, 0, long, 0, 0) if wide else (kind, start_, 0, 0, long, 0, 0, 0)
        rows += row.pack(*cells)
    ident = bytes([127, *b"ELF", 2 if wide else 1, 1 if order == "<" else 2]).ljust(16, b"\0")
    word = "Q" if wide else "I"
    size, count = changes.get("size", row.size), changes.get("count", len(kinds))
    head = struct.pack(
        f"{order}16sHHI3{word}IHHHHHH", ident, 2, 62, 1, 0, at, 0, 0, 0, size, count, 0, 0, 0
    )
    whole = bytearray(max(7000, 200 + len(rows)))
    whole[: len(head)] = head
    whole[200 : 200 + len(rows)] = rows
    whole[6000 : 6000 + len(name)] = name
    return bytes(whole)


@pytest.mark.parametrize(
    ("data", "loader"),
    [
        (make_program(), "/lib/ld.so"),
        (make_program(wide=False), "/lib/ld.so"),
        (make_program(order=">"), "/lib/ld.so"),
        (make_program(wide=False, order=">"), "/lib/ld.so"),
        (make_program(name=b"/a\xff\0rest"), "/a\udcff"),
        (make_program(kinds=(1, 2)), ""),
        (make_program(kinds=()), ""),
        (make_program(name=b"ld.so\0"), ""),
        (make_program(name=b"\0"), ""),
        (make_program(length=0), ""),
        (make_program(length=2**63, name=b"/long\0"), "/long"),
        (make_program(where=2**63), ""),
        (make_program(where=2**62), ""),
        (make_program(at=2**64 - 1), ""),
        (make_program(at=2**62), ""),
        (make_program(at=6990), ""),
        (make_program(size=0), ""),
        (make_program(size=1), ""),
        (make_program(size=65535, count=65535), ""),
        (make_program(count=65535), ""),
        (make_program()[:40], ""),
        (make_program()[:5], ""),
        (b"\x7fELF", ""),
        (b"#!/bin/sh\n", ""),
        (b"", ""),
    ],
)
def test_the_loader_of_a_program(tmp_path: Path, data: bytes, loader: str) -> None:
    (tmp_path / "program").write_bytes(data)
    assert loader_of(f"{tmp_path}/program") == loader


def test_what_is_not_a_file_has_no_loader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (f"{tmp_path}/pipe", f"{tmp_path}", f"{tmp_path}/missing", "nul\0"):
        assert loader_of(path) == ""


def test_loaders_are_added_if_they_are_there(tmp_path: Path) -> None:
    names = [f"{tmp_path}/{name}" for name in ("loader", "good", "bad", "odd")]
    loader, good, bad, odd = names
    Path(loader).write_bytes(make_program(name=os.fsencode(bad) + b"\0"))
    Path(good).write_bytes(make_program(name=os.fsencode(loader) + b"\0"))
    Path(bad).write_bytes(make_program(name=b"/no/such/loader\0"))
    Path(odd).write_bytes(make_program(name=os.fsencode(tmp_path) + b"\0"))
    assert add_loaders([good, odd]) == {good, odd, loader}
    assert add_loaders([bad, f"{tmp_path}/missing", "/tmp", "/dev/null"]) == {bad, "/tmp"}
    assert add_loaders(["relative", "", "."]) == set()


# Where it cannot be done


@pytest.fixture
def other_system(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    landlock.abi.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    yield
    landlock.abi.cache_clear()


@held
def test_rules_are_made_once_and_anew_when_a_program_was_replaced(tmp_path: Path) -> None:
    confinement, program = Confiner(), tmp_path / "program"

    def run(path: str = str(program)) -> tuple[int, object]:
        """The exit code, and the rules that it ran under."""
        spawn = partial(os.posix_spawn, path, ["program"], {})
        pid = confinement.start(spawn, shell="/bin/bash", programs=(str(program),)).pid
        *_, rules = confinement._rulesets.values()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), rules

    shutil.copy("/usr/bin/true", program)
    code, first = run()
    assert (code, run()) == (0, (0, first))
    with pytest.raises(PermissionError):
        run("/usr/bin/true")
    shutil.copy("/usr/bin/false", tmp_path / "new")
    (tmp_path / "new").rename(program)
    code, second = run()
    assert code == 1
    assert second != first
    shutil.copy("/usr/bin/true", program)  # the same file with another content
    assert run()[0] == 0
    assert run()[1] != second


@pytest.mark.usefixtures("other_system")
def test_without_landlock_a_command_runs_all_the_same() -> None:
    assert not landlock.available()
    assert start(threading.get_ident, shell="/bin/bash", programs=()) == (threading.get_ident(), -1)


def with_many_layers(work: Callable[[], object]) -> object:
    """Some work where the kernel can restrict no further, in a thread of its own."""
    outcome: list[object] = []

    def body() -> None:
        rules = make_start_rules(["/"])
        for _ in range(LAYERS):
            enter(rules)
        os.close(rules)
        outcome.append(work())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return outcome[0]


@held
def test_what_the_kernel_will_not_confine_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()

    async def work() -> str:
        host = LocalHost(str(tmp_path / "spool"))
        hand = Hand(host, tmp_path / "place")
        try:
            with pytest.raises(ToolError, match="the kernel could not confine the command") as info:
                await hand.run("echo > new", where("ls"))
            exit_, _ = await hand.run("echo > other", None)
            assert exit_.code == 0, "the others go on"
        finally:
            await host.close()
        return str(info.value)

    words = with_many_layers(lambda: asyncio.run(work()))
    assert words == "the kernel could not confine the command: Landlock: Argument list too long"
    assert os.listdir(tmp_path / "place") == ["other"]


@held
def test_a_failure_to_confine_starts_nothing_and_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, confinement = open_handles(), Confiner()
    started: list[int] = []

    def spawn() -> int:
        started.append(1)
        return 1

    def attempt() -> str:
        with pytest.raises(NotConfinedError) as info:
            confinement.start(spawn, shell="/bin/bash", programs=())
        return str(info.value)

    assert "Landlock" in str(with_many_layers(attempt))

    def refuse(*_: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", refuse)
        assert attempt() == "can't start new thread"
    assert (started, open_handles() - len(confinement._rulesets)) == ([], before)


@held
def test_no_room_for_the_rules_is_a_failure_to_confine(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(24, "Too many open files")

    before = open_handles()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(NotConfinedError, match="Too many open files"):
            Confiner().start(lambda: 1, shell="/bin/bash", programs=())
    assert open_handles() <= before  # threads of earlier tests may still be closing theirs


@held
def test_what_fails_for_another_reason_says_so() -> None:
    def spawn() -> int:
        return os.posix_spawn("/no/such/shell", ["shell"], {})

    before, confinement = open_handles(), Confiner()
    with pytest.raises(FileNotFoundError):
        confinement.start(spawn, shell="/bin/bash", programs=())
    assert open_handles() - len(confinement._rulesets) == before


@held
async def test_a_shell_that_cannot_be_given_its_words_is_told_as_ever(hand: Hand) -> None:
    with pytest.raises(ToolError, match="the shell could not be started"):
        await hand.run("echo \0", where("ls"))
    with pytest.raises(ToolError, match="the shell could not be started"):
        await hand.run("echo " + "x" * 3_000_000, where("ls"))


# The keeper


@held
async def test_the_keeper_itself_stays_free(hand: Hand) -> None:
    for _ in range(20):
        assert (await hand.run("id", where("ls")))[0].code == 126
    assert (await hand.run("id", None))[0].code == 0
    [keeper] = keepers(os.getpid())
    await until(lambda: len(os.listdir(f"/proc/{keeper}/task")) == 1)


@held
async def test_the_child_of_the_thread_becomes_one_of_the_keeper(hand: Hand) -> None:
    launch = Launch("read; exit 3", str(hand.place), {"PATH": PATH}, open_input=True, programs=())
    running = await hand.host.start(launch, own("child"))
    [keeper] = keepers(os.getpid())
    children = Path(f"/proc/{keeper}/task/{keeper}/children")
    await until(lambda: str(running.pid) in children.read_text().split())
    await running.write(b"\n")
    assert (await running.wait()).code == 3


@held
async def test_a_confined_command_goes_first_when_memory_runs_out(hand: Hand) -> None:
    text = "read -r score < /proc/self/oom_score_adj; echo $score"
    assert (await hand.run(text, ()))[1] == (await hand.run(text, None))[1]


class ConfinedHost:
    """A host whose commands are all kept to what is on the PATH."""

    name = "confined"

    def __init__(self, host: ExecHost) -> None:
        self._host = host
        self._programs = tuple(os.environ["PATH"].split(":"))

    def prepare(self) -> None:
        self._host.prepare()

    async def start(self, launch: Launch, id_: str) -> Running:
        return await self._host.start(launch._replace(programs=self._programs), id_)

    async def close(self) -> None:
        await self._host.close()


class ConfinedGround(LocalGround):
    def open(self) -> ExecHost:
        return ConfinedHost(super().open())


@held
@pytest.mark.asyncio(loop_scope="module")
class TestConfinedHost(ExecHostContract):
    names_programs = False  # it names all of them

    @pytest.fixture(scope="class")
    @classmethod
    def ground(cls, tmp_path_factory: pytest.TempPathFactory) -> Ground:
        return ConfinedGround(tmp_path_factory)
