"""The file tools: `tools.fs`."""

from typing import Literal

from clawkit.config.section import Positive, Section


class LspServer(Section):
    """A language server beyond those clawkit knows."""

    command: list[str]
    """Program and arguments that start the server."""
    files: list[str]
    """Patterns of the files it is for, such as `*.zig`."""
    root_markers: list[str] = []
    """File names that mark a project root, such as `build.zig`."""


class Lsp(Section):
    """Problems reported by language servers after a file was changed."""

    enabled: bool = True
    """Report new problems after an edit; default true."""
    timeout_ms: Positive = 2_000
    """Longest time a result waits for problems, in milliseconds; default 2000."""
    servers: dict[str, LspServer] = {}
    """Further language servers, by name."""


class Fs(Section):
    """What the file tools may reach."""

    workspace_only: bool = True
    """Keep the file tools inside the workspace; default true."""
    read_roots: list[str] = []
    """Directories outside the workspace that may be read."""
    write_roots: list[str] = []
    """Directories outside the workspace that may be read and written."""
    protected: Literal["ask", "deny"] = "ask"
    """Writing protected files such as .git/hooks: ask a person (default) or refuse."""
    hard_links: Literal["refuse", "allow"] = "refuse"
    """Files with several names, which may lie outside: refuse (default) or allow."""
    lsp: Lsp = Lsp()
    """Problems reported by language servers after a change."""
    ripgrep: str | None = None
    """Path of the ripgrep program; unset looks on PATH, then in the package."""
