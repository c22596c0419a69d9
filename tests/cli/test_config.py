"""`clawkit config` as a person or a program types it."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs
import pytest

from clawkit.cli.main import run
from clawkit.config.json5 import parse, parse_path
from clawkit.config.lookup import value_at

TEXT = """\
{
  // how careful to be
  tools: { exec: { ask: "always" } },
  gateway: { auth: { token: "hunter2" } },
}
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Config = Callable[..., Done]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clawkit.json5"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def config(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Config:
    """Run `clawkit config ...` on the file, in this process."""

    def type_in(*args: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        where = [] if args[0] == "schema" else ["--config", str(file)]
        with pytest.raises(SystemExit) as end:
            run(["config", args[0], *where, *args[1:]])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert isinstance(end.value.code, int)
        return Done(end.value.code, out, err)

    return type_in


def content(file: Path) -> Any:
    return parse(file.read_text(encoding="utf-8")).value


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("tools.exec.ask", "always\n"),
        ("tools.exec", '{\n  "ask": "always"\n}\n'),
        ('tools["exec"][ask]', "always\n"),
        ("gateway.auth.token", "***\n"),
    ],
)
def test_get_prints_a_setting(config: Config, path: str, shown: str) -> None:
    assert config("get", path) == (0, shown, "")


def test_get_without_a_path_prints_everything_but_secrets(config: Config) -> None:
    done = config("get")
    assert done.json == {
        "tools": {"exec": {"ask": "always"}},
        "gateway": {"auth": {"token": "***"}},
    }


def test_get_as_json_quotes_text(config: Config) -> None:
    assert config("get", "tools.exec.ask", "--json").out == '"always"\n'


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("tools.exec.host", """is not set; the default is "auto"\n"""),
        ("gateway.port", "is not set; the default is 18789\n"),
        ("tools.exec.node", "'tools.exec.node' is not set. "),
        ("tools.exec.security", ". What may run; unset is allowlist outside the sandbox.\n"),
        ("browser", "'browser' is not set; the default is {}\n"),
        ("env.vars.NAME", "'env.vars.NAME' is not set. It has no default.\n"),
        ("tools.exec.hots", "unknown setting 'tools.exec.hots'. Did you mean"),
        ("tols.profile", "unknown setting 'tols.profile'. Did you mean 'tools.profile'?\n"),
        ("tols.exec.hots", "Did you mean 'tools.exec.host'?\n"),
        ("tols.zzzzzz", "unknown setting 'tols.zzzzzz'. Settings in 'tools': "),
        ("agents.list[3].name", "'agents.list[3].name' is not set. "),
        ("agents.list[3].sandbox", "'agents.list[3].sandbox' is not set. "),
    ],
)
def test_get_distinguishes_unset_from_unknown_settings(
    config: Config, path: str, words: str
) -> None:
    done = config("get", path)
    assert (done.code, done.out) == (1, "")
    assert words in done.err


@pytest.mark.parametrize(
    ("path", "documented", "default"),
    [
        ("gateway.port", "gateway.port", 18789),
        ("tools.exec.timeout_sec", "tools.exec.timeoutSec", 1800),
        ("tools.deny", "tools.deny", None),
        ("browser", "browser", {}),
    ],
)
def test_get_as_json_says_what_is_not_set_and_its_default(
    config: Config, path: str, documented: str, default: object
) -> None:
    done = config("get", path, "--json")
    assert (done.code, done.err) == (1, "")
    assert done.json == {"path": documented, "set": False, "default": default}
    unknown = config("get", "tools.exec.hots", "--json")
    assert (unknown.code, unknown.out) == (1, "")


def test_get_finds_a_setting_by_any_of_its_names(config: Config, file: Path) -> None:
    file.write_text("{ tools: { exec: { timeout_sec: 20 } } }", encoding="utf-8")
    assert config("get", "tools.exec.timeoutSeconds").out == "20\n"


def test_get_works_on_a_file_with_errors(config: Config, file: Path) -> None:
    file.write_text("{ tolls: 1, tools: { profile: 'full' } }", encoding="utf-8")
    assert config("get", "tools.profile").out == "full\n"
    assert config("get", "tolls").out == "1\n"
    assert config("get", "tools.exec.host")[::2] == (
        1,
        """clawkit: 'tools.exec.host' is not set; the default is "auto"\n""",
    )


