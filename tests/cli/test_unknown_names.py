"""Unknown names on the command line are usage errors, and end every command alike."""

from __future__ import annotations

import shlex

import pytest

from clawkit.cli.main import run


@pytest.mark.parametrize(
    "line",
    [
        "nope",
        "agent -m x --model nope",
        "agent -m x --model nope/x",
        "agents remove nope",
        "approvals allowlist add --preset nope",
        "approvals allowlist remove nope",
        "approvals resolve 0000 deny",
        "approvals resolve nope deny",
        "config set nope 1",
        "config unset nope",
        "configure nope",
        "cron edit nope --name x",
        "cron remove nope",
        "cron run nope",
        "cron runs nope",
        "cron show nope",
        "heartbeat run --agent nope",
        "mcp login nope",
        "mcp show nope",
        "memory forget nope",
        "memory search x --agent nope",
        "memory show nope",
        "models list --provider nope",
        "models set nope",
        "models set nope/x",
        "models set clawkit/operator --agent nope",
        "plugins disable nope",
        "plugins enable nope",
        "plugins info nope",
        "sandbox recreate nope --yes",
        "sandbox recreate --agent nope --yes",
        "sandbox recreate --session nope --yes",
        "sessions delete nope --yes",
        "sessions export nope",
        "sessions list --agent nope",
        "sessions rename nope x",
        "sessions send nope x",
        "sessions show nope",
        "sessions tree nope",
        "skills info nope",
        "skills install nope",
        "wake --session nope hi",
    ],
)
@pytest.mark.usefixtures("workspace")
def test_an_unknown_name_is_a_usage_error(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(shlex.split(line))
    shown = capsys.readouterr()
    assert (end.value.code, shown.out) == (2, ""), shown.err
    assert "nope" in shown.err or "0000" in shown.err
    assert "No such" not in shown.err, "the test is wrong"
    assert "Unknown command" not in shown.err or line == "nope", "the test is wrong"


@pytest.mark.parametrize(
    "line",
    ["config get nope", "kill nope", "logs nope", "tools explain nope", "tools schema nope"],
)
@pytest.mark.usefixtures("workspace")
def test_missing_objects_have_the_exit_code_of_a_failure(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        run(shlex.split(line))
    assert (end.value.code, "nope" in capsys.readouterr().err) == (1, True)


def test_a_call_of_an_unknown_tool_has_a_result_like_any_other_failure(
    capsys: pytest.CaptureFixture[str], workspace: object
) -> None:
    with pytest.raises(SystemExit) as end:
        run(["tools", "call", "nope"])
    assert end.value.code == 1
    assert "unknown tool 'nope'" in capsys.readouterr().out
