"""Workflow files: their formats, gates, limits and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.bundled.lobster_kit import Person, open_kit, output, resume, run

from clawkit.core.result import Result
from clawkit.core.tool import tool
from clawkit.installation import how_to_add

YAML = """
# Comments are allowed.
name: greet
description: Say hello
args:
  who:
    default: world
steps:
  - id: say
    run: >
      echo "hello
      $LOBSTER_ARG_WHO"
  - id: facts
    pipeline: template --text 'yes {{a}} {{day}}'
    stdin: {a: yes, day: 2026-01-01}
  - id: check
    approval: Shall I?
    stdin: $say.stdout
  - id: done
    run: echo '$facts.stdout' $check.approved
    when: $check.approved && $say.stdout != ""
"""


def write(place: Path, name: str, *steps: dict[str, Any], **more: Any) -> None:
    (place / name).write_text(json.dumps({"steps": steps, **more}))


async def test_a_yaml_file_runs_to_its_gate_and_on(tmp_path: Path) -> None:
    for name in ("greet.lobster", "greet.yaml", "greet.yml"):
        (tmp_path / name).write_text(YAML)
    async with open_kit(tmp_path, approver=Person()) as kit:
        for name in ("greet.lobster", "greet.yaml", "greet.yml"):
            asked = (await run(kit, name, argsJson='{"who":"you; x"}'))["requiresApproval"]
            assert (asked["prompt"], asked["preview"]) == ("Shall I?", "hello you; x")
            ended = await resume(kit, token=asked["resumeToken"], approve=True)
            assert ended["output"] == ["yes yes 2026-01-01 true"]
        assert await output(kit, "workflows.list") == [{"name": "greet", "file": "greet.lobster"}]
        halted = await output(kit, "workflows.run --name greet")
        assert "only the outermost workflow can have gates" in halted


async def test_input_is_asked_for_and_used(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["name"]}
    write(
        tmp_path,
        "w.json",
        {"id": "a", "run": "echo 1"},
        {"id": "i", "input": {"prompt": "Who?", "responseSchema": schema}, "stdin": "$a.json"},
        {"id": "b", "run": "echo $i.response.name $i.subject"},
    )
    async with open_kit(tmp_path) as kit:
        asked = (await run(kit, "w.json"))["requiresInput"]
        assert (asked["prompt"], asked["subject"]) == ("Who?", 1)
        token = asked["resumeToken"]
        wrong = await resume(kit, token=token, response={})
        assert "schema validation" in wrong["error"]["message"]
        ended = await resume(kit, token=token, response={"name": "ann"})
        assert ended["output"] == ["ann 1"]


async def test_a_file_that_is_not_a_workflow_is_refused(tmp_path: Path) -> None:
    cases = {
        "a.json": ("{", "a.json: "),
        "b.json": ("[" * 5_000, "b.json: "),
        "c.yaml": ("steps: [", "c.yaml: "),
        "d.yaml": ("a: &x 1\nsteps: *x", "aliases are not supported"),
        **{
            f"value{number}.yaml": (f"steps: [{{id: a, stdin: {value}, run: cat}}]", "JSON")
            for number, value in enumerate(
                (
                    "!!set {a}",
                    "!!binary aGk=",
                    "!!timestamp 2020-01-01",
                    "!!float .nan",
                    r'"\ud800"',
                )
            )
        },
        "e.yaml": ("steps: !!python/object/apply:os.system [x]", "could not determine"),
        "f.yaml": ("[" * 5_000, "f.yaml: "),
        "g.yaml": ("steps:\n- {id: a, run: x, aproval: true}", "unknown field `aproval`"),
        "h.yaml": ("steps:\n- {id: 'a b', run: x}", "matching regex"),
        "i.yaml": (f"# {'x' * 200_000}", "larger than"),
        "j.yaml": ("steps:\n- {id: a, run: x, on_error: maybe}", "Invalid enum"),
        "k.yaml": ("steps:\n- {id: a, run: x, retry: {max: 0}}", "Expected `int` >= 1"),
        "l.yaml": ("steps:\n- {id: a, for_each: $x.json}", "needs both for_each and steps"),
        "m.yaml": (
            "steps:\n- {id: a, for_each: $x.json, steps: [{id: b, run: x, approval: true}]}",
            "cannot be inside for_each",
        ),
        "m2.yaml": ("steps:\n- {id: a, for_each: $x.json, steps: [{id: b}]}", "requires one of"),
        "n.yaml": (
            "steps:\n- {id: a, for_each: $x.json, steps: [{id: item, run: x}]}",
            "need different names",
        ),
        "o.yaml": (
            "steps:\n- {id: a, input: {prompt: x, responseSchema: {type: 3}}}",
            "not a usable JSON Schema",
        ),
        "p.yaml": ("steps:\n- {id: a, run: x, when: '((('}", "Unsupported condition"),
        "q.yaml": (f"steps:\n- {{id: a, run: x, when: '{'!' * 2_000}'}}", "Unsupported condition"),
        "r.yaml": ("steps:\n- {id: a, run: x, cwd: ../..}", "must stay within"),
        "s.yaml": ("steps:\n- {id: a, run: x, env: {LD_PRELOAD: x}}", "LD_PRELOAD"),
        "t.yaml": ('steps:\n- {id: a, pipeline: "exec \'x"}', "pipeline parse failed: Unclosed"),
    }
    async with open_kit(tmp_path) as kit:
        for name, (text, words) in cases.items():
            (tmp_path / name).write_text(text)
            assert words in await output(kit, name), name


async def test_workflows_that_call_each_other_end(tmp_path: Path) -> None:
    write(tmp_path, "a.json", {"id": "a", "workflow": "b.json", "on_error": "continue"})
    write(tmp_path, "b.json", {"id": "b", "workflow": "./a.json", "retry": {"max": 9}})
    for number in range(9):
        write(tmp_path, f"n{number}.json", {"id": "n", "workflow": f"n{number + 1}.json"})
    write(tmp_path, "n9.json", {"id": "n", "run": "echo end"})
    async with open_kit(tmp_path) as kit:
        assert "a cycle" in await output(kit, "a.json")
        assert "at most 8 levels deep" in await output(kit, "n0.json")
        assert await output(kit, "n4.json") == ["end"]


async def test_a_loop_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "many").write_text(json.dumps([1] * 1_000_000))
    source = {"id": "a", "pipeline": "exec --json --shell 'cat many'"}
    loop = {"id": "b", "for_each": "$a.json", "steps": [{"id": "c", "pipeline": "head"}]}
    write(tmp_path, "w.json", source, loop)
    async with open_kit(tmp_path) as kit:
        said = await output(kit, "w.json", maxStdoutBytes=16_000_000)
        assert "more than 100,000 items" in said
        (tmp_path / "many").write_text(json.dumps([1] * 10_001))
        assert "got 10,001 items" in await output(kit, "w.json", maxStdoutBytes=16_000_000)
        (tmp_path / "many").write_text(json.dumps([1] * 10_000))
        steps = [{"id": f"c{number}", "pipeline": "head"} for number in range(50)]
        write(tmp_path, "w.json", source, {**loop, "steps": steps})
        late = await output(kit, "w.json", maxStdoutBytes=16_000_000, timeoutMs=250)
        assert "timed out after 250 ms" in late


async def test_branches_that_hang_are_killed(tmp_path: Path) -> None:
    branches = [{"id": "a", "run": "exec sleep 61"}, {"id": "b", "run": "sleep 61"}]
    write(tmp_path, "late.json", {"id": "p", "parallel": {"branches": branches, "timeout_ms": 200}})
    hang = [*branches, {"id": "c", "run": "false"}]
    write(tmp_path, "fail.json", {"id": "p", "parallel": {"branches": hang}})
    async with open_kit(tmp_path) as kit:
        assert "Parallel step p timed out after 200ms" in await output(kit, "late.json")
        assert "Parallel branch failed: exec failed (1)" in await output(kit, "fail.json")
        assert "running" not in (await kit.call("process", {"action": "list"})).as_text()


async def test_an_argument_in_the_text_is_code_and_a_variable_is_not(tmp_path: Path) -> None:
    write(tmp_path, "raw.json", {"id": "a", "run": "echo ${who}"})
    write(tmp_path, "safe.json", {"id": "a", "run": 'echo "$LOBSTER_ARG_WHO"'})
    args = json.dumps({"who": "x; echo injected"})
    async with open_kit(tmp_path) as kit:
        assert await output(kit, "raw.json", argsJson=args) == ["x\ninjected"]
        assert await output(kit, "safe.json", argsJson=args) == ["x; echo injected"]


async def test_what_models_cost_is_limited(tmp_path: Path) -> None:
    @tool(name="llm-task")
    async def ask(prompt: str, input: Any = None) -> Result:  # noqa: A002
        """Answer."""
        return Result.text("{}", json={"got": input}, model="m", usage={"cost": 0.5})

    asks = [{"id": f"s{n}", "pipeline": "llm.invoke --prompt hi", "stdin": [n]} for n in range(3)]
    write(tmp_path, "stop.json", *asks, cost_limit={"max_usd": 0.7})
    write(tmp_path, "warn.json", *asks, cost_limit={"max_usd": 0.7, "action": "warn"})
    async with open_kit(tmp_path, tools=[ask]) as kit:
        said = await output(kit, "stop.json")
        assert "cost $1.0000, over its limit of $0.7" in said
        warned = await run(kit, "warn.json")
        assert warned["output"][0]["output"]["data"] == {"got": 2}
        assert len(warned["warnings"]) == 1


async def test_steps_have_their_own_directory_pause_and_batches(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    loop = {"id": "b", "for_each": "$a.json", "batch_size": 2, "pause_ms": 5, "item_var": "it"}
    loop |= {"index_var": "no", "cwd": "sub", "env": {"A": "x"}}
    inner = [{"id": "c", "run": "echo $A $it.json $no.json $(basename $PWD)"}]
    write(tmp_path, "w.json", {"id": "a", "run": "echo [7,8,9]"}, loop | {"steps": inner})
    async with open_kit(tmp_path) as kit:
        found = await output(kit, "w.json")
        assert found[2] == {"it": 9, "no": 2, "c": "x 9 2 sub"}


async def test_without_its_parser_yaml_is_refused_and_json_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "a.lobster").write_text(YAML)
    write(tmp_path, "b.json", {"id": "a", "run": "echo 1"})
    async with open_kit(tmp_path) as kit:
        assert how_to_add("workflows") in await output(kit, "a.lobster")
        assert await output(kit, "b.json") == [1]
