"""The approvals document: reading it, refusing invalid ones, and changing it safely."""

from __future__ import annotations

import fcntl
import gc
import hashlib
import json
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
from base64 import urlsafe_b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs

from clawkit.approvals.file import (
    MAX_BYTES,
    ApprovalsDocument,
    BadDocumentError,
    DocPolicy,
    add_entry,
    edit,
    ensure_socket,
    note_use,
    read_document,
    remove_entry,
    replace,
    revision,
)
from clawkit.approvals.types import AllowlistEntry, ArgRule
from clawkit.errors import ConflictError, ToolInputError

FLOOR = {"security": "full", "ask": "off", "askFallback": "deny", "autoAllowSkills": False}
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the document is to be, in a directory of its own."""
    folder = tmp_path / "state"
    folder.mkdir(0o700)
    return folder / "exec-approvals.json"


def write(file: Path, content: Any) -> str:
    """Writes data, or a text as it is."""
    text = content if isinstance(content, str) else json.dumps(content)
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    return str(file)


def read(file: Path, content: Any) -> ApprovalsDocument:
    return read_document(write(file, content))


def raw(file: Path) -> Any:
    return json.loads(file.read_bytes())


def problem(file: Path) -> BadDocumentError:
    with pytest.raises(BadDocumentError) as caught:
        read_document(str(file))
    return caught.value


def patterns(document: ApprovalsDocument, agent: str) -> list[str]:
    return [entry.pattern for entry in document.entries_for(agent)]


# What it says.


def test_without_a_document_there_is_no_floor(file: Path) -> None:
    for path in (file, file.parent / "none" / "at" / "all.json"):
        found = read_document(str(path))
        assert not found.exists
        assert found.policy_for("main") == DocPolicy("full", "off", "deny")
        assert (found.entries_for("main"), found.items, found.raw) == ((), (), {})
        assert found.revision == revision(None)


LEVELS: list[tuple[dict[str, Any], DocPolicy]] = [
    ({}, DocPolicy("deny", "on-miss", "deny")),
    ({"version": 1, "defaults": {}, "agents": {}}, DocPolicy("deny", "on-miss", "deny")),
    ({"defaults": FLOOR}, DocPolicy("full", "off", "deny")),
    (
        {"defaults": {"security": "full", "autoAllowSkills": True}},
        DocPolicy("full", "on-miss", "deny"),
    ),
    (
        {"defaults": FLOOR, "agents": {"*": {"ask": "always"}}},
        DocPolicy("full", "always", "deny"),
    ),
    (
        {
            "defaults": {"security": "full", "ask": "off", "askFallback": "full"},
            "agents": {
                "*": {"security": "deny", "ask": "always"},
                "main": {"security": "allowlist"},
            },
        },
        DocPolicy("allowlist", "always", "full"),
    ),
    (
        {"defaults": FLOOR, "agents": {"default": {"security": "deny"}}},
        DocPolicy("deny", "off", "deny"),
    ),
    (
        {"agents": {"default": {"security": "full", "ask": "off"}, "main": {"security": "deny"}}},
        DocPolicy("deny", "off", "deny"),
    ),
    (
        {"defaults": FLOOR, "agents": {" MAIN ": {"ask": "always"}}},
        DocPolicy("full", "always", "deny"),
    ),
    (
        {"defaults": FLOOR, "agents": {"other": {"security": "deny"}}},
        DocPolicy("full", "off", "deny"),
    ),
]


@pytest.mark.parametrize(("data", "expected"), LEVELS)
def test_a_field_is_looked_up_from_the_agent_to_the_defaults(
    file: Path, data: Any, expected: DocPolicy
) -> None:
    found = read(file, data)
    assert found.exists
    for name in ("main", "Main", " main", "default"):
        assert structs.astuple(found.policy_for(name))[:3] == structs.astuple(expected)[:3]


def test_entries_of_all_agents_come_before_an_agents_own(file: Path) -> None:
    found = read(
        file,
        {
            "agents": {
                "default": {"allowlist": ["old"]},
                "main": {"allowlist": ["/usr/bin/ls", {"pattern": "git", "args": "git"}]},
                "*": {"allowlist": [{"pattern": "rg"}]},
                "other": {"allowlist": []},
            }
        },
    )
    assert patterns(found, "main") == ["rg", "/usr/bin/ls", "git", "old"]
    assert patterns(found, "DEFAULT") == patterns(found, "main")
    assert patterns(found, "other") == patterns(found, "*") == patterns(found, "unknown") == ["rg"]
    assert patterns(found, "") == patterns(found, "../x") == patterns(found, "__proto__") == ["rg"]
    assert found.entries_for("main")[2].args == "git"


def test_items_include_the_position_of_an_entry_and_its_last_use(file: Path) -> None:
    entry = {
        "id": "abc",
        "pattern": "rg",
        "lastUsedAt": 1_703_000_000_000,
        "lastUsedCommand": "rg x",
        "lastResolvedPath": "/usr/bin/rg",
        "commandText": "rg x",
    }
    first, second = read(file, {"agents": {"Main": {"allowlist": [entry, "ls"]}}}).items
    assert (first.agent, first.entry) == ("main", AllowlistEntry("rg", id="abc"))
    assert (first.used_ms, first.used_command) == (1_703_000_000_000, "rg x")
    assert first.used_path == "/usr/bin/rg"
    assert (second.used_ms, second.used_command, second.used_path) == (None, "", "")


def test_an_entry_without_an_id_has_the_same_one_every_time(file: Path) -> None:
    one = read(
        file, {"agents": {"main": {"allowlist": ["ls", {"pattern": "rg", "lastUsedAt": 1}]}}}
    )
    two = read(file, {"agents": {"default": {"allowlist": [{"pattern": "rg"}, {"pattern": "ls"}]}}})
    ids = {item.entry.pattern: item.entry.id for item in one.items}
    assert ids == {item.entry.pattern: item.entry.id for item in two.items}
    assert len({UUID(each) for each in ids.values()}) == 2


def test_neither_the_token_nor_the_data_is_in_what_is_shown(file: Path) -> None:
    found = read(file, {"socket": {"path": "/run/x.sock", "token": "hunter2"}, "later": [1]})
    assert (found.socket_path, found.token) == ("/run/x.sock", "hunter2")
    assert found.shown == {"socket": {"path": "/run/x.sock"}, "later": [1]}
    assert "hunter2" not in repr(found)
    assert "hunter2" in json.dumps(found.raw)
    assert read(file, {"later": 1}).shown == {"later": 1}


def test_what_is_taken_from_a_document_is_a_copy(file: Path) -> None:
    found = read(file, {"defaults": FLOOR})
    found.raw["defaults"]["security"] = "deny"
    assert found.raw == read_document(str(file)).raw == {"defaults": FLOOR}


# What makes it useless.


def nested(levels: int) -> str:
    return '{"x":' + "[" * levels + "]" * levels + "}"


NOT_JSON: dict[str, tuple[str, str]] = {
    "empty": ("", "line 1, column 1: the text is empty"),
    "cut off": ("{", "line 1, column 1: "),
    "cut off later": ('{\n  "version": 1,\n', "line 1, column 1: "),
    "no comma": ('{\n "version": 1\n "agents": {}\n}', r"line 2, column 14: .*comma"),
    "comment": ('{\n // mine\n "version": 1}', "line 2, column 2: is not plain JSON"),
    # Python 3.13 points at the comma, earlier versions behind it.
    "trailing comma": ('{"version": 1,}', "line 1, column 1[45]: is not plain JSON"),
    "single quotes": ("{'version': 1}", "line 1, column 2: is not plain JSON"),
    "two values": ("{} {}", "line 1, column 4: "),
    "twice": ('{"agents": {},\n "agents": {}}', "line 2, column 2: .*already set on line 1"),
    "twice below": (
        '{"agents": {"main": {"ask": "always", "ask": "off"}}}',
        "line 1, column 39: .*already set",
    ),
    "prototype": ('{"agents": {"__proto__": {"security": "full"}}}', "'__proto__' is not allowed"),
    "constructor": ('{"constructor": {}}', "'constructor' is not allowed"),
    "escaped prototype": (r'{"__pro\u0074o__": {}}', "'__proto__' is not allowed"),
    "not a number": ('{"x": NaN}', "line 1, column 7: .*finite"),
    "endless": ('{"x": -Infinity}', "line 1, column 7: .*finite"),
    "too large": ('{"x": 1e999}', "line 1, column 7: .*too large"),
    "many digits": ('{"x": ' + "9" * 9_999 + "}", "line 1, column 7: .*400 characters"),
    "half a character": (r'{"x": "\ud800"}', "line 1, column 8: .*surrogate"),
    "half a key": (r'{"\udfff": 1}', "line 1, column 3: .*surrogate"),
    "byte order mark": ("\ufeff{}", "is not plain JSON: .*BOM"),
    "deep": (nested(200), "more than 128 levels"),
    "endlessly deep": ("[" * 100_000, "more than 128 levels"),
    "deep objects": ('{"a":' * 50_000, "more than 128 levels"),
}


@pytest.mark.parametrize("case", NOT_JSON)
def test_invalid_json_is_an_error_with_its_position(file: Path, case: str) -> None:
    text, expected = NOT_JSON[case]
    write(file, text)
    found = problem(file)
    assert re.search(expected, str(found)), str(found)
    assert str(found).startswith(f"{file}: ")
    assert found.line >= 1


def test_data_below_the_depth_limit_is_kept(file: Path) -> None:
    assert read(file, nested(127)).exists
    write(file, nested(128))
    assert "128 levels" in str(problem(file))


@pytest.mark.parametrize(
    "data", [b"\xff{}", b'{\n"x": "\xc3"}', b"{}\x00", b"\x00" * 9, b"\xed\xa0\x80"]
)
def test_bytes_that_are_not_text_are_refused(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    file.chmod(0o600)
    assert str(problem(file)).startswith(f"{file}: line ")


def agent(**fields: Any) -> dict[str, Any]:
    return {"agents": {"main": fields}}


WRONG: list[tuple[Any, str, str]] = [
    ([], "", "must be an object, not a list"),
    (None, "", "must be an object, not null"),
    ("text", "", "must be an object, not a string"),
    ({"version": 2}, "version", "must be 1"),
    ({"version": True}, "version", "must be 1"),
    ({"version": 1.0}, "version", "must be 1"),
    ({"version": "1"}, "version", "must be 1"),
    ({"version": None}, "version", "must be 1"),
    ({"socket": []}, "socket", "must be an object, not a list"),
    ({"socket": {"path": 1}}, "socket.path", "must be a string, not a number"),
    ({"socket": {"token": None}}, "socket.token", "must be a string, not null"),
    ({"socket": {"path": "/a\0b"}}, "socket.path", "NUL"),
    ({"defaults": "full"}, "defaults", "must be an object, not a string"),
    ({"defaults": None}, "defaults", "must be an object, not null"),
    ({"defaults": {"security": "none"}}, "defaults.security", "deny, allowlist, full, not 'none'"),
    ({"defaults": {"security": "Full"}}, "defaults.security", "not 'Full'"),
    ({"defaults": {"security": True}}, "defaults.security", "not true or false"),
    ({"defaults": {"ask": None}}, "defaults.ask", "off, on-miss, always, not null"),
    ({"defaults": {"ask": ["off"]}}, "defaults.ask", "not a list"),
    ({"defaults": {"ask": "a\u202eb\n" + "x" * 999}}, "defaults.ask", "not 'a b x+…'"),
    ({"defaults": {"askFallback": "off"}}, "defaults.askFallback", "not 'off'"),
    (
        {"defaults": {"autoAllowSkills": 1}},
        "defaults.autoAllowSkills",
        "true or false, not a number",
    ),
    (
        {"defaults": {"autoAllowSkills": "no"}},
        "defaults.autoAllowSkills",
        "true or false, not a string",
    ),
    ({"defaults": {"securty": "deny"}}, "defaults.securty", "did you mean 'security'"),
    ({"defaults": {"ask_fallback": "deny"}}, "defaults.ask_fallback", "did you mean 'askFallback'"),
    ({"default": FLOOR}, "default", "did you mean 'defaults'"),
    ({"agents": []}, "agents", "must be an object, not a list"),
    ({"agents": {"main": []}}, "agents.main", "must be an object, not a list"),
    ({"agents": {"main": None}}, "agents.main", "must be an object, not null"),
    (agent(ask="never"), "agents.main.ask", "not 'never'"),
    (agent(Ask="always"), "agents.main.Ask", "did you mean 'ask'"),
    (agent(allowList=[]), "agents.main.allowList", "did you mean 'allowlist'"),
    (agent(allowlist={}), "agents.main.allowlist", "must be a list, not an object"),
    (agent(allowlist=None), "agents.main.allowlist", "must be a list, not null"),
    (agent(allowlist="ls"), "agents.main.allowlist", "must be a list, not a string"),
    (
        agent(allowlist=[1]),
        "agents.main.allowlist[0]",
        "pattern or an object with one, not a number",
    ),
    (agent(allowlist=[[]]), "agents.main.allowlist[0]", "not a list"),
    (agent(allowlist=["ls", {}]), "agents.main.allowlist[1]", "pattern"),
    (agent(allowlist=[""]), "agents.main.allowlist[0]", "pattern"),
    (agent(allowlist=[{"pattern": 1}]), "agents.main.allowlist[0]", "pattern"),
    (agent(allowlist=[{"pattern": "a", "id": 5}]), "agents.main.allowlist[0]", "id"),
    (agent(allowlist=[{"pattern": "a", "args": 5}]), "agents.main.allowlist[0]", "args"),
    (
        agent(allowlist=[{"pattern": "a", "extent": "x" * 9999}]),
        "agents.main.allowlist[0]",
        "extent",
    ),
    (
        agent(allowlist=[{"pattern": "a", "lastUsedAt": "now"}]),
        "agents.main.allowlist[0].lastUsedAt",
        "must not be a string",
    ),
    (
        agent(allowlist=[{"pattern": "a", "lastUsedAt": True}]),
        "agents.main.allowlist[0].lastUsedAt",
        "must not be true or false",
    ),
    (
        agent(allowlist=[{"pattern": "a", "lastResolvedPath": 1}]),
        "agents.main.allowlist[0].lastResolvedPath",
        "must not be a number",
    ),
    ({"agents": {"main": {}, "MAIN": {}}}, "agents.MAIN", "is the agent 'main' again"),
    ({"agents": {"": {}}}, 'agents[""]', "not a valid agent name"),
    ({"agents": {"../x": {}}}, r'agents["../x"]', "neither a path"),
    ({"agents": {"..": {}}}, 'agents[".."]', "neither a path"),
    ({"agents": {"a\\b": {}}}, "agents.a", "neither a path"),
    ({"agents": {"x" * 100_000: {}}}, "agents.", "1 to 64"),
    ({"agents": {"a\u202eb": {}}}, "agents.", "printable"),
    ({"agents": {"x" * 65: {}}}, "agents.", "1 to 64"),
]


@pytest.mark.parametrize(("data", "key", "expected"), WRONG)
def test_a_wrong_value_is_an_error_with_key_and_line(
    file: Path, data: Any, key: str, expected: str
) -> None:
    write(file, json.dumps(data, indent=1))
    found = problem(file)
    assert found.key.startswith(key)
    assert found.line >= 1
    assert f"line {found.line}" in str(found)
    assert re.search(expected, str(found)), str(found)
    assert len(str(found)) < len(str(file)) + 500
    assert "\u202e" not in str(found)


def test_the_line_is_that_of_the_value(file: Path) -> None:
    write(file, '{\n  "agents": {\n    "main": {\n      "ask": "sometimes"\n    }\n  }\n}\n')
    assert problem(file).line == 4


def test_a_large_document_is_read_and_a_larger_one_is_not(file: Path) -> None:
    padding = MAX_BYTES - len('{"x":""}')
    assert read(file, '{"x":"' + "a" * padding + '"}').exists
    write(file, '{"x":"' + "a" * (padding + 1) + '"}')
    assert "larger than 4 MB" in str(problem(file))
    os.truncate(file, 2**40)
    assert "larger than 4 MB" in str(problem(file))


def test_a_link_is_never_followed(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    write(real, {"defaults": FLOOR})
    for target in (real, tmp_path / "none", Path("/dev/zero"), Path(file.name)):
        file.symlink_to(target)
        assert "symbolic link" in str(problem(file))
        with pytest.raises(BadDocumentError, match="symbolic link"):
            edit(str(file), lambda raw: None)
        file.unlink()
    assert raw(real) == {"defaults": FLOOR}


def test_a_linked_directory_is_not_followed_either(file: Path, tmp_path: Path) -> None:
    write(file, {"defaults": FLOOR})
    link = tmp_path / "link"
    link.symlink_to(file.parent)
    path = str(link / file.name)
    with pytest.raises(BadDocumentError, match=f"{link}: is a symbolic link"):
        read_document(path)
    with pytest.raises(BadDocumentError, match="symbolic link"):
        edit(path, lambda raw: None)
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(BadDocumentError, match="symbolic link"):
        read_document(path)


def test_only_a_regular_file_is_read(file: Path) -> None:
    os.mkfifo(file, 0o600)
    assert "not a regular file" in str(problem(file))
    file.unlink()
    file.mkdir(0o700)
    assert "not a regular file" in str(problem(file))
    file.rmdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(file))
        assert "cannot be read" in str(problem(file))
    with pytest.raises(BadDocumentError, match="cannot be read: Not a directory"):
        read_document("/dev/null/exec-approvals.json")


def test_no_handle_is_left_open(file: Path) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    file.mkdir()
    for _ in range(3):
        problem(file)
    file.rmdir()
    read(file, {})
    edit(str(file), lambda raw: None)
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_refused(file: Path, mode: int) -> None:
    write(file, {"defaults": FLOOR})
    file.chmod(mode)
    assert "chmod go-w" in str(problem(file))
    with pytest.raises(BadDocumentError, match="chmod go-w"):
        edit(str(file), lambda raw: None)


@pytest.mark.parametrize("mode", [0o770, 0o1777])
def test_a_directory_that_others_can_write_is_refused(file: Path, mode: int) -> None:
    file.parent.chmod(mode)
    for content in (None, {"defaults": FLOOR}):
        if content is not None:
            write(file, content)
        assert f"{file.parent}: cannot be read: can be written by others" in str(problem(file))
        with pytest.raises(BadDocumentError, match="can be written by others"):
            edit(str(file), lambda raw: None)


@AS_ROOT
def test_a_file_of_another_user_is_refused(file: Path) -> None:
    write(file, {"defaults": FLOOR})
    os.chown(file, 65534, -1)
    assert "belongs to another user" in str(problem(file))
    os.chown(file, 0, -1)
    os.chown(file.parent, 65534, -1)
    assert f"{file.parent}: cannot be read: belongs to another user" in str(problem(file))


@AS_ROOT
def test_an_unreadable_file_is_refused() -> None:
    code = (
        "import os, sys\n"
        "from clawkit.approvals.file import BadDocumentError, read_document\n"
        "os.setuid(65534)\n"
        "try: read_document(sys.argv[1])\n"
        "except BadDocumentError as error: print(error)\n"
    )
    # Not below the directory of the tests, which nobody else may enter.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = write(Path(folder) / "exec-approvals.json", {"defaults": FLOOR})
        done = subprocess.run(
            [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
        )
    assert "cannot be read: Permission denied" in done.stdout


def test_a_relative_path_means_the_working_directory(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, {"defaults": {"security": "deny"}})
    monkeypatch.chdir(file.parent)
    assert read_document(file.name).policy_for("main").security == "deny"
    edit(file.name, lambda raw: raw.update(x=1))
    assert raw(file)["x"] == 1


# Changing it.


def test_the_first_change_makes_a_document_that_adds_no_floor(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "exec-approvals.json"
    found = edit(str(file), lambda raw: None)
    text = file.read_text(encoding="utf-8")
    assert text == json.dumps({"version": 1, "defaults": FLOOR}, indent=2) + "\n"
    assert found.policy_for("main") == ApprovalsDocument().policy_for("main")
    assert found.revision == hashlib.sha256(text.encode()).hexdigest() == revision(text.encode())
    modes = [path.stat().st_mode & 0o777 for path in (file.parent, file, Path(f"{file}.lock"))]
    assert modes == [0o700, 0o600, 0o600]


def test_a_change_keeps_what_is_not_known(file: Path) -> None:
    data = {
        "version": 1,
        "future": {"a": [1, 2.5, None, "ü"]},
        "agents": {
            "Main": {
                "mcpTools": [{"server": "x"}],
                "allowlist": [{"pattern": "ls", "extra": {"y": 1}}],
            }
        },
    }
    path = write(file, data)
    add_entry(path, "main", AllowlistEntry("rg"))
    edit(path, lambda raw: raw["agents"]["Main"].update(ask="always"))
    found = raw(file)
    assert found["future"] == data["future"]
    assert list(found["agents"]) == ["Main"]
    main = found["agents"]["Main"]
    assert (main["mcpTools"], main["ask"]) == ([{"server": "x"}], "always")
    assert main["allowlist"][0]["extra"] == {"y": 1}
    assert "defaults" not in found
    assert "ü" in file.read_text(encoding="utf-8")


def test_entries_get_ids_when_the_document_is_changed(file: Path) -> None:
    path = write(file, {"agents": {"main": {"allowlist": ["ls", {"pattern": "rg"}]}}})
    before = [item.entry for item in read_document(path).items]
    edit(path, lambda raw: raw.update(x=1))
    found = raw(file)["agents"]["main"]["allowlist"]
    assert found == [{"id": each.id, "pattern": each.pattern} for each in before]
    assert [item.entry for item in read_document(path).items] == before


def test_nothing_is_written_when_nothing_changes(file: Path) -> None:
    path = str(file)
    edit(path, lambda raw: None)
    before = file.stat()
    edit(path, lambda raw: None)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_nothing_is_invisible_in_what_is_written(file: Path) -> None:
    text = 'a\u202eb\u200b\x7f\x00\n\t"\\\U000e0041\u2028ü€\U0001f600'
    edit(str(file), lambda raw: raw.update(note=text))
    written = file.read_text(encoding="utf-8")
    assert raw(file)["note"] == text
    assert written.replace("\n", "").isprintable()
    assert "ü€\U0001f600" in written


@pytest.mark.parametrize(
    "content", ["{", '{"version": 2}', '{"agents": {"main": {"ask": "no"}}}', ""]
)
def test_a_broken_document_is_never_overwritten(file: Path, content: str) -> None:
    path = write(file, content)
    changes: list[Callable[[], object]] = [
        lambda: edit(path, lambda raw: raw.clear()),
        lambda: add_entry(path, "main", AllowlistEntry("ls")),
        lambda: remove_entry(path, None, "ls"),
        lambda: ensure_socket(path, "/x.sock"),
    ]
    for change in changes:
        with pytest.raises(BadDocumentError):
            change()
    note_use(path, {"x": ("ls", "/usr/bin/ls")}, 1)
    assert file.read_text(encoding="utf-8") == content


def loop(raw: dict[str, Any]) -> None:
    raw["x"] = raw


def deep(raw: dict[str, Any]) -> None:
    inner: list[Any] = []
    for _ in range(100_000):
        inner = [inner]
    raw["x"] = inner


RESULTS: list[tuple[Callable[[dict[Any, Any]], object], str]] = [
    (lambda raw: raw.update(version=2), "version: must be 1"),
    (lambda raw: raw.update(agents=[]), "agents: must be an object"),
    (lambda raw: raw.update(x=float("nan")), "not JSON compliant"),
    (lambda raw: raw.update(x=object()), "not JSON serializable"),
    (lambda raw: raw.update(x="\ud800"), "the result: line .*surrogate"),
    (lambda raw: raw.update({"\udfff": 1}), "surrogate"),
    (lambda raw: raw.update({("a",): 1}), "keys must be str"),
    (lambda raw: raw.update({1: 1, "1": 2}), "already set"),
    (lambda raw: raw.update(__proto__={}), "'__proto__' is not allowed"),
    (lambda raw: raw.update(x="y" * MAX_BYTES), "larger than 4 MB"),
    (loop, "Circular"),
    (deep, "recursion"),
]


@pytest.mark.parametrize(("change", "expected"), RESULTS)
def test_a_result_that_could_not_be_used_is_not_written(
    file: Path, change: Callable[[dict[str, Any]], None], expected: str
) -> None:
    path = write(file, {"defaults": FLOOR})
    with pytest.raises(BadDocumentError, match=f"was not changed.*{expected}"):
        edit(path, change)
    assert raw(file) == {"defaults": FLOOR}
    assert sorted(os.listdir(file.parent)) == [file.name, f"{file.name}.lock"]


def test_keys_that_are_not_texts_become_texts(file: Path) -> None:
    def change(raw: dict[Any, Any]) -> None:
        raw["agents"] = {7: {"allowlist": ("ls",)}}

    assert patterns(edit(str(file), change), "7") == ["ls"]
    assert list(raw(file)["agents"]) == ["7"]


def test_a_change_that_fails_changes_nothing(file: Path) -> None:
    path = write(file, {"defaults": FLOOR})

    def change(raw: dict[str, Any]) -> None:
        raw.clear()
        raise KeyError("no")

    with pytest.raises(KeyError):
        edit(path, change)
    assert raw(file) == {"defaults": FLOOR}
    assert edit(path, lambda raw: raw.update(x=1)).raw["x"] == 1


def test_errors_of_the_system_are_reported(file: Path) -> None:
    path = write(file, {"defaults": FLOOR})
    Path(f"{file}.lock").symlink_to("/dev/null")
    with pytest.raises(BadDocumentError, match=r"was not changed: .*\.lock: "):
        edit(path, lambda raw: None)


def test_another_process_is_not_waited_for_forever(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(file, {"defaults": FLOOR})
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BadDocumentError, match="another process is changing it"):
            edit(path, lambda raw: raw.clear(), wait_s=0.05)
    edit(path, lambda raw: raw.update(x=1))
    assert raw(file)["x"] == 1


def test_processes_that_change_it_at_once_lose_nothing(file: Path) -> None:
    code = (
        "import sys\n"
        "from clawkit.approvals.types import AllowlistEntry\n"
        "from clawkit.approvals.file import add_entry, edit\n"
        "sys.stdin.readline()\n"
        "for number in range(8):\n"
        "    add_entry(sys.argv[1], sys.argv[2], AllowlistEntry(f'p{number}'))\n"
        "    add_entry(sys.argv[1], '*', AllowlistEntry('same'))\n"
        "    edit(sys.argv[1], lambda raw: raw.update(n=raw.get('n', 0) + 1))\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(file), f"agent{number}"], stdin=subprocess.PIPE
        )
        for number in range(4)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.close()
    assert [child.wait(50) for child in children] == [0] * 4
    found = raw(file)
    assert found["n"] == 32
    assert found["defaults"] == FLOOR
    agents = {
        name: [each["pattern"] for each in body["allowlist"]]
        for name, body in found["agents"].items()
    }
    own = {f"agent{number}": [f"p{each}" for each in range(8)] for number in range(4)}
    assert agents == {**own, "*": ["same"]}


# Putting another one in its place.


def test_a_document_is_replaced_when_it_is_still_the_same(file: Path) -> None:
    path = str(file)
    first = replace(path, '{"agents": {"main": {"allowlist": ["ls"]}}}', revision(None))
    assert patterns(first, "main") == ["ls"]
    assert raw(file)["version"] == 1
    assert raw(file)["agents"]["main"]["allowlist"][0]["id"]
    second = replace(path, '{"defaults": {}}', first.revision)
    assert raw(file) == {"version": 1, "defaults": {}}
    for base in (first.revision, revision(None), "", "0" * 64):
        with pytest.raises(ConflictError, match="Read it again"):
            replace(path, "{}", base)
    assert read_document(path).revision == second.revision
    assert replace(path, "{}", None).raw == {"version": 1}


def test_an_invalid_document_replaces_nothing(file: Path) -> None:
    path = write(file, {"defaults": FLOOR})
    for text in ("", "{", "[]", '{"version": 3}', '{"x": "\ud800"}', "{} // x"):
        with pytest.raises(BadDocumentError, match=r"^the new exec-approvals\.json: "):
            replace(path, text, None)
    assert raw(file) == {"defaults": FLOOR}


def test_a_broken_document_can_be_replaced(file: Path) -> None:
    path = write(file, "{")
    assert replace(path, "{}", revision(b"{")).raw == {"version": 1}


def test_the_token_stays_when_a_document_without_it_is_put_in_place(file: Path) -> None:
    path = str(file)
    before = ensure_socket(path, "/run/a.sock")
    document = read_document(path)
    replace(path, json.dumps(document.shown), document.revision)
    assert ensure_socket(path, "/run/b.sock") == before
    replace(path, "{}", None)
    assert ensure_socket(path, "/run/b.sock") == before
    replace(path, '{"socket": {"path": "/run/c.sock", "token": "mine", "x": 1}}', None)
    assert ensure_socket(path, "/run/b.sock") == ("/run/c.sock", "mine")


def test_a_link_is_not_replaced(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("kept", encoding="utf-8")
    file.symlink_to(target)
    with pytest.raises(BadDocumentError, match="symbolic link"):
        replace(str(file), "{}", None)
    assert target.read_text(encoding="utf-8") == "kept"


# Entries.


def test_an_entry_is_added_once(file: Path) -> None:
    path = str(file)
    entry = AllowlistEntry("/usr/bin/git", args=ArgRule(subcommand=("status",)))
    document, added = add_entry(path, "Main", entry)
    assert added
    (stored,) = document.entries_for("main")
    assert UUID(stored.id).version == 4
    assert (stored.pattern, stored.args) == (entry.pattern, entry.args)
    assert raw(file)["agents"] == {
        "main": {
            "allowlist": [
                {"id": stored.id, "pattern": "/usr/bin/git", "args": {"subcommand": ["status"]}}
            ]
        }
    }
    assert add_entry(path, "main", entry) == (document, False)
    assert add_entry(path, "default", entry) == (document, False)
    for number, other in enumerate(
        [
            AllowlistEntry("/usr/bin/git"),
            AllowlistEntry("/usr/bin/git", args="git"),
            AllowlistEntry("/usr/bin/git", args=ArgRule(subcommand=("log",))),
            AllowlistEntry("/usr/bin/git", arg_pattern="^status$"),
            AllowlistEntry("/usr/bin/git", arg_pattern="^status$", cwd="/a"),
            AllowlistEntry("/usr/bin/git", arg_pattern="^status$", cwd="/b", id="own"),
        ],
        2,
    ):
        document, added = add_entry(path, "main", other)
        assert (added, len(document.items)) == (True, number)
    assert document.items[-1].entry.id == "own"
    assert add_entry(path, "*", entry)[1]
    assert add_entry(path, "other", entry)[1]


def test_an_entry_for_main_is_not_added_beside_an_old_one(file: Path) -> None:
    path = write(file, {"agents": {"default": {"allowlist": ["ls"]}}})
    assert not add_entry(path, "main", AllowlistEntry("ls"))[1]
    assert add_entry(path, "main", AllowlistEntry("rg"))[1]
    assert list(raw(file)["agents"]) == ["default", "main"]
    assert patterns(read_document(path), "main") == ["rg", "ls"]


HASH, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64
JOINED: list[tuple[AllowlistEntry, AllowlistEntry, AllowlistEntry]] = [
    # What was there, what is added, what is there then.
    (
        AllowlistEntry("x"),
        AllowlistEntry("x", children="named"),
        AllowlistEntry("x", children="named"),
    ),
    (
        AllowlistEntry("x", children="named"),
        AllowlistEntry("x"),
        AllowlistEntry("x", children="named"),
    ),
    (
        AllowlistEntry("x", children="named"),
        AllowlistEntry("x", children="any"),
        AllowlistEntry("x", children="any"),
    ),
    (
        AllowlistEntry("x", source="allow-always", extent="exact", content=HASH),
        AllowlistEntry("x", source="allow-always", extent="exact", content=OTHER),
        AllowlistEntry("x", source="allow-always", extent="exact", content=OTHER),
    ),
    (
        AllowlistEntry("x", source="allow-always", extent="program", content=HASH),
        AllowlistEntry("x"),
        AllowlistEntry("x"),
    ),
    (
        AllowlistEntry("x"),
        AllowlistEntry("x", source="allow-always", extent="program", content=HASH),
        AllowlistEntry("x"),
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), JOINED)
def test_an_entry_for_the_same_calls_is_brought_up_to_date(
    file: Path, old: AllowlistEntry, new: AllowlistEntry, expected: AllowlistEntry
) -> None:
    path = str(file)
    (before,) = add_entry(path, "main", old)[0].entries_for("main")
    edit(path, lambda raw: raw["agents"]["main"]["allowlist"][0].update(lastUsedAt=5, mine=1))
    document, added = add_entry(path, "main", new)
    assert added == (expected != old)
    (item,) = document.items
    assert item.entry == AllowlistEntry(
        **{**{key: getattr(expected, key) for key in expected.__struct_fields__}, "id": before.id}
    )
    assert item.used_ms == 5
    assert raw(file)["agents"]["main"]["allowlist"][0]["mine"] == 1


@pytest.mark.parametrize(
    "name", ["", " ", "../x", "a/b", "..", "__proto__", "a\nb", "a\u202eb", "x" * 65]
)
def test_nothing_is_allowed_to_an_unknown_agent(file: Path, name: str) -> None:
    with pytest.raises(ToolInputError, match="not a valid agent name"):
        add_entry(str(file), name, AllowlistEntry("ls"))
    assert not file.exists()


def test_an_entry_that_could_not_be_read_again_is_not_added(file: Path) -> None:
    with pytest.raises(BadDocumentError, match=r"was not changed.*pattern"):
        add_entry(str(file), "main", AllowlistEntry(""))
    assert not file.exists()


@pytest.fixture
def listed(file: Path) -> str:
    return write(
        file,
        {
            "agents": {
                "*": {
                    "allowlist": [
                        {"id": "aaaa1111", "pattern": "git"},
                        {"id": "bbbb2222", "pattern": "rg"},
                    ]
                },
                "default": {"allowlist": [{"id": "aaaa3333", "pattern": "git"}]},
                "main": {"allowlist": ["ls", {"id": "rg", "pattern": "fd"}], "ask": "off"},
                "quiet": {"ask": "off"},
            }
        },
    )


REMOVED = [
    (None, "aaaa1111", "*", "git"),
    (None, "aaaa1", "*", "git"),
    (None, "bbbb", "*", "rg"),
    (None, "ls", "main", "ls"),
    (None, "rg", "main", "fd"),
    ("*", "rg", "*", "rg"),
    ("main", "git", "main", "git"),
    ("Default", "aaaa", "main", "git"),
    ("*", "git", "*", "git"),
]


@pytest.mark.parametrize(("agent", "which", "owner", "pattern"), REMOVED)
def test_an_entry_is_removed_by_anything_unique_about_it(
    listed: str, agent: str | None, which: str, owner: str, pattern: str
) -> None:
    before = read_document(listed).items
    document, item = remove_entry(listed, agent, which)
    assert (item.agent, item.entry.pattern) == (owner, pattern)
    assert document.items == tuple(each for each in before if each != item)
    assert read_document(listed).policy_for("main").ask == "off"


def test_an_entry_without_an_id_is_removed_by_the_one_it_is_shown_with(listed: str) -> None:
    wanted = next(item.entry for item in read_document(listed).items if item.entry.pattern == "ls")
    assert remove_entry(listed, None, wanted.id[:8])[1].entry == wanted


@pytest.mark.parametrize(
    ("agent", "which", "expected", "shown"),
    [
        (None, "git", "matches several entries", {"aaaa1111", "aaaa3333"}),
        (None, "aaaa", "matches several entries", {"aaaa1111", "aaaa3333"}),
        (None, "bbb", "no entry has", {"aaaa1111", "bbbb2222", "aaaa3333"}),
        (None, "", "no entry has", {"aaaa1111"}),
        ("main", "bbbb2222", "no entry has the id or pattern 'bbbb2222'", {"aaaa3333"}),
        ("nobody", "git", "no entry has the id or pattern 'git'$", set()),
        (None, "\u202e\n" + "x" * 999, "pattern 'xxx", {"aaaa1111"}),
    ],
)
def test_an_ambiguous_entry_is_not_removed(
    listed: str, agent: str | None, which: str, expected: str, shown: set[str]
) -> None:
    before = Path(listed).read_bytes()
    with pytest.raises(ToolInputError, match=expected) as caught:
        remove_entry(listed, agent, which)
    lines = str(caught.value).splitlines()[1:]
    assert shown <= {line.split()[0] for line in lines}
    assert "\u202e" not in str(caught.value)
    assert Path(listed).read_bytes() == before


def test_only_some_of_many_candidates_are_listed(file: Path) -> None:
    path = write(file, {"agents": {"main": {"allowlist": [f"p{number}" for number in range(99)]}}})
    with pytest.raises(ToolInputError) as caught:
        remove_entry(path, None, "none")
    assert len(str(caught.value).splitlines()) == 21


# Use.

MINUTE = 60_000
NOW = 1_703_000_000_000


def used(file: Path, index: int = 0) -> tuple[Any, Any, Any]:
    entry = raw(file)["agents"]["main"]["allowlist"][index]
    return entry.get("lastUsedAt"), entry.get("lastUsedCommand"), entry.get("lastResolvedPath")


def test_the_use_of_entries_is_recorded(file: Path) -> None:
    path = str(file)
    add_entry(path, "main", AllowlistEntry("git", id="one"))
    add_entry(
        path,
        "main",
        AllowlistEntry(
            "/usr/bin/rg", id="two", arg_pattern=f"sha256:cwd-argv:v1:{'a' * 64}", cwd="/"
        ),
    )
    add_entry(path, "main", AllowlistEntry("ls", id="three"))
    note_use(
        path,
        {
            "one": ("git\x1b status\n\u202ex\ud800", "/usr/bin/git"),
            "two": ("rg --secret", "/usr/bin/rg"),
            "gone": ("", ""),
        },
        NOW,
    )
    assert used(file) == (NOW, "git status x\\u{d800}", "/usr/bin/git")
    assert used(file, 1) == (NOW, None, "/usr/bin/rg")
    assert used(file, 2) == (None, None, None)
    note_use(path, {"one": ("x" * 9_999, "/usr/bin/git")}, NOW + MINUTE)
    assert len(used(file)[1]) == 500


@pytest.mark.parametrize(
    ("later_ms", "resolved", "written"),
    [
        (0, "/usr/bin/git", False),
        (MINUTE - 1, "/usr/bin/git", False),
        (MINUTE, "/usr/bin/git", True),
        (1, "/opt/bin/git", True),
        # The clock was set back.
        (-1, "/usr/bin/git", True),
    ],
)
def test_the_same_use_is_recorded_once_a_minute(
    file: Path, later_ms: int, resolved: str, written: bool
) -> None:
    path = str(file)
    add_entry(path, "main", AllowlistEntry("git", id="one"))
    note_use(path, {"one": ("git log", "/usr/bin/git")}, NOW)
    before = file.stat().st_ino
    note_use(path, {"one": ("git status", resolved)}, NOW + later_ms)
    assert (file.stat().st_ino != before) == written
    expected = (
        (NOW + later_ms, "git status", resolved) if written else (NOW, "git log", "/usr/bin/git")
    )
    assert used(file) == expected


def test_the_use_of_an_entry_that_is_only_a_pattern_is_recorded(file: Path) -> None:
    path = write(file, {"agents": {"main": {"allowlist": ["ls"]}}})
    (entry,) = read_document(path).entries_for("main")
    note_use(path, {entry.id: ("ls -l", "/usr/bin/ls")}, NOW)
    assert used(file) == (NOW, "ls -l", "/usr/bin/ls")
    (item,) = read_document(path).items
    assert (item.entry, item.used_ms) == (entry, NOW)


def test_a_use_that_cannot_be_recorded_does_not_stop_the_command(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(file)
    note_use(path, {"one": ("ls", "/usr/bin/ls")}, NOW)
    assert not file.exists()
    add_entry(path, "main", AllowlistEntry("ls", id="one"))
    with open(f"{path}.lock", "w") as lock, caplog.at_level(logging.WARNING):
        fcntl.flock(lock, fcntl.LOCK_EX)
        note_use(path, {"one": ("ls", "/usr/bin/ls")}, NOW)
    assert used(file) == (None, None, None)
    write(file, "{")
    note_use(path, {"one": ("ls", "/usr/bin/ls")}, NOW)
    messages = [record.getMessage() for record in caplog.records]
    assert ["another process" in messages[0], "line 1" in messages[1]] == [True, True]
    assert len(messages) == 2


# The socket.


def test_the_socket_gets_a_token_that_stays(file: Path) -> None:
    path = str(file)
    where, token = ensure_socket(path, "/run/x.sock")
    assert where == "/run/x.sock"
    assert len(urlsafe_b64decode(token)) == 24
    assert raw(file)["socket"] == {"path": where, "token": token}
    assert raw(file)["defaults"] == FLOOR
    before = file.stat().st_ino
    assert ensure_socket(path, "/run/other.sock") == (where, token)
    assert file.stat().st_ino == before
    file.unlink()
    assert ensure_socket(path, "/run/x.sock")[1] != token


@pytest.mark.parametrize(
    ("given", "path", "token"),
    [
        ({"path": "/mine.sock"}, "/mine.sock", None),
        ({"path": "", "token": ""}, "/run/x.sock", None),
        ({"token": "mine", "later": 1}, "/run/x.sock", "mine"),
    ],
)
def test_what_is_missing_about_the_socket_is_added(
    file: Path, given: dict[str, Any], path: str, token: str | None
) -> None:
    found = ensure_socket(write(file, {"socket": given}), "/run/x.sock")
    assert found[0] == path
    assert found[1] == token or (token is None and len(found[1]) == 32)
    assert raw(file)["socket"] == {**given, "path": path, "token": found[1]}


def test_a_policy_lists_the_fields_its_document_leaves_out(file: Path) -> None:
    found = read(file, {"version": 1, "agents": {"*": {"ask": "off"}}}).policy_for("main")
    assert found.left_out == {"security", "askFallback", "autoAllowSkills"}
    assert ApprovalsDocument().policy_for("main").left_out == frozenset()
