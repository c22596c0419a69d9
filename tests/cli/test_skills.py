"""`clawkit skills` as a person or a program types it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.skills.writing import write_skill

from clawkit.cli.main import run
from clawkit.process import process_table


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Type = Callable[..., Done]


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], workspace: Path) -> Type:
    """Run `clawkit …` in this process, for the workspace."""

    def type_in(*args: str) -> Done:
        given = [] if "install" in args or "--config" in args else ["--workspace", str(workspace)]
        with pytest.raises(SystemExit) as end:
            run([*args, *given])
        out, err = capsys.readouterr()
        assert "unexpected" not in err
        assert isinstance(end.value.code, int)
        return Done(end.value.code, out, err)

    return type_in


@pytest.fixture
def mine() -> Path:
    return Path(os.environ["CLAWKIT_HOME"]) / "skills"


def test_the_list_shows_what_skills_cost(typed: Type, workspace: Path, mine: Path) -> None:
    assert "No skills found." in typed("skills", "list").out
    assert typed("skills", "list", "--json").json == {"skills": [], "tokens": 0}
    file = write_skill(workspace / "skills", "here")
    write_skill(mine, "there", "metadata: {openclaw: {requires: {bins: ['gone-program']}}}")
    broken = write_skill(mine, "broken", "x: &y z")
    done = typed("skills", "list")
    assert "How to here" in done.out
    assert "it needs the program gone-program" in done.out
    assert f"{broken.parent.name}/SKILL.md: line 4" in done.err
    rows = {row["name"]: row for row in typed("skills", "list", "--json").json["skills"]}
    about = "<name>here</name><description>How to here</description>"
    listed = f"<skill>{about}<location>{file}</location></skill>"
    assert rows["here"]["tokens"] == -(-len(listed) // 4)
    assert rows["there"]["tokens"] == 0
    assert f"about {rows['here']['tokens']} tokens" in done.out


def test_everything_about_a_skill_is_shown_with_hints_that_are_not_run(
    typed: Type, mine: Path
) -> None:
    hint = "install: [{id: 'i', kind: 'brew', formula: 'weather'}]"
    metadata = f"metadata: {{openclaw: {{emoji: '*', {hint}}}}}"
    file = write_skill(mine, "weather", metadata, "license: MIT", "allowed-tools: Read")
    done = typed("skills", "info", "Weather")
    assert done.code == 0
    for part in (str(file), '"formula": "weather"', "MIT", "allowed-tools  Read", "managed"):
        assert part in done.out
    assert typed("skills", "info", "weather", "--json").json["isTrusted"] is True
    missing = typed("skills", "info", "wether")
    assert missing.code == 2
    assert "did you mean 'weather'?" in missing.err


def test_the_check_explains_every_skill(typed: Type, workspace: Path, mine: Path) -> None:
    write_skill(mine, "weather")
    write_skill(mine, "Odd", folder="odd")
    assert typed("skills", "check").code == 0
    write_skill(workspace / "skills", "weather")
    done = typed("skills", "check")
    assert done.code == 1
    assert "ok     weather" in done.out
    assert "has the same name and takes precedence" in done.out
    assert "lower-case letters" in done.out
    assert "2 skills, 1 error." in done.out
    found = typed("skills", "check", "--json").json
    assert [each["name"] for each in found["skills"]] == ["weather", "Odd"]
    assert found["broken"][0]["file"] == str(mine / "weather" / "SKILL.md")


def test_one_skill_is_checked_before_it_is_installed(typed: Type, tmp_path: Path) -> None:
    file = write_skill(tmp_path, "new")
    for path in (file, file.parent):
        assert "ok     new" in typed("skills", "check", str(path)).out
    file.write_text("nothing", encoding="utf-8")
    assert typed("skills", "check", str(file)).code == 1
    file.unlink()
    empty = typed("skills", "check", str(file.parent))
    assert (empty.code, f"{file.parent} contains no SKILL.md" in empty.err) == (1, True)


def test_the_list_of_an_agent_decides(typed: Type, mine: Path) -> None:
    home = Path(os.environ["CLAWKIT_HOME"])
    config = {"agents": {"list": [{"id": "one", "skills": ["a"]}, {"id": "two", "skills": ["b"]}]}}
    (home / "clawkit.json5").write_text(json.dumps(config), encoding="utf-8")
    for name in ("a", "b"):
        write_skill(mine, name)
    for agent, expected in (("one", "a"), ("two", "b")):
        rows = typed("skills", "list", "--json", "--agent", agent).json["skills"]
        assert [row["name"] for row in rows if row["eligible"]] == [expected]


def test_installing_needs_a_person(
    typed: Type, tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_skill(tmp_path, "new").parent
    refused = typed("skills", "install", str(source))
    assert refused.code == 2
    assert "add --yes" in refused.err
    assert list(mine.iterdir()) == []
    done = typed("skills", "install", str(source), "--yes", "--json").json
    assert done["path"] == str(mine / "new")
    assert done["files"][0]["name"] == "SKILL.md"
    assert typed("skills", "install", str(source), "--yes").code == 1
    monkeypatch.setattr(process_table, "is_inside_command", lambda: True)
    assert typed("skills", "install", str(source), "--yes").code == 3


def test_missing_directories_and_unknown_skills_are_reported(typed: Type, mine: Path) -> None:
    home = Path(os.environ["CLAWKIT_HOME"])
    write_skill(mine, "fine")
    write_skill(mine, "keyed", "metadata: {openclaw: {skillKey: 'key'}}")
    entries: dict[str, Any] = {"fine": {}, "fien": {}, "key": {}, "keyed": {}}
    load = {"extraDirs": [str(mine), str(home / "gone")]}
    section = {"skills": {"load": load, "entries": entries}}
    (home / "clawkit.json5").write_text(json.dumps(section), "utf-8")
    wanted = [
        f"skills.load.extraDirs[1]: '{home / 'gone'}' is not a directory",
        "skills.entries.fien: no skill has this key. Did you mean 'fine'?",
        "skills.entries.keyed: no skill has this key",
    ]
    config = str(home / "clawkit.json5")
    for words in (("config", "validate"), ("skills", "check"), ("doctor",)):
        done = typed(*words, "--config", config) if words[0] == "config" else typed(*words)
        for each in wanted:
            assert each in done.out + done.err, words
        assert "entries.fine" not in done.out + done.err
    found = typed("skills", "check", "--json").json["issues"]
    assert [each["path"] for each in found] == [each.partition(": ")[0] for each in wanted]
    load["extraDirs"] = ["skills"]
    (home / "clawkit.json5").write_text(json.dumps(section), "utf-8")
    assert "'skills' is not an absolute path" in typed("skills", "list").err


def test_the_doctor_reports_broken_skills_and_settings_without_effect(
    typed: Type, mine: Path
) -> None:
    home = Path(os.environ["CLAWKIT_HOME"])
    entries = {"fine": {"apiKey": "x", "env": {"LD_PRELOAD": "x"}}}
    (home / "clawkit.json5").write_text(json.dumps({"skills": {"entries": entries}}), "utf-8")
    write_skill(mine, "fine")
    write_skill(mine, "broken", "x: &y z")
    found = [
        each for each in typed("doctor", "--json").json["findings"] if each["section"] == "skills"
    ]
    said = "\n".join(f"{each['level']} {each['what']}" for each in found)
    assert "ok 1 skill, 1 of them offered" in said
    assert "broken/SKILL.md: line 4" in said
    assert "skills.entries.fine.apiKey is not used" in said
    assert "skills.entries.fine.env.LD_PRELOAD is not used" in said
