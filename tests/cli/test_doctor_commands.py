"""What `clawkit doctor` says about commands."""

from __future__ import annotations

import os
from pathlib import Path

from clawkit.cli.checks_commands import check_commands
from clawkit.config.load import loads


def say(text: str) -> list[tuple[str, str]]:
    found = check_commands(loads(text).config)
    return [(each.level, f"{each.what} {each.do}") for each in found]


def test_whether_commands_run_is_told_with_what_to_type() -> None:
    [(level, words)] = say("{}")
    assert level == "ok"
    assert "refused" in words
    assert "clawkit config set tools.exec.mode full" in words
    [(_, words)] = say('{tools: {exec: {mode: "full"}}}')
    assert "unasked" in words


def test_directories_that_have_no_effect_are_told(tmp_path: Path) -> None:
    settings = f'{{tools: {{exec: {{pathPrepend: ["bin", "{tmp_path}/nope", "{tmp_path}"]}}}}}}'
    problems = [words for level, words in say(settings) if level == "warn"]
    assert ["'bin' is not absolute" in problems[0], "nope' is not a dir" in problems[1]] == [
        True
    ] * 2
    assert len(problems) == 2


def test_a_place_for_output_that_others_can_change_is_told() -> None:
    folder = Path(os.environ["CLAWKIT_HOME"]) / "commands"
    folder.mkdir(mode=0o700)
    assert [level for level, _ in say("{}")] == ["ok"]
    folder.chmod(0o755)
    assert [level for level, words in say("{}") if "chmod 700" in words] == ["warn"]
