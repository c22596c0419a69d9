"""What commands cannot see in a local sandbox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.lacking import needs
from tests.sandbox.local_ground import open_sandbox

from clawkit.config.sections.sandbox import SandboxSettings as Settings
from clawkit.fs.local import LocalFileSystem
from clawkit.process import landlock
from clawkit.sandbox import paths
from clawkit.sandbox.paths import SandboxContext, secret_paths


def find_secrets(place: Path, secrets: tuple[str, ...] = ()) -> tuple[str, ...]:
    context = SandboxContext(
        workspace=str(place / "ws"),
        state=str(place / "state"),
        homes=(str(place / "home"),),
        secrets=secrets,
        spool_dir="",
        files=lambda _: LocalFileSystem(str(place / "ws")),
    )
    return secret_paths(context, Settings())


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        (".cache/huggingface/token", True),
        (".cache/huggingface/hub", False),
        (".config/github-copilot/hosts.json", True),
        (".config/Cursor/x", True),
        (".Xauthority", True),
        (".pulumi/credentials.json", True),
        (".pulumi/bin/pulumi", False),
        (".config/containers/auth.json", True),
        (".config/containers/registries.conf", False),
        (".gem/credentials", True),
        (".gem/ruby/x", False),
    ],
)
def test_accounts_are_secret_and_programs_beside_them_are_not(
    tmp_path: Path, name: str, is_secret: bool
) -> None:
    file = tmp_path / "home" / name
    file.parent.mkdir(parents=True)
    file.touch()
    found = find_secrets(tmp_path)
    assert any(f"{file}/".startswith(f"{each}/") for each in found) is is_secret


def test_a_pattern_means_the_existing_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "/etc/ssh/ssh_host_*_key" in paths._SYSTEM
    for name in ("ssh_host_a_key", "ssh_host_b_key", "ssh_host_b_key.pub"):
        (tmp_path / name).touch()
    monkeypatch.setattr(paths, "_SYSTEM", [f"{tmp_path}/ssh_host_*_key", f"{tmp_path}/gone"])
    found = find_secrets(tmp_path)
    keys = {os.path.realpath(tmp_path / f"ssh_host_{each}_key") for each in "ab"}
    assert {each for each in found if each.startswith(str(tmp_path))} == keys


@needs(landlock.available(), "Landlock")
def test_landlock_does_not_hide_what_it_cannot_prevent(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    sandbox = open_sandbox("landlock", tmp_path / "ws", tmp_path / "state", tmp_path)
    gaps = sandbox.describe()["gaps"]
    assert "modes, owners and times of files outside the workspace can be changed" in gaps
