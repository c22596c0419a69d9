"""`clawkit tools` as a person or a program types it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asking import PROGRAM, SLOW

from clawkit.cli.main import run

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(
    workspace: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Cli:
    """Run clawkit in this process, in the workspace."""
    monkeypatch.chdir(workspace)
    # It would hold for all tests that follow.
    monkeypatch.setattr("clawkit.cli.tools.hide_memory", lambda: None)

    def type_in(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        given = tmp_path / "stdin"
        given.write_text(stdin, encoding="utf-8")
        with given.open(encoding="utf-8") as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            with pytest.raises(SystemExit) as end:
                run(list(args))
        out, err = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return subprocess.CompletedProcess(args, end.value.code, out, err)

    return type_in


@pytest.fixture
def program(workspace: Path) -> Cli:
    """Run clawkit as a program in the workspace."""

    def start(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
        # Such variables count where Python starts.
        program = SLOW if any(name.startswith("PYTHON") for name in env) else PROGRAM
        return subprocess.run(
            [*program, *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=workspace,
            env={**os.environ, **env},
            timeout=60,
        )

    return start


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        file = tmp_path / "clawkit.json5"
        file.write_text(text, encoding="utf-8")
        return str(file)

    return write


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").stdout.startswith("clawkit, version 0.")
    shown = cli("--help").stdout
    assert all(word in shown for word in ("tools", "config", "doctor", "Exit codes"))


def test_list_shows_the_available_tools_and_a_hint(cli: Cli) -> None:
    done = cli("tools", "list")
    assert done.returncode == 0
    assert "read" in done.stdout
    assert "20 in force" in done.stdout
    assert "Try:" in done.stdout


def test_list_as_json_has_a_token_cost_for_each_tool(cli: Cli) -> None:
    rows = json.loads(cli("tools", "list", "--json").stdout)["tools"]
    built = "read write edit apply_patch grep find ls exec process code_execution web_search"
    built += " web_fetch memory_search"
    built += (
        " memory_get sessions_list sessions_history sessions_search session_status cron agents_list"
    )
    assert " ".join(row["tool"] for row in rows) == built
    assert all(20 < row["tokens"] < 900 for row in rows)


def test_list_all_shows_what_is_not_built_as_not_available(cli: Cli) -> None:
    rows = json.loads(cli("tools", "list", "--all", "--json").stdout)["tools"]
    browser = next(row for row in rows if row["tool"] == "browser")
    assert (browser["available"], browser["allowed"], browser["inForce"]) == (False, True, False)


def test_explain_names_step_key_and_entry(cli: Cli, config: Callable[[str], str]) -> None:
    file = config(
        '{tools: {profile: "coding", byProvider: {"google-antigravity": {profile: "minimal"}}},'
        ' agents: {list: [{id: "support", tools: {profile: "messaging", allow: ["slack"]}}]}}'
    )
    args = ("--agent", "support", "--model", "google-antigravity/x", "--json", "--config", file)
    exec_ = json.loads(cli("tools", "explain", "exec", *args).stdout)
    assert exec_["allowed"] is False
    assert exec_["removedBy"]["number"] == 1
    assert exec_["removedBy"]["key"] == "agents.support.tools.profile"
    assert exec_["removedBy"]["entry"] == "messaging"
    message = json.loads(cli("tools", "explain", "message", *args).stdout)
    assert message["removedBy"]["number"] == 2
    assert message["removedBy"]["step"] == "tools.byProvider.profile"
    assert message["removedBy"]["key"] == "tools.byProvider.google-antigravity.profile"
    assert message["removedBy"]["entry"] == "minimal"


def test_explain_in_words(cli: Cli, config: Callable[[str], str]) -> None:
    file = config('{tools: {deny: ["group:runtime"]}}')
    done = cli("tools", "explain", "bash", "--config", file)
    assert "exec" in done.stdout
    assert "tools.deny denies it with 'group:runtime'" in done.stdout


def test_explain_shows_which_binding_chose_the_agent(
    cli: Cli, config: Callable[[str], str]
) -> None:
    file = config(
        "{agents: {list: [{id: 'support', tools: {deny: ['exec']}}]}, bindings: ["
        "{agentId: 'support', match: {channel: 'discord', accountId: 'work', guildId: 'G1',"
        " roles: ['staff']}}]}"
    )
    place = ("--channel", "discord", "--account", "work", "--space", "G1", "--role", "staff")
    args = ("tools", "explain", "exec", "--config", file)
    done = cli(*args, *place)
    assert done.stdout.startswith("bindings[0] chooses the agent support\n")
    assert "agents.support.tools.deny" in done.stdout
    chosen = json.loads(cli(*args, *place, "--json").stdout)["agent"]
    assert chosen == {"id": "support", "chosenBy": "bindings[0]"}
    for others in ((), place[:-2], place[2:], (*place, "--agent", "main")):
        found = json.loads(cli(*args, *others, "--json").stdout)
        assert found["agent"] == {"id": "main", "chosenBy": None}


def test_explain_of_an_unknown_tool_suggests_names(cli: Cli) -> None:
    done = cli("tools", "explain", "exce")
    assert done.returncode == 1
    assert "did you mean 'exec'" in done.stderr


@pytest.mark.parametrize(
    ("provider", "key"),
    [("anthropic", "input_schema"), ("google", "parameters"), ("openai-responses", "parameters")],
)
def test_schema_prints_declarations_for_a_provider(cli: Cli, provider: str, key: str) -> None:
    declared = json.loads(cli("tools", "schema", "read", "--provider", provider).stdout)
    assert declared[0]["name"] == "read"
    assert declared[0][key]["properties"]["path"]["type"] == "string"


def test_schema_strict_makes_every_parameter_required(cli: Cli) -> None:
    done = cli("tools", "schema", "read", "--provider", "openai", "--strict")
    function = json.loads(done.stdout)[0]["function"]
    assert function["strict"] is True
    assert {"path", "offset", "limit"} < set(function["parameters"]["required"])
    assert set(function["parameters"]["required"]) == set(function["parameters"]["properties"])
    assert cli("tools", "schema", "--strict", "--provider", "google").returncode == 2


def test_call_prints_the_result_as_json(cli: Cli) -> None:
    done = cli("tools", "call", "read", '{"path": "a.txt"}')
    assert done.returncode == 0
    result = json.loads(done.stdout)
    assert result["content"] == [{"type": "text", "text": "alpha\nbeta"}]
    assert result["details"]["truncation"]["totalLines"] == 2


@pytest.mark.parametrize("args", [("call", "ls"), ("schema", "ls"), ("list",), ("explain", "ls")])
def test_programs_can_always_ask_for_json(cli: Cli, args: tuple[str, ...]) -> None:
    assert json.loads(cli("tools", *args, "--json").stdout)
    assert json.loads(cli("tools", "run", "-", "--json", stdin='{"tool": "ls"}').stdout)


def test_call_takes_parameters_from_standard_input(cli: Cli) -> None:
    done = cli("tools", "call", "read", "-", "--text", stdin='{"path": "a.txt", "limit": 1}')
    assert done.stdout.startswith("alpha\n")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("read", '{"path": "nope.txt"}'), 1, "does not exist"),
        (("read", '{"pth": "a.txt"}'), 1, "did you mean"),
        (("read", "{}"), 1, "path: missing"),
        (("read", '{"path": "../../etc/passwd"}'), 3, "outside the workspace"),
        (("nosuch", "{}"), 1, "unknown tool"),
        (("browser", '{"action": "start"}'), 1, "not available in this build"),
        (("exec", '{"command": "id", "elevated": true}'), 3, "it asks to run outside the sandbox"),
        (("read", "{path"), 2, "not JSON"),
        (("read", '{"path":' + "[" * 50_000 + "]" * 50_000 + "}"), 2, "nested too deeply"),
        (("read", '{"path":' + "[" * 200 + "]" * 200 + "}"), 1, "nested too deeply"),
    ],
)
def test_bad_calls_are_reported_plainly(
    cli: Cli, args: tuple[str, ...], code: int, words: str
) -> None:
    done = cli("tools", "call", *args)
    assert done.returncode == code
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_denied_tool_is_refused_with_exit_code_3(cli: Cli, config: Callable[[str], str]) -> None:
    file = config('{tools: {deny: ["READ"]}}')
    done = cli("tools", "call", "Read", '{"path": "a.txt"}', "--config", file)
    assert done.returncode == 3
    assert json.loads(done.stdout)["details"]["deniedReason"] == "policy"


def test_an_ask_rule_is_refused_at_once_where_no_one_can_answer(
    cli: Cli, config: Callable[[str], str]
) -> None:
    file = config('{tools: {rules: [{tool: "read", params: {path: "*.txt"}, effect: "ask"}]}}')
    done = cli("tools", "call", "read", '{"path": "a.txt"}', "--config", file)
    assert done.returncode == 3
    assert "clawkit config set" in done.stdout


def test_run_answers_line_by_line_and_continues_after_a_bad_line(cli: Cli, workspace: Path) -> None:
    calls: list[Any] = [
        {"tool": "ls", "id": 1},
        {"tool": "read", "params": {"path": "a.txt"}, "id": "two"},
        {"tool": "read", "params": {"path": "zzz"}},
        {"tool": "read", "x": 1, "id": 4},
    ]
    lines = [json.dumps(each) for each in calls]
    lines.insert(2, "{broken")
    done = cli("tools", "run", "-", stdin="\n".join(lines) + "\n")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer.get("id") for answer in answers] == [1, "two", None, None, 4]
    assert answers[1]["content"][0]["text"] == "alpha\nbeta"
    assert "line 3 is not JSON" in answers[2]["details"]["error"]
    assert done.returncode == 1
    assert cli("tools", "run", str(workspace / "missing.jsonl")).returncode == 2


def test_a_broken_configuration_exits_with_2_and_names_the_line(
    cli: Cli, config: Callable[[str], str]
) -> None:
    file = config('{\n  tools: {\n    dney: ["exec"],\n    profile: "codign",\n  },\n}')
    done = cli("tools", "list", "--config", file)
    assert done.returncode == 2
    assert f"{file}:3: tools.dney" in done.stderr
    assert "deny" in done.stderr
    assert f"{file}:4: tools.profile" in done.stderr


@pytest.mark.parametrize(
    ("line", "is_error"),
    [
        ("tools list --all --json", False),
        ("tools list --all", False),
        ("--help", False),
        ("agent -m list", False),
        ("agent --json -m list", False),
        ("agent --max-turns 3 -m list", False),
        ("chat", False),
        ("unknown-command", True),
        ("tools call none", True),
    ],
)
def test_output_that_no_one_reads_ends_the_command_quietly(
    workspace: Path, line: str, is_error: bool
) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "clawkit", *line.split()],
            input=b"list\n",
            stdout=write,
            stderr=write if is_error else subprocess.PIPE,
            cwd=workspace,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write)
    assert done.returncode == 141
    said = (done.stderr or b"").decode()
    assert not any(word in said for word in ("Traceback", "Broken pipe", "clawkit:", "Exception"))


def test_calls_show_the_remarks_on_the_policy(cli: Cli, config: Callable[[str], str]) -> None:
    file = config('{tools: {deny: ["raed"]}}')
    done = cli("tools", "call", "ls", "--text", "--config", file)
    assert done.returncode == 0
    assert "tools.deny: 'raed' matches no tool" in done.stderr


def test_the_agent_marked_as_default_is_the_default(cli: Cli, config: Callable[[str], str]) -> None:
    file = config('{agents: {list: [{id: "home", default: true, tools: {deny: ["read"]}}]}}')
    assert cli("tools", "call", "read", '{"path": "a.txt"}', "--config", file).returncode == 3
    args = ("tools", "call", "read", '{"path": "a.txt"}', "--config", file, "--agent", "main")
    assert cli(*args).returncode == 0


def test_text_of_a_failure_is_its_message(cli: Cli, config: Callable[[str], str]) -> None:
    done = cli("tools", "call", "read", '{"path": "a.tx"}', "--text")
    assert done.stderr == "'a.tx' does not exist; similar names: 'a.txt'\n"
    # This one has an object as its error.
    file = config(
        '{plugins: {entries: {lobster: {enabled: true}}}, tools: {alsoAllow: ["lobster"]}}'
    )
    done = cli("tools", "call", "lobster", '{"action": "run"}', "--text", "--config", file)
    assert done.stderr == "run requires pipeline\n"


def test_text_that_cannot_be_encoded_is_spelled_out(cli: Cli, program: Cli) -> None:
    lines = '{"tool": "read", "params": {"path": "\\ud800"}, "id": "\\ud800"}\n{"tool": "ls"}\n'
    done = cli("tools", "run", "-", stdin=lines)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[0]["id"] == "\ud800"
    assert answers[1]["details"]["total"] == 2
    done = program("tools", "call", "read", '{"path": "é"}', PYTHONIOENCODING="ascii")
    assert "does not exist" in done.stdout


def test_line_numbers_count_empty_lines_and_a_line_too_long_ends_it(cli: Cli) -> None:
    done = cli("tools", "run", "-", stdin="\n\n{bad\n")
    assert "line 3 is not JSON" in done.stdout
    done = cli("tools", "run", "-", stdin="[" * (16 * 1024 * 1024 + 5) + '\n{"tool": "ls"}\n')
    assert done.stdout.count("\n") == 1
    assert "is longer than" in done.stdout


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("tools list > /dev/full", 1, "clawkit: standard output: No space left on device\n"),
        ("tools call ls > /dev/full", 1, "clawkit: standard output: No space left on device\n"),
        ("agent -m list > /dev/full", 1, "clawkit: standard output: No space left on device\n"),
        ("agent -m x --json > /dev/full", 1, "clawkit: standard output: No space left on device\n"),
        ("config get > /dev/full", 1, "clawkit: standard output: No space left on device\n"),
        ("--help > /dev/full", 1, "clawkit: standard output: No space left on device\n"),
        ("tools list > /dev/full 2>&1", 1, ""),
        ("zzzzzz 2> /dev/full", 1, ""),
        ("tools list >&-", 0, ""),
        ("tools call ls <&- > /dev/null", 0, ""),
        ("tools run - <&-", 2, ""),
        ("tools run .", 2, "cannot read '.': Is a directory"),
        ("explain exec", 2, "Did you mean 'clawkit tools explain'?"),
        ("tolls list", 2, "Did you mean 'clawkit tools'?"),
        ("zzzzzz", 2, "Unknown command 'zzzzzz'. To send it as a message: clawkit chat zzzzzz\n"),
        ("help", 2, "Did you mean 'clawkit --help'?"),
        ("version", 2, "Did you mean 'clawkit --version'?"),
        ("gateway help", 2, "Did you mean 'clawkit gateway --help'?"),
        ("gateway logs --level x", 2, "No such option '--level'.\n"),
        ("doctor --jsn", 2, "Did you mean '--json'?"),
        ("up --nope", 2, "No such option '--nope'.\n"),
        ("tools list --workspace /nope", 2, "workspace: '/nope' is not a directory"),
        ("tools explain exec --workspace /nope", 2, "workspace: '/nope' is not a directory"),
        ("gateway status --url nope", 2, "--url: the address of a gateway must be ws://HOST:PORT"),
        ("gateway status --url ws://192.0.2.1", 2, "--url: ws://192.0.2.1 is not encrypted"),
        ("gateway health --json --url nope", 2, "--url: the address of a gateway must be"),
        ("'What is here?'", 2, "as a message: clawkit chat 'What is here?'"),
        ("--continue", 2, "It is an option of the chat: clawkit chat --continue"),
        ("--zzzzzz", 2, "No such option '--zzzzzz'.\n"),
        ("chat What is here", 2, "quote the message: clawkit chat 'What is here'"),
        ("config set tools.exec.timeoutSec -1", 2, "Before a negative number, type --, as in: --"),
        ("tools lst", 2, "Unknown command 'lst'. Did you mean 'clawkit tools list'?"),
        ("config vlidate", 2, "Did you mean 'clawkit config validate'?"),
        ("sessions lst", 2, "Did you mean 'clawkit sessions list'?"),
        ("approvals pendng", 2, "Did you mean 'clawkit approvals pending'?"),
        ("approvals allowlist ad", 2, "Did you mean 'clawkit approvals allowlist add'?"),
        (
            "tools zzzzzz",
            2,
            "Unknown command 'zzzzzz'. Use one of call, explain, list, run, schema.\n",
        ),
        ("tools call read notes.txt", 2, "Pass an object"),
    ],
)
def test_odd_streams_and_words_get_a_plain_answer(
    command: str, code: int, words: str, workspace: Path
) -> None:
    # What has no output or input to begin with has to be started like that.
    program = SLOW if "&-" in command else PROGRAM
    done = subprocess.run(
        f"{shlex.join(program)} {command}",
        shell=True,
        capture_output=True,
        text=True,
        cwd=workspace,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


def test_a_rule_about_a_directory_holds_however_it_is_spelled(
    cli: Cli, config: Callable[[str], str]
) -> None:
    file = config('{tools: {rules: [{tool: "ls", params: {path: "src/"}, effect: "deny"}]}}')
    done = cli("tools", "call", "ls", '{"path": "./src"}', "--config", file)
    assert done.returncode == 3
    explained = cli("tools", "explain", "ls", "--config", file).stdout
    assert 'tools.rules[0]: deny when {"path": "src/"}' in explained


def test_list_all_shows_why_each_tool_is_absent(cli: Cli, config: Callable[[str], str]) -> None:
    file = config('{tools: {deny: ["ls"]}}')
    shown = cli("tools", "list", "--all", "--config", file).stdout
    assert "removed: tools.deny denies it with 'ls'" in shown
    assert "not available in this build" in shown
    assert "19 in force, 1 removed by policy" in shown


def test_explain_without_a_name_explains_every_tool(cli: Cli) -> None:
    rows = json.loads(cli("tools", "explain", "--json").stdout)["tools"]
    assert len(rows) == len({row["tool"] for row in rows}) > 30
    assert "no step restricts it" in cli("tools", "explain", "read").stdout


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("ls", 3, "is not allowed here"),
        ("browser", 1, "not available"),
        ("nope", 1, "unknown tool 'nope'"),
    ],
)
def test_schema_of_a_tool_that_is_not_in_force(
    cli: Cli, config: Callable[[str], str], name: str, code: int, words: str
) -> None:
    file = config('{tools: {deny: ["ls"]}}')
    done = cli("tools", "schema", name, "--config", file)
    assert done.returncode == code
    assert words in done.stderr


def test_an_invalid_model_name_is_a_usage_error(cli: Cli) -> None:
    done = cli("tools", "list", "--model", "/x")
    assert done.returncode == 2
    assert "--model" in done.stderr


def test_debug_shows_where_it_happened(program: Cli, config: Callable[[str], str]) -> None:
    file = config("{tools: {nope: 1}}")
    assert "Traceback" in program("--debug", "tools", "list", "--config", file).stderr


def test_lines_that_are_not_calls_are_answered(cli: Cli) -> None:
    done = cli("tools", "run", "-", stdin='[1]\n{"tool": 5}\n{"params": {}}\n')
    assert done.stdout.count("must be an object like") == 6
    assert done.returncode == 1


def test_a_missing_workspace_is_a_configuration_error(cli: Cli) -> None:
    done = cli("tools", "call", "ls", "--workspace", "/surely/not/there")
    assert done.returncode == 2
    assert "is not a directory" in done.stderr


def test_a_command_is_waited_for_unless_the_call_says_otherwise(
    cli: Cli, config: Callable[[str], str]
) -> None:
    """After the call, no one could come back to it."""
    file = config(
        '{tools: {exec: {mode: "full", backgroundMs: 10}}, '
        'agents: {defaults: {sandbox: {mode: "off"}}}}'
    )
    command = {"command": "sleep 0.5; echo done"}
    args = ("--config", file)
    done = cli("tools", "call", "exec", json.dumps(command), "--text", *args)
    assert (done.stdout, done.stderr) == ("done\n", "")
    line = json.dumps({"tool": "exec", "params": command})
    done = cli("tools", "run", "-", *args, stdin=f"{line}\n")
    assert (json.loads(done.stdout)["details"]["aggregated"], done.stderr) == ("done", "")
    for more in ({"yieldMs": 10}, {"background": True}):
        done = cli("tools", "call", "exec", json.dumps({**command, **more}), *args)
        details = json.loads(done.stdout)["details"]
        assert details["status"] == "running"
        assert done.stderr.startswith(f"clawkit: stopping {details['sessionId']} (")
