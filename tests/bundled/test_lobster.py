"""The tool lobster: what pipelines may do, their limits, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.bundled.lobster_kit import CONFIG, Person, open_kit, output, run, send

from clawkit.core.result import Result
from clawkit.core.tool import tool
from clawkit.testing import ScriptedApprover


def with_tools(**settings: Any) -> dict[str, Any]:
    return {**CONFIG, "tools": {**CONFIG["tools"], **settings}}


async def test_the_tool_is_there_only_if_it_is_named_and_not_in_a_sandboxed_session(
    tmp_path: Path,
) -> None:
    cases: tuple[tuple[dict[str, Any], dict[str, Any], bool], ...] = (
        (CONFIG, {}, True),
        ({**CONFIG, "tools": {"profile": "coding"}}, {}, False),
        ({**CONFIG, "tools": {"alsoAllow": ["group:plugins"]}}, {}, True),
        ({"tools": CONFIG["tools"]}, {}, False),
    )
    for config, scope, is_there in cases:
        async with open_kit(tmp_path, config, **scope) as kit:
            assert ("lobster" in kit.run.tools) == is_there, config
    config = {**CONFIG, "agents": {"defaults": {"sandbox": {"mode": "all"}}}}
    async with open_kit(tmp_path, config, sandboxed=True) as kit:
        assert "lobster" not in kit.run.tools


async def test_a_pipeline_may_do_no_more_than_its_caller(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")
    async with open_kit(tmp_path, with_tools(deny=["write"])) as kit:
        call = 'openclaw.invoke --tool {} --args-json \'{{"path":"a.txt","content":"x"}}\''
        assert "not" in await output(kit, call.format("write"))
        assert (tmp_path / "a.txt").read_text() == "alpha\n"
        [found] = await output(kit, 'openclaw.invoke --tool read --args-json \'{"path":"a.txt"}\'')
        assert "alpha" in found["content"][0]["text"]
    async with open_kit(tmp_path, with_tools(deny=["exec"])) as kit:
        assert "exec" in await output(kit, "exec echo hi")


async def test_a_command_is_asked_for_as_by_exec(tmp_path: Path) -> None:
    config = with_tools(exec={"security": "allowlist", "ask": "always"})
    person = ScriptedApprover("allow", "no, thanks")
    async with open_kit(tmp_path, config, approver=person) as kit:
        assert await output(kit, "exec echo one") == ["one"]
        assert "no, thanks" in await output(kit, "exec echo two")
    assert [each.command for each in person.requests] == ["echo one", "echo two"]


async def test_a_pipeline_cannot_call_itself_or_nest_without_end(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        inner = json.dumps({"action": "run", "pipeline": "exec echo hi"})
        said = await output(kit, f"openclaw.invoke --tool lobster --args-json '{inner}'")
        assert "lobster cannot be called from lobster" in said


async def test_tools_are_called_for_every_item(tmp_path: Path) -> None:
    seen: list[tuple[str, str, int]] = []

    @tool
    async def note(action: str, text: str, n: int = 0) -> Result:
        """Note a text."""
        seen.append((action, text, n))
        return Result.text("ok", noted=text)

    async with open_kit(tmp_path, tools=[note]) as kit:
        words = "exec printf 'a\\nb'"
        each = "--each --item-key text --args-json '{\"n\":2}'"
        call = f"{words} | openclaw.invoke --tool note --action add {each}"
        found = await output(kit, call)
        assert [item["details"]["noted"] for item in found] == ["a", "b"]
        assert seen == [("add", "a", 2), ("add", "b", 2)]
        planned = await output(kit, f"{call} --dry-run")
        assert planned[0] == {
            "dryRun": True,
            "tool": "note",
            "args": {"n": 2, "action": "add", "text": "a"},
        }
        assert len(seen) == 2
        alias = 'clawd.invoke --tool note --action add --args-json \'{"text":"c"}\''
        assert len(await output(kit, alias)) == 1
        assert "tool error" in await output(kit, "openclaw.invoke --tool note")


async def test_a_bad_text_is_an_error_that_says_what_is_wrong(tmp_path: Path) -> None:
    cases = {
        "openclaw.invoke": "requires --tool",
        "openclaw.invoke --tool x --args-json '[1]'": "must be a JSON object",
        "openclaw.invoke --tool x --args-json '{'": "must be valid JSON",
        "openclaw.invoke --tool x --url http://a": "cannot use --url",
        "exec ls --all": "quote the whole command: exec --json --shell",
        "exec --json echo 1": "cannot use --json like this",
        "haed": "did you mean head?",
        "head --count 3": "cannot use --count like this; known: n",
        f"head {'|head' * 200}": "stages, over 100",
        f"head {'x' * 70_000}": "characters, over 65,536",
        "ask --schema '{\"type\":3}'": "ask --schema is not a usable JSON Schema",
        'ask --schema \'{"$ref":"http://127.0.0.1/x"}\'': "remote references are refused",
        'ask --schema \'{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}\'': "the schema is recursive",
        "approve --limit x": "approve --limit must be a non-negative number",
        f"state.get {'k' * 201}": "at most 200 characters",
        "workflows.run --name ../x": "Unknown workflow",
        "workflows.run": "requires --name",
        "no.lobster": "the workflow cannot be read",
        "../no.json": "the workflow cannot be read",
        "/etc/passwd.json": "the workflow cannot be read",
    }
    async with open_kit(tmp_path) as kit:
        for text, words in cases.items():
            assert words in str(await output(kit, text)), text
        refused = {
            "run requires pipeline": {"pipeline": " "},
            "cwd must be relative": {"pipeline": "exec pwd", "cwd": "/"},
            "must stay within": {"pipeline": "exec pwd", "cwd": "../.."},
            "argsJson needs a workflow": {"pipeline": "exec pwd", "argsJson": "{}"},
            "argsJson must be": {"pipeline": "a.lobster", "argsJson": "[1]"},
        }
        for words, params in refused.items():
            envelope = await send(kit, action="run", **params)
            assert words in envelope["error"]["message"], params
        for wrong in ({"timeoutMs": 199}, {"maxStdoutBytes": 1023}, {"action": "stop"}):
            assert "error" in await send(kit, **{"action": "run", "pipeline": "head", **wrong})


async def test_the_directory_is_below_the_workspace_also_through_links(tmp_path: Path) -> None:
    (tmp_path / "ws/sub").mkdir(parents=True)
    (tmp_path / "ws/out").symlink_to(tmp_path)
    async with open_kit(tmp_path / "ws") as kit:
        assert await output(kit, "exec pwd", cwd="sub") == [str(tmp_path / "ws/sub")]
        assert "must stay within" in await output(kit, "exec pwd", cwd="out")


async def test_a_workflow_that_a_rule_denies_is_neither_listed_nor_run(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("fine", "secret"):
        (tmp_path / f"sub/{name}.lobster").write_text("{}")
    rule = {"tool": "lobster", "params": {"cwd": "sub/secret*"}, "effect": "deny"}
    async with open_kit(tmp_path, with_tools(rules=[rule])) as kit:
        listed = await output(kit, "workflows.list | pick name", cwd="sub")
        assert listed == [{"name": "fine"}]
        said = await output(kit, "workflows.run --name secret", cwd="sub")
        assert "a rule denies" in said


async def test_time_and_output_are_limited(tmp_path: Path) -> None:
    deep = "[" * 100_000
    (tmp_path / "deep.json").write_text(deep)
    (tmp_path / "many.json").write_text(json.dumps(list(range(60_000))))
    (tmp_path / "huge.json").write_text(json.dumps(["x" * 100] * 100_000))
    async with open_kit(tmp_path) as kit:
        assert "timed out after 300 ms" in await output(kit, "exec sleep 60", timeoutMs=300)
        assert "must be valid JSON" in await output(kit, "exec --json --shell 'cat deep.json'")
        many = "exec --json --shell 'cat many.json'"
        assert "too many items" in await output(kit, many)
        assert await output(kit, f"{many} | sort --desc | head --n 1") == [59_999]
        huge = "exec --json --shell 'cat huge.json'"
        assert "over 512,000" in await output(kit, huge)
        large = await output(kit, f"{huge} | head --n 2", maxStdoutBytes=16_000_000)
        assert large == ["x" * 100] * 2
        assert "over maxStdoutBytes (1,024)" in await output(
            kit, "exec --shell 'seq 400'", maxStdoutBytes=1024
        )
        piped = f"{huge} | exec --stdin raw wc"
        assert "over 100,000" in await output(kit, piped, maxStdoutBytes=16_000_000)


async def test_text_cannot_multiply_without_end(tmp_path: Path) -> None:
    text, field = "template --text '" + "{{.}}" * 10 + "'", "map a=" + "{{.}}" * 10
    grow = json.dumps({"id": "s0", "run": "echo 0123456789"})
    for number in range(1, 12):
        stdin = f"$s{number - 1}.stdout" * 10
        grow += "," + json.dumps({"id": f"s{number}", "pipeline": "json", "stdin": stdin})
    (tmp_path / "grow.json").write_text(f'{{"steps": [{grow}]}}')
    rows = [{"a": "a" * 20_000}, *({"a": 1} for _ in range(9_000))]
    (tmp_path / "rows").write_text(json.dumps(rows))
    cases = (
        " | ".join(["exec echo 0123456789", *[text] * 12, "head --n 0"]),
        " | ".join(["exec echo 0123456789", *[field] * 12, "head --n 0"]),
        "exec --json --shell 'cat rows' | table",
        "grow.json",
    )
    async with open_kit(tmp_path) as kit:
        for pipeline in cases:
            said = await output(kit, pipeline)
            assert "it produces more than 67,108,864 characters" in said, pipeline


async def test_a_secret_in_long_output_is_masked(tmp_path: Path) -> None:
    config = {**CONFIG, "env": {"vars": {"API_TOKEN": "s3cr3t-value-123456"}}}
    text = "\n".join(["x" * 200] * 700 + ["s3cr3t-value-123456"])
    (tmp_path / "long.txt").write_text(text)
    async with open_kit(tmp_path, config) as kit:
        found = await output(kit, "exec cat long.txt")
        assert len(found) == 701
        assert "s3cr3t-value" not in found[-1]


async def test_what_json_and_table_render_is_the_output(tmp_path: Path) -> None:
    source = 'exec --json --shell \'echo "[{\\"a\\":1,\\"b\\":\\"x y\\"},{\\"b\\":[2]}]"\''
    async with open_kit(tmp_path) as kit:
        assert await output(kit, f"{source} | json") == [{"a": 1, "b": "x y"}, {"b": [2]}]
        [table] = await output(kit, f"{source} | table")
        assert table == "a    b  \n---  ---\n1    x y\n     [2]\n"
        assert await output(kit, "exec true | table") == ["(no results)\n"]
        assert await output(kit, "exec printf 'a\\nb' | table") == ["a\nb\n"]
        names = [each["name"] for each in await output(kit, "commands.list")]
        assert {"exec", "where", "approve", "llm.invoke", "workflows.run"} < set(names)


async def test_stored_values_belong_to_the_agent(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await output(kit, "exec echo mine | state.set ../k")
        assert await output(kit, "state.get ../k") == ["mine"]
    async with open_kit(tmp_path, owner=False) as kit:
        assert await output(kit, "state.get ../k") == [None]
        await output(kit, "exec echo theirs | state.set ../k")
    async with open_kit(tmp_path, session="another") as kit:
        assert await output(kit, "state.get ../k") == ["mine"]
    async with open_kit(tmp_path, agent="other") as kit:
        assert await output(kit, "state.get ../k") == [None]
        large = "exec --json --shell 'cat huge.json' | state.set k"
        (tmp_path / "huge.json").write_text(json.dumps("x" * 5_000_000))
        assert "bytes, over" in await output(kit, large, maxStdoutBytes=16_000_000)


async def test_a_hidden_gate_inside_a_loop_of_calls_still_asks(tmp_path: Path) -> None:
    """A tool that asks a person does so inside a pipeline, too."""
    person = Person("deny")

    @tool
    async def delete(name: str) -> str:
        """Delete something."""
        return f"deleted {name}"

    rules = {"rules": [{"tool": "delete", "effect": "ask"}]}
    async with open_kit(tmp_path, with_tools(**rules), tools=[delete], approver=person) as kit:
        call = 'openclaw.invoke --tool delete --args-json \'{"name":"x"}\''
        assert "not now" in (await run(kit, call))["error"]["message"]
    assert len(person.asked) == 1
