"""A server that misbehaves harms neither clawkit nor other servers."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from msgspec import Raw
from tests.mcp.parts import Approver, entry, error, mounts, names, notes, open_kit, until

from clawkit.external import REMOVED, defuse
from clawkit.mcp.connected_server import MAX_ROUNDS
from clawkit.mcp.definitions import (
    MAX_DESCRIPTION,
    MAX_TOOLS,
    accept,
    clean_text,
    read_listing,
    write_listing,
)
from clawkit.mcp.results import of_request
from clawkit.process import jsonrpc


async def test_one_that_never_answers_delays_no_other(workspace: Path, tmp_path: Path) -> None:
    servers = {
        "hung": entry(tmp_path, "silent", connectionTimeoutMs=400),
        "late": entry(tmp_path, "silent-list", connectionTimeoutMs=400),
        "good": entry(tmp_path),
    }
    async with open_kit(workspace, servers) as kit:
        assert {name.partition("__")[0] for name in names(kit)} == {"good"}
        assert "did not answer in time" in mounts(kit).errors["hung"]
        assert "did not answer in time" in mounts(kit).errors["late"]
        assert not (await kit.call("good__echo", {"text": "x"})).is_error


async def test_one_that_cannot_start_says_why(workspace: Path, tmp_path: Path) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "exits")}) as kit:
        assert "cannot start: no configuration" in mounts(kit).errors["srv"]
    async with open_kit(workspace, {"srv": {"command": "no-such-program"}}) as kit:
        assert "no-such-program: not found" in mounts(kit).errors["srv"]


async def test_a_call_without_an_answer_ends_in_time(workspace: Path, tmp_path: Path) -> None:
    server = entry(tmp_path, "silent-call", requestTimeoutMs=200)
    async with open_kit(workspace, {"srv": server}) as kit:
        assert "did not answer in time" in error(await kit.call("srv__echo"))
        await until(lambda: any("cancelled" in line for line in notes(tmp_path)))


async def test_much_error_output_is_no_obstacle(workspace: Path, tmp_path: Path) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "flood")}) as kit:
        assert not (await kit.call("srv__echo", {"text": "x"})).is_error


async def test_what_is_not_a_message_ends_the_connection(workspace: Path, tmp_path: Path) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "garbage")}) as kit:
        assert "it sent an invalid message" in error(await kit.call("srv__echo"))


async def test_a_line_without_an_end_is_not_collected(workspace: Path, tmp_path: Path) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "long-line")}) as kit:
        assert "it sent a line that is too long" in error(await kit.call("srv__echo"))


async def test_of_ten_thousand_tools_the_first_are_used(workspace: Path, tmp_path: Path) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "many")}) as kit:
        assert len(names(kit)) == MAX_TOOLS
        assert any("left out" in each for each in kit.warnings)


async def test_tools_with_unusable_schemas_are_left_out(workspace: Path, tmp_path: Path) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "schemas")}) as kit:
        assert names(kit) == ["srv__good"]
        left_out = (await mounts(kit).refresh("srv")).left_out
    for name, why in {
        "cyclic": "recursive",
        "remote": "does not point into the schema itself",
        "deep": "nested over",
        "large": "at most 65,536 are allowed",
        "slow": "is not a usable JSON Schema",
        "list": "must be an object",
        "good": "listed twice",
        "#9": "Expected `str`",
    }.items():
        assert why in left_out[name], name


async def test_names_are_plain_and_different(workspace: Path, tmp_path: Path) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "names")}) as kit:
        found = names(kit)
        result = await kit.call(next(each for each in found if "srv__read" in each), {"text": "x"})
    assert len({name.lower() for name in found}) == 7
    assert all(name.isascii() and len(name) <= 64 for name in found)
    assert "srv__re-ad" in found
    assert "srv__g-t" in found
    assert not result.is_error


async def test_descriptions_lose_what_is_hidden_and_what_is_too_long(
    workspace: Path, tmp_path: Path
) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "instructions")}) as kit:
        tool = next(tool for tool in kit.tools if tool.name == "srv__echo")
    assert tool.description.startswith("(MCP server srv) Echo. ")
    assert REMOVED in tool.description
    assert not any(char in tool.description for char in "\x00\u202e")
    assert len(tool.description) <= MAX_DESCRIPTION + 30


async def test_a_changed_definition_waits_until_a_person_accepts_it(
    workspace: Path, tmp_path: Path
) -> None:
    servers = {"srv": entry(tmp_path, "changing")}
    async with open_kit(workspace, servers) as kit:
        assert "srv__echo" in names(kit)
        (tmp_path / "notes.changed").touch()
        found = await mounts(kit).refresh("srv")
        assert [tool.name for tool in found.waiting] == ["echo", "new"]
        assert await kit.update()
        assert not {"srv__echo", "srv__new"} & set(names(kit))
        assert any("clawkit mcp accept srv" in each for each in kit.warnings)
        folder, settings = mounts(kit)._context.folder, mounts(kit)._slots["srv"].entry
        assert accept(found) == ["echo", "new"]
        write_listing(folder, "srv", found)
        assert await kit.update()
        assert {"srv__echo", "srv__new"} <= set(names(kit))
        # What was accepted stays accepted, and the earlier definition is another one again.
        assert (await mounts(kit).refresh("srv")).waiting == []
        (tmp_path / "notes.changed").unlink()
        assert [tool.name for tool in (await mounts(kit).refresh("srv")).waiting] == ["echo"]
        assert read_listing(folder, "srv", settings) is not None


async def test_many_notices_of_changes_lead_to_one_more_listing(
    workspace: Path, tmp_path: Path
) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "storm")}) as kit:
        slot = mounts(kit)._slots["srv"]
        if slot.listing is not None:
            await asyncio.wait({slot.listing})
        before = notes(tmp_path).count("request tools/list")
        for _ in range(3):
            assert not (await kit.call("srv__echo", {"text": "x"})).is_error
        assert slot.listing is not None
        await asyncio.wait({slot.listing})
        assert notes(tmp_path).count("request tools/list") == before + 1


async def test_answers_to_questions_no_one_asked_are_ignored(
    workspace: Path, tmp_path: Path
) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "wrong-id")}) as kit:
        text = (await kit.call("srv__echo", {"text": "right"})).as_text()
    assert "right" in text
    assert "wrong" not in text


async def test_requests_of_a_server_get_the_workspace_and_nothing_else(
    workspace: Path, tmp_path: Path
) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "requests")}) as kit:
        assert not (await kit.call("srv__echo", {"text": "x"})).is_error
    said = [line for line in notes(tmp_path) if "-32601" in line and "{" in line]
    assert [line.split(" ")[0] for line in said] == [
        *("sampling/createMessage", "tools/list", "nonsense")
    ]
    roots = next(line for line in notes(tmp_path) if line.startswith("roots/list"))
    assert workspace.as_uri() in roots
    assert "ping {}" in notes(tmp_path)


async def test_a_link_in_place_of_its_log_is_not_followed(workspace: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n", encoding="utf-8")
    async with open_kit(workspace, {"srv": entry(tmp_path, "links")}) as kit:
        for _ in range(2):
            said = error(await kit.call("srv__echo", {"text": str(secret)}))
            assert "it exited" in said
            assert "hunter2" not in said


async def test_definitions_are_limited_together(workspace: Path, tmp_path: Path) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "heavy")}) as kit:
        assert 0 < len(names(kit)) < 100
        assert "all definitions together" in str((await mounts(kit).refresh("srv")).left_out)


async def test_a_list_without_an_end_is_not_collected(workspace: Path, tmp_path: Path) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "pages")}) as kit:
        assert "it lists too much" in mounts(kit).errors["srv"]


async def test_a_person_is_asked_a_few_questions_that_can_be_read(
    workspace: Path, tmp_path: Path
) -> None:
    for mode, count in (("nags", MAX_ROUNDS), ("floods", 0)):
        person = Approver("deny")
        async with open_kit(workspace, {"srv": entry(tmp_path, mode)}, approver=person) as kit:
            assert not (await kit.call("srv__echo")).is_error
        assert len(person.asked) == count
        assert all(each.description.startswith("Yes sends: ") for each in person.asked)


async def test_a_question_says_first_and_in_one_line_what_is_sent(
    workspace: Path, tmp_path: Path
) -> None:
    person = Approver("deny")
    async with open_kit(workspace, {"srv": entry(tmp_path, "hides")}, approver=person) as kit:
        await kit.call("srv__echo")
    [asked] = person.asked
    assert asked.description.splitlines() == [
        "Yes sends: 'a\\u202e\\nYes sends: nothing': 'secret'"
    ]


def test_a_long_text_is_cut_before_it_is_searched() -> None:
    """A server can send 16 MB of progress four times a second, and all sessions would wait."""
    text = "\u00e9" * 300_000
    times = []
    for clean in (defuse, lambda text: clean_text(text, 200)):
        began = time.process_time()
        clean(text)
        times.append(time.process_time() - began)
    assert times[1] < times[0] / 10
    assert len(clean_text(text, 200)) <= 200 + 40


async def test_resources_that_a_server_has_later_wait_until_they_are_accepted(
    workspace: Path, tmp_path: Path
) -> None:
    async with open_kit(workspace, {"srv": entry(tmp_path, "gains")}) as kit:
        assert "srv__resources" not in names(kit)
        assert "srv__prompts" in names(kit)
        (tmp_path / "notes.changed").touch()
        found = await mounts(kit).refresh("srv")
        assert [tool.name for tool in found.waiting] == ["resources"]
        await kit.update()
        assert "srv__resources" not in names(kit)
        accept(found)
        write_listing(mounts(kit)._context.folder, "srv", found)
        assert await kit.update()
        assert "note:1" in (await kit.call("srv__resources")).as_text()


async def test_a_question_does_not_stop_the_clock_permanently(
    workspace: Path, tmp_path: Path
) -> None:
    server = entry(tmp_path, "asks-and-waits", requestTimeoutMs=300)
    for person in (None, Approver("deny"), Approver("allow")):
        async with (
            open_kit(workspace, {"srv": server}, approver=person) as kit,
            asyncio.timeout(20),
        ):
            assert "did not answer in time" in error(await kit.call("srv__echo"))


def test_an_error_never_ends_in_half_a_secret() -> None:
    # Redaction follows, and recognizes only whole ones.
    secret = "sk-" + "a1B2c3D4" * 8
    for size in range(100, 600, 7):
        text = f"{'word ' * (size // 5)}{secret} and more {'word ' * 400}"
        answer = {"content": [{"type": "text", "text": text}], "isError": True}
        shown = of_request(Raw(json.dumps(answer).encode()), "srv", "tool", "echo").details["error"]
        failure = {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": text}}
        error = jsonrpc.decode(json.dumps(failure).encode()).error
        assert error is not None
        for words in (shown, str(error.to_error())):
            assert "sk-" not in words.replace(secret, "")
            assert words.endswith("word…") or secret in words
