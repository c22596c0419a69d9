"""The presets for npm, pip, cargo, docker and python."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from clawkit.approvals.allow.presets import PRESETS, check
from clawkit.approvals.base import Arg, Match, Program, Rules

PLACES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "npm": ("/usr/bin/npm", "/usr/lib/npm/bin/npm-cli.js", ("/usr/bin/env", "/usr/bin/node")),
    "pip": ("/usr/bin/pip3", "/usr/bin/pip3", ("/usr/bin/python3",)),
    "cargo": ("/usr/bin/cargo", "/usr/bin/cargo", ()),
    "docker": ("/usr/bin/docker", "/usr/bin/docker", ()),
    "python": ("/usr/bin/python3", "/usr/bin/python3.11", ()),
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "tests").mkdir(parents=True)
    (folder / "script.py").touch()
    (folder / "link.py").symlink_to("/etc/hostname")
    (tmp_path / "other.py").touch()
    return folder


def below(folder: Path) -> Callable[[str], bool]:
    def is_in(path: str) -> bool:
        return f"{os.path.realpath(path)}/".startswith(f"{folder}/")

    return is_in


def given(command: str, folder: Path) -> tuple[str, Program, Rules]:
    argv = tuple(
        Arg(word.removeprefix("GLOB:"), glob=word.startswith("GLOB:"))
        for word in shlex.split(command)
    )
    name = "python" if argv[0].text.startswith("python") else argv[0].text
    resolved, real, script = PLACES[name]
    rules = Rules(may_read=below(folder), may_write=below(folder))
    return name, Program(argv, resolved, real, str(folder), script=script), rules


def ask(command: str, folder: Path) -> Match | str:
    return check(*given(command, folder))


ALLOWED = """
npm ls
npm ls --depth=0 --json react
npm list -g
npm outdated
npm view react versions --json
npm info @types/node@^20.1 version
npm audit --json --omit=dev
npm audit signatures
npm explain react
npm why react
npm config get registry
npm config list
npm get registry
npm root -g
npm prefix
npm pack --dry-run --ignore-scripts
npm search some words
npm -v
npm --version
npm -s ls
npm query ':root > *'
pip list --outdated --format=json
pip show requests -f
pip check
pip freeze --all
pip index versions requests
pip config list
pip cache dir
pip inspect
pip --version
pip --disable-pip-version-check list
cargo metadata --no-deps --format-version 1
cargo tree -d --depth 1
cargo tree -i serde
cargo locate-project
cargo search serde --limit 5
cargo fmt --check
cargo fmt --all --check
cargo --version
cargo -V
cargo metadata --manifest-path Cargo.toml
docker ps -a --format '{{.ID}}'
docker images
docker image ls
docker inspect x y
docker logs -f --tail 50 x
docker stats --no-stream
docker top x
docker port x 80
docker diff x
docker history x
docker version
docker info
docker volume ls
docker network inspect x
docker system df -v
docker --version
python3 script.py
python3 script.py --exec x -c y -m z /etc/passwd GLOB:*
python3 -B -u -I script.py
python3 -Bu script.py
python3 ./script.py
python3 tests
python3 -W error -W ignore::DeprecationWarning script.py
python3 -Werror script.py
python3 -X dev -Xutf8 script.py
python3 -m pytest
python3 -m pytest -x -q tests/test_a.py::test_b --maxfail=1
python3 -mpytest -k 'a and b'
python3 -m pytest GLOB:tests/test_*.py
python3 -m unittest discover -s tests
python3 -m json.tool script.py
python3 -m json.tool --indent=2 --sort-keys
python3 -m json.tool -
python3 -m py_compile script.py
python3 -m compileall -q tests
python3 -m site
python3 --version
python3 -V
"""
REFUSED = """
npm
npm test
npm run build
npm ci
npm install x
npm i
npm exec x
npm x y
npm audit fix
npm config set a b
npm config edit
npm set a=b
npm config get a b
npm --prefix=/x ls
npm ls --prefix=/x
npm ls --script-shell=x
npm ls --node-options=x
npm ls --userconfig=x
npm ls --js
npm -C /x ls
npm ls -C /x
npm view ../x
npm view git+https://example.org/x
npm view github:a/b
npm view react@file:x
npm outdated GLOB:*
npm pack
npm pack --dry-run
npm pack --ignore-scripts
npm --json exec x
npm fund x
npm docs x
npm help ls
npm explore x
npm publish
npm version 1.2.3
npm l
pip install x
pip download x
pip wheel x
pip uninstall x
pip list --index-url=x
pip list --python=x
pip --python x list
pip list --path=/x
pip list --log=x
pip --log x list
pip list --out
pip config set a b
pip config edit
pip cache purge
pip index
pip hash /etc/passwd
pip freeze -r x
cargo build
cargo run
cargo test
cargo check
cargo fmt
cargo fmt --check -- --config x
cargo fmt --check x
cargo install x
cargo --config x tree
cargo tree --config=x
cargo -Zx tree
cargo tree -Z x
cargo +nightly tree
cargo metadata --manifest-path /x/Cargo.toml
cargo metadata --manifest-path=../other/Cargo.toml
cargo clippy
cargo unknown
docker run x
docker exec x y
docker rm x
docker cp a b
docker build .
docker -H x ps
docker --host=x ps
docker --context x ps
docker --config x ps
docker stats
docker compose ps
docker context use x
docker system prune
docker volume rm x
docker images --al
docker save x
python3
python3 -
python3 -c 'print(1)'
python3 -Bc 'print(1)'
python3 -i script.py
python3 -x script.py
python3 -
python3 /dev/stdin
python3 /proc/self/fd/0
python3 ../other.py
python3 /etc/hostname
python3 link.py
python3 GLOB:*.py
python3 GLOB:s*.py
python3 GLOB:-* script.py
python3 GLOB:*
python3 -X pycache_prefix=/x script.py
python3 -X
python3 -W
python3 -W error::x.Y script.py
python3 --check-hash-based-pycs never script.py
python3 --help-all
python3 -m
python3 -m GLOB:p*
python3 -m pip install x
python3 -m http.server
python3 -m pdb script.py
python3 -m timeit x
python3 -m venv x
python3 -m site --user-base
python3 -m json.tool script.py out
python3 -m json.tool --indent=x
python3 -m json.tool --outfile=x
python3 -m json.tool ../other.py
python3 -m py_compile ../other.py
python3 -m py_compile -
python3 -m compileall -d /x tests
python3 -m pytest /etc
python3 -m pytest --rootdir=/x
python3 -m pytest --rootdir /x
python3 -m pytest GLOB:../*
python3 -m pytest GLOB:/etc/*
python3 -m pytest GLOB:*
"""


@pytest.mark.parametrize("command", ALLOWED.strip().split("\n"))
def test_what_a_preset_lists_is_allowed(workspace: Path, command: str) -> None:
    found = ask(command, workspace)
    assert isinstance(found, Match), found
    assert found.children == "named"
    name, program, _ = given(command, workspace)
    assert found.rule == f"{program.real} (preset {name})"
    assert found.starts[: 1 + len(program.script)] == (program.real, *program.script)


@pytest.mark.parametrize("command", REFUSED.strip().split("\n"))
def test_everything_else_is_refused_with_words(workspace: Path, command: str) -> None:
    why = ask(command, workspace)
    assert isinstance(why, str)
    assert why
    assert why.isprintable()


def test_python_starts_nothing_but_itself(workspace: Path) -> None:
    found = ask("python3 script.py", workspace)
    assert isinstance(found, Match)
    assert found.starts == ("/usr/bin/python3.11",)


def test_python_of_a_virtual_environment_may_be_called_by_its_link(workspace: Path) -> None:
    name, program, rules = given("python script.py", workspace)
    linked = replace(program, resolved=f"{workspace}/.venv/bin/python")
    assert isinstance(check(name, linked, rules), Match)
    assert isinstance(check(name, replace(linked, real=linked.resolved), rules), str)


def test_pip_of_a_virtual_environment_is_refused(workspace: Path) -> None:
    name, program, rules = given("pip list", workspace)
    path = f"{workspace}/.venv/bin/pip"
    assert isinstance(check(name, replace(program, resolved=path, real=path), rules), str)
    script = (f"{workspace}/.venv/bin/python",)
    assert isinstance(check(name, replace(program, script=script), rules), str)


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("npm view react", ".npmrc"),
        ("cargo tree", ".cargo/config.toml"),
        ("cargo tree", ".cargo/config"),
        ("cargo fmt --check", "rust-toolchain"),
        ("cargo metadata", "rust-toolchain.toml"),
    ],
)
def test_settings_of_the_project_are_refused(workspace: Path, command: str, file: str) -> None:
    inner = workspace / "tests"
    name, program, rules = given(command, workspace)
    program = replace(program, cwd=str(inner))
    assert isinstance(check(name, program, rules), Match)
    (workspace / file).parent.mkdir(exist_ok=True)
    (workspace / file).touch()
    assert file in check(name, program, rules)
    # Whoever else put it there is trusted.
    assert isinstance(check(name, program, replace(rules, may_write=lambda _path: False)), Match)


def test_cargo_may_start_the_compiler_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / ".cargo/bin"
    folder.mkdir(parents=True)
    (tmp_path / ".rustup/toolchains").mkdir(parents=True)
    for name in ("rustup", "rustc"):
        (folder / name).touch()
    argv = (Arg("cargo"), Arg("tree"))
    program = Program(argv, f"{folder}/cargo", f"{folder}/rustup", "/")
    found = check("cargo", program, Rules())
    assert isinstance(found, Match)
    assert found.starts == (f"{folder}/rustup", f"{folder}/rustc", f"{tmp_path}/.rustup/toolchains")
    assert check("cargo", replace(program, real=f"{folder}/cargo"), Rules()) == found._replace(
        rule=f"{folder}/cargo (preset cargo)", starts=(f"{folder}/cargo", f"{folder}/rustc")
    )


@pytest.mark.parametrize("preset", ["npm", "pip", "cargo", "docker"])
def test_no_flag_may_be_shortened(workspace: Path, preset: str) -> None:
    for name, command in PRESETS[preset].commands.items():
        for flag in command.options:
            for end in range(3, len(flag)):
                if flag.startswith("--") and flag[:end] not in command.options:
                    assert isinstance(ask(f"{preset} {name} {flag[:end]}", workspace), str)
