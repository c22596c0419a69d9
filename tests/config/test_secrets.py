from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from clawkit.config.load import loads
from clawkit.config.secrets import require_private, resolve, trusted_command
from clawkit.config.section import SecretRef
from clawkit.errors import ConfigError, SecretError

SECRET = "hunter2"


def ask(
    ref: dict[str, str] | str, env: Mapping[str, str] | None = None, **providers: dict[str, Any]
) -> str:
    """Resolve `ref` with these providers configured."""
    config = loads(json.dumps({"secrets": {"providers": providers}}), env={}).config
    return resolve(ref if isinstance(ref, str) else SecretRef(**ref), config, env or {})  # type: ignore[arg-type]


def refusal(
    ref: dict[str, str] | str, env: Mapping[str, str] | None = None, **providers: dict[str, Any]
) -> str:
    """Why resolving fails; nothing in the whole chain of errors may hold the secret."""
    with pytest.raises(SecretError) as caught:
        ask(ref, env, **providers)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in repr(error)
        error = error.__cause__ or error.__context__
    return str(caught.value)


class TestText:
    def test_plain_text_is_the_secret_itself(self) -> None:
        assert ask("sk-abc") == "sk-abc"
        assert ask("pa$$word$") == "pa$$word$"

    def test_references_to_variables_are_resolved(self) -> None:
        env = {"KEY": SECRET}
        assert ask("$KEY", env) == SECRET
        assert ask("${KEY}", env) == SECRET
        assert ask("Bearer ${KEY}", env) == f"Bearer {SECRET}"

    def test_an_unset_variable_is_an_error(self) -> None:
        assert "variable GONE is not set" in refusal("${GONE}")
        assert "variable GONE is not set" in refusal("Bearer ${GONE}", {"OTHER": SECRET})
        assert "'GONE' of provider 'default' (source env)" in refusal("$GONE", {"GONE": ""})

    def test_an_empty_secret_is_refused(self) -> None:
        assert "empty" in refusal("")


API_KEY = {"source": "env", "id": "API_KEY"}
ITEM = {"source": "exec", "id": "vault/item#field", "provider": "vault"}


class TestEnvironment:
    def test_the_default_provider_needs_no_settings(self) -> None:
        assert ask(API_KEY, {"API_KEY": SECRET}) == SECRET

    def test_an_allowlist_limits_what_may_be_read(self) -> None:
        env = {"API_KEY": SECRET}
        only = {"source": "env", "allowlist": ["API_KEY"]}
        assert ask(API_KEY, env, default=only) == SECRET
        for allowlist in ([], ["OTHER"], ["api_key"]):
            narrow = {"source": "env", "allowlist": allowlist}
            assert "not in the provider's allowlist" in refusal(API_KEY, env, default=narrow)

    def test_a_named_provider_must_exist_and_be_of_that_kind(self) -> None:
        ref = {**API_KEY, "provider": "other"}
        env = {"API_KEY": SECRET}
        assert "unknown provider: it is not in secrets.providers" in refusal(ref, env)
        file = {"source": "file", "path": "/x"}
        assert "(source env): the provider has source file" in refusal(ref, env, other=file)

    def test_the_default_provider_of_a_source_can_be_named(self) -> None:
        secrets = {
            "providers": {"mine": {"source": "env", "allowlist": ["OTHER"]}},
            "defaults": {"env": "mine"},
        }
        config = loads(json.dumps({"secrets": secrets}), env={}).config
        with pytest.raises(SecretError, match="of provider 'mine'"):
            resolve(SecretRef(source="env", id="API_KEY"), config, {"API_KEY": SECRET})

    @pytest.mark.parametrize(
        "ref",
        [
            {"source": "env", "id": "lower"},
            {"source": "env", "id": "A" * 200},
            {"source": "env", "id": "A\n"},
            {"source": "env", "id": "A", "provider": "Upper"},
            {"source": "env", "id": "A", "provider": "../x"},
            {"source": "file", "id": "no/slash"},
            {"source": "exec", "id": "a/../b"},
            {"source": "exec", "id": "-flag"},
            {"source": "exec", "id": "a b"},
        ],
    )
    def test_invalid_ids_are_refused(self, ref: dict[str, str]) -> None:
        assert "secret reference" in refusal(ref, {"A": SECRET, "lower": SECRET})


