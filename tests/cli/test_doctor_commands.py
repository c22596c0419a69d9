"""What `clawkit doctor` says about commands."""

from __future__ import annotations

import os
from pathlib import Path

from tests.tables import table

from clawkit.cli.doctor_checks import check_commands
from clawkit.config.load import loads


def say(text: str) -> list[tuple[str, str]]:
    found = check_commands(loads(text).config)
    return [(each.level, f"{each.what} {each.do}") for each in found]


@table(
    ("settings", "said"),
    [
        (
            "{}",
            "on the host, allowlisted programs run without asking, everything else needs approval",
        ),
        ('{security: "allowlist", ask: "off"}', "everything else is refused"),
        ('{ask: "always"}', "every command needs approval"),
        ('{mode: "full"}', "every command runs without asking, with your permissions"),
        ('{security: "full", ask: "on-miss"}', "every command runs without asking"),
        ('{security: "deny"}', "clawkit config set tools.exec.security allowlist"),
    ],
)
def test_the_doctor_reports_which_commands_run(settings: str, said: str) -> None:
    found = say(f"{{tools: {{exec: {settings}}}}}")
    assert [level for level, _ in found] == ["ok"]
    assert said in found[0][1]
    assert "tools.exec." in found[0][1]


def test_the_settings_of_the_agent_and_the_document_count_too() -> None:
    text = '{agents: {list: [{id: "a", default: true, tools: {exec: {ask: "always"}}}]}}'
    assert "every command needs approval" in say(text)[0][1]
    document = Path(os.environ["CLAWKIT_HOME"]) / "exec-approvals.json"
    document.write_text('{"version": 1, "defaults": {"security": "deny"}}', encoding="utf-8")
    assert "no command may run" in say("{}")[0][1]
    assert str(document) in say("{}")[0][1]
    document.write_text("{", encoding="utf-8")
    assert [level for level, _ in say("{}")] == ["error"]
    assert "every command is refused" in say("{}")[0][1]


def test_invalid_safe_programs_are_reported() -> None:
    problems = [words for level, words in say('{tools: {exec: {safeBins: ["head", "python3"]}}}')]
    assert [words for words in problems if "python3" in words]


def test_directories_without_effect_are_reported(tmp_path: Path) -> None:
    settings = f'{{tools: {{exec: {{pathPrepend: ["bin", "{tmp_path}/nope", "{tmp_path}"]}}}}}}'
    problems = [words for level, words in say(settings) if level == "warn"]
    assert ["'bin' is not absolute" in problems[0], "nope' is not a dir" in problems[1]] == [
        True
    ] * 2
    assert len(problems) == 2


def test_an_output_directory_that_others_can_change_is_reported() -> None:
    folder = Path(os.environ["CLAWKIT_HOME"]) / "commands"
    folder.mkdir(mode=0o700)
    assert [level for level, _ in say("{}")] == ["ok"]
    folder.chmod(0o755)
    assert [level for level, words in say("{}") if "chmod 700" in words] == ["warn"]