def test_get_joins_included_files(config: Config, file: Path) -> None:
    (file.parent / "tools.json5").write_text("{ profile: 'full' }", encoding="utf-8")
    file.write_text("{ tools: { $include: './tools.json5' } }", encoding="utf-8")
    assert config("get", "tools.profile").out == "full\n"


def test_get_warns_about_a_missing_include(config: Config, file: Path) -> None:
    file.write_text("{ tools: { $include: './none.json5', profile: 'full' } }", encoding="utf-8")
    done = config("get", "tools.profile")
    assert (done.code, done.out) == (0, "full\n")
    assert "cannot include" in done.err


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("agents.defaults.model", "foo"),
        ("agents.defaults.model.fallbacks", '["foo"]'),
        ("agents.defaults.subagents.model", "foo"),
        ("agents.defaults.subagents.model.primary", "foo"),
        ("agents.entries.a.subagents.model.fallbacks", '["foo"]'),
    ],
)
def test_a_model_that_does_not_exist_is_a_warning(config: Config, path: str, value: str) -> None:
    words = f"{path}{'[0]' * value.startswith('[')}: unknown model or alias 'foo'. Write it as"
    assert words in config("set", path, value).err
    done = config("validate")
    assert (done.code, words in done.err) == (0, True)
    shown = config("set", path, value, "--json").json["warnings"]
    assert [each["message"] for each in shown] == ["unknown model or alias 'foo'"]
    assert "unknown model" not in config("set", "tools.profile", "coding").err
    assert "unknown model" not in config("unset", path).err


def test_entries_that_match_no_tool_are_reported_when_written_and_validated(config: Config) -> None:
    words = "warning: tools.deny: 'exce' matches no tool; did you mean 'exec'?"
    assert words in config("set", "tools.deny", '["exce"]').err
    assert words in config("validate").err
    [shown] = json.loads(config("set", "tools.deny", '["exce"]', "--json").out)["warnings"]
    assert (shown["path"], "matches no tool" in shown["message"]) == ("tools.deny", True)
    [ignored] = json.loads(config("set", "tools.allow", '["raed"]', "--json").out)["warnings"][2:]
    assert ignored["message"].startswith("tools.allow is ignored: ")
    assert "no tool" not in config("set", "models.mode", "merge").err


def test_a_file_to_validate_is_an_option(config: Config) -> None:
    done = config("validate", "my file.json5")
    assert done.code == 2
    assert "to check another file: --config 'my file.json5'" in done.err


def test_an_invalid_path_is_wrong_usage(config: Config) -> None:
    done = config("get", "tools..exec")
    assert done.code == 2
    assert "character 6" in done.err


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("tools.profile", "full", "full"),
        ("tools.deny", "['exec', 'read',]", ["exec", "read"]),
        ("tools.exec.timeoutSec", "60", 60),
        ("tools.fs.workspaceOnly", "false", False),
        ("messages.responsePrefix", "[bot]", "[bot]"),
        ("messages.responsePrefix", "12", "12"),
        ("messages.responsePrefix", "true", "true"),
        ("messages.responsePrefix", "'quoted'", "quoted"),
        ("plugins.entries.x.config.any", "12", 12),
        ("env.vars.PORT", "80", "80"),
        ("gateway.port", "${HOME_PORT}", "${HOME_PORT}"),
        ('agents.defaults.models["a/b.c"].alias', "abc", "abc"),
    ],
)
def test_set_reads_the_value_as_the_setting_takes_it(
    config: Config,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    value: str,
    expected: Any,
) -> None:
    monkeypatch.setenv("HOME_PORT", "8080")
    assert config("set", path, value).code == 0
    assert value_at(content(file), parse_path(path)) == expected


def test_set_shows_the_changed_lines_and_the_backup(config: Config, file: Path) -> None:
    done = config("set", "tools.exec.ask", "off")
    assert '-  tools: { exec: { ask: "always" } },' in done.out
    assert '+  tools: { exec: { ask: "off" } },' in done.out
    assert f"{file}.bak" in done.err
    assert "\x1b" not in done.out
    assert "// how careful to be" in file.read_text(encoding="utf-8")


