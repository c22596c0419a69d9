"""Pipelines and workflows have the results that the original has."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.bundled.lobster_kit import (
    CORE,
    Original,
    Person,
    comparable,
    open_kit,
    resume,
    run,
)
from tests.node import NODE
from tests.scale import scaled

ITEMS = (
    '[{"id":1,"name":"b","n":{"x":3}},{"id":2,"name":"a"},{"id":10,"name":"b","tags":[1,2]},'
    '{"id":null,"name":"","ok":true}]'
)
SOURCE = f"exec --json --shell 'echo {json.dumps(ITEMS)}'"
PIPELINES = (
    # Texts that are not pipelines.
    *("", "   ", "|", "a | | b", "exec 'x", 'exec "x', "head |", "exec echo 'a\\'b'"),
    *("nope", "head --n x", "head --n -1", "where", "where nonsense", "pick", "groupBy"),
    *("template", "map --wrap a --unwrap b", "exec", "ask --schema nonsense", "state.get"),
    # Words and quotes.
    "exec echo a  'b  c' \"d \\\" \\$ \\n\" 'e \\n'",
    "exec echo 'a|b' | head",
    'exec "echo one two" | head --n=1',
    "exec printf 'a\\nb\\r\\n\\nc'",
    "exec --json --shell 'echo'",
    "exec --json --shell 'echo {}'",
    "exec --json --shell 'echo nonsense'",
    "exec --shell 'exit 3'",
    # Stages.
    *(f"{SOURCE} | {stage}" for stage in ("head --n 2", "head", "head --n 0", "head --n 1.5")),
    *(
        f"{SOURCE} | where {each}"
        for each in (
            *("id=1", "id==2", "id!=1", "'id>=2'", "'id<2'", "'id>1'", "'id<=10'", "name=b"),
            *("ok=true", "id=null", "name=", "'name>a'", "n.x=3", "'n.x>1'", "tags.0=1", "no=1"),
            *("'no<1'", "'no!=1'", "'name = b'", "ok=1", "name=0", "'id>=abc'"),
        )
    ),
    *(f"{SOURCE} | {each}" for each in ("pick id,name", "pick id", "pick no", "pick ' id , n '")),
    *(f"{SOURCE} | sort --key {each}" for each in ("id", "name", "id --desc", "n.x", "no")),
    *(f"{SOURCE} | {each}" for each in ("dedupe --key name", "dedupe", "groupBy --key name")),
    *(f"{SOURCE} | map {each}" for each in ("--wrap w", "--unwrap name", "--unwrap no", "a=b")),
    f"{SOURCE} | map who='<{{{{name}}}}>' x={{{{n.x}}}} all={{{{tags}}}}",
    f"{SOURCE} | template --text '{{{{id}}}}: {{{{ name }}}} {{{{n}}}} {{{{no}}}}'",
    f"{SOURCE} | pick id | template '{{{{.}}}}'",
    "exec printf 'b\\na\\nb' | sort | dedupe",
    "exec printf 'b\\na' | map k=v",
    "exec --json --shell 'echo [3,1,2,10]' | sort --desc",
    "exec --json --shell 'echo [3,1,2,10]' | where length=1",
    *(
        f"exec --json --shell 'echo [1,2]' | exec --stdin {mode} cat"
        for mode in ("raw", "json", "jsonl", "other")
    ),
    # State.
    *("state.get k", "exec --json --shell 'echo [1]' | state.set k", "state.get k"),
    *(f"exec --json --shell 'echo {each}' | diff.last --key d" for each in (1, 1, "[2,3]")),
    # Gates.
    f"{SOURCE} | approve --prompt 'Go on?' | pick id",
    f"{SOURCE} | approve --preview-from-stdin --limit 1",
    "exec printf 'a\\nb' | approve --preview-from-stdin",
    f"{SOURCE} | ask --prompt 'What?' --subject-from-stdin",
    'ask --schema \'{"type":"string"}\'',
)
WORKFLOWS = {
    "plain": {"steps": [{"id": "a", "run": "echo hi"}]},
    "json": {"steps": [{"id": "a", "run": "echo '[1,2]'"}, {"id": "b", "command": "echo $a.json"}]},
    "args": {
        "args": {"who": {"default": "x y"}, "n": {"default": 3}},
        "steps": [{"id": "a", "run": "echo ${who} ${n} ${no} $LOBSTER_ARG_WHO $LOBSTER_ARGS_JSON"}],
    },
    "env": {
        "env": {"A": "1", "B": "${x}"},
        "args": {"x": {"default": "y"}},
        "steps": [{"id": "a", "env": {"A": "2"}, "run": "echo $A $B"}],
    },
    "stdin": {
        "steps": [
            {"id": "a", "run": 'echo \'{"x":[1,{"y":"z"}]}\''},
            {"id": "b", "run": "cat", "stdin": "$a.json"},
            {"id": "c", "pipeline": "template '{{x.1.y}}'", "stdin": "$b.json"},
        ]
    },
    "missing": {"steps": [{"id": "a", "run": "cat", "stdin": "$no.stdout"}]},
    "when": {
        "steps": [
            {"id": "a", "run": 'echo \'{"n":5,"s":"on","l":[]}\''},
            *(
                {"id": f"c{number}", "run": f"echo {number}", "when": condition}
                for number, condition in enumerate(
                    (
                        *("$a.json.n > 4", "$a.json.n >= 6", '$a.json.s == "on"'),
                        *("$a.json.s == on", "$a.json.n == '5'", "!$a.json.n", "$a.json.l"),
                        *("$a.json.no", "($a.json.n == 5 || false) && true", "$a.json.n != 5"),
                        *("$a.json.s > 1", "true", "false", "null == null", "$a.skipped"),
                        *("!false && $a.json.n < 10", "$a.json.n == 5 && !$a.json.no"),
                    )
                )
            ),
            {
                "id": "z",
                "pipeline": "template --text '"
                + " ".join(f"$c{number}.skipped" for number in range(17))
                + "'",
                "stdin": "x",
            },
        ]
    },
    "condition": {"steps": [{"id": "a", "run": "echo 1", "when": "1 +"}]},
    "word": {"steps": [{"id": "a", "run": "echo 1", "when": "word"}]},
    "loop": {
        "steps": [
            {"id": "a", "run": 'echo \'["x",2,{"k":3}]\''},
            {
                "id": "b",
                "for_each": "$a.json",
                "steps": [
                    {"id": "c", "run": "echo $index.json $item.stdout"},
                    {
                        "id": "d",
                        "pipeline": "head",
                        "stdin": "$item.json",
                        "when": "$index.json > 0",
                    },
                ],
            },
        ]
    },
    "no-list": {
        "steps": [
            {"id": "a", "run": "echo 1"},
            {"id": "b", "for_each": "$a.json", "steps": [{"id": "c", "run": "true"}]},
        ]
    },
    "all": {
        "steps": [
            {
                "id": "p",
                "parallel": {
                    "branches": [
                        {"id": "a", "run": "echo 1"},
                        {"id": "b", "pipeline": "exec --json --shell 'echo [2]'"},
                    ]
                },
            },
            {"id": "q", "run": "echo $a.json $b.json '$p.stdout'"},
        ]
    },
    "any": {
        "steps": [
            {
                "id": "p",
                "parallel": {
                    "wait": "any",
                    "branches": [{"id": "a", "run": "exec sleep 60"}, {"id": "b", "run": "echo 2"}],
                },
            }
        ]
    },
    "late": {
        "steps": [
            {
                "id": "p",
                "parallel": {"timeout_ms": 100, "branches": [{"id": "a", "run": "exec sleep 60"}]},
            }
        ]
    },
    "step-late": {"steps": [{"id": "a", "run": "exec sleep 60", "timeout_ms": 100}]},
    "continue": {
        "steps": [
            {"id": "a", "run": "exit 1", "on_error": "continue"},
            {"id": "b", "run": "echo $a.error"},
        ]
    },
    "skip": {
        "steps": [
            {"id": "o", "run": "echo o"},
            {"id": "a", "run": "exit 1", "on_error": "skip_rest"},
            {"id": "b", "run": "echo b"},
        ]
    },
    "retry": {
        "steps": [
            {
                "id": "a",
                "run": "echo x >> tries; test $(wc -l < tries) -ge 3 && wc -l < tries",
                "retry": {"max": 3, "delay_ms": 1, "backoff": "exponential", "jitter": True},
            }
        ]
    },
    "nested": {
        "steps": [{"id": "a", "workflow": "args.json", "workflow_args": {"who": "${no}w", "n": 1}}]
    },
    "gate": {
        "steps": [
            {"id": "a", "run": "echo '[1,2]'"},
            {"id": "g", "approval": "Go on?", "stdin": "$a.json"},
            {"id": "b", "run": "echo $g.approved"},
        ]
    },
    "gate-own": {
        "steps": [
            {
                "id": "g",
                "run": 'echo \'{"prompt":"Really?","items":[5],"preview":"five"}\'',
                "approval": True,
            }
        ]
    },
    "gate-plain": {"steps": [{"id": "g", "run": "echo hi", "approval": {"items": [1]}}]},
    "input": {
        "steps": [
            {"id": "a", "run": "echo 7"},
            {"id": "i", "input": {"prompt": "?", "responseSchema": {"type": "integer"}}},
            {"id": "b", "run": "echo $i.response $i.subject"},
        ]
    },
    "halts": {"steps": [{"id": "a", "pipeline": "approve"}]},
    "twice": {"steps": [{"id": "a", "run": "true"}, {"id": "a", "run": "true"}]},
    "empty": {"steps": []},
    "kinds": {"steps": [{"id": "a", "run": "true", "pipeline": "head"}]},
    "nothing": {"steps": [{"id": "a"}]},
}
SAME_KIND = (
    *(
        "",
        "   ",
        "nope",
        "state.get",
        "exec --json --shell 'echo nonsense'",
        "exec --shell 'exit 3'",
    ),
    *("no-list", "template", "halts", "empty", "kinds", "nothing"),
)
"""Both fail, each in its own words."""


@pytest.fixture
def original(tmp_path: Path) -> Iterator[Original]:
    place = tmp_path / "original"
    place.mkdir()
    made = Original(place)
    yield made
    made.close()


def assert_same(case: str, ours: dict[str, object], theirs: dict[str, object]) -> None:
    mine, other = comparable(ours), comparable(theirs)
    if case in SAME_KIND and not theirs["ok"]:
        mine["error"].pop("message")
        other["error"].pop("message")
    assert mine == other, case


async def test_pipelines_have_the_results_of_the_original(
    tmp_path: Path, original: Original
) -> None:
    async with open_kit(tmp_path) as kit:
        for text in PIPELINES:
            assert_same(text, await run(kit, text), original.run(text))


@pytest.mark.long
def test_the_command_line_of_the_original_says_the_same(tmp_path: Path, original: Original) -> None:
    """So that what is compared with above is what people use."""
    program = CORE.parents[3] / "bin/lobster.js"
    env = {**os.environ, "LOBSTER_STATE_DIR": str(tmp_path / "state")}
    for text in PIPELINES[30 : 30 + scaled(30, 2)]:
        command: list[str | Path] = [NODE, program, "run", "--mode", "tool", text]
        ran = subprocess.run(command, capture_output=True, env=env, check=False)
        assert comparable(json.loads(ran.stdout)) == comparable(original.run(text)), text


async def test_workflows_have_the_results_of_the_original(
    tmp_path: Path, original: Original
) -> None:
    async with open_kit(tmp_path) as kit:
        for place in (tmp_path, tmp_path / "original"):
            for name, workflow in WORKFLOWS.items():
                (place / f"{name}.json").write_text(json.dumps(workflow))
        for name in WORKFLOWS:
            theirs = original.send(run={"filePath": f"{name}.json"})
            assert_same(name, await run(kit, f"{name}.json"), theirs)


async def test_gates_are_resumed_as_in_the_original(tmp_path: Path, original: Original) -> None:
    async with open_kit(tmp_path, approver=Person()) as kit:
        for answer in ({"approve": True}, {"approve": False}, {"cancel": True}):
            text = f"{SOURCE} | approve | pick id | head --n 1"
            mine, other = await run(kit, text), original.run(text)
            token = mine["requiresApproval"]["resumeToken"]
            theirs = {{"approve": "approved"}.get(key, key): each for key, each in answer.items()}
            their = {**theirs, "token": other["requiresApproval"]["resumeToken"]}
            for _ in range(2):  # the second time, the token was used
                ours = await resume(kit, token=token, **answer)
                last = original.send(resume=their)
                if last["ok"] and not ours["ok"]:  # there, cancelling twice is no error
                    assert ours["error"]["message"] == "Pipeline resume state not found"
                else:
                    assert_same(str(answer), ours, last)
