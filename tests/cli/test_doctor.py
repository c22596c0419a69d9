"""`clawkit doctor`: problems, and the commands that fix them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cli.asking import PROGRAM

from clawkit.cli.doctor_checks import MAX_AGENTS, is_own
from clawkit.cli.main import run
from clawkit.installation import how_to_add
from clawkit.web.search.table import PROVIDERS as SEARCH_PROVIDERS

OLD = """\
{
  // senders
  tools: { toolsBySender: { bob: { deny: ["exec"] } } },
  browser: { profiles: { work: { driver: "clawd" } } }, // mine
}
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def found(self, section: str, level: str) -> list[dict[str, str]]:
        wanted = (section, level)
        return [
            each for each in self.json["findings"] if (each["section"], each["level"]) == wanted
        ]


Doctor = Callable[..., Done]


@pytest.fixture
def home() -> Path:
    return Path(os.environ["CLAWKIT_HOME"])


@pytest.fixture
def file(home: Path) -> Path:
    return home / "clawkit.json5"


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    def type_in(*args: str) -> Done:
        with pytest.raises(SystemExit) as end:
            run(["doctor", *args])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert isinstance(end.value.code, int)
        return Done(end.value.code, out, err)

    return type_in


def write(file: Path, text: str, mode: int = 0o600) -> None:
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)