def test_what_is_shown_of_arguments_comments_and_mistakes_holds_no_secret(
    config: Config, file: Path
) -> None:
    file.write_text(
        "{\n  // old password: hunter2\n  gateway: { port: 1 },\n"
        '  mcp: { servers: { x: { command: "y", args: ["--token", "hunter2"] } } },\n}\n',
        encoding="utf-8",
    )
    assert config("get", "mcp.servers.x.args").json == ["--token", "***"]
    done = config("set", "gateway.port", "2")
    assert "old password: ***" in done.out
    assert "hunter2" not in done.out + done.err
    file.write_text("{ gateway: { auth: { token: hunter2 } } }", encoding="utf-8")
    done = config("validate")
    assert done.code == 2
    assert "invalid value: text needs quotes" in done.err
    assert "hunter2" not in done.out + done.err


def test_set_never_shows_a_secret(config: Config, file: Path) -> None:
    for arguments in (
        ("gateway.auth.token", "s3cret-words"),
        ("gateway.auth.token", "s3cret-words", "--strict-json"),
        ("gateway.auth.token", "{s3cret-words}"),
        ("gateway.auth", '{token: ["s3cret-words"]}'),
        ("channels.irc.password", "s3cret-words"),
        ("gateway.auth.token", "s3cret-words", "--json"),
    ):
        done = config("set", *arguments)
        assert "s3cret" not in done.out + done.err, arguments
    assert content(file)["channels"]["irc"]["password"] == "s3cret-words"


@pytest.mark.parametrize("value", ["text", "{a: 1}", "['x']", "0x10", "{}//", "NaN", ""])
def test_strict_json_takes_nothing_else(config: Config, file: Path, value: str) -> None:
    done = config("set", "plugins.entries.x.config.y", value, "--strict-json")
    assert done.code == 2
    assert file.read_text(encoding="utf-8") == TEXT


def test_strict_json_takes_json(config: Config, file: Path) -> None:
    assert config("set", "tools.profile", '"full"', "--strict-json").code == 0
    assert content(file)["tools"]["profile"] == "full"


def test_an_object_that_is_not_json5_is_not_taken_for_text(config: Config, file: Path) -> None:
    done = config("set", "tools.exec", "{ask: }")
    assert done.code == 2
    assert "VALUE is not JSON5: line 1, column 7" in done.err


def test_set_refuses_to_lose_settings(config: Config, file: Path) -> None:
    done = config("set", "tools.exec", "{host: 'auto'}")
    assert done.code == 2
    assert "would remove tools.exec.ask" in done.err
    assert file.read_text(encoding="utf-8") == TEXT
    assert config("set", "tools.exec", "{host: 'auto'}", "--merge").code == 0
    assert content(file)["tools"]["exec"] == {"ask": "always", "host": "auto"}
    assert config("set", "tools.exec", "{host: 'node'}", "--replace").code == 0
    assert content(file)["tools"]["exec"] == {"host": "node"}
    assert config("set", "tools.exec", "{}", "--replace", "--merge").code == 2


def test_a_dry_run_shows_and_writes_nothing(config: Config, file: Path) -> None:
    done = config("set", "tools.exec.ask", "off", "--dry-run")
    assert done.code == 0
    assert '+  tools: { exec: { ask: "off" } },' in done.out
    assert "nothing was written" in done.err
    assert config("set", "tools.exec.ask", "never", "--dry-run").code == 2
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_a_change_as_json(config: Config, file: Path) -> None:
    done = config("set", "tools.profile", "full", "--json").json
    assert done["file"] == str(file)
    assert (done["changed"], done["written"], done["backup"]) == (True, True, f"{file}.bak")
    assert done["diff"][0] == f"--- {file}"
    again = config("set", "tools.profile", "full", "--json").json
    assert (again["changed"], again["written"], again["diff"]) == (False, False, [])


def test_earlier_problems_are_reported_after_a_change(config: Config, file: Path) -> None:
    file.write_text("{ tolls: 1 }", encoding="utf-8")
    done = config("set", "tools.profile", "full")
    assert done.code == 0
    assert "still invalid" in done.err
    assert "tolls: unknown setting" in done.err


def test_setting_the_same_value_again_changes_nothing(config: Config, file: Path) -> None:
    assert "already has these settings" in config("set", "tools.exec.ask", "always").err
    assert not os.path.exists(f"{file}.bak")


def test_unset_takes_a_setting_out(config: Config, file: Path) -> None:
    assert config("unset", "tools.exec.ask").code == 0
    assert content(file)["tools"]["exec"] == {}
    done = config("unset", "tools.exec.ask")
    assert done.code == 2
    assert "'tools.exec.ask' is not set" in done.err


