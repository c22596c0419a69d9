"""Commands that always need the approval of a person."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.tables import table

from clawkit.approvals.hardline import find_hardline, may_be_hardline
from clawkit.approvals.path_rules import PathRules
from clawkit.approvals.types import Analysis, ApprovalRules, Arg, Doubt, FileUse, Program, Segment

HOME = "/home/ann"
OWN = "/home/ann/.clawkit/exec-approvals.json"
PLACES = PathRules(
    "/w", own=["/home/ann/.clawkit", "/w/sub/settings"], own_open=["/home/ann/.clawkit/commands"]
)
RULES = ApprovalRules(is_own=PLACES.is_own, holds_own=PLACES.holds_own)


def words(*texts: str, cwd: str | None = "/w", real: str = "") -> Program:
    argv = tuple(Arg(text.replace("GLOB", "*"), "GLOB" in text) for text in texts)
    path = texts[0] if "/" in texts[0] else f"/usr/bin/{texts[0]}"
    return Program(argv, path, real or path, cwd)


def look(*programs: Program, files: tuple[FileUse, ...] = ()) -> str:
    segment = Segment("x", programs, files=files)
    return find_hardline(Analysis("x", (segment,), "x"), RULES, home=HOME)


def read(command: str) -> str:
    analysis = Analysis(command, doubt=Doubt("not understood"))
    return find_hardline(analysis, RULES, home=HOME)


HARDLINE: list[tuple[tuple[str, ...], str]] = [
    (("mkfs.ext4", "/dev/sda1"), "disk"),
    (("/sbin/mkfs", "-t", "ext4", "disk.img"), "disk"),
    (("wipefs", "-a", "/dev/sdb"), "disk"),
    (("fdisk", "/dev/sda"), "disk"),
    (("sgdisk", "-Z", "/dev/sda"), "disk"),
    (("dd", "if=x", "of=/dev/nvme0n1"), "disk"),
    (("tee", "/dev/sda"), "disk"),
    (("cp", "x.img", "/dev/mmcblk0"), "disk"),
    (("shred", "/dev/vda"), "disk"),
    (("rm", "-rf", "/"), "whole"),
    (("rm", "-r", "-f", "/GLOB"), "whole"),
    (("rm", "-fR", "/usr/"), "whole"),
    (("rm", "--recursive", "/etc/../etc"), "whole"),
    (("rm", "-rf", "~"), "whole"),
    (("rm", "-rf", "~/GLOB"), "whole"),
    (("rm", "-rf", "/home/ann"), "whole"),
    (("rm", "-rf", "../../../.."), "whole"),
    (("chmod", "-R", "777", "/"), "whole"),
    (("chown", "-R", "ann", "/usr"), "whole"),
    (("mv", "/home", "/tmp/x"), "whole"),
    (("find", "/", "-delete"), "whole"),
    (("clawkit", "approvals", "resolve", "id1", "allow-always"), "clawkit"),
    (("clawkit", "approvals", "allowlist", "add", "ls"), "clawkit"),
    (("clawkit", "config", "set", "tools.exec.mode", "full"), "clawkit"),
    (("/opt/venv/bin/clawkit", "--debug", "config", "patch", "{}"), "clawkit"),
    (("clawkit", "tools", "call", "exec"), "clawkit"),
    (("clawkit", "doctor", "--fix"), "clawkit"),
    (("clawkit", "unheard-of"), "clawkit"),
    (("cp", "x", OWN), "clawkit"),
    (("cp", "x", ".clawkit/exec-approvals.json"), "clawkit"),
    (("sed", "-i", "s/a/b/", "/elsewhere/clawkit.json5"), "clawkit"),
    (("python3", "-c", "open('exec-approvals.json', 'w')"), "clawkit"),
    (("sort", f"--output={OWN}", "x"), "clawkit"),
    (("sort", f"-o{OWN}", "x"), "clawkit"),
    (("cp", "-rT", "d", "/home/ann/.clawkit"), "clawkit"),
    (("cp", "-a", "d", "/home/ann"), "clawkit"),
    (("cp", "--archive", "d", "/home"), "clawkit"),
    (("tar", "-xf", "x.tar", "-C", "/home/ann/.clawkit"), "clawkit"),
    (("tar", "-xf", "x.tar", "--directory=/home/ann"), "clawkit"),
    (("unzip", "x.zip", "-d", "/"), "clawkit"),
    (("rsync", "-a", "d/", "/home/ann/"), "clawkit"),
    (("mv", "-t", "/home/ann/.clawkit", "x"), "clawkit"),
    (("touch", "clawkit.json5"), "clawkit"),
    (("touch", "sub/settings"), "clawkit"),
    (("python3", "-m", "clawkit", "approvals", "resolve", "x", "allow-once"), "clawkit"),
    (("python3", "-m", "clawkit.cli.main", "config", "set"), "clawkit"),
    (("git", "-C", "/home/ann", "checkout", "x"), "clawkit"),
    (("git", "clone", "x", "/home"), "clawkit"),
    (("cp", "-r", "x", "sub"), "clawkit"),
]


def test_only_a_person_can_allow_it() -> None:
    for argv, part in HARDLINE:
        assert part in look(words(*argv))


def _ordinary_commands_are_not_held_up(argv: tuple[str, ...]) -> None:
    assert look(words(*argv)) == ""


def test_ordinary_commands_are_not_held_up(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("ls", "-la"),
        ("rm", "-rf", "build"),
        ("rm", "/home/ann/x"),
        ("rm", "-rf", "/w/GLOB"),
        ("rm", "-f", "/"),
        ("chmod", "777", "/"),
        ("fdisk", "-l"),
        ("dd", "if=/dev/sda", "of=copy.img"),
        ("cp", "a", "b"),
        ("cp", "a", "/home/ann"),
        ("grep", "clawkit", "x"),
        ("python3", "-m", "pytest"),
        ("cp", "-r", "a", "/srv"),
        ("touch", "other.json5"),
        ("find", "/", "-name", "x"),
        ("find", ".", "-delete"),
        ("mv", "a", "b"),
        ("clawkit",),
        ("clawkit", "--help"),
        ("clawkit", "ps"),
        ("clawkit", "approvals"),
        ("clawkit", "approvals", "pending"),
        ("clawkit", "config", "get", "tools"),
        ("clawkit", "tools", "list"),
        ("clawkit", "doctor"),
        ("cat", "/home/ann/.clawkit/commands/brisk-otter.log"),
        ("cat", "a.b", "--x=y.z"),
        ("echo", "a\0b/c"),
    ]
    for argv in cases:
        with subtests.test(argv=argv):
            _ordinary_commands_are_not_held_up(argv)


def test_a_program_by_another_name_is_known_by_its_file() -> None:
    assert "disk" in look(words("./tool", "x", real="/usr/sbin/mkfs.xfs"))


def test_nothing_runs_unasked_in_the_directory_of_clawkit_itself() -> None:
    assert "clawkit" in look(words("tar", "xf", "x", cwd="/home/ann/.clawkit"))
    assert "clawkit" in look(words("git", "status", cwd="/home/ann/.clawkit/cache"))
    assert "clawkit" in look(words("make", cwd="/home/ann/.clawkit"))
    assert "clawkit" in look(words("tar", "xf", "x", cwd="/home/ann"))
    assert look(words("cat", "x", cwd="/home/ann/.clawkit/commands")) == ""
    assert look(words("cat", "x", cwd="/home/ann")) == ""
    assert look(words("tar", "xf", "x", cwd="/w/other")) == ""
    assert look(words("git", "checkout", "x", cwd="/w/other")) == ""
    assert look(words("git", "status", cwd="/home/ann")) == ""
    assert "clawkit" in look(words("git", "checkout", "-f", "x", cwd="/home/ann"))
    assert "clawkit" in look(words("patch", "-p0", cwd="/home/ann"))
    assert look(words("cp", "-r", "x", "y", cwd="/home/ann")) == ""
    assert "clawkit" in look(words("tar", "xf", "x", cwd=None))


def test_where_the_directory_is_not_known_only_absolute_paths_count() -> None:
    assert look(words("rm", "-rf", "..", cwd=None)) != ""
    assert look(words("rm", "-rf", "build", cwd=None)) == ""


@table(
    ("file", "part"),
    [
        (FileUse("/dev/sda", True), "disk"),
        (FileUse("/dev/sda", False), ""),
        (FileUse(OWN, True), "clawkit"),
        (FileUse(OWN, False), "clawkit"),
        (FileUse("/w/x", True), ""),
    ],
)
def test_files_that_the_shell_opens_count_too(file: FileUse, part: str) -> None:
    found = look(words("ls"), files=(file,))
    assert (part in found) if part else found == ""


def _what_is_not_understood_is_read_as_text(command: str, part: str) -> None:
    assert part in read(command)


def test_what_is_not_understood_is_read_as_text(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        (":(){ :|:& };:", "fork bomb"),
        ("bomb() { bomb | bomb & }; bomb", "fork bomb"),
        ("function f () { f|f& }; f", "fork bomb"),
        ("sudo mkfs.ext4 $DISK", "disk"),
        ("cat x > /dev/sda &", "disk"),
        ("dd if=/dev/zero of=/dev/sd'a' &", "disk"),
        ("shred -n 3 /dev/sda $(x)", "disk"),
        ('r""m -r\\f / $(x)', "whole"),
        ("rm --recursive --force $HOME", "whole"),
        ("rm -rf ~/ `x`", "whole"),
        ("rm -rf /* $(x)", "whole"),
        ("echo $X; rm -rf /; echo done", "whole"),
        ("echo $X; rm -rf /&& true", "whole"),
        ("echo $(rm -rf /)", "whole"),
        ("echo `rm -rf ~`", "whole"),
        ("echo $X; (rm -rf ~)", "whole"),
        ("echo $X; rm -rf ${HOME};ls", "whole"),
        ("echo $X; sudo -n rm -rf /etc", "whole"),
        ("echo $X; chmod -R 777 /", "whole"),
        ("while :; do /bin/rm -fr /usr; done", "whole"),
        ("echo $X | xargs mkfs.ext4", "disk"),
        ("clawkit --debug approvals resolve $id allow-once", "clawkit"),
        ("python -m clawkit config set tools.exec.mode $m", "clawkit"),
        ("echo $x > ~/.clawkit/exec-approvals.json", "clawkit"),
    ]
    for command, part in cases:
        with subtests.test(command=command, part=part):
            _what_is_not_understood_is_read_as_text(command, part)


@table(
    "command",
    [
        "for f in $(ls); do echo $f; done",
        "f() { echo hi; }; f",
        "f() { f; }; f",
        "rm -rf ./build/$x",
        "rm -rf /tmp/x $(y)",
        "cat <(ls)",
        "clawkit config get $x",
        "x" * 100_000 + "$(y)",
        "rm " * 20_000 + "$(y)",
        "rm -r " * 10_000 + "$(y)",
        "clawkit ps $(y); " * 4_000,
    ],
)
def test_what_is_not_understood_is_not_held_up_for_nothing(command: str) -> None:
    assert read(command) == ""


@table(
    ("command", "suspect"),
    [
        ("git status", False),
        ("ls 2>/dev/null", False),
        ("echo farm; charm; mvn test", False),
        ('r""m -r\\f /', True),
        ("cat x > /dev/sda", True),
        ("f () { f; }", True),
        ("vim settings.json5", True),
        ("clawkit ps", True),
        ("find / -delete", True),
    ],
)
def test_where_everything_is_allowed_only_the_suspect_is_looked_at(
    command: str, suspect: bool
) -> None:
    assert may_be_hardline(command, ("settings.json5",)) is suspect
