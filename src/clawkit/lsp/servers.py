"""The language servers clawkit knows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from clawkit.lsp import toolchains
from clawkit.lsp.programs import Programs
from clawkit.lsp.toolchains import Needs

_NONE: Mapping[str, Any] = MappingProxyType({})
_PYTHON = ("*.py", "*.pyi")
_SCRIPT = ("*.ts", "*.tsx", "*.mts", "*.cts", "*.js", "*.jsx", "*.mjs", "*.cjs")
_C = ("*.c", "*.h", "*.cc", "*.cpp", "*.cxx", "*.hh", "*.hpp", "*.hxx", "*.m", "*.mm")


@dataclass(frozen=True, eq=False)
class Server:
    """A language server: how it is started and what it is for."""

    name: str
    command: tuple[str, ...]
    files: tuple[str, ...]
    """Patterns of file names."""
    root_markers: tuple[str, ...] = ()
    """Names of files that mark a project; without one, the whole workspace is the project."""
    environment: tuple[str, ...] = ()
    """Patterns, from the project, of what changes when packages are installed."""
    options: Mapping[str, Any] | None = None
    """Sent along when the server is started."""
    settings: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    """Answers to what it asks about configuration, by section."""
    runs_nothing: bool = False
    """Never runs code of the project, so that it may work where the kernel cannot hold it."""
    tells_ready: bool = False
    """Says when it has loaded the project; what it finds before that is incomplete."""
    unless: str = ""
    """The server that makes this one needless."""
    needs: Callable[[Programs, str], Needs] = toolchains.nothing
    resolve: Callable[[str, Programs], str | None] | None = None
    """Gives the program to start instead of the one that was found; None for neither."""

    def matches(self, name: str) -> bool:
        """Whether the server is for files of that name."""
        return any(fnmatchcase(name, pattern) for pattern in self.files)


# Otherwise it would have npm download types of packages that a project names.
_NO_DOWNLOADS = {"disableAutomaticTypeAcquisition": True}

SERVERS = (
    Server(
        "ruff",
        ("ruff", "server"),
        _PYTHON,
        runs_nothing=True,
    ),
    Server(
        "ty",
        ("ty", "server"),
        _PYTHON,
        root_markers=("ty.toml", "pyproject.toml"),
        environment=(".venv/lib/python*/site-packages", "venv/lib/python*/site-packages"),
        runs_nothing=True,
        needs=toolchains.python,
    ),
    Server(
        "pyright",
        ("pyright-langserver", "--stdio"),
        _PYTHON,
        root_markers=("pyrightconfig.json", "pyproject.toml"),
        environment=(".venv/lib/python*/site-packages", "venv/lib/python*/site-packages"),
        unless="ty",
        needs=toolchains.python,
    ),
    Server(
        "typescript",
        ("tsc", "--lsp", "--stdio"),
        _SCRIPT,
        environment=("node_modules", "node_modules/.package-lock.json", "node_modules/@types"),
        settings=dict.fromkeys(("js/ts", "typescript", "javascript"), _NO_DOWNLOADS),
        runs_nothing=True,
        resolve=toolchains.resolve_typescript,
    ),
    Server(
        "gopls",
        ("gopls",),
        ("*.go",),
        root_markers=("go.work", "go.mod"),
        options={"pullDiagnostics": True},
        needs=toolchains.go,
    ),
    Server(
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
        needs=toolchains.rust,
        resolve=toolchains.resolve_rust,
    ),
    Server(
        "clangd",
        ("clangd", "--background-index=false"),
        _C,
        root_markers=("compile_commands.json", "compile_flags.txt", ".clangd"),
    ),
)

_LANGUAGES = {
    "py": "python",
    "pyi": "python",
    "ts": "typescript",
    "mts": "typescript",
    "cts": "typescript",
    "tsx": "typescriptreact",
    "js": "javascript",
    "mjs": "javascript",
    "cjs": "javascript",
    "jsx": "javascriptreact",
    "rs": "rust",
    "h": "c",
    "cc": "cpp",
    "cxx": "cpp",
    "hh": "cpp",
    "hpp": "cpp",
    "hxx": "cpp",
    "m": "objective-c",
    "mm": "objective-cpp",
}


def language_of(place: str) -> str:
    """The name that servers have for the language of a file."""
    ending = os.path.splitext(place)[1].removeprefix(".")
    return _LANGUAGES.get(ending, ending or "plaintext")