def test_unset_takes_most_of_a_file_only_by_force(config: Config, file: Path) -> None:
    file.write_text("{ env: { vars: { A: '" + "x" * 600 + "' } } }", encoding="utf-8")
    assert "would shrink the file" in config("unset", "env").err
    assert config("unset", "env", "--force").code == 0


def test_a_patch_from_standard_input(config: Config, file: Path) -> None:
    done = config("patch", "-", stdin=b"{tools: {exec: {ask: null, host: 'auto'}}} // so")
    assert done.code == 0
    assert content(file)["tools"] == {"exec": {"host": "auto"}}
    assert config("patch", stdin=b"{tools: null}").code == 0
    assert "tools" not in content(file)


def test_a_patch_from_a_file(config: Config, file: Path, tmp_path: Path) -> None:
    patch = tmp_path / "patch.json5"
    patch.write_text("\ufeff{gateway: {port: 81}}", encoding="utf-8")
    assert config("patch", "--file", str(patch)).code == 0
    assert content(file)["gateway"]["port"] == 81


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (b"[1]", "must be an object"),
        (b"{tools: ", "is not JSON5: line 1"),
        (b"", "is not JSON5"),
        (b"{tools: '\xff'}", "not UTF-8"),
        (b"{a: '" + b"x" * 1024 * 1024 + b"'}", "larger than 1 MiB"),
        (b"{tools: 'gone'}", "would remove tools.exec"),
        (b"{tolls: 1}", "tolls: unknown setting"),
        (b"{tools: {__proto__: 1}}", "'__proto__' is not allowed"),
        (b"[" * 5000, "levels of nesting"),
    ],
)
def test_a_bad_patch_changes_nothing(config: Config, file: Path, patch: bytes, words: str) -> None:
    done = config("patch", "-", stdin=patch)
    assert done.code == 2
    assert words in done.err
    assert file.read_text(encoding="utf-8") == TEXT


def test_a_patch_file_that_cannot_be_read(config: Config, tmp_path: Path) -> None:
    assert "No such file" in config("patch", "--file", str(tmp_path / "none")).err
    assert "directory" in config("patch", "--file", str(tmp_path)).err
    huge = tmp_path / "huge"
    with huge.open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)
    assert "larger than 8 MiB" in config("patch", "--file", str(huge)).err
    assert "not both" in config("patch", "-", "--file", str(huge)).err


def test_the_schema_accepts_what_is_valid_and_describes_it(config: Config) -> None:
    schema = config("schema").json
    check = jsonschema_rs.validator_for(schema)
    assert check.is_valid(parse(TEXT).value)
    assert not check.is_valid({"tools": {"exec": {"ask": "never"}}})
    assert '"description"' in json.dumps(schema)


def test_validate_accepts_a_valid_file(config: Config, file: Path) -> None:
    assert config("validate").out == f"{file}: valid\n"
    assert config("validate", "--json").json["ok"] is True


def test_validate_names_every_mistake_with_its_line(config: Config, file: Path) -> None:
    file.write_text("{\n  tolls: 1,\n  gateway: { port: 0 },\n}", encoding="utf-8")
    done = config("validate")
    assert done.code == 2
    assert f"{file}:2: tolls: unknown setting. Did you mean 'tools'?" in done.err
    assert f"{file}:3: gateway.port: expected" in done.err
    told = config("validate", "--json")
    assert told.code == 2
    assert [issue["line"] for issue in told.json["issues"]] == [2, 3]