class TestStore:
    """An existing openclaw.json may name a kind of place that clawkit does not have."""

    def test_a_file_that_names_one_loads(self) -> None:
        token = {"source": "store", "provider": "default", "id": "TOKEN"}
        providers = {"mine": {"source": "store", "path": "~/x", "timeoutMs": 5}}
        raw = {"gateway": {"auth": {"token": token}}, "secrets": {"providers": providers}}
        config = loads(json.dumps(raw), env={}).config
        assert config.gateway is not None
        assert config.gateway.auth.token == SecretRef(**token)  # type: ignore[arg-type]

    @pytest.mark.parametrize("provider", ["default", "mine"])
    def test_a_store_reference_is_refused_with_alternatives(self, provider: str) -> None:
        ref = {"source": "store", "id": "TOKEN", "provider": provider}
        reason = refusal(ref, {"TOKEN": SECRET}, mine={"source": "store"})
        assert "'TOKEN'" in reason
        assert "clawkit has no secret store. Use source env, file or exec" in reason

    def test_its_ids_are_names_of_variables(self) -> None:
        text = '{gateway: {auth: {token: {source: "store", id: "a/b"}}}}'
        with pytest.raises(ConfigError, match="invalid id for source 'store'"):
            loads(text, env={})


class TestFile:
    def ask(self, path: Path, pointer: str, **settings: Any) -> str:
        provider = {"source": "file", "path": str(path), **settings}
        return ask({"source": "file", "id": pointer, "provider": "f"}, f=provider)

    def refusal(self, path: Path, pointer: str, **settings: Any) -> str:
        provider = {"source": "file", "path": str(path), **settings}
        return refusal({"source": "file", "id": pointer, "provider": "f"}, f=provider)

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        file = tmp_path / "secrets.json"
        content = {
            "a": {"b": [SECRET, "second"], "": "empty key", "x/y": "slash", "m~n": "tilde"},
            "number": 5,
            "nothing": "",
        }
        file.write_text(json.dumps(content))
        return file

    @pytest.mark.parametrize(
        ("pointer", "secret"),
        [
            ("/a/b/0", SECRET),
            ("/a/b/1", "second"),
            ("/a/", "empty key"),
            ("/a/x~1y", "slash"),
            ("/a/m~0n", "tilde"),
        ],
    )
    def test_a_pointer_names_a_string(self, file: Path, pointer: str, secret: str) -> None:
        assert self.ask(file, pointer) == secret

    @pytest.mark.parametrize(
        ("pointer", "reason"),
        [
            ("/none", "nothing at this pointer"),
            ("/a/b/2", "nothing at this pointer"),
            ("/a/b/-1", "nothing at this pointer"),
            ("/a/b/00", "nothing at this pointer"),
            ("/a/b/0/deeper", "nothing at this pointer"),
            ("/a/b", "not a string"),
            ("/number", "not a string"),
            ("/nothing", "or is empty"),
            ("value", "the id must be a pointer"),
        ],
    )
    def test_anything_else_is_refused(self, file: Path, pointer: str, reason: str) -> None:
        assert reason in self.refusal(file, pointer)

    def test_a_file_may_hold_one_value(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text(f"  {SECRET} \r\n")
        assert self.ask(file, "value", mode="singleValue") == f"  {SECRET} "
        assert "its id is 'value'" in self.refusal(file, "/a", mode="singleValue")
        file.write_text("\n")
        assert "empty" in self.refusal(file, "value", mode="singleValue")
        file.write_bytes(b"\xff" + SECRET.encode())
        assert "not UTF-8" in self.refusal(file, "value", mode="singleValue")

    def test_the_home_directory_may_be_written_as_a_tilde(self, file: Path) -> None:
        provider = {"source": "file", "path": "~/secrets.json"}
        ref = {"source": "file", "id": "/a/b/0", "provider": "f"}
        assert ask(ref, {"HOME": str(file.parent)}, f=provider) == SECRET

    @pytest.mark.parametrize("text", [f"{{'{SECRET}'", f'"{SECRET}', "", "[" * 100_000])
    def test_broken_json_is_not_quoted(self, file: Path, text: str) -> None:
        file.write_text(text)
        assert "not valid JSON" in self.refusal(file, "/a")

    def test_sizes_are_limited(self, file: Path) -> None:
        file.write_text(json.dumps({"a": "x" * 1000}))
        assert "larger than 100 bytes" in self.refusal(file, "/a", maxBytes=100)

    def test_only_regular_files_are_read(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert "not a regular file" in self.refusal(tmp_path / "pipe", "/a")
        assert "not a regular file" in self.refusal(tmp_path, "/a")
        assert "not a regular file" in self.refusal(Path("/dev/zero"), "/a")
        assert "No such file" in self.refusal(tmp_path / "none", "/a")

    def test_a_file_that_anyone_may_write_is_refused(self, file: Path) -> None:
        file.chmod(0o644)
        assert self.ask(file, "/a/b/0") == SECRET
        file.chmod(0o602)
        assert "anyone can write to" in self.refusal(file, "/a/b/0")

    def test_a_file_in_a_directory_that_anyone_may_write_is_refused(self, file: Path) -> None:
        file.parent.chmod(0o777)
        assert "anyone can replace files in" in self.refusal(file, "/a/b/0")
        file.parent.chmod(0o1777)
        assert self.ask(file, "/a/b/0") == SECRET

    def test_a_link_is_followed_and_its_target_is_checked(self, file: Path) -> None:
        link = file.parent / "link"
        link.symlink_to(file)
        assert self.ask(link, "/a/b/0") == SECRET
        file.chmod(0o666)
        assert "anyone can write to" in self.refusal(link, "/a/b/0")
        link.unlink()
        link.symlink_to("/dev/zero")
        assert "not a regular file" in self.refusal(link, "/a/b/0")
        link.unlink()
        link.symlink_to(link)
        assert "cannot be read" in self.refusal(link, "/a/b/0")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a link of another user")
    def test_a_link_of_another_user_is_refused(self, file: Path) -> None:
        link = file.parent / "link"
        link.symlink_to(file)
        os.lchown(link, 54321, 54321)
        assert "a symbolic link created by another user" in self.refusal(link, "/a/b/0")


class TestCommand:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
        return folder

    def command(self, folder: Path, body: str) -> Path:
        file = folder / "vault"
        head = f"#!{sys.executable} -IS\nimport json, os, sys, time\n"
        file.write_text(head + body)
        file.chmod(0o755)
        return file

    def script(self, folder: Path, body: str) -> Path:
        file = folder / "vault"
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)
        return file

    def provider(self, command: Path, **settings: Any) -> dict[str, Any]:
        return {"source": "exec", "command": str(command), **settings}

    def ask(self, command: Path, around: Mapping[str, str] | None = None, **settings: Any) -> str:
        return ask(ITEM, around, vault=self.provider(command, **settings))

    def refusal(self, command: Path, **settings: Any) -> str:
        return refusal(ITEM, vault=self.provider(command, **settings))

    def test_a_plugin_cannot_be_asked_yet(self) -> None:
        integration = {"pluginId": "op", "integrationId": "main"}
        vault = {"source": "exec", "pluginIntegration": integration}
        assert "cannot ask the plugin 'op' for secrets yet" in refusal(ITEM, vault=vault)

    ECHO = """
request = json.load(sys.stdin)
values = {id: json.dumps([request, sys.argv[1:], dict(os.environ), os.getcwd()])
          for id in request["ids"]}
print(json.dumps({"protocolVersion": 1, "values": values}))
"""

    def test_the_command_is_asked_in_a_bare_environment(self, folder: Path) -> None:
        command = self.command(folder, self.ECHO)
        answer = self.ask(
            command,
            {"PASSED": "1", "NOT_PASSED": SECRET, "BOTH": "theirs"},
            args=["$HOME", "; echo x", "*"],
            passEnv=["PASSED", "BOTH", "UNSET"],
            env={"BOTH": "ours", "LC_ALL": "C"},
        )
        assert json.loads(answer) == [
            {"protocolVersion": 1, "provider": "vault", "ids": ["vault/item#field"]},
            ["$HOME", "; echo x", "*"],
            {"PASSED": "1", "BOTH": "ours", "LC_ALL": "C"},
            "/",
        ]

    @pytest.mark.parametrize(
        ("output", "reason"),
        [
            (SECRET, "did not answer with JSON"),
            ("", "did not answer with JSON"),
            (f'{{"values": {{"x": "{SECRET}"}}}}', "protocol version 1"),
            (f'{{"protocolVersion": 2, "values": {{"x": "{SECRET}"}}}}', "protocol version 1"),
            (f'["{SECRET}"]', "protocol version 1"),
            ('{"protocolVersion": 1}', "no value for this id"),
            (f'{{"protocolVersion": 1, "values": "{SECRET}"}}', "no value for this id"),
            (f'{{"protocolVersion": 1, "values": {{"y": "{SECRET}"}}}}', "no value for this id"),
            (
                '{"protocolVersion": 1, "values": {"vault/item#field": ""}}',
                "no value for this id",
            ),
            (
                f'{{"protocolVersion": 1, "values": {{}}, "errors": {{"x": "{SECRET}"}}}}',
                "no value for this id",
            ),
        ],
    )
    def test_an_answer_that_does_not_fit_is_refused(
        self, folder: Path, output: str, reason: str
    ) -> None:
        (folder / "answer").write_text(output)
        assert reason in self.refusal(self.script(folder, f"/bin/cat {folder}/answer"))

    def test_plain_output_is_accepted_if_configured(self, folder: Path) -> None:
        command = self.script(folder, f"echo {SECRET}")
        assert self.ask(command, jsonOnly=False) == SECRET
        assert "no value" in self.refusal(self.script(folder, "echo"), jsonOnly=False)

    def test_failure_is_reported_without_what_was_printed(self, folder: Path) -> None:
        command = self.script(folder, f"echo {SECRET}; echo {SECRET} >&2; exit 3")
        assert self.refusal(command).endswith("the command failed with exit code 3")

    def test_a_command_that_does_not_listen_may_answer(self, folder: Path) -> None:
        command = self.script(folder, f"exec 0<&-; echo {SECRET}")
        assert self.ask(command, jsonOnly=False) == SECRET

    def test_time_is_limited(self, folder: Path) -> None:
        command = self.command(folder, "time.sleep(60)")
        assert self.refusal(command, timeoutMs=300).endswith("took longer than 300 ms")

    def test_time_is_limited_after_the_output_is_closed(self, folder: Path) -> None:
        command = self.command(folder, "os.close(1); time.sleep(60)")
        assert self.refusal(command, timeoutMs=500).endswith("took longer than 500 ms")

    def test_time_is_limited_while_output_trickles(self, folder: Path) -> None:
        command = self.script(folder, "while echo .; do /bin/sleep 0.05; done")
        refused = self.refusal(command, timeoutMs=2000, noOutputTimeoutMs=60_000)
        assert refused.endswith("took longer than 2000 ms")

    def test_silence_is_limited(self, folder: Path) -> None:
        command = self.command(folder, f"print('{SECRET}', flush=True); time.sleep(60)")
        refused = self.refusal(command, timeoutMs=30_000, noOutputTimeoutMs=400)
        assert refused.endswith("wrote nothing for 400 ms")

    def test_output_is_limited(self, folder: Path) -> None:
        command = self.command(folder, "while True: print('x' * 1000)")
        assert self.refusal(command, maxOutputBytes=5000).endswith("wrote over 5000 bytes")

    def test_children_of_the_command_end_with_it(self, folder: Path) -> None:
        pid_file = folder / "pid"
        command = self.script(folder, f"/bin/sleep 60 & echo $! > {pid_file}; wait")
        for time_ms in (1500, 6000, 24_000):  # a busy machine may not have begun by the first
            self.refusal(command, timeoutMs=time_ms)
            if pid_file.exists() and pid_file.read_text():
                break
        pid = int(pid_file.read_text())
        end = time.monotonic() + 60
        while _is_running(pid):
            assert time.monotonic() < end, "the child outlived its parent"
            time.sleep(0.05)

    def test_the_command_must_exist_and_be_executable(self, folder: Path) -> None:
        command = self.script(folder, "true")
        command.chmod(0o644)
        assert "not an executable file" in self.refusal(command)
        assert "not an executable file" in self.refusal(folder)
        assert "No such file" in self.refusal(folder / "none")
        command.write_text("no shebang")
        command.chmod(0o755)
        assert "cannot be started: Exec format error" in self.refusal(command)

    def test_a_command_others_may_change_is_refused(self, folder: Path) -> None:
        command = self.script(folder, f"echo {SECRET}")
        for mode in (0o775, 0o757):
            command.chmod(mode)
            assert f"other users can write to '{command}'" in self.refusal(command)
        command.chmod(0o755)
        for mode in (0o775, 0o777, 0o1777):
            folder.chmod(mode)
            assert f"other users can write to '{folder}'" in self.refusal(command)
        folder.chmod(0o755)
        folder.parent.chmod(0o777)
        assert f"other users can write to '{folder.parent}'" in self.refusal(command)
        folder.parent.chmod(0o1777)
        assert self.ask(command, jsonOnly=False) == SECRET

    def test_trusted_directories_are_checked_after_links(self, folder: Path) -> None:
        command = self.script(folder, f"echo {SECRET}")
        other = folder.parent / "other"
        other.mkdir(mode=0o755)
        (other / "link").symlink_to(command)
        (folder.parent / "alias").symlink_to(folder)
        assert self.ask(command, jsonOnly=False, trustedDirs=[str(folder)]) == SECRET
        assert (
            self.ask(command, jsonOnly=False, trustedDirs=[str(folder.parent / "alias")]) == SECRET
        )
        for place in (command, other / "link"):
            assert "trustedDirs" in self.refusal(place, trustedDirs=[str(other)])
        assert "trustedDirs" in self.refusal(command, trustedDirs=[str(folder)[:-1]])

    def test_a_relative_command_is_refused(self) -> None:
        with pytest.raises(SecretError, match="must be an absolute path"):
            trusted_command("vault", [])


@table(
    ("mode", "uid", "sticky_ok", "private"),
    [
        (0o755, 0, False, True),
        (0o700, os.geteuid(), False, True),
        (0o755, 54321, False, False),
        (0o775, 0, False, False),
        (0o757, 0, False, False),
        (0o1777, 0, False, False),
        (0o1777, 0, True, True),
        (0o1777, 54321, True, False),
        (0o777, 0, True, False),
    ],
)
def test_only_root_and_the_user_may_own_or_change_a_command(
    mode: int, uid: int, sticky_ok: bool, private: bool
) -> None:
    info = os.stat_result((stat.S_IFDIR | mode, 1, 1, 1, uid, 0, 0, 0, 0, 0))
    if private:
        require_private("/x", info, sticky_ok=sticky_ok)
    else:
        with pytest.raises(SecretError, match="'/x'"):
            require_private("/x", info, sticky_ok=sticky_ok)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
