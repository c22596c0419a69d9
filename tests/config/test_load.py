from __future__ import annotations

from pathlib import Path

import pytest

from clawkit.config.load import load, loads
from clawkit.config.model import Config
from clawkit.errors import ConfigError, Issue


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment whose state directory exists and is empty."""
    (tmp_path / "state").mkdir()
    return {"HOME": str(tmp_path), "CLAWKIT_HOME": str(tmp_path / "state")}


def problems(file: Path | None, env: dict[str, str]) -> list[Issue]:
    with pytest.raises(ConfigError) as caught:
        load(None if file is None else str(file), env=env)
    return list(caught.value.issues)


def test_without_a_file_the_defaults_apply(env: dict[str, str]) -> None:
    loaded = load(env=env)
    assert loaded.config == Config()
    assert loaded.file is None
    assert (loaded.text, loaded.raw, loaded.files, loaded.warnings) == ("", {}, (), [])


def test_the_file_in_the_state_directory_is_found(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "state" / "clawkit.json5"
    file.write_text("{tools: {profile: 'coding'}} // mine")
    loaded = load(env=env)
    assert loaded.config.tools.profile == "coding"
    assert loaded.file == str(file)
    assert loaded.files == (str(file),)
    assert loaded.text == "{tools: {profile: 'coding'}} // mine"
    assert loaded.raw == {"tools": {"profile": "coding"}}


def test_the_process_environment_is_used_unless_another_is_given(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in env.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("CLAWKIT_CONFIG", "")
    monkeypatch.setenv("THE_PROFILE", "minimal")
    assert load().file is None
    assert loads("{tools: {profile: '${THE_PROFILE}'}}").config.tools.profile == "minimal"


def test_a_file_that_was_named_must_exist(env: dict[str, str], tmp_path: Path) -> None:
    missing = tmp_path / "missing.json5"
    expected = [Issue("", "does not exist", str(missing))]
    assert problems(missing, env) == expected
    assert problems(None, {**env, "CLAWKIT_CONFIG": str(missing)}) == expected


def test_a_dangling_link_does_not_mean_the_defaults(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "state" / "clawkit.json5").symlink_to(tmp_path / "gone.json5")
    (issue,) = problems(None, env)
    assert issue.message == "does not exist"


def test_an_empty_file_does_not_mean_the_defaults(env: dict[str, str], tmp_path: Path) -> None:
    for text in ("", "  \n", "// all gone\n"):
        (tmp_path / "state" / "clawkit.json5").write_text(text)
        (issue,) = problems(None, env)
        assert issue.file.endswith("clawkit.json5")


@pytest.mark.parametrize(
    ("data", "message", "line"),
    [
        (b"{\n  tools: {\n    deny: [,],\n  },\n}", "expected a value", 3),
        (b"{tools: {}", "is never closed", 1),
        (b"{\n a: 1,\n a: 2 }", "already set on line 2", 3),
        (b"{\n\n a: '\xff' }", "is not UTF-8 text: byte 0xff at offset 8, on line 3", 0),
        (b"[" * 200 + b"]" * 200, "more than 128 levels", 1),
        (b" " * (2 * 1024 * 1024 + 1), "is larger than 2 MiB", 0),
    ],
)
def test_a_broken_file_is_one_clear_error(
    env: dict[str, str], tmp_path: Path, data: bytes, message: str, line: int
) -> None:
    file = tmp_path / "broken.json5"
    file.write_bytes(data)
    (issue,) = problems(file, env)
    assert message in issue.message
    assert (issue.file, issue.line) == (str(file), line)


def test_a_directory_is_refused(env: dict[str, str], tmp_path: Path) -> None:
    (issue,) = problems(tmp_path, env)
    assert str(issue) == f"{tmp_path}: is a directory, not a file"


def test_a_mistake_in_an_included_file_names_that_file(env: dict[str, str], tmp_path: Path) -> None:
    main, part = tmp_path / "main.json5", tmp_path / "part.json5"
    main.write_text(
        '{\n  tools: {\n    $include: "part.json5",\n    exec: { asc: "off" },\n  },\n}'
    )
    part.write_text('{\n  deny: [\n    "x",\n    5,\n  ],\n  exec: { hots: 1 },\n}')
    issues = problems(main, env)
    assert [(issue.file, issue.line, issue.path) for issue in issues] == [
        (str(part), 4, "tools.deny[1]"),
        (str(part), 6, "tools.exec.hots"),
        (str(main), 4, "tools.exec.asc"),
    ]


def test_broken_includes_and_wrong_settings_are_reported_together(
    env: dict[str, str], tmp_path: Path
) -> None:
    main = tmp_path / "main.json5"
    main.write_text('{\n  tools: { $include: "gone.json5" },\n  browser: 5,\n}')
    assert [issue.path for issue in problems(main, env)] == ["tools.$include", "browser"]
    main.write_text('{\n  tools: { $include: "gone.json5" },\n}')
    assert [issue.path for issue in problems(main, env)] == ["tools.$include"]


def test_lists_of_included_and_main_file_are_joined(env: dict[str, str], tmp_path: Path) -> None:
    main = tmp_path / "main.json5"
    main.write_text('{$include: "part.json5", tools: {deny: ["browser"]}}')
    (tmp_path / "part.json5").write_text('{tools: {deny: ["canvas"]}}')
    loaded = load(str(main), env=env)
    assert loaded.config.tools.deny == ["canvas", "browser"]
    assert loaded.files == (str(main), str(tmp_path / "part.json5"))


def test_includes_are_beside_the_file_the_text_is_for(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "part.json5").write_text('{profile: "coding"}')
    text = '{tools: {$include: "part.json5"}}'
    loaded = loads(text, file=str(tmp_path / "not-written-yet.json5"), env=env)
    assert loaded.config.tools.profile == "coding"
    with pytest.raises(ConfigError, match="this text was not read from a file"):
        loads(text, env=env)


def test_variables_come_from_process_then_file_then_config(
    env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "state" / ".env").write_text("FIRST=file\nSECOND=file\n")
    text = """{
  env: { FIRST: "config", SECOND: "config", vars: { THIRD: "config" } },
  tools: { allow: ["${FIRST}", "${SECOND}", "${THIRD}", "$${FIRST}"] },
}"""
    loaded = loads(text, env={**env, "FIRST": "process"})
    assert loaded.config.tools.allow == ["process", "file", "config", "${FIRST}"]
    assert loaded.raw["tools"]["allow"][0] == "${FIRST}"
    assert loaded.env["SECOND"] == "file"
    assert loaded.warnings == []


def test_an_env_file_in_the_current_directory_is_not_read(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("PLANTED=yes\n")
    monkeypatch.chdir(tmp_path)
    assert "PLANTED" not in load(env=env).env


def test_an_unset_variable_is_a_warning_with_path_and_line(env: dict[str, str]) -> None:
    text = '{\n  models: { providers: { openai: {\n    apiKey: "${NO_SUCH_KEY}",\n  } } },\n}'
    loaded = loads(text, file="<test>", env=env)
    assert [str(warning) for warning in loaded.warnings] == [
        "<test>:3: models.providers.openai.apiKey: the environment variable NO_SUCH_KEY is not "
        "set. The setting will fail when it is used"
    ]
    assert loaded.config.models.providers["openai"].api_key == "${NO_SUCH_KEY}"


def test_an_unset_variable_below_an_unused_setting_is_not_a_warning(env: dict[str, str]) -> None:
    loaded = loads('{talk: {providers: {x: {apiKey: "${NO_SUCH_KEY}"}}}}', env=env)
    assert [warning.path for warning in loaded.warnings] == ["talk"]


def test_an_unreadable_env_file_is_a_warning(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "state" / ".env").mkdir()
    expected = f"{tmp_path}/state/.env: is a directory, not a file; its variables are not used"
    assert [str(warning) for warning in load(env=env).warnings] == [expected]
    assert [str(warning) for warning in loads("{}", env=env).warnings] == [expected]


def test_text_beyond_the_size_of_a_file_is_refused(env: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="larger than"):
        loads(" " * (2 * 1024 * 1024 + 1), env=env)


def test_a_loaded_configuration_does_not_print_the_environment(env: dict[str, str]) -> None:
    assert "hunter2" not in repr(loads("{}", env={**env, "PASSWORD": "hunter2"}))