def test_validate_shows_warnings(config: Config, file: Path) -> None:
    file.write_text('{ hooks: { token: "${NOT_SET}" } }', encoding="utf-8")
    done = config("validate")
    assert done.code == 0
    assert "NOT_SET is not set" in done.err
    assert config("validate", "--json").json["warnings"][0]["path"] == "hooks.token"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "{plugins: {entries: {duckduckgo: {config: {webSearch: {safeSerch: 'off'}}}}}}",
            "plugins.entries.duckduckgo.config.webSearch.safeSerch: unknown setting. "
            "Did you mean 'safeSearch'?",
        ),
        (
            "{plugins: {entries: {exa: {config: {webSearch: {apiKey: 'k', type: 'slow'}}}}}}",
            "plugins.entries.exa.config.webSearch.type: use one of auto, neural",
        ),
        (
            "{plugins: {entries: {exa: {config: {webSearch: {apiKey: 7}}}}}}",
            "plugins.entries.exa.config.webSearch.apiKey: must be a string or a secret reference",
        ),
        (
            "{memory: {search: {provider: 'opnai'}}}",
            "memory.search.provider: unknown embedding provider 'opnai'. Did you mean 'openai'?",
        ),
        (
            "{agents: {entries: {a: {memorySearch: {fallback: 'nobody'}}}}}",
            "memory.search.fallback: unknown embedding provider 'nobody'. Known are: openai, ",
        ),
        (
            "{memory: {search: {provider: 'local', fallback: 'lab'}},"
            " models: {providers: {lab: {baseUrl: 'http://127.0.0.1:9/v1'}}}}",
            "memory.search.fallback: 'lab' has no default model",
        ),
    ],
)
def test_validate_warns_about_search_services_and_embedding_providers(
    config: Config, file: Path, text: str, words: str
) -> None:
    file.write_text(text, encoding="utf-8")
    done = config("validate")
    assert (done.code, done.err.count("warning: "), words in done.err) == (0, 1, True), done.err


def test_validate_leaves_embeddings_that_are_not_used_or_come_from_a_plugin(
    config: Config, file: Path
) -> None:
    for search in ("enabled: false, provider: 'opnai'", "provider: 'plugin'", "provider: 'auto'"):
        file.write_text(f"{{memory: {{search: {{{search}}}}}}}", encoding="utf-8")
        assert config("validate").err == ""


def test_validate_suggests_a_search_service(config: Config, file: Path) -> None:
    file.write_text("{tools: {web: {search: {provider: 'brvae'}}}}", encoding="utf-8")
    done = config("validate")
    assert (done.code, "'brvae'. Did you mean 'brave'?" in done.err) == (2, True)


def test_validate_warns_once_about_a_section_without_effect(config: Config, file: Path) -> None:
    file.write_text("{ browser: { enabled: true, headless: true } }", encoding="utf-8")
    done = config("validate")
    assert done.code == 0
    warning = f"{file}: browser: this section has no effect in this version of clawkit"
    assert done.err.count("warning: ") == 1
    assert warning in done.err
    [told] = config("validate", "--json").json["warnings"]
    assert told["path"] == "browser"


def test_file_names_the_file_and_whether_it_is_there(config: Config, file: Path) -> None:
    assert config("file") == (0, f"{file}\n", "")
    file.unlink()
    done = config("file")
    assert done.out == f"{file}\n"
    assert "does not exist yet" in done.err
    assert config("file", "--json").json == {"file": str(file), "exists": False}


def test_a_missing_named_file_is_an_error(config: Config, file: Path) -> None:
    file.unlink()
    assert "does not exist" in config("get").err
    assert "does not exist" in config("validate").err
    assert config("set", "tools.profile", "full").code == 0
    assert content(file) == {"tools": {"profile": "full"}}


def _broken(path: Path) -> None:
    path.write_text("{ tools: [ }", encoding="utf-8")


def _directory(path: Path) -> None:
    path.mkdir()


def _huge(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(100 * 1024 * 1024)


def _recursive(path: Path) -> None:
    path.write_text(f"{{ tools: {{ $include: './{path.name}' }} }}", encoding="utf-8")


def _latin1(path: Path) -> None:
    path.write_bytes(b"{ tools: { profile: 'f\xfcll' } }")


def _device(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_broken, ":1: "),
        (_directory, "is a directory"),
        (_huge, "larger than 2 MiB"),
        (_recursive, "includes itself"),
        (_latin1, "byte 0xfc"),
        (_device, "not a regular file"),
    ],
)
def test_bad_files_are_reported_in_plain_words(
    config: Config, file: Path, make: Callable[[Path], None], words: str
) -> None:
    file.unlink()
    make(file)
    before = file.lstat()
    assert words in config("validate").err
    for command in (("set", "tools.fs.workspaceOnly", "1"), ("unset", "tools.x"), ("validate",)):
        done = config(*command)
        assert done.code == 2
        assert "unexpected" not in done.err
    assert (file.lstat().st_mode, file.lstat().st_size) == (before.st_mode, before.st_size)


def test_a_patch_is_not_an_argument(config: Config) -> None:
    done = config("patch", "{tools: null}")
    assert (done.code, done.out) == (2, "")
    assert "pass the patch on standard input (-) or with --file" in done.err
