"""The entry for clawkit in the configuration of MCP clients."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from clawkit.config import json5, text_edit
from clawkit.config.file_edit import diff
from clawkit.errors import EditError
from clawkit.store import write_atomic

MAX_FILE = 16 * 1024 * 1024
_NAME = re.compile("[A-Za-z0-9_-]{1,64}")
_HEADER = re.compile(r"\s*\[")
_SETTINGS = "~/Library/Application Support" if sys.platform == "darwin" else "~/.config"


class McpClient(NamedTuple):
    """The file and format of a client's server list."""

    title: str
    path: str
    key: str = "mcpServers"
    home: str = ""  # the variable that overrides the directory of the file
    has_type: bool = False
    starts_in_project: bool = False
    """Whether it starts servers in the directory that the person works in."""

    def file(self, env: Mapping[str, str]) -> str:
        path = self.path
        if self.home and env.get(self.home):
            path = os.path.join(env[self.home], os.path.basename(path))
        return os.path.realpath(os.path.expanduser(path))


CLIENTS = {
    "claude-code": McpClient(
        "Claude Code",
        "~/.claude.json",
        home="CLAUDE_CONFIG_DIR",
        has_type=True,
        starts_in_project=True,
    ),
    "claude-desktop": McpClient("Claude Desktop", f"{_SETTINGS}/Claude/claude_desktop_config.json"),
    "cursor": McpClient("Cursor", "~/.cursor/mcp.json"),
    "vscode": McpClient("VS Code", f"{_SETTINGS}/Code/User/mcp.json", key="servers", has_type=True),
    "codex": McpClient(
        "Codex",
        "~/.codex/config.toml",
        key="mcp_servers",
        home="CODEX_HOME",
        starts_in_project=True,
    ),
    "gemini": McpClient("Gemini CLI", "~/.gemini/settings.json", starts_in_project=True),
}


class InstallChange(NamedTuple):
    """A pending change of a client's file."""

    file: str
    before: str | None  # None if the file does not exist
    after: str

    def diff(self) -> list[str]:
        return diff(self.before or "", self.after, self.file)

    def write(self) -> None:
        """Raises `EditError` if the file was changed in the meantime, or cannot be written."""
        try:
            if _read(self.file) != self.before:
                raise EditError(f"{self.file!r} was changed in the meantime; try again")
            os.makedirs(os.path.dirname(self.file), mode=0o700, exist_ok=True)
            write_atomic(self.file, self.after.encode())
        except OSError as error:
            raise EditError(f"{self.file!r} was not changed: {error.strerror}") from None


def make_entry(client: McpClient, workspace: str | None, env: Mapping[str, str]) -> dict[str, Any]:
    """The command that the client must start. Raises `EditError` if a workspace is required."""
    if workspace is None and not client.starts_in_project:
        raise EditError(
            f"{client.title} does not start servers in the directory that you work in; add "
            "--workspace DIR"
        )
    program = os.path.join(os.path.dirname(sys.executable), "clawkit")
    # The client starts it in the project, whose files must not pass for modules.
    safe = [sys.executable, "-P", "-m", "clawkit"]
    command = [program] if os.path.exists(program) else safe
    place = [] if workspace is None else ["--workspace", os.path.abspath(workspace)]
    entry: dict[str, Any] = {"type": "stdio"} if client.has_type else {}
    entry |= {"command": command[0], "args": [*command[1:], "mcp", "serve", *place]}
    kept = {name: env[name] for name in ("CLAWKIT_HOME", "CLAWKIT_CONFIG") if env.get(name)}
    return entry | ({"env": kept} if kept else {})


def plan(
    client: McpClient, name: str, entry: Mapping[str, Any] | None, env: Mapping[str, str]
) -> InstallChange:
    """Add or replace the entry with this name, or remove it if `entry` is None. The rest of the
    file is unchanged. Raises `EditError`."""
    _check_name(name)
    file = client.file(env)
    try:
        before = _read(file)
    except OSError as error:
        raise EditError(f"cannot read {file!r}: {error.strerror}") from None
    edit = _edit_toml if file.endswith(".toml") else _edit_json
    try:
        return InstallChange(file, before, edit(before or "", (client.key, name), entry))
    except (ValueError, RecursionError) as error:
        said = str(error).partition("\n")[0]
        raise EditError(f"{file!r} was not changed: {said}") from None


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise EditError(f"invalid name {name[:80]!r}: use up to 64 letters, digits, - and _")


def snippet(client: McpClient, name: str, entry: Mapping[str, Any]) -> str:
    """Only the entry, for a person to add. Raises `EditError`."""
    _check_name(name)
    edit = _edit_toml if client.path.endswith(".toml") else _edit_json
    return edit("", (client.key, name), entry)


def _read(file: str) -> str | None:
    """Raises OSError, and ValueError for binary data."""
    try:
        # Do not block on a named pipe.
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise EditError(f"{file!r} is not a regular file")
            data = stream.read(MAX_FILE + 1)
    except FileNotFoundError:
        return None
    if len(data) > MAX_FILE:
        raise EditError(f"{file!r} is larger than {MAX_FILE} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise EditError(f"{file!r} is not UTF-8") from None


def _edit_json(text: str, path: tuple[str, str], entry: Mapping[str, Any] | None) -> str:
    """Raises ValueError for text that is not JSON, even with comments and trailing commas."""
    root = json5.parse(text if text.strip() else "{}\n")
    is_there = path[1] in _inside(root.value, path[0])
    if entry is None:
        return text_edit.unset_value(text, path) if is_there else text
    if root.value:
        return text_edit.set_value(text, path, dict(entry))
    whole = json.dumps({path[0]: {path[1]: entry}}, indent=2)
    return text[: root.start] + whole + (text[root.end :] or "\n")


def _inside(holder: Any, key: str) -> Mapping[str, Any]:
    found = holder.get(key, {}) if isinstance(holder, Mapping) else None
    if not isinstance(found, Mapping):
        what = "its content" if found is None else repr(key)
        raise ValueError(f"{what} is not an object")
    return found


def _edit_toml(text: str, path: tuple[str, str], entry: Mapping[str, Any] | None) -> str:
    """Replace a table, found by its header. Raises ValueError for invalid TOML, and for tables in
    another notation."""
    key, name = path
    wanted = tomllib.loads(text)
    servers = dict(_inside(wanted, key))
    servers.pop(name, None)
    if entry is not None:
        servers[name] = dict(entry)
    own = re.compile(rf"\s*\[\s*{key}\s*\.\s*[\"']?{re.escape(name)}[\"']?\s*[.\]]")
    kept: list[str] = []
    is_own = False
    for line in text.splitlines(keepends=True):
        if _HEADER.match(line):
            is_own = own.match(line) is not None
        if not is_own:
            kept.append(line)
    after = "".join(kept)
    if entry is not None:
        after = after.rstrip("\n") + "\n\n" if after.strip() else ""
        after += f"[{key}.{name}]\n"
        after += "".join(f"{each} = {_toml_value(value)}\n" for each, value in entry.items())
    with suppress(tomllib.TOMLDecodeError):
        found = tomllib.loads(after)
        if (dict(_inside(found, key)), {**found, key: 0}) == (servers, {**wanted, key: 0}):
            return after
    raise ValueError(f"{key} is not written as tables; change it by hand")


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{k} = {_toml_value(v)}' for k, v in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)
