"""Changes to the file on disk: all of it or nothing, whatever happens on the way."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawkit.config.file_edit import (
    ConfigChange,
    change,
    patch_settings,
    set_setting,
    unset_setting,
)
from clawkit.config.json5 import parse, parse_path
from clawkit.config.load import loads
from clawkit.errors import ConfigError, EditError

Edit = Callable[[str], str]

COMMENTED = """\
// mine
{
  tools: {
    exec: { ask: "always" }, // careful
  },
}
"""


def setting(path: str, value: Any, **options: bool) -> Edit:
    return lambda text: set_setting(text, parse_path(path), value, **options)


def unsetting(path: str) -> Edit:
    return lambda text: unset_setting(text, parse_path(path))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clawkit.json5"
    path.write_text(COMMENTED, encoding="utf-8")
    path.chmod(0o600)
    return path


def files_in(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def test_a_change_touches_its_own_line_only(file: Path) -> None:
    done = change(str(file), setting("tools.exec.ask", "off"))
    assert done.written
    assert file.read_text(encoding="utf-8") == COMMENTED.replace("always", "off")
    assert [line for line in done.diff if line[0] in "+-"][2:] == [
        '-    exec: { ask: "always" }, // careful',
        '+    exec: { ask: "off" }, // careful',
    ]


def test_a_missing_file_is_created_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "clawkit.json5"
    done = change(str(path), setting("tools.profile", "coding"))
    assert (done.before, done.backup) == (None, None)
    assert loads(path.read_text(encoding="utf-8")).config.tools.profile == "coding"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_five_backups_are_kept_the_newest_first(file: Path) -> None:
    for timeout in range(11, 18):
        change(str(file), setting("tools.exec.timeoutSec", timeout))
    kept = [f"{file}.bak", *(f"{file}.bak.{number}" for number in range(1, 5))]
    seen = [loads(Path(name).read_text(encoding="utf-8")).config for name in kept]
    assert [config.tools.exec.timeout_sec for config in seen] == [16, 15, 14, 13, 12]
    assert not os.path.exists(f"{file}.bak.5")
    assert all(os.stat(name).st_mode & 0o777 == 0o600 for name in kept)


def test_a_change_that_changes_nothing_writes_nothing(file: Path) -> None:
    before = file.stat().st_ino
    done = change(str(file), setting("tools.exec.ask", "always"))
    assert (done.written, done.diff, done.backup) == (False, [], None)
    assert file.stat().st_ino == before
    assert not os.path.exists(f"{file}.bak")


def test_a_dry_run_leaves_no_trace(file: Path) -> None:
    before = files_in(file.parent)
    done = change(str(file), setting("tools.exec.ask", "off"), dry_run=True)
    assert done.diff
    assert not done.written
    assert files_in(file.parent) == before


def test_a_dry_run_makes_no_directory(tmp_path: Path) -> None:
    change(str(tmp_path / "new" / "c.json5"), setting("tools.profile", "full"), dry_run=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("tools.exec.ask", "never", "expected one of off, on-miss, always"),
        ("gateway.port", 0, "from 1 to 65535"),
        ("tools.loopDetection", {"warningThreshold": 40}, "must be smaller than"),
        ("tools.exec.mode", "ask", "cannot be combined with 'mode'"),
        ("tools.exce.ask", "off", "Did you mean 'tools.exec.ask'?"),
        ("tools.exec.ask.deeper", 1, "tools.exec.ask takes one of"),
        ("agents.list", [{"name": "no id"}], "has no id"),
        ("tools.media", {"concurrency": None}, "found null"),
    ],
)
def test_invalid_changes_are_refused(file: Path, path: str, value: Any, words: str) -> None:
    before = files_in(file.parent)
    with pytest.raises(EditError) as refusal:
        change(str(file), setting(path, value))
    assert words in str(refusal.value)
    assert files_in(file.parent) | {f"{file.name}.lock": b""} == before | {f"{file.name}.lock": b""}


def test_a_file_that_is_not_json5_is_not_changed(file: Path) -> None:
    file.write_text("{\n  tools: {\n", encoding="utf-8")
    with pytest.raises(ConfigError) as refusal:
        change(str(file), setting("tools.profile", "full"))
    assert refusal.value.issues[0].line == 2
    assert "text editor" in str(refusal.value)
    assert file.read_text(encoding="utf-8") == "{\n  tools: {\n"


def test_an_empty_file_can_be_filled(file: Path) -> None:
    file.write_text("// nothing yet\n", encoding="utf-8")
    change(str(file), setting("tools.profile", "full"))
    assert file.read_text(encoding="utf-8").startswith("// nothing yet\n{")


@pytest.mark.parametrize("text", [COMMENTED, ""])
def test_a_byte_order_mark_stays(file: Path, text: str) -> None:
    mark = b"\xef\xbb\xbf"
    file.write_bytes(mark + text.encode())
    done = change(str(file), setting("tools.profile", "full"))
    assert file.read_bytes() == mark + done.after.encode()
    assert Path(f"{file}.bak").read_bytes() == mark + text.encode()
    assert not any("feff" in line for line in done.diff)


def test_most_of_a_file_does_not_go_unasked(file: Path) -> None:
    big = "{ gateway: { port: 80 }, env: { vars: { A: '" + "x" * 600 + "' } } }"
    file.write_text(big, encoding="utf-8")
    with pytest.raises(EditError, match="would shrink the file from"):
        change(str(file), unsetting("env"))
    assert file.read_text(encoding="utf-8") == big
    assert change(str(file), unsetting("env"), allow_shrink=True).written


def test_a_small_file_may_shrink(file: Path) -> None:
    assert change(str(file), unsetting("tools")).written


@pytest.mark.parametrize("value", ["1", "true", "yes"])
def test_a_read_only_configuration_is_not_changed(file: Path, value: str) -> None:
    env = {"CLAWKIT_CONFIG_READONLY": value}
    with pytest.raises(EditError, match="read-only"):
        change(str(file), setting("tools.profile", "full"), env=env)
    assert change(str(file), setting("tools.profile", "full"), env=env, dry_run=True).diff


def test_a_link_is_not_replaced(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json5"
    link.symlink_to(file)
    with pytest.raises(EditError, match="symbolic link"):
        change(str(link), setting("tools.profile", "full"))
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == COMMENTED


def test_a_dangling_link_is_not_written_through(tmp_path: Path) -> None:
    link = tmp_path / "link.json5"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EditError, match="symbolic link"):
        change(str(link), setting("tools.profile", "full"))
    assert not (tmp_path / "elsewhere").exists()


def test_a_planted_lock_link_is_not_followed(file: Path, tmp_path: Path) -> None:
    Path(f"{file}.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(EditError, match="was not changed"):
        change(str(file), setting("tools.profile", "full"))
    assert not (tmp_path / "victim").exists()


def _directory(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _huge(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)


def _latin1(path: Path) -> None:
    path.write_bytes(b"{ tools: { profile: 'f\xfcll' } }")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_directory, "is a directory"),
        (_pipe, "not a regular file"),
        (_huge, "larger than 2 MiB"),
        (_latin1, "byte 0xfc at offset 22"),
    ],
)
def test_what_is_not_a_configuration_file_is_left_alone(
    tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    path = tmp_path / "clawkit.json5"
    make(path)
    before = path.lstat()
    with pytest.raises(ConfigError, match=words):
        change(str(path), setting("tools.profile", "full"))
    assert (path.lstat().st_mode, path.lstat().st_size) == (before.st_mode, before.st_size)


def test_a_change_by_someone_else_in_between_is_not_overwritten(file: Path) -> None:
    def edit(text: str) -> str:
        file.write_text("{ /* theirs */ }", encoding="utf-8")
        return set_setting(text, ("tools", "profile"), "full")

    with pytest.raises(EditError, match="another process"):
        change(str(file), edit)
    assert file.read_text(encoding="utf-8") == "{ /* theirs */ }"


def test_variables_stay_references(file: Path) -> None:
    file.write_text('{ gateway: { port: "${PORT}" } }', encoding="utf-8")
    env = {"PORT": "81", "HOME": "/nonexistent"}
    change(str(file), setting("gateway.bind", "loopback"), env=env)
    assert '"${PORT}"' in file.read_text(encoding="utf-8")


def test_only_new_warnings_are_reported(file: Path) -> None:
    file.write_text('{ gateway: { auth: { token: "${OLD}" } } }', encoding="utf-8")
    env = {"HOME": "/nonexistent"}
    done = change(str(file), setting("hooks.token", "${NEW}"), env=env)
    assert [warning.path for warning in done.warnings] == ["hooks.token"]


def test_the_owner_can_go_on_editing_after_root_did(file: Path) -> None:
    owner = 1234 if os.geteuid() == 0 else os.geteuid()
    os.chown(file, owner, -1)
    change(str(file), setting("tools.profile", "full"))
    assert file.stat().st_uid == owner


class TestIncludes:
    @pytest.fixture
    def main(self, tmp_path: Path) -> Path:
        (tmp_path / "tools.json5").write_text(
            '{\n  deny: ["exec"],\n  exec: { ask: "off" },\n}', encoding="utf-8"
        )
        path = tmp_path / "clawkit.json5"
        path.write_text(
            '{ tools: { $include: "./tools.json5", deny: ["canvas"] }, gateway: { port: 80 } }',
            encoding="utf-8",
        )
        return path

    @staticmethod
    def attempt(main: Path, path: str, edit: Edit) -> ConfigChange:
        return change(str(main), edit, paths=[parse_path(path)])

    @pytest.mark.parametrize(
        ("path", "line"), [("tools.exec.ask", 3), ("tools.exec", 3), ("tools.exec.host", 3)]
    )
    def test_settings_of_an_included_file_are_changed_there(
        self, main: Path, path: str, line: int
    ) -> None:
        before = files_in(main.parent)
        where = f"{main.parent / 'tools.json5'}:{line}"
        with pytest.raises(EditError, match=where):
            self.attempt(main, path, setting(path, "x"))
        with pytest.raises(EditError, match=where):
            self.attempt(main, path, unsetting(path))
        assert {**files_in(main.parent), f"{main.name}.lock": b""} == {
            **before,
            f"{main.name}.lock": b"",
        }

    def test_an_index_into_a_list_joined_from_two_files_is_refused(self, main: Path) -> None:
        with pytest.raises(EditError, match=r"tools\.json5:2"):
            self.attempt(main, "tools.deny[0]", setting("tools.deny[0]", "read"))

    @pytest.mark.parametrize(
        ("path", "value"),
        [("gateway.port", 81), ("tools.deny", ["read"]), ("tools.fs.workspaceOnly", False)],
    )
    def test_settings_of_the_main_file_are_changed_there(
        self, main: Path, path: str, value: Any
    ) -> None:
        assert self.attempt(main, path, setting(path, value)).written
        assert "$include" in main.read_text(encoding="utf-8")

    def test_an_include_is_not_dropped_by_the_way(self, main: Path) -> None:
        with pytest.raises(EditError, match=r"tools\.\$include"):
            self.attempt(main, "tools", setting("tools", {"deny": []}))
        assert self.attempt(main, "tools", setting("tools", {"deny": []}, replace=True)).written

    def test_the_result_is_checked_together_with_what_it_includes(self, main: Path) -> None:
        # The included file says which commands to ask for; a mode contradicts that.
        with pytest.raises(EditError, match="mode"):
            change(str(main), setting("tools.exec.mode", "full"))

    def test_a_self_including_file_can_be_fixed(self, tmp_path: Path) -> None:
        path = tmp_path / "clawkit.json5"
        path.write_text('{ tools: { $include: "./clawkit.json5" } }', encoding="utf-8")
        with pytest.raises(EditError, match=r"unknown setting"):
            self.attempt(path, "tools.foo", setting("tools.foo", 1))
        done = self.attempt(path, "tools.$include", unsetting("tools.$include"))
        assert done.written
        assert done.issues == ()


def test_a_lock_that_is_held_for_long_is_an_error(file: Path) -> None:
    with open(f"{file}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(EditError, match="another process"):
            change(str(file), setting("tools.profile", "full"), wait_s=0.05)
    assert change(str(file), setting("tools.profile", "full")).written


_VALUES: st.SearchStrategy[Any] = st.sampled_from(
    ["always", "off", "on-miss", 5, 5000, None, True, [], ["read"], {}]
)
_PATHS = st.sampled_from(
    ["tools.exec.ask", "tools.exec", "tools", "tools.deny", "tools.exec.timeoutSec", "gateway.port"]
)


@given(st.lists(st.tuples(_PATHS, _VALUES), max_size=4))
def test_whatever_is_tried_the_file_stays_valid(
    tmp_path_factory: pytest.TempPathFactory, tries: list[tuple[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("any") / "clawkit.json5"
    path.write_text(COMMENTED, encoding="utf-8")
    for name, value in tries:
        before = path.read_text(encoding="utf-8")
        try:
            done = change(str(path), setting(name, value))
        except EditError:
            assert path.read_text(encoding="utf-8") == before
        else:
            assert path.read_text(encoding="utf-8") == done.after
        loads(path.read_text(encoding="utf-8"))


def test_a_patch_is_one_change(file: Path) -> None:
    patch = {"tools": {"exec": {"ask": None, "host": "gateway"}, "profile": "coding"}}
    done = change(str(file), lambda text: patch_settings(text, patch))
    assert parse(done.after).value == {"tools": {"exec": {"host": "gateway"}, "profile": "coding"}}
    assert "// careful" in done.after
