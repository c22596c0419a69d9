"""What language servers need of the tools of their languages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from clawkit.lsp.programs import Programs

FIRST_TYPESCRIPT = 7
"""The first version of the compiler that is a language server as well."""
_ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64", "armv7l": "arm"}


class Needs(NamedTuple):
    """What a server is given beyond what every one has."""

    env: Mapping[str, str] = {}
    read: tuple[str, ...] = ()
    run: tuple[str, ...] = ()


class _Package(msgspec.Struct):
    version: str = ""


def nothing(_programs: Programs, _cache: str) -> Needs:
    return Needs()


def python(programs: Programs, _cache: str) -> Needs:
    """The modules of the environment in use and of the interpreter, to resolve imports."""
    names = ("VIRTUAL_ENV", "CONDA_PREFIX")
    env = {name: programs.env[name] for name in names if os.path.isabs(programs.env.get(name, ""))}
    read = tuple(
        os.path.join(each, part) for each in env.values() for part in ("bin", "lib", "pyvenv.cfg")
    )
    found = programs.find("python3")
    return Needs(env, read, programs.installation(found) if found else ())


def rust(programs: Programs, cache: str) -> Needs:
    """The toolchain that is the default, whichever the project asks for, and no downloads."""
    rustup, cargo = _rustup_home(programs), _cargo_home(programs)
    env = {
        "RUSTUP_HOME": rustup,
        "CARGO_HOME": cargo,
        "CARGO_NET_OFFLINE": "true",
        "CARGO_TARGET_DIR": os.path.join(cache, "target"),
        "RUSTUP_AUTO_INSTALL": "0",
    }
    if toolchain := _default_toolchain(programs):
        env["RUSTUP_TOOLCHAIN"] = toolchain
        # What the project's configuration of cargo asks for instead is not started.
        env["RUSTC"] = os.path.join(rustup, "toolchains", toolchain, "bin", "rustc")
        env |= dict.fromkeys(("RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTFLAGS"), "")
    # Not all of it: credentials are kept beside these.
    read = (*(os.path.join(cargo, part) for part in ("registry", "git")), f"{rustup}/settings.toml")
    return Needs(env, read, (os.path.join(cargo, "bin"), os.path.join(rustup, "toolchains")))


def go(programs: Programs, cache: str) -> Needs:
    """The modules that were downloaded before, and no toolchain but the one that is installed."""
    path = programs.env.get("GOPATH") or os.path.join(programs.home, "go")
    modules = programs.env.get("GOMODCACHE") or os.path.join(path.split(":")[0], "pkg", "mod")
    env = {
        "GOPATH": path,
        "GOMODCACHE": modules,
        "GOCACHE": os.path.join(cache, "go-build"),
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
    }
    if goroot := programs.env.get("GOROOT"):
        env["GOROOT"] = goroot
    found = programs.find("go")
    return Needs(env, (modules,), programs.installation(found) if found else ())


def resolve_typescript(program: str, programs: Programs) -> str | None:
    """The compiler itself, which a script in its package would start with Node."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    try:
        with open(os.path.join(package, "package.json"), "rb") as file:
            version = msgspec.json.decode(file.read(1024 * 1024), type=_Package).version
        major = int(version.partition(".")[0])
    except (OSError, ValueError, msgspec.MsgspecError):
        return program
    if major < FIRST_TYPESCRIPT:
        return None
    system = os.uname()
    architecture = _ARCHITECTURES.get(system.machine, system.machine)
    name = f"typescript-{system.sysname.lower()}-{architecture}"
    native = os.path.join(os.path.dirname(package), "@typescript", name, "lib", "tsc")
    return programs.find(native) or program


def resolve_rust(program: str, programs: Programs) -> str | None:
    """The program of the default toolchain: a file in the project could choose another one."""
    if os.path.basename(os.path.realpath(program)) != "rustup":
        return program
    toolchain = _default_toolchain(programs)
    place = os.path.join(_rustup_home(programs), "toolchains", toolchain, "bin", "rust-analyzer")
    return programs.find(place) if toolchain else None


def _rustup_home(programs: Programs) -> str:
    return programs.env.get("RUSTUP_HOME") or os.path.join(programs.home, ".rustup")


def _cargo_home(programs: Programs) -> str:
    return programs.env.get("CARGO_HOME") or os.path.join(programs.home, ".cargo")


def _default_toolchain(programs: Programs) -> str:
    import tomllib

    try:
        with open(os.path.join(_rustup_home(programs), "settings.toml"), "rb") as file:
            name = tomllib.load(file).get("default_toolchain", "")
    except (OSError, ValueError):
        return ""
    return name if isinstance(name, str) and name == os.path.basename(name) else ""