def test_without_a_file_all_is_well(
    doctor: Doctor, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    done = doctor()
    assert done.code == 0
    assert "so the defaults apply" in done.out
    assert "0 errors, 0 warnings." in done.out
    assert not file.exists()


def test_without_a_home_all_is_well(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWKIT_HOME", str(tmp_path / "none"))
    done = doctor("--fix")
    assert done.code == 0
    assert "it is created when needed" in done.out
    assert "Nothing to fix." in done.out
    assert not (tmp_path / "none").exists()


def test_errors_are_reported_with_their_line_and_exit_code_2(doctor: Doctor, file: Path) -> None:
    write(file, "{\n  tolls: 1,\n  gateway: { port: 'x' },\n}")
    done = doctor("--json")
    assert done.code == 2
    assert done.json["configValid"] is False
    errors = done.found("config", "error")
    assert [each["do"] for each in errors] == [f"edit {file}, line 2", f"edit {file}, line 3"]
    assert "Did you mean 'tools'?" in errors[0]["what"]


@pytest.mark.parametrize(
    "data",
    [b"{ tools: [ }", b"", b"\xff\xfe", b"[]", b"{ tools: { $include: './clawkit.json5' } }"],
)
def test_the_doctor_runs_with_a_broken_file(doctor: Doctor, file: Path, data: bytes) -> None:
    file.write_bytes(data)
    file.chmod(0o600)
    for args in ((), ("--fix",), ("--json",)):
        done = doctor(*args)
        assert done.code == 2
        assert "unexpected" not in done.err
    assert file.read_bytes() == data


def test_a_configuration_that_cannot_be_read(doctor: Doctor, file: Path) -> None:
    file.symlink_to(file.name)  # root could read a file without permissions
    done = doctor("--json")
    assert done.code == 2
    (found,) = done.found("config", "error")
    assert "cannot be read" in found["what"]
    assert found["do"] == f"make it readable: ls -l {file}"


def test_a_directory_as_configuration(doctor: Doctor, file: Path) -> None:
    file.mkdir()
    done = doctor("--fix")
    assert done.code == 2
    assert "is a directory" in done.out


def test_a_missing_named_file_is_an_error(doctor: Doctor, tmp_path: Path) -> None:
    done = doctor("--config", str(tmp_path / "none.json5"))
    assert done.code == 2
    assert "does not exist" in done.out
    assert "→ name an existing file with --config or CLAWKIT_CONFIG" in done.out


def test_sections_without_effect_are_named_once(doctor: Doctor, file: Path) -> None:
    write(file, '{ tts: { auto: "always", timeoutMs: 1000 } }')
    warnings = [each["what"] for each in doctor("--json").found("config", "warn")]
    assert [each for each in warnings if each.startswith("tts: ")] == [
        "tts: this section has no effect in this version of clawkit"
    ]


def test_warnings_of_the_file_are_passed_on(doctor: Doctor, file: Path) -> None:
    write(file, '{ hooks: { token: "${NOT_SET}" } }')
    done = doctor("--json")
    assert "NOT_SET is not set" in done.found("config", "warn")[0]["what"]


def test_old_spellings_are_reported(doctor: Doctor, file: Path) -> None:
    write(file, OLD)
    done = doctor("--json")
    assert done.code == 0
    useless, *old = done.found("config", "warn")
    assert useless["what"].startswith("browser: this section has no effect")
    assert [each["do"] for each in old] == ["clawkit doctor --fix"] * 2
    assert file.read_text(encoding="utf-8") == OLD


def test_fix_shows_the_diff_and_then_does_it(doctor: Doctor, file: Path) -> None:
    write(file, OLD)
    done = doctor("--fix")
    assert done.code == 0
    new = OLD.replace("bob", '"id:bob"').replace("clawd", "openclaw")
    assert file.read_text(encoding="utf-8") == new
    assert Path(f"{file}.bak").read_text(encoding="utf-8") == OLD
    assert done.out.index('+  browser: { profiles: { work: { driver: "openclaw"') < done.out.index(
        f"done: update {file}; the previous file is {file}.bak"
    )
    assert "old spelling" not in done.out


def test_fixing_twice_is_fixing_once(doctor: Doctor, file: Path) -> None:
    write(file, OLD)
    doctor("--fix")
    before = file.stat().st_ino
    done = doctor("--fix")
    assert "Nothing to fix." in done.out
    assert file.stat().st_ino == before


def test_a_dry_run_shows_what_fix_would_do(doctor: Doctor, file: Path) -> None:
    write(file, OLD, 0o644)
    done = doctor("--dry-run")
    assert "would do: update" in done.out
    assert "would do: chmod 600" in done.out
    assert file.read_text(encoding="utf-8") == OLD
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_fix_as_json(doctor: Doctor, file: Path) -> None:
    write(file, OLD)
    done = doctor("--fix", "--json").json
    assert done["fixed"] == [f"update {file}; the previous file is {file}.bak"]
    assert any(line.startswith("+") for line in done["diff"])
    assert done["ok"] is True


def test_fix_repairs_old_spellings_in_a_file_with_other_errors(doctor: Doctor, file: Path) -> None:
    write(file, OLD.replace("{\n", "{\n  tolls: 1,\n", 1))
    done = doctor("--fix")
    assert done.code == 2
    assert "openclaw" in file.read_text(encoding="utf-8")


def test_fix_respects_a_read_only_configuration(
    doctor: Doctor, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWKIT_CONFIG_READONLY", "1")
    write(file, OLD)
    done = doctor("--fix")
    assert done.code == 1
    assert "not done: the configuration is read-only" in done.out
    assert file.read_text(encoding="utf-8") == OLD


def test_old_spellings_in_an_included_file_are_for_a_person(doctor: Doctor, file: Path) -> None:
    included = file.parent / "browser.json5"
    write(included, '{\n  profiles: { work: { driver: "clawd" } } }')
    write(file, '{ browser: { $include: "./browser.json5" } }')
    done = doctor("--fix", "--json")
    useless, *old = done.found("config", "warn")
    assert useless["what"].startswith("browser: this section has no effect")
    assert [each["do"] for each in old] == [f"edit {included}, line 2"]
    assert "clawd" in included.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("number", "said"), [(50, "30 more old spellings"), (21, "1 more old spelling")]
)
def test_many_old_spellings_are_counted(doctor: Doctor, file: Path, number: int, said: str) -> None:
    senders = ", ".join(f'"{each}": {{}}' for each in range(number))
    write(file, f"{{ tools: {{ toolsBySender: {{ {senders} }} }} }}")
    assert f"{said}\n" in doctor().out


@pytest.mark.parametrize(
    ("mode", "level"), [(0o644, "warn"), (0o640, "warn"), (0o666, "error"), (0o620, "error")]
)
def test_files_that_others_get_at_are_closed(
    doctor: Doctor, file: Path, mode: int, level: str
) -> None:
    write(file, "{}", mode)
    env_file = file.parent / ".env"
    write(env_file, "TOKEN=x\n", mode)
    done = doctor("--json")
    found = done.found("home", level)
    assert [each["do"] for each in found] == [f"chmod 600 {file}", f"chmod 600 {env_file}"]
    assert done.code == (1 if level == "error" else 0)
    fixed = doctor("--fix")
    assert fixed.code == 0
    assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE(env_file.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize(("mode", "level"), [(0o755, "warn"), (0o770, "error"), (0o700, "ok")])
def test_a_home_that_others_get_at_is_closed(
    doctor: Doctor, home: Path, mode: int, level: str
) -> None:
    (home / "mcp").mkdir(mode=0o700)
    home.chmod(mode)
    assert doctor("--json").found("home", level)
    assert doctor("--fix").code == 0
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_a_home_that_is_a_file(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "home"
    place.write_text("", encoding="utf-8")
    place.chmod(0o644)
    monkeypatch.setenv("CLAWKIT_HOME", str(place))
    done = doctor("--json")
    assert done.code in (1, 2)
    [finding] = done.found("home", "error")
    assert "is not a directory" in finding["what"]
    assert finding["do"] == "set CLAWKIT_HOME to a directory"
    doctor("--fix")
    assert stat.S_IMODE(place.stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("entries", "is_for_clawkit"),
    [([], True), (["sessions.sqlite", "x"], True), (["exec-approvals.json"], True), (["x"], False)],
)
def test_only_the_mode_of_a_directory_for_clawkit_is_changed(
    doctor: Doctor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entries: list[str],
    is_for_clawkit: bool,
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    for name in entries:
        (place / name).write_text("{}", encoding="utf-8")
    place.chmod(0o755)
    monkeypatch.setenv("CLAWKIT_HOME", str(place))
    [finding] = doctor("--json").found("home", "warn")
    advice = "set CLAWKIT_HOME to a directory for clawkit alone"
    assert finding["do"] == (f"chmod 700 {place}" if is_for_clawkit else advice)
    doctor("--fix")
    assert stat.S_IMODE(place.stat().st_mode) == (0o700 if is_for_clawkit else 0o755)


@pytest.mark.parametrize("name", ["/", "/usr/share", "~/..", "~/../.."])
def test_directories_of_the_system_and_the_user_are_not_for_clawkit(name: str) -> None:
    assert not is_own(os.path.expanduser(name))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{ tools: { deny: ['exce'] } }", "tools.deny: 'exce' matches no tool"),
        ("{ agents: { list: [{ id: 'a', tools: { allow: ['raed', 'ls'] } }] } }", "'raed'"),
        ("{ tools: { sandbox: { tools: { deny: ['brwser'] } } } }", "'brwser'"),
        ("{ tools: { subagents: { tools: { alsoAllow: ['grpe'] } } } }", "'grpe'"),
        ("{ tools: { byProvider: { openai: { deny: ['exce'] } } } }", "tools.byProvider.openai"),
        ("{ tools: { byProvider: { 'odd name': { deny: ['exce'] } } } }", "odd name"),
        ("{ tools: { toolsBySender: { 'id:1': { deny: ['exce'] } } } }", "toolsBySender.id:1"),
        ("{ tools: { toolsBySender: { 'channel:irc:1': { deny: ['exce'] } } } }", "irc:1"),
        ("{ channels: { irc: { groups: { g: { tools: { deny: ['exce'] } } } } } }", "groups.g"),
        (
            "{ channels: { irc: { groups: { g: { toolsBySender: "
            "{ 'name:x': { deny: ['exce'] } } } } } } }",
            "name:x",
        ),
        (
            "{ channels: { irc: { accounts: { a: { groups: { g: "
            "{ tools: { deny: ['exce'] } } } } } } } }",
            "accounts.a",
        ),
        ("{ tools: { rules: [{ tool: 'exce', effect: 'deny' }] } }", "exce"),
        ("{ tools: { deny: ['${NOT_SET}'] } }", "NOT_SET"),
    ],
)
def test_entries_that_match_no_tool_are_reported(
    doctor: Doctor, file: Path, text: str, words: str
) -> None:
    write(file, text)
    done = doctor("--json")
    assert any(words in each["what"] for each in done.found("policy", "warn"))


def test_a_policy_without_mistakes_is_ok(doctor: Doctor, file: Path) -> None:
    write(file, "{ agents: { list: [{ id: 'a' }, { id: 'b', tools: { deny: ['exec'] } }] } }")
    assert doctor("--json").found("policy", "ok")[0]["what"].endswith("for a, b")


def test_only_the_first_of_many_agents_are_checked(doctor: Doctor, file: Path) -> None:
    agents = ", ".join(f"{{ id: 'a{number}' }}" for number in range(MAX_AGENTS + 1))
    write(file, f"{{ agents: {{ list: [{agents}] }} }}")
    assert f"only the first {MAX_AGENTS}" in doctor().out


class TestSecrets:
    def test_secret_references_are_resolved_but_never_shown(
        self, doctor: Doctor, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GOOD_ONE", "hunter2-hunter2")
        vault = tmp_path / "vault.json"
        write(vault, '{"a": {"b": "hunter3-hunter3"}}')
        write(
            file,
            f"""{{
              secrets: {{ providers: {{ vault: {{ source: "file", path: "{vault}" }} }} }},
              gateway: {{ auth: {{ token: {{ source: "env", id: "GOOD_ONE" }} }} }},
              hooks: {{ token: "$GOOD_ONE" }},
              cron: {{ webhookToken: {{ source: "env", id: "BAD_ONE" }} }},
              models: {{ providers: {{
                a: {{ apiKey: {{ source: "file", provider: "vault", id: "/a/b" }} }},
                b: {{ apiKey: {{ source: "file", provider: "vault", id: "/a/c" }} }},
                c: {{ apiKey: {{ source: "file", provider: "none", id: "/a/c" }} }},
                d: {{ headers: {{ X: "$BAD_TWO" }} }},
                e: {{ apiKey: "plain-hunter4" }},
              }} }},
            }}""",
        )
        done = doctor("--json")
        assert done.code == 1
        good = [each["what"] for each in done.found("secrets", "ok")]
        assert good == [
            "gateway.auth.token: found",
            "hooks.token: found",
            "models.providers.a.apiKey: found",
        ]
        bad = [each["what"].partition(":")[0] for each in done.found("secrets", "error")]
        assert bad == [
            "cron.webhookToken",
            "models.providers.b.apiKey",
            "models.providers.c.apiKey",
            "models.providers.d.headers.X",
        ]
        assert done.found("secrets", "error")[0]["do"].startswith("export BAD_ONE=")
        assert "hunter" not in done.out + done.err

    def test_commands_are_run_only_when_allowed(
        self, doctor: Doctor, file: Path, tmp_path: Path
    ) -> None:
        command = file.parent / "vault.sh"
        answer = '{"protocolVersion": 1, "values": {"x": "hunter2-hunter2"}}'
        write(command, f"#!/bin/sh\n: > {tmp_path}/ran\necho '{answer}'\n", 0o700)
        write(
            file,
            f"""{{
              secrets: {{ providers: {{ vault: {{ source: "exec", command: "{command}" }} }} }},
              hooks: {{ token: {{ source: "exec", provider: "vault", id: "x" }} }},
            }}""",
        )
        done = doctor("--json")
        assert done.found("secrets", "warn")[0]["do"] == "clawkit doctor --allow-exec"
        assert not (tmp_path / "ran").exists()
        allowed = doctor("--json", "--allow-exec")
        assert [each["section"] for each in allowed.json["findings"]].count("secrets") == 1
        assert "hunter" not in allowed.out


def test_missing_workspaces_are_reported(doctor: Doctor, file: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    write(
        file,
        f"""{{ agents: {{
          defaults: {{ workspace: "{tmp_path}/there" }},
          list: [{{ id: "a", workspace: "{tmp_path}/not there" }}, {{ id: "b" }}],
        }} }}""",
    )
    done = doctor("--json")
    assert done.code == 1
    assert [each["do"] for each in done.found("workspace", "error")] == [
        f"mkdir -p '{tmp_path}/not there'"
    ]
    assert len(done.found("workspace", "ok")) == 1


def test_text_in_the_file_cannot_play_tricks_on_the_terminal(doctor: Doctor, file: Path) -> None:
    write(file, '{ tools: { deny: ["\\u001b[2Jexce"] } }')
    assert "\x1b[2J" not in doctor().out


def test_a_real_process_ends_with_the_code(tmp_path: Path) -> None:
    (tmp_path / "clawkit.json5").write_text("{ tolls: 1 }", encoding="utf-8")
    done = subprocess.run(
        [*PROGRAM, "doctor"],
        capture_output=True,
        text=True,
        env={**os.environ, "CLAWKIT_HOME": str(tmp_path)},
        timeout=60,
    )
    assert done.returncode == 2
    assert "unknown setting" in done.stdout
    assert done.stderr == ""


def test_missing_programs_of_the_file_tools_are_reported(
    doctor: Doctor, file: Path, tmp_path: Path
) -> None:
    settings = {
        "ripgrep": "/bin/true",
        "readRoots": ["/nowhere", str(tmp_path), "beside"],
        "writeRoots": ["~nobody-at-all/x"],
        "lsp": {"servers": {"zls": {"command": ["./zls"], "files": ["*.zig"]}}},
    }
    file.write_text(json.dumps({"tools": {"fs": settings}}))
    done = doctor("--json")
    assert done.code == 1
    assert "tools.fs.ripgrep" in done.found("files", "error")[0]["what"]
    warned = "\n".join(each["what"] for each in done.found("files", "warn"))
    assert "readRoots: '/nowhere'" in warned
    assert "writeRoots: '~nobody-at-all/x'" in warned
    assert "servers.zls: './zls' cannot be used" in warned
    assert str(tmp_path) not in warned
    assert "beside" not in warned


def test_what_helps_the_file_tools_is_told(doctor: Doctor) -> None:
    told = "\n".join(each["what"] for each in doctor("--json").found("files", "ok"))
    assert "ripgrep is /" in told
    assert "language servers: ruff, ty" in told


def test_programs_that_are_not_installed_are_a_warning(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str) -> None: ...

    monkeypatch.setattr("importlib.util.find_spec", find)
    done = doctor("--json")
    said = {each["do"]: each["level"] for each in done.json["findings"]}
    for extra in ("tui", "screen", "pdf"):
        assert said[how_to_add(extra)] == "warn"


def test_the_file_of_an_openclaw_is_offered(doctor: Doctor, file: Path) -> None:
    other = Path(os.environ["HOME"], ".openclaw", "openclaw.json")
    other.parent.mkdir()
    write(other, "{}")
    found = doctor("--json").found("config", "warn")
    assert [each["what"] for each in found] == [f"{other} exists, but is not used"]
    assert f"export CLAWKIT_CONFIG={other}" in found[0]["do"]
    write(file, "{}")
    assert doctor("--json").found("config", "warn") == []


@pytest.mark.parametrize("place", ["~", "/"])
def test_a_workspace_that_holds_everything_is_a_warning(
    doctor: Doctor, file: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(os.path.expanduser(place))
    found = doctor("--json").found("workspace", "warn")
    assert "the agent can change every file in it" in found[0]["what"]
    assert "--workspace DIR" in found[0]["do"]
    write(file, json.dumps({"agents": {"defaults": {"workspace": place}}}))
    found = doctor("--json").found("workspace", "warn")
    assert found[0]["what"].startswith("agents.defaults: the workspace is")
    found = doctor("--workspace", "/tmp", "--json").found("workspace", "ok")
    assert [each["what"] for each in found] == ["every agent works in /tmp"]
    monkeypatch.chdir("/proc")
    write(file, "{}")
    assert doctor("--json").found("workspace", "warn") == []


def test_the_search_service_is_reported(
    doctor: Doctor, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for row in SEARCH_PROVIDERS.values() for name in row.env]:
        monkeypatch.delenv(name, raising=False)

    def said(text: str) -> tuple[str, str]:
        write(file, text)
        [found] = [
            each for each in doctor("--json").json["findings"] if each["section"] == "search"
        ]
        return found["level"], found["what"]

    def named(id_: str, own: str = "{}") -> str:
        entry = f"{{{id_}: {{config: {{webSearch: {own}}}}}}}"
        return (
            f"{{tools: {{web: {{search: {{provider: '{id_}'}}}}}}, plugins: {{entries: {entry}}}}}"
        )

    assert said("{}") == ("ok", "no search service is configured: web_search asks on first use")
    assert said("{tools: {web: {search: {enabled: false}}}}")[1].startswith(
        "web search is disabled"
    )
    assert said(named("brave")) == ("error", "web search by Brave has no key")
    assert said(named("searxng")) == ("error", "web search by SearXNG has no address")
    assert said(named("duckduckgo")) == ("ok", "web search by DuckDuckGo")
    assert "safeSearch: use one of" in said(named("duckduckgo", "{safeSearch: 'x'}"))[1]
    assert said(named("mine"))[1] == "web search by the plugin mine"
    monkeypatch.setenv("TAVILY_API_KEY", "x" * 20)
    monkeypatch.setenv("EXA_API_KEY", "y" * 20)
    assert said("{}") == ("ok", "web search by Exa; if it fails, Tavily")


def test_checking_the_memory_does_not_change_it(
    doctor: Doctor,
    file: Path,
    home: Path,
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home.mkdir(0o700, exist_ok=True)
    at = ("--json", "--workspace", str(workspace))
    assert "0 notes, searched by keywords" in doctor(*at).found("memory", "ok")[0]["what"]
    assert not (home / "memory").exists()
    (workspace / "MEMORY.md").write_text("tea\n")
    (workspace / "USER.md").write_bytes(b"\xff\xfe\0")
    with pytest.raises(SystemExit):
        run(["memory", "index", "--workspace", str(workspace)])
    capsys.readouterr()
    done = doctor(*at)
    assert "2 notes, searched by keywords" in str(done.found("memory", "ok"))
    [warning] = done.found("memory", "warn")
    assert "USER.md" in warning["what"]
    assert warning["do"] == "clawkit memory index"
    [index] = (home / "memory").glob("*.sqlite")
    index.chmod(0o644)
    write(file, "{memory: {search: {enabled: false}}}")
    assert "is disabled" in str(doctor(*at).found("memory", "ok"))
    write(file, '{agents: {list: [{id: "a", workspace: "/nowhere"}]}}')
    assert "agent 'a': memory was not checked" in str(doctor("--json").found("memory", "warn"))
    write(file, "{}")
    index.unlink()
    index.mkdir()
    [broken] = doctor(*at).found("memory", "error")
    assert broken["do"] == "clawkit memory index --rebuild"
