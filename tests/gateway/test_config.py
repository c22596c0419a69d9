"""Reading and changing the configuration over the gateway."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import TOKEN, Device, Ground, serve

from clawkit.errors import EditError
from clawkit.gateway import reload
from clawkit.gateway.config_text import (
    MARKER,
    hide,
    merge_lists,
    restore,
    restore_text,
)
from clawkit.gateway.methods import config
from clawkit.redact import Redactor
from clawkit.version import __version__

SECRET = "sk-very-secret-value-123456"
TEXT = f"""// my settings; key={SECRET}
{{
  gateway: {{ auth: {{ token: "{TOKEN}" }} }}, // keep
  models: {{ providers: {{ lab: {{ baseUrl: "http://127.0.0.1:9/v1", apiKey: "{SECRET}" }} }} }},
  tools: {{ deny: ["write"] }},
}}
"""


@pytest.fixture
def file() -> Path:
    path = Path(os.environ["CLAWKIT_HOME"]) / "clawkit.json5"
    path.write_text(TEXT, encoding="utf-8")
    path.chmod(0o600)
    return path


@pytest.fixture
async def ground(file: Path) -> AsyncIterator[Ground]:
    async with serve(str(file)) as made:
        yield made


async def test_no_secret_leaves_the_gateway(ground: Ground, file: Path) -> None:
    peer = await ground.join()
    found = await peer.call("config.get", {})
    assert found["path"] == str(file)
    assert found["valid"] is True
    assert found["config"]["gateway"]["auth"]["token"] == MARKER
    assert "// keep" in found["raw"]
    assert MARKER in found["raw"]
    for secret in (SECRET, TOKEN):
        assert secret not in json.dumps(found)


async def test_a_text_that_is_sent_back_changes_nothing(ground: Ground, file: Path) -> None:
    peer = await ground.join()
    found = await peer.call("config.get", {})
    params = {"raw": found["raw"], "baseHash": found["hash"]}
    done = await peer.call("config.set", params)
    assert done["ok"] is True
    after = file.read_text(encoding="utf-8")
    assert after == TEXT


async def test_a_patch_keeps_comments_and_is_taken_up(ground: Ground, file: Path) -> None:
    peer, other = await ground.join(), await ground.join()
    found = await peer.call("config.get", {})
    raw = '{tools: {deny: ["edit"], exec: {timeoutSec: 60}}}'
    given = {"raw": raw, "baseHash": found["hash"], "replacePaths": ["tools.deny"]}
    done = await peer.call("config.patch", given)
    assert set(done["changedPaths"]) == {"tools.deny", "tools.exec"}
    assert done["sentinel"]["payload"]["stats"]["requiresRestart"] is False
    assert done["hash"] != found["hash"]
    assert "// keep" in file.read_text(encoding="utf-8")
    event = await other.until(lambda each: each.get("event") == "config.changed")
    assert event["payload"]["hash"] == done["hash"]
    shown = await peer.call("tools.effective", {"sessionKey": "main"})
    tools = {each["id"] for each in shown["groups"][0]["tools"]}
    assert "write" in tools
    assert "edit" not in tools
    again = await peer.call("config.get", {})
    assert again["hash"] == done["hash"] == again["appliedConfigHash"]


async def test_settings_of_the_gateway_need_a_restart(ground: Ground) -> None:
    peer = await ground.join()
    found = await peer.call("config.get", {})
    raw = "{gateway: {port: 18800}}"
    done = await peer.call("config.patch", {"raw": raw, "baseHash": found["hash"]})
    assert done["sentinel"]["payload"]["stats"]["requiresRestart"] is True
    assert done["config"]["gateway"]["auth"]["token"] == MARKER


@pytest.mark.parametrize("method", ["config.set", "config.apply", "config.patch"])
@pytest.mark.parametrize(
    ("raw", "hash_", "problem"),
    [
        ("{}", None, "config base hash required; re-run config.get and retry"),
        ("{}", "stale", "config changed since last load; re-run config.get and retry"),
        ("{bad", "right", "SyntaxError: JSON5: "),
        ('{"nope": 1}', "right", "invalid config: nope: "),
        ('{"__proto__": {"tools": {}}}', "right", "SyntaxError: JSON5: "),
        ('{"tools": {"exec": {"security": "everything"}}}', "right", "invalid config: tools.exec"),
        ('{"$include": "../../../etc/passwd"}', "right", ""),
        ('{"gateway": {"auth": {"token": "$NOT_SET_ANYWHERE"}}}', "right", ""),
        (f'{{"gateway": {{"remote": {{"token": "{MARKER}"}}}}}}', "right", "gateway.remote.token"),
    ],
)
async def test_refused_changes_leave_the_file_unchanged(
    ground: Ground, file: Path, method: str, raw: str, hash_: str | None, problem: str
) -> None:
    peer = await ground.join()
    found = await peer.call("config.get", {})
    given: dict[str, Any] = {"raw": raw}
    if hash_ is not None:
        given["baseHash"] = found["hash"] if hash_ == "right" else hash_
    error = await peer.refused(method, given)
    assert error["code"] == "INVALID_REQUEST"
    assert error["message"].startswith(problem)
    assert file.read_text(encoding="utf-8") == TEXT
    if problem.startswith("invalid config"):
        assert error["details"]["issues"][0]["message"]


async def test_two_writers_do_not_overwrite_each_other(ground: Ground, file: Path) -> None:
    peer, other = await ground.join(), await ground.join()
    base = (await peer.call("config.get", {}))["hash"]
    ids = [
        (client, await client.send("config.patch", {"raw": raw, "baseHash": base}))
        for client, raw in (
            (peer, "{tools: {allow: ['read']}}"),
            (other, "{tools: {allow: ['ls']}}"),
        )
    ]
    answers = [await client.answer(id_) for client, id_ in ids]
    assert sorted(each["ok"] for each in answers) == [False, True]


async def test_a_broken_file_is_reported_and_the_gateway_keeps_running(
    ground: Ground, file: Path
) -> None:
    file.write_text("{ tools: ", encoding="utf-8")
    peer = await ground.join()
    found = await peer.call("config.get", {})
    assert found["valid"] is False
    assert found["issues"]
    assert found["raw"] is None
    assert (await peer.call("health"))["ok"]


@pytest.mark.parametrize("broken", ["{ tools: ", '{ "$include": ', "{ a: '\\\\n", "/*" * 100_000])
async def test_a_file_that_cannot_be_parsed_can_only_be_replaced(
    ground: Ground, file: Path, broken: str
) -> None:
    peer = await ground.join()
    file.write_text(broken, encoding="utf-8")
    base = (await peer.call("config.get", {}))["hash"]
    for method, raw in (
        ("config.patch", "{tools: {deny: ['edit']}}"),
        ("config.set", f"{{gateway: {{auth: {{token: '{MARKER}'}}}}}}"),
    ):
        error = await peer.refused(method, {"raw": raw, "baseHash": base})
        assert "Fix it in a text editor first" in error["message"]
        assert file.read_text(encoding="utf-8") == broken
    raw = f"{{ gateway: {{ auth: {{ token: '{TOKEN}' }} }}, tools: {{ deny: ['edit'] }} }}"
    for dry_run in (True, False):
        given = {"raw": raw, "baseHash": base, "dryRun": dry_run}
        done = await peer.call("config.set", given)
        assert set(done["changedPaths"]) == {"models", "tools.deny"}  # since it was last valid
    assert file.read_text(encoding="utf-8") == raw
    assert file.with_name("clawkit.json5.bak").read_text(encoding="utf-8") == broken
    assert (await peer.call("config.get", {}))["valid"] is True


async def test_a_path_that_is_not_a_regular_file_is_reported_and_not_written(
    ground: Ground, file: Path
) -> None:
    peer = await ground.join()
    file.write_bytes(b"{ tools: \xff }")
    found = await peer.call("config.get", {})
    assert (found["valid"], found["raw"], found["config"]) == (False, None, {})
    assert "is not UTF-8 text" in found["issues"][0]["message"]
    file.unlink()
    os.mkfifo(file)
    found = await peer.call("config.get", {})
    assert "is not a regular file" in found["issues"][0]["message"]
    error = await peer.refused("config.set", {"raw": "{}", "baseHash": found["hash"]})
    assert "is not a regular file" in error["message"]


async def test_settings_can_be_looked_up(ground: Ground) -> None:
    peer = await ground.join()
    found = await peer.call("config.schema.lookup", {"path": "gateway.auth"})
    assert found["reloadKind"] == "restart"
    assert {"mode", "token"} <= {each["key"] for each in found["children"]}
    leaf = await peer.call("config.schema.lookup", {"path": "gateway.auth.mode"})
    assert "token" in leaf["schema"]["enum"]
    assert (await peer.call("config.schema.lookup", {"path": "bindings"}))["children"] == []
    for path in ("nope.x", "gateway.nope", "", "a[", "gateway.auth.mode.x"):
        error = await peer.refused("config.schema.lookup", {"path": path})
        assert error["message"] == "config schema path not found"
    schema = await peer.call("config.schema", {})
    assert "GatewaySettings" in schema["schema"]["$defs"]


async def test_a_configuration_without_a_file_can_be_read_and_not_written() -> None:
    async with serve({"tools": {"deny": ["write"]}}) as ground:
        peer = await ground.join()
        found = await peer.call("config.get", {})
        assert found["config"]["tools"] == {"deny": ["write"]}
        error = await peer.refused("config.patch", {"raw": "{}", "baseHash": found["hash"]})
        assert error["code"] == "UNAVAILABLE"


def test_markers_are_replaced_by_the_secret_at_their_path() -> None:
    old = {"list": [{"id": "a", "key": "1"}, {"id": "b", "key": "2"}], "plain": ["x", "y"]}
    new = {"list": [{"id": "b", "key": MARKER}, {"id": "a", "key": MARKER}], "plain": [MARKER, "y"]}
    restored = restore(new, old)
    assert restored == {
        "list": [{"id": "b", "key": "2"}, {"id": "a", "key": "1"}],
        "plain": ["x", "y"],
    }
    for wrong in ({"list": [{"id": "c", "key": MARKER}]}, {"other": MARKER}, {"list": MARKER}):
        with pytest.raises(EditError, match="no stored value"):
            restore(wrong, old)


def test_entries_without_an_id_keep_their_secrets_only_as_they_were() -> None:
    old = [["s", 1, {"deep": [{"key": "t", "plain": True}]}], {"id": "a", "key": "u"}]
    new = [[MARKER, 1, {"deep": [{"key": MARKER, "plain": True}]}], {"id": "a", "key": MARKER}]
    assert restore(new, old) == old
    for wrong in (
        [[MARKER, 2, {"deep": [{"key": MARKER, "plain": True}]}], new[1]],
        [[MARKER, 1, {"deep": [{"key": MARKER, "plain": 1}]}], new[1]],
        [[MARKER, 1, {"deep": MARKER}], new[1]],
        [new[1], new[0]],
        [new[0]],
    ):
        with pytest.raises(EditError, match="the list has changed"):
            restore(wrong, old)
    assert restore([["x"], new[1]], old) == [["x"], old[1]]


def test_hiding_and_restoring_keeps_the_rest_of_a_text() -> None:
    redactor = Redactor()
    hidden = hide(TEXT, redactor)
    assert SECRET not in hidden
    assert restore_text(hidden, TEXT, redactor) == TEXT
    assert hide("", redactor) == ""
    assert hide("// only words\n", redactor) == "// only words\n"


def test_changed_settings_are_named() -> None:
    old, new = {"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": 1, "c": 3}, "e": True}
    assert list(reload.changed_paths(old, new)) == [("a", "c"), ("d",), ("e",)]


async def test_a_change_can_be_previewed(ground: Ground, file: Path) -> None:
    peer = await ground.join()
    found = await peer.call("config.get", {})
    raw = f'{{tools: {{deny: ["edit"]}}, gateway: {{auth: {{token: "{SECRET}x"}}}}}}'
    params = {"raw": raw, "baseHash": found["hash"], "dryRun": True}
    shown = await peer.call("config.patch", {**params, "replacePaths": ["tools.deny"]})
    assert set(shown["changedPaths"]) == {"tools.deny", "gateway.auth.token"}
    assert shown["requiresRestart"] is True
    changed = [each for each in shown["diff"] if "deny" in each]
    assert changed == ['-  tools: { deny: ["write"] },', '+  tools: { deny: ["edit"] },']
    assert SECRET not in str(shown)
    text = found["raw"].replace('["write"]', '["edit"]')
    whole = await peer.call("config.set", {**params, "raw": text})
    assert (whole["changedPaths"], whole["requiresRestart"]) == (["tools.deny"], False)
    assert SECRET not in str(whole)
    assert file.read_text(encoding="utf-8") == TEXT
    assert (await peer.call("config.get", {}))["hash"] == found["hash"]
    bad = {**params, "raw": '{tools: {deny: "edit", profile: "x"}}'}
    error = await peer.refused("config.patch", bad)
    assert [each["path"] for each in error["details"]["issues"]] == ["tools.deny", "tools.profile"]


async def test_forms_are_told_which_settings_have_no_effect(ground: Ground) -> None:
    peer = await ground.join(["operator.read"], Device())
    found = await peer.call("config.schema")
    assert found["uiHints"]["tts"]["noEffect"] is True
    assert found["generatedAt"] > "2026"


async def test_large_files_do_not_make_other_clients_wait(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[threading.Thread]] = {}

    def note(place: Any, name: str) -> None:
        real = getattr(place, name)

        def noted(*given: Any, **more: Any) -> Any:
            threads.setdefault(name, set()).add(threading.current_thread())
            return real(*given, **more)

        monkeypatch.setattr(place, name, noted)

    for name in ("loads", "content", "hide", "masked", "changed_paths", "merge_lists"):
        note(config, name)
    for name in ("load", "changed_paths", "known_secrets"):
        note(reload, name)
    peer = await ground.join()
    base = (await peer.call("config.get"))["hash"]
    for dry_run in (True, False):
        given = {"raw": "{tools: {deny: ['write', 'edit']}}", "baseHash": base, "dryRun": dry_run}
        await peer.call("config.patch", given)
    base = (await peer.call("config.get"))["hash"]
    await peer.refused("config.set", {"raw": "{ tools: 1", "baseHash": base})
    assert len(threads) == 8
    assert threading.main_thread() not in set.union(*threads.values())


def test_long_lists_are_merged_in_time() -> None:
    entries = [f"tool-{number}" for number in range(40_000)]
    start = time.process_time()
    assert merge_lists(entries[::-1], entries, ()) == entries[::-1]
    assert time.process_time() - start < 5


@pytest.mark.parametrize("mode", ["hybrid", "hot"])
async def test_a_dry_run_says_whether_saving_restarts(ground: Ground, mode: Any) -> None:
    peer, gateway = await ground.join(), ground.gateway
    gateway.watch.mode = mode
    base = (await peer.call("config.get"))["hash"]
    given = {"raw": "{gateway: {port: 18807}}", "baseHash": base, "dryRun": True}
    assert "restartsInMs" not in await peer.call("config.patch", given)  # no one restarts it
    gateway.on_restart = lambda: None
    shown = await peer.call("config.patch", given)
    assert shown["requiresRestart"] is True
    assert shown.get("restartsInMs") == (2_000 if mode == "hybrid" else None)
    hot = given | {"raw": "{tools: {deny: ['write', 'edit']}}"}
    whole = given | {"raw": "{gateway: {auth: {token: '__OPENCLAW_REDACTED__'}, port: 18807}}"}
    assert "restartsInMs" not in await peer.call("config.patch", hot)
    assert "restartsInMs" not in await peer.call("config.set", whole)
    assert not gateway.is_restarting


async def test_update_names_the_command_but_does_not_run_it(ground: Ground) -> None:
    peer = await ground.join()
    status = await peer.call("update.status")
    assert (status["updateAvailable"], status["version"]) == (None, __version__)
    answer = await peer.call("update.run")
    assert answer["ok"] is False
    assert status["command"] in answer["result"]["reason"]
