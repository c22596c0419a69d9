"""What a yes is about."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from clawkit.approvals import binding as module
from clawkit.approvals.binding import (
    answer_for,
    bind,
    check,
    choice_of,
    decode,
    encode,
    no_answer,
    why_invalid,
)
from clawkit.core.approval import Answer, Lasting, Question
from clawkit.errors import ToolInputError

Facts = dict[str, Any]


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    place = tmp_path / "ws"
    place.mkdir()
    program = tmp_path / "tool"
    program.write_bytes(b"#!/bin/sh\necho one\n")
    program.chmod(0o755)
    script = place / "run.py"
    script.write_text("print(1)\n")
    return {
        "command": "tool run.py; ls",
        "run": "'/x/tool' 'run.py'; '/bin/ls'",
        "argv": [["tool", "run.py"], ["ls"]],
        "cwd": str(place),
        "env": {"PATH": "/bin", "TOKEN": "hunter2"},
        "programs": [str(program), "/bin/ls"],
        "scripts": [str(script)],
        "agent": "main",
        "session": "main",
    }


def stored(given: Facts) -> Any:
    """A binding as it comes back from the disk."""
    return decode(encode(bind(**given)))


def test_an_unchanged_binding_is_valid(facts: Facts) -> None:
    assert check(bind(**facts), **facts) == ""
    assert check(stored(facts), **facts) == ""


def test_a_binding_contains_no_text_of_command_or_environment(facts: Facts) -> None:
    text = json.dumps(bind(**facts))
    for secret in ("hunter2", "TOKEN", "echo", facts["command"], facts["run"]):
        assert secret not in text


def test_equal_environments_do_not_look_alike(facts: Facts) -> None:
    assert bind(**facts)["env"] != bind(**facts)["env"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"command": "tool run.py; ls "}, "the command is not the one that was shown"),
        ({"run": "'/y/tool'"}, "what the shell would get is not what was shown"),
        ({"argv": [["tool", "run.py", "ls"]]}, "the arguments are not those"),
        ({"argv": [["tool"], ["run.py", "ls"]]}, "the arguments are not those"),
        ({"argv": [["tool", "run.pyls"]]}, "the arguments are not those"),
        ({"argv": [["tool", "run.py"], ["ls"], []]}, "the arguments are not those"),
        ({"cwd": "/"}, "the working directory has changed"),
        ({"env": {"PATH": "/bin", "TOKEN": "hunter3"}}, "the environment has changed"),
        ({"env": {"PATH": "/bin"}}, "the environment has changed"),
        ({"env": {"PATH": "/bin", "TOKEN": "hunter2", "X": ""}}, "the environment has changed"),
        ({"env": {"PATH": "/binTOKEN", "": "hunter2"}}, "the environment has changed"),
        ({"agent": "other"}, "given to another agent"),
        ({"session": "other"}, "given in another session"),
        ({"programs": []}, "the programs are not those that were shown"),
        ({"programs": ["/bin/ls", "/bin/ls"]}, "the program /bin/ls has changed"),
        ({"scripts": []}, "the scripts are not those that were shown"),
    ],
)
def test_every_change_of_the_command_is_reported(facts: Facts, change: Facts, message: str) -> None:
    assert message in check(stored(facts), **{**facts, **change})


def test_the_order_of_the_environment_does_not_matter(facts: Facts) -> None:
    again = dict(reversed(facts["env"].items()))
    assert check(stored(facts), **{**facts, "env": again}) == ""


def rewrite_in_place(path: str) -> None:
    """Other content of the same length, and all the times that can be set, set back."""
    before = os.stat(path)
    data = bytearray(Path(path).read_bytes())
    data[-2] ^= 1
    with open(path, "r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_copy(path: str) -> None:
    """The same content in another file."""
    shutil.copy2(path, f"{path}.copy")
    os.replace(f"{path}.copy", path)


def put_link(path: str) -> None:
    os.rename(path, f"{path}.real")
    os.symlink(f"{path}.real", path)


def append(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"# more\n")


@pytest.mark.parametrize("change", [rewrite_in_place, replace_by_copy, put_link, append, os.unlink])
@pytest.mark.parametrize("kind", ["program", "script"])
def test_a_touched_file_is_reported(facts: Facts, kind: str, change: Callable[[str], None]) -> None:
    path = facts[f"{kind}s"][0]
    before = stored(facts)
    change(path)
    assert check(before, **facts) == f"the {kind} {path} has changed since it was shown"


def test_a_change_of_content_alone_is_detected(facts: Facts) -> None:
    before = stored(facts)
    for kind in ("programs", "scripts"):
        tampered = json.loads(json.dumps(before))
        tampered[kind][0]["sha256"] = "0" * 64
        assert "has changed" in check(tampered, **facts)


def test_a_program_behind_a_link_is_bound_to_where_it_leads(facts: Facts, tmp_path: Path) -> None:
    link, other = tmp_path / "link", tmp_path / "other"
    shutil.copy2(facts["programs"][0], other)
    link.symlink_to(facts["programs"][0])
    facts["programs"] = [str(link)]
    before = stored(facts)
    assert check(before, **facts) == ""
    link.unlink()
    link.symlink_to(other)
    assert check(before, **facts) == f"the program {link} has changed since it was shown"


def test_a_directory_is_bound_by_its_identity(facts: Facts, tmp_path: Path) -> None:
    one, two, link = tmp_path / "one", tmp_path / "two", tmp_path / "here"
    one.mkdir()
    two.mkdir()
    link.symlink_to(one)
    facts["cwd"] = str(link)
    before = stored(facts)
    assert check(before, **facts) == ""
    link.unlink()
    link.symlink_to(two)
    assert check(before, **facts) == "the working directory has changed"
    link.unlink()
    link.symlink_to(one)
    assert check(before, **facts) == ""
    # Another one of the same name.
    one.rename(tmp_path / "old")
    one.mkdir()
    assert check(before, **facts) == "the working directory has changed"
    shutil.rmtree(one)
    assert "because it cannot be inspected: no such file" in check(before, **facts)


def test_a_missing_file_must_stay_missing(facts: Facts, tmp_path: Path) -> None:
    absent = tmp_path / "absent.sh"
    facts["scripts"] = [str(absent)]
    before = stored(facts)
    assert check(before, **facts) == ""
    absent.write_text("echo\n")
    assert check(before, **facts) == f"the script {absent} has changed since it was shown"


def test_a_script_may_be_a_directory(facts: Facts, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    facts["scripts"] = [str(package)]
    before = stored(facts)
    assert check(before, **facts) == ""
    (package / "__main__.py").touch()
    assert "package has changed" in check(before, **facts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cwd": "/nowhere"}, "'/nowhere', because it cannot be inspected: no such file"),
        ({"cwd": "/bin/ls"}, "'/bin/ls', because it is not a directory"),
        ({"cwd": "relative"}, "'relative', because it is not an absolute path"),
        ({"programs": ["ls"]}, "'ls', because it is not an absolute path"),
        ({"scripts": ["/bin/\0ls"]}, "because it is not an absolute path"),
        ({"scripts": ["/dev/null"]}, "'/dev/null', because it is neither a file nor a directory"),
        ({"scripts": ["/" + "x" * 300]}, "cannot be inspected: file name too long"),
    ],
)
def test_facts_that_cannot_be_bound_are_refused(facts: Facts, change: Facts, message: str) -> None:
    before = stored(facts)
    with pytest.raises(ToolInputError, match=message) as caught:
        bind(**{**facts, **change})
    assert str(caught.value).isprintable()
    assert check(before, **{**facts, **change}) == str(caught.value)


def test_a_pipe_is_not_waited_for(facts: Facts, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ToolInputError, match="neither a file nor a directory"):
        bind(**{**facts, "scripts": [str(tmp_path / "pipe")]})


def test_a_large_program_is_known_by_its_times_and_a_large_script_is_refused(
    facts: Facts, tmp_path: Path
) -> None:
    large = tmp_path / "large"
    with open(large, "wb") as file:
        file.truncate(module.MAX_CONTENT + 1)
    with pytest.raises(ToolInputError, match="larger than 64 MB"):
        bind(**{**facts, "scripts": [str(large)]})
    facts["programs"] = [str(large)]
    before = stored(facts)
    assert "sha256" not in before["programs"][0]
    assert check(before, **facts) == ""
    rewrite_at_end(str(large))
    assert "large has changed" in check(before, **facts)


def rewrite_at_end(path: str) -> None:
    before = os.stat(path)
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of root, even if root runs the tests."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everybody can enter."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def one_program(public: Path, **given: Any) -> Facts:
    facts: Facts = {"command": "", "run": "", "argv": [], "env": {}, "agent": "", "session": ""}
    return {**facts, "cwd": str(public), "programs": [], "scripts": [], **given}


def test_content_of_what_only_root_can_change_does_not_count(public: Path) -> None:
    with as_nobody():
        (found,) = bind(**one_program(public, programs=["/bin/ls"]))["programs"]
    assert "sha256" not in found
    assert found["real"] == os.path.realpath("/bin/ls")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")
@pytest.mark.parametrize(
    ("owner", "mode", "counts"),
    [(0, 0o755, False), (0, 0o775, True), (0, 0o757, True), (65534, 0o555, True), (9, 0o755, True)],
)
def test_content_counts_when_someone_but_root_can_change_it(
    public: Path, owner: int, mode: int, counts: bool
) -> None:
    program = public / "tool"
    program.write_text("x")
    os.chown(program, owner, 0)
    program.chmod(mode)
    with as_nobody():
        (found,) = bind(**one_program(public, programs=[str(program)]))["programs"]
    assert ("sha256" in found) is counts


def test_what_cannot_be_read_may_be_a_program_but_no_script(public: Path) -> None:
    program = public / "tool"
    program.write_text("x")
    program.chmod(0o111)
    if os.geteuid() == 0:
        os.chown(program, 9, 9)
    with as_nobody():
        facts = one_program(public, programs=[str(program)])
        assert "sha256" not in bind(**facts)["programs"][0]
        assert check(bind(**facts), **facts) == ""
        with pytest.raises(ToolInputError, match="because it cannot be inspected: permission den"):
            bind(**one_program(public, scripts=[str(program)]))


def test_a_file_that_is_being_written_is_refused(facts: Facts, tmp_path: Path) -> None:
    busy, begun, done = tmp_path / "busy", threading.Event(), threading.Event()
    with open(busy, "wb") as file:
        file.truncate(32 * 1024**2)

    def write() -> None:
        with open(busy, "ab", buffering=0) as file:
            while not done.is_set():
                file.write(b"x")
                begun.set()

    def bind_often() -> None:
        """On a busy machine it may take several attempts until the file is being written."""
        for _ in range(50):
            bind(**{**facts, "scripts": [str(busy)]})

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait()
    try:
        with pytest.raises(ToolInputError, match="busy', because it is being written to"):
            bind_often()
    finally:
        done.set()
        writer.join()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"version": 2},
        {"version": 1, "salt": ""},
        {"version": 2, "salt": 5},
        {"version": "2", "salt": ""},
    ],
)
def test_an_empty_binding_allows_nothing(facts: Facts, given: Facts) -> None:
    assert check(given, **facts) == "the approval has no record of what was shown"


@pytest.mark.parametrize("key", ["agent", "command", "cwd", "env", "programs", "scripts"])
@pytest.mark.parametrize("value", [None, "", [], {}, [1]])
def test_a_binding_that_was_cut_allows_nothing(facts: Facts, key: str, value: Any) -> None:
    assert check({**stored(facts), key: value}, **facts) != ""


@pytest.mark.parametrize("text", ["\udcff", "\ud83d\ude00", "a\0b", "\u202e"])
def test_any_text_can_be_bound(facts: Facts, text: str) -> None:
    facts |= {"command": text, "agent": text, "env": {text: text}, "argv": [[text]]}
    assert check(stored(facts), **facts) == ""
    assert check(stored(facts), **{**facts, "command": f"{text} "}) != ""


def test_surrogates_that_make_a_pair_are_not_the_character(facts: Facts) -> None:
    facts["command"] = "\ud83d\ude00"
    assert check(stored(facts), **{**facts, "command": "\U0001f600"}) != ""


QUESTION = Question("exec", {}, "t")
OFFERS = Question("exec", {}, "t", lasting=(Lasting("exact", "x"), Lasting("program", "y")))


def _only_an_offered_choice_is_an_answer(question: Question, answer: Any, wrong: str) -> None:
    found = why_invalid(question, answer)
    assert wrong in found
    assert bool(found) is bool(wrong)


def test_only_an_offered_choice_is_an_answer(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        (QUESTION, Answer("allow"), ""),
        (QUESTION, Answer("deny"), ""),
        (QUESTION, Answer("allow", extent="exact"), "only a one-time approval was offered"),
        (OFFERS, Answer("allow", extent="exact"), ""),
        (OFFERS, Answer("allow", extent="program"), ""),
        (OFFERS, Answer("allow", extent="subcommand"), "'subcommand' was not offered"),
        (OFFERS, Answer("allow", extent=""), "'' was not offered"),  # type: ignore[arg-type]
        (OFFERS, Answer("allow", extent=["exact"]), "was not offered"),  # type: ignore[arg-type]
        (OFFERS, Answer("deny", extent="exact"), "only an approval can be made permanent"),
        (OFFERS, Answer("deny", silent=True), "an answer must not be silent"),
        (OFFERS, Answer("allow", silent=True), "an answer must not be silent"),
        (OFFERS, Answer("ALLOW"), "it must be allow or deny"),  # type: ignore[arg-type]
        (OFFERS, Answer("allow", 5), "must be strings"),  # type: ignore[arg-type]
        (OFFERS, Answer("allow", by=b"x"), "must be strings"),  # type: ignore[arg-type]
        (OFFERS, True, "it must be allow or deny"),
        (OFFERS, "allow", "it must be allow or deny"),
        (OFFERS, None, "it must be allow or deny"),
    ]
    for question, answer, wrong in cases:
        with subtests.test(question=question, answer=answer, wrong=wrong):
            _only_an_offered_choice_is_an_answer(question, answer, wrong)


@table(
    ("choice", "extent", "expected"),
    [
        ("allow-once", None, Answer("allow", "r", None, "ada")),
        ("allow-always", None, Answer("allow", "r", "exact", "ada")),
        ("allow-always", "program", Answer("allow", "r", "program", "ada")),
        ("deny", None, Answer("deny", "r", None, "ada")),
    ],
)
def test_a_choice_is_an_answer(choice: str, extent: str | None, expected: Answer) -> None:
    answer = answer_for(OFFERS, choice, extent, reason="r", by="ada")
    assert answer == expected
    assert choice_of(answer) == choice


@table(
    ("question", "choice", "extent", "message"),
    [
        (OFFERS, "allow", None, "unknown decision 'allow'; use one of allow-once, allow-always"),
        (OFFERS, "x\n" * 999, None, "unknown decision 'x"),
        (OFFERS, "allow-once", "exact", "an extent requires allow-always"),
        (OFFERS, "deny", "exact", "an extent requires allow-always"),
        (OFFERS, "allow-always", "subcommand", "'subcommand' was not offered, only 'exact' or"),
        (QUESTION, "allow-always", None, "only a one-time approval was offered"),
    ],
)
def test_an_invalid_choice_is_reported(
    question: Question, choice: str, extent: str | None, message: str
) -> None:
    with pytest.raises(ToolInputError, match=message) as caught:
        answer_for(question, choice, extent)
    assert len(str(caught.value)) < 200


@table(("timeout_s", "words"), [(120.0, "2m"), (0.5, "0.5s"), (float("nan"), "the time limit")])
def test_a_timeout_is_a_denial_with_its_reason(timeout_s: float, words: str) -> None:
    assert no_answer(timeout_s) == Answer("deny", f"no answer within {words}", silent=True)
