from __future__ import annotations

import os
from pathlib import Path

import pytest

from clawkit.lsp.servers import (
    Programs,
    go_needs,
    python_needs,
    resolve_rust,
    resolve_typescript,
    rust_needs,
)


def make(path: Path, text: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return look(tmp_path)


def look(tmp_path: Path) -> Programs:
    env = {"PATH": "/usr/bin", "HOME": str(tmp_path / "home"), "GITHUB_TOKEN": "hunter2"}
    return Programs([str(tmp_path / "ws")], env)


def package(folder: Path, version: str) -> str:
    make(folder / "typescript" / "package.json", f'{{"version": "{version}"}}')
    return make(folder / "typescript" / "bin" / "tsc")


def test_an_old_typescript_compiler_is_not_a_server(tmp_path: Path, programs: Programs) -> None:
    assert resolve_typescript(package(tmp_path, "5.9.3"), programs) is None
    assert resolve_typescript(package(tmp_path, "6.0.0-beta"), programs) is None


def test_the_native_typescript_compiler_is_started_without_node(
    tmp_path: Path, programs: Programs
) -> None:
    script = package(tmp_path, "7.0.2")
    assert resolve_typescript(script, programs) == script
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    native = make(tmp_path / "@typescript" / f"typescript-linux-{machine}" / "lib" / "tsc")
    assert resolve_typescript(script, look(tmp_path)) == native


@pytest.mark.parametrize("version", ["", "next", "{"])
def test_a_typescript_compiler_of_unknown_version_is_tried(
    tmp_path: Path, programs: Programs, version: str
) -> None:
    script = package(tmp_path, version)
    assert resolve_typescript(script, programs) == script


def test_rustup_is_not_left_to_choose_a_toolchain(tmp_path: Path, programs: Programs) -> None:
    cargo, rustup = tmp_path / "home" / ".cargo", tmp_path / "home" / ".rustup"
    make(cargo / "bin" / "rustup")
    shim = cargo / "bin" / "rust-analyzer"
    shim.symlink_to("rustup")
    assert resolve_rust(str(shim), programs) is None
    make(rustup / "settings.toml", 'default_toolchain = "stable"\n')
    assert resolve_rust(str(shim), programs) is None
    real = make(rustup / "toolchains" / "stable" / "bin" / "rust-analyzer")
    assert resolve_rust(str(shim), look(tmp_path)) == real
    assert resolve_rust(real, programs) == real
    given = rust_needs(programs, "/cache").env
    assert given["RUSTUP_TOOLCHAIN"] == "stable"
    # A project's configuration of cargo could name other programs.
    assert given["RUSTC"] == str(rustup / "toolchains" / "stable" / "bin" / "rustc")
    assert given["RUSTC_WRAPPER"] == given["RUSTC_WORKSPACE_WRAPPER"] == ""
    make(rustup / "settings.toml", 'default_toolchain = "../../../ws"\n')
    assert resolve_rust(str(shim), programs) is None


def test_what_servers_are_given_has_no_credentials(tmp_path: Path, programs: Programs) -> None:
    home = str(tmp_path / "home")
    for needs in (
        go_needs(programs, "/cache"),
        rust_needs(programs, "/cache"),
        python_needs(programs, "/cache"),
    ):
        assert "hunter2" not in str(needs)
        for broad in (home, f"{home}/.cargo", f"{home}/go"):
            assert broad not in (*needs.read, *needs.run)
    assert go_needs(programs, "/cache").env["GOPROXY"] == "off"
    assert go_needs(programs, "/cache").env["GOTOOLCHAIN"] == "local"


def test_the_environment_in_use_is_read(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin", "VIRTUAL_ENV": "/opt/env", "CONDA_PREFIX": "relative"}
    needs = python_needs(Programs([str(tmp_path)], env), "/cache")
    assert needs.env == {"VIRTUAL_ENV": "/opt/env"}
    assert "/opt/env/lib" in needs.read
