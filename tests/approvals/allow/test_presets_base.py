"""What all presets have in common."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from clawkit.approvals.allow.presets import PRESETS, check
from clawkit.approvals.allow.presets.base import bare_name, options
from clawkit.approvals.base import Arg, Match, Program, Rules

DOCKER = "/usr/bin/docker"


def program(*words: str) -> Program:
    return Program(tuple(map(Arg, ("docker", *words))), DOCKER, DOCKER, "/")


def test_an_unknown_preset_is_answered_with_the_known_ones() -> None:
    why = check("gti", program("ps"), Rules())
    assert why == (
        "there is no preset 'gti'; there are git, git-read, npm, pip, python, cargo, docker"
    )
    assert isinstance(check("\u202e\n" * 1000, program("ps"), Rules()), str)


def test_every_preset_says_what_it_allows() -> None:
    for name, preset in PRESETS.items():
        assert preset.words, name
        assert preset.programs
        assert preset.words.isprintable()


@pytest.mark.parametrize("name", [*PRESETS])
def test_a_preset_is_for_its_own_programs(name: str) -> None:
    perl = Program((Arg("perl"), Arg("-v")), "/usr/bin/perl", "/usr/bin/perl", "/")
    assert "is for" in check(name, perl, Rules())
    for path in sorted(PRESETS[name].programs):
        hidden = replace(perl, resolved=f"/usr/bin/{path}")
        assert "is for" in check(name, hidden, Rules())
        assert check(name, replace(hidden, real=""), Rules()) == "the program was not found"


@pytest.mark.parametrize(
    "variable", ["PATH", "DOCKER_HOST", "LD_PRELOAD", "GIT_DIR", "LANGUAGE", "lang"]
)
def test_variables_that_could_steer_it_are_refused(variable: str) -> None:
    given = replace(program("ps"), assigned=("LANG", variable))
    assert variable in check("docker", given, Rules())


def test_variables_that_cannot_are_not() -> None:
    names = ("LANG", "LC_ALL", "TZ", "NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "CI")
    assert isinstance(check("docker", replace(program("ps"), assigned=names), Rules()), Match)


def test_what_surrounds_it_is_told_in_its_own_words() -> None:
    assert check("docker", replace(program("ps"), notes=("some words",)), Rules()) == "some words"


def test_a_directory_that_is_not_certain_is_refused() -> None:
    assert "not certain" in check("docker", replace(program("ps"), cwd=None), Rules())


@pytest.mark.parametrize("place", ["resolved", "real"])
def test_a_program_that_the_agent_can_change_is_refused(place: str, tmp_path: Path) -> None:
    path = f"{tmp_path}/docker"
    given = Program((Arg("docker"), Arg("ps")), DOCKER, DOCKER, "/")
    given = replace(given, resolved=path) if place == "resolved" else replace(given, real=path)
    rules = Rules(may_write=lambda file: file.startswith(str(tmp_path)))
    assert "can be changed" in check("docker", given, rules)
    assert isinstance(check("docker", given, Rules()), Match)


def test_a_script_is_run_by_what_the_preset_knows() -> None:
    shim = replace(program("ps"), script=("/bin/bash",))
    assert "does not know what runs it" in check("docker", shim, Rules())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["ps", "--last", "x"], "--last needs a number"),
        (["ps", "--last"], "--last needs a value, at best as --last=VALUE"),
        (["ps", "-n"], "-n needs a value, at best as -nVALUE"),
        (["ps", "-n", "-a"], "-n needs a value"),
        (["ps", "-aqX"], "-X is not among the flags of ps in the preset 'docker'"),
        (["ps", "--al"], "--al is not among the flags of ps in the preset 'docker'"),
        (["ps", "--all=x"], "--all is not among the flags"),
        (["ps", "x"], "ps in the preset 'docker' takes no more than 0 words beside its flags"),
        (["run", "x"], "run is not among what the preset 'docker' allows"),
        (["-H", "x", "ps"], "-H is not among the flags of the preset 'docker'"),
        (["--", "ps"], "-- is not among the flags of the preset 'docker'"),
        ([], "that is not among what the preset 'docker' allows"),
        (["inspect", "/etc/x"], "/etc/x is not in the workspace"),
        (["inspect", "a\0b"], "there is a NUL character in it"),
        (["inspect", "/a\0b"], "there is a NUL character in it"),
    ],
)
def test_the_reason_says_what_does_not_fit(words: list[str], why: str) -> None:
    found = check("docker", program(*words), Rules())
    assert isinstance(found, str)
    assert found.startswith(why)


@pytest.mark.parametrize(
    "words",
    [
        ["ps", "-n5"],
        ["ps", "-n", "5"],
        ["ps", "-aqn5"],
        ["ps", "--last=5"],
        ["inspect", "--", "-x"],
    ],
)
def test_values_are_attached_or_follow(words: list[str]) -> None:
    assert isinstance(check("docker", program(*words), Rules()), Match)


def test_patterns_are_refused_where_no_files_are_meant() -> None:
    for text in ("*", "a*", "./*"):
        given = program("inspect", text)
        argv = (*given.argv[:2], Arg(text, glob=True))
        assert isinstance(check("docker", replace(given, argv=argv), Rules()), str)


def test_a_description_of_a_flag_must_make_sense() -> None:
    assert dict(options("-q -n=# --x[=]", "--y=?")) == {
        "-q": "flag",
        "-n": "number",
        "--x": "attached",
        "--y": "last",
    }
    with pytest.raises(ValueError, match="describes no flag"):
        options("x")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/usr/bin/python3.11", "python"),
        ("pip3", "pip"),
        ("git", "git"),
        ("/x/npm-cli.js", "npm-cli.js"),
        ("x" * 100 + "3", "x" * 100 + "3"),
    ],
)
def test_a_version_is_no_part_of_a_name(path: str, name: str) -> None:
    assert bare_name(path) == name


def test_a_hostile_number_of_arguments_is_read_in_no_time() -> None:
    for words in (
        ["ps", *["-a"] * 20_000],
        ["inspect", *["x"] * 20_000],
        ["ps", "-" + "a" * 60_000],
    ):
        check("docker", program(*words), Rules())


def test_a_path_with_odd_characters_is_refused(tmp_path: Path) -> None:
    rules = Rules(may_read=lambda path: path.startswith(os.path.realpath(tmp_path)))
    given = replace(program("inspect", "../\udcff"), cwd=str(tmp_path))
    assert "not in the workspace" in check("docker", given, rules)
