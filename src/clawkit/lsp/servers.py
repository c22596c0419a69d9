"""The available language servers, and how each is started.

Programs are used only from directories that an agent cannot write to.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from clawkit.config.sections.tools import Lsp
from clawkit.core.paths import is_below, steps_of
from clawkit.process.landlock import SYSTEM, Hold
from clawkit.store import private_dir

_PREFIX_PARTS = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg")
FIRST_TYPESCRIPT = 7
"""The first version of the compiler that is also a language server."""
_ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64", "armv7l": "arm"}
_PYTHON = ("*.py", "*.pyi")
_SITE_PACKAGES = (".venv/lib/python*/site-packages", "venv/lib/python*/site-packages")
_SCRIPT = ("*.ts", "*.tsx", "*.mts", "*.cts", "*.js", "*.jsx", "*.mjs", "*.cjs")
_C = ("*.c", "*.h", "*.cc", "*.cpp", "*.cxx", "*.hh", "*.hpp", "*.hxx", "*.m", "*.mm")
_PASSED_ON = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")

log = logging.getLogger(__name__)


class Programs:
    """Finds programs on this machine, except in directories that an agent may write to."""

    def __init__(self, writable: Sequence[str], env: Mapping[str, str]) -> None:
        self.env = env
        self.home = env.get("HOME") or os.path.expanduser("~")
        self._writable = tuple({*map(os.path.abspath, writable), *map(os.path.realpath, writable)})
        self._resolved: dict[str, str | None] = {}
        given = env.get("PATH", os.defpath).split(os.pathsep)
        folders = (*given, os.path.dirname(sys.executable))
        # A relative entry depends on the working directory, and a shim starts whichever program a
        # file in the project selects.
        self.path = tuple(
            dict.fromkeys(
                each
                for each in folders
                if os.path.isabs(each)
                and os.path.basename(each.rstrip(os.sep)) != "shims"
                and self.is_safe(each)
            )
        )

    def is_safe(self, path: str) -> bool:
        """Whether neither the path nor any link on the way is in a writable directory."""
        try:
            return not any(
                is_below(step, each) for step in steps_of(path) for each in self._writable
            )
        except OSError:
            return False

    def find(self, name: str) -> str | None:
        """The absolute path of a program; None if there is none that may be used."""
        if name not in self._resolved:
            places = [name] if os.path.isabs(name) else []
            if name and os.sep not in name:
                places = [os.path.join(folder, name) for folder in self.path]
            programs = (
                each
                for each in places
                if os.path.isfile(each) and os.access(each, os.X_OK) and self.is_safe(each)
            )
            self._resolved[name] = next(programs, None)
        return self._resolved[name]

    def installation(self, program: str) -> tuple[str, ...]:
        """Files and directories of its own that a program or script needs to run."""
        found: dict[str, None] = {}
        todo = [program]
        for each in todo:
            folder, name = os.path.split(each)
            real = os.path.realpath(each)
            # A link in a virtual environment belongs to that environment.
            for place in (os.path.join(os.path.realpath(folder), name), real):
                found |= dict.fromkeys(self._surroundings(place))
            interpreter = self._interpreter(real)
            if interpreter and interpreter not in todo:
                todo.append(interpreter)
        return tuple(found)

    def _surroundings(self, path: str) -> Iterator[str]:
        folder = os.path.dirname(path)
        parts = folder.split(os.sep)
        if "node_modules" in parts:
            yield os.sep.join(parts[: parts.index("node_modules") + 1])
            return
        prefix, last = os.path.split(folder)
        if last not in ("bin", "sbin", "libexec"):
            yield path if self._is_broad(folder) else folder
        elif self._is_broad(prefix):
            yield from (os.path.join(prefix, part) for part in _PREFIX_PARTS)
        else:
            yield prefix
        if path.startswith("/nix/store/"):
            yield "/nix/store"

    def _is_broad(self, folder: str) -> bool:
        """Whether a directory contains more than programs: a home, or a hidden directory in one."""
        home = os.path.realpath(self.home)
        parent, name = os.path.split(folder)
        if folder.count(os.sep) < 2 or os.path.dirname(folder) == "/home":
            return True
        is_home = parent == home or os.path.dirname(parent) == "/home"
        return is_below(home, folder) or (is_home and name.startswith("."))

    def _interpreter(self, script: str) -> str | None:
        try:
            with open(script, "rb") as file:
                head = file.read(256)
        except OSError:
            return None
        if not head.startswith(b"#!"):
            return None
        words = os.fsdecode(head[2:].partition(b"\n")[0]).split()
        if words and os.path.basename(words[0]) == "env":
            words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return self.find(words[0]) if words else None


class Needs(NamedTuple):
    """What a server needs in addition to what all servers get."""

    env: Mapping[str, str] = {}
    read: tuple[str, ...] = ()
    run: tuple[str, ...] = ()


class _Package(msgspec.Struct):
    version: str = ""


def python_needs(programs: Programs, _cache: str) -> Needs:
    """The modules of the active environment and of the interpreter, to resolve imports."""
    names = ("VIRTUAL_ENV", "CONDA_PREFIX")
    env = {name: programs.env[name] for name in names if os.path.isabs(programs.env.get(name, ""))}
    read = tuple(
        os.path.join(each, part) for each in env.values() for part in ("bin", "lib", "pyvenv.cfg")
    )
    found = programs.find("python3")
    return Needs(env, read, programs.installation(found) if found else ())


def rust_needs(programs: Programs, cache: str) -> Needs:
    """The default toolchain, whichever the project selects, and no downloads."""
    rustup, cargo = _home_of("rustup", programs), _home_of("cargo", programs)
    env = {
        "RUSTUP_HOME": rustup,
        "CARGO_HOME": cargo,
        "CARGO_NET_OFFLINE": "true",
        "CARGO_TARGET_DIR": os.path.join(cache, "target"),
        "RUSTUP_AUTO_INSTALL": "0",
    }
    if toolchain := _default_toolchain(programs):
        env["RUSTUP_TOOLCHAIN"] = toolchain
        # Overrides programs that the project's cargo configuration selects.
        env["RUSTC"] = os.path.join(rustup, "toolchains", toolchain, "bin", "rustc")
        env |= dict.fromkeys(("RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "RUSTFLAGS"), "")
    # Not the whole directory: it also contains credentials.
    read = (*(os.path.join(cargo, part) for part in ("registry", "git")), f"{rustup}/settings.toml")
    return Needs(env, read, (os.path.join(cargo, "bin"), os.path.join(rustup, "toolchains")))


def go_needs(programs: Programs, cache: str) -> Needs:
    """Modules that are already downloaded, and only the installed toolchain."""
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
    """The native compiler, instead of the script that starts it with Node."""
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
    """The program of the default toolchain: a file in the project could select another one."""
    if os.path.basename(os.path.realpath(program)) != "rustup":
        return program
    toolchain = _default_toolchain(programs)
    place = os.path.join(
        _home_of("rustup", programs), "toolchains", toolchain, "bin", "rust-analyzer"
    )
    return programs.find(place) if toolchain else None


def _home_of(tool: str, programs: Programs) -> str:
    return programs.env.get(f"{tool.upper()}_HOME") or os.path.join(programs.home, f".{tool}")


def _default_toolchain(programs: Programs) -> str:
    import tomllib

    try:
        with open(os.path.join(_home_of("rustup", programs), "settings.toml"), "rb") as file:
            name = tomllib.load(file).get("default_toolchain", "")
    except (OSError, ValueError):
        return ""
    return name if isinstance(name, str) and name == os.path.basename(name) else ""


@dataclass(frozen=True, eq=False)
class LanguageServer:
    """A language server: how it is started, and for which files."""

    name: str
    command: tuple[str, ...]
    files: tuple[str, ...]
    """Patterns of file names."""
    root_markers: tuple[str, ...] = ()
    """Names of files that mark a project; without one, the whole workspace is the project."""
    environment: tuple[str, ...] = ()
    """Patterns, relative to the project, of paths that change when packages are installed."""
    options: Mapping[str, Any] | None = None
    """`initializationOptions`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Answers to `workspace/configuration`, by section."""
    runs_nothing: bool = False
    """Whether it never runs code of the project, so that it may run unconfined."""
    tells_ready: bool = False
    """Whether it reports when the project is loaded; earlier diagnostics are incomplete."""
    unless: str = ""
    """A server that makes this one unnecessary."""
    needs: Callable[[Programs, str], Needs] = lambda _programs, _cache: Needs()
    resolve: Callable[[str, Programs], str | None] | None = None
    """Returns the program to start instead of the one that was found; None for none."""


# Otherwise it would let npm download types of packages that a project names.
_NO_DOWNLOADS = {"disableAutomaticTypeAcquisition": True}

SERVERS = (
    LanguageServer("ruff", ("ruff", "server"), _PYTHON, runs_nothing=True),
    LanguageServer(
        "ty",
        ("ty", "server"),
        _PYTHON,
        root_markers=("ty.toml", "pyproject.toml"),
        environment=_SITE_PACKAGES,
        runs_nothing=True,
        needs=python_needs,
    ),
    LanguageServer(
        "pyright",
        ("pyright-langserver", "--stdio"),
        _PYTHON,
        root_markers=("pyrightconfig.json", "pyproject.toml"),
        environment=_SITE_PACKAGES,
        unless="ty",
        needs=python_needs,
    ),
    LanguageServer(
        "typescript",
        ("tsc", "--lsp", "--stdio"),
        _SCRIPT,
        environment=("node_modules", "node_modules/.package-lock.json", "node_modules/@types"),
        settings=dict.fromkeys(("js/ts", "typescript", "javascript"), _NO_DOWNLOADS),
        runs_nothing=True,
        resolve=resolve_typescript,
    ),
    LanguageServer(
        "gopls",
        ("gopls",),
        ("*.go",),
        root_markers=("go.work", "go.mod"),
        options={"pullDiagnostics": True},
        needs=go_needs,
    ),
    LanguageServer(
        "rust-analyzer",
        ("rust-analyzer",),
        ("*.rs",),
        root_markers=("Cargo.toml", "rust-project.json"),
        options={
            "cargo": {"buildScripts": {"enable": False}},
            "procMacro": {"enable": False},
            "checkOnSave": False,
        },
        tells_ready=True,
        needs=rust_needs,
        resolve=resolve_rust,
    ),
    LanguageServer(
        "clangd",
        ("clangd", "--background-index=false"),
        _C,
        root_markers=("compile_commands.json", "compile_flags.txt", ".clangd"),
    ),
)

_LANGUAGES = {
    ending: language
    for language, endings in {
        "python": "py pyi",
        "typescript": "ts mts cts",
        "typescriptreact": "tsx",
        "javascript": "js mjs cjs",
        "javascriptreact": "jsx",
        "rust": "rs",
        "c": "h",
        "cpp": "cc cxx hh hpp hxx",
        "objective-c": "m",
        "objective-cpp": "mm",
    }.items()
    for ending in endings.split()
}


def language_of(path: str) -> str:
    """The LSP language id of a file."""
    ending = os.path.splitext(path)[1].removeprefix(".")
    return _LANGUAGES.get(ending, ending or "plaintext")


class ServerLaunch(NamedTuple):
    argv: tuple[str, ...]
    env: Mapping[str, str]
    hold: Hold | None
    cache: str
    """The only directory that it may write to."""


class ServerCatalog:
    """The servers of one workspace: the built-in ones and those in the settings.

    `can_hold` says whether the kernel can confine a server. If not, only servers that run no code
    of the project are used.
    """

    def __init__(
        self, settings: Lsp, programs: Programs, cache_dir: str, *, can_hold: bool
    ) -> None:
        added = {
            name: LanguageServer(
                name, tuple(each.command), tuple(each.files), tuple(each.root_markers)
            )
            for name, each in settings.servers.items()
        }
        self._servers = {each.name: each for each in SERVERS} | added
        self._programs = programs
        self._cache_dir = cache_dir
        self._can_hold = can_hold
        self._resolved: dict[str, str | None] = {}
        patterns = {
            pattern
            for each in self._servers.values()
            for pattern in (*each.files, *each.root_markers)
        }
        # One expression for all: it is matched against every name in a tree. Not `Glob`, which
        # does not know the classes of configured patterns, such as `*.[ch]`.
        self._watched = re.compile("|".join(map(fnmatch.translate, sorted(patterns))))

    def is_watched(self, name: str) -> bool:
        """Whether diagnostics may depend on a file of this name."""
        return self._watched.match(name) is not None

    def available(self) -> tuple[str, ...]:
        """The names of the servers that can be started on this machine."""
        return tuple(name for name, each in self._servers.items() if self._program(each))

    def servers_for(self, path: str) -> Iterator[LanguageServer]:
        """The servers for a file that can be started on this machine."""
        name = os.path.basename(path)
        for each in self._servers.values():
            other = self._servers.get(each.unless)
            is_meant = any(fnmatch.fnmatchcase(name, pattern) for pattern in each.files)
            if is_meant and self._program(each) and not (other and self._program(other)):
                yield each

    def _program(self, server: LanguageServer) -> str | None:
        if server.name not in self._resolved:
            program = self._programs.find(server.command[0]) if server.command else None
            if program is not None and server.resolve is not None:
                program = server.resolve(program, self._programs)
            if program is not None and not server.runs_nothing and not self._can_hold:
                log.info(
                    "%s is not used: the kernel cannot confine it to the workspace", server.name
                )
                program = None
            self._resolved[server.name] = program
        return self._resolved[server.name]

    def launch(self, server: LanguageServer, root: str, readable: Sequence[str]) -> ServerLaunch:
        """How to start a server for a project. Raises OSError if its cache cannot be created."""
        program = self._program(server)
        if program is None:
            raise FileNotFoundError(f"{server.name} is not installed")
        # A directory for this project only: one project must not influence another.
        import hashlib

        digest = hashlib.sha256(f"{server.name}\0{root}".encode("utf-8", "surrogateescape"))
        plain = "".join(char if char.isalnum() else "-" for char in server.name[:40])
        cache = os.path.join(self._cache_dir, f"{plain}-{digest.hexdigest()[:16]}")
        private_dir(cache)
        needs = server.needs(self._programs, cache)
        env = {
            **{name: self._programs.env[name] for name in _PASSED_ON if name in self._programs.env},
            "PATH": os.pathsep.join(self._programs.path),
            "HOME": cache,
            "XDG_CACHE_HOME": cache,
            "TMPDIR": cache,
            **needs.env,
        }
        arguments = server.command[1:]
        scripts = [each for each in arguments if os.path.isabs(each) and os.path.isfile(each)]
        run = [
            part
            for each in (program, *filter(self._programs.is_safe, scripts))
            for part in self._programs.installation(each)
        ]
        hold = Hold((*readable, *needs.read), (*SYSTEM, *run, *needs.run), (cache,))
        return ServerLaunch((program, *arguments), env, hold if self._can_hold else None, cache)
