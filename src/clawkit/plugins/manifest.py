"""The manifest of a plugin: the literals in its `Plugin(…)`, read without running its code."""

from __future__ import annotations

import ast
import re
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta

from clawkit.core.tool import is_tool_name
from clawkit.errors import PluginError
from clawkit.plugins.roles import ROLES, HookName
from clawkit.text import one_line

MAX_SOURCE_BYTES = 128 * 1024
"""Parsing this much takes up to a second for the worst source; ten times as much, a minute."""
_ID = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_INVALID_ID = "invalid id {!r}: use a lower-case letter, then letters, digits, _ or -"
_COMMAND = re.compile(r"[a-z][a-z0-9-]{0,31}")
_INVALID_COMMAND = "invalid command name {!r}: use lower-case letters, digits and -"
_NOT_HASHED = ("", "__pycache__", "node_modules")
_LISTS = ("hooks", "commands", "services", "skills")
Names = Annotated[tuple[str, ...], Meta(max_length=500)]


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a plugin may add. Other registrations are refused."""

    id: str
    version: Annotated[str, Meta(max_length=64)] = ""
    name: Annotated[str, Meta(max_length=80)] = ""
    description: Annotated[str, Meta(max_length=1_000)] = ""  # by default, the module's docstring
    tools: Names = ()
    optional_tools: Names = ()  # offered only if an allow list asks for them
    hooks: tuple[HookName, ...] = ()
    commands: Names = ()
    services: Names = ()  # roles that it fills
    skills: Names = ()  # directories with skills, below that of the plugin
    prompt: Annotated[str, Meta(max_length=4_000)] | bool = False
    """Text for the prompt, or true if a function returns it."""
    enabled_by_default: bool = False  # only for bundled plugins
    has_settings: bool = False

    @property
    def all_tools(self) -> tuple[str, ...]:
        return (*self.tools, *self.optional_tools)

    def summary(self) -> dict[str, str]:
        """A summary of what it adds."""
        tools = [*self.tools, *(f"{name} (optional)" for name in self.optional_tools)]
        parts: dict[str, Any] = {"tools": ", ".join(tools)}
        parts |= {name: ", ".join(getattr(self, name)) for name in _LISTS}
        parts["prompt"] = "text from a function" if self.prompt is True else self.prompt
        return {name: text for name, text in parts.items() if text}


def make_manifest(fields: dict[str, Any], doc: str) -> Manifest:
    """Raises `PluginError` for invalid values."""
    first = one_line((doc or "").strip().partition("\n\n")[0], 300)
    fields["name"] = fields.get("name") or fields.get("id", "")
    fields["description"] = fields.get("description") or first
    try:
        made = msgspec.convert(fields, Manifest)
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at `$.")
        known = f"; known: {', '.join(get_args(HookName))}" if where.startswith("hooks[") else ""
        at = f"{where.rstrip('`')}: " if where else ""
        raise PluginError(f"invalid Plugin(…): {at}{said}{known}") from None
    for names, is_valid, problem in (
        ([made.id], _ID.fullmatch, _INVALID_ID),
        (made.all_tools, is_tool_name, "invalid tool name {!r}"),
        (made.commands, _COMMAND.fullmatch, _INVALID_COMMAND),
        (made.services, ROLES.__contains__, f"unknown service {{!r}}; known: {', '.join(ROLES)}"),
        (
            made.skills,
            _is_below,
            "the skills directory {!r} must be below the plugin's, not hidden",
        ),
    ):
        for name in names:
            if not is_valid(name):
                raise PluginError(problem.format(name))
    if twice := {name for name in made.all_tools if made.all_tools.count(name) > 1}:
        raise PluginError(f"declares a tool twice: {', '.join(sorted(twice))}")
    return made


def _is_below(folder: str) -> bool:
    parts = folder.removeprefix("./").split("/")
    return "\0" not in folder and (folder == "." or all(map(is_hashed, parts)))


def is_hashed(name: str) -> bool:
    """Whether a file or directory is part of a plugin, unlike caches and other leftovers."""
    return name not in _NOT_HASHED and not name.startswith(".") and not name.endswith(".pyc")


def read_manifest(source: bytes) -> Manifest:
    """The manifest of a module. Runs none of its code. Raises `PluginError`."""
    if len(source) > MAX_SOURCE_BYTES:
        limit = f"larger than {MAX_SOURCE_BYTES // 1024} KB; move code into other modules"
        raise PluginError(f"the module with its Plugin(…) is {limit}")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = one_line(str(error), 200).replace("<unknown>, ", "")
        raise PluginError(f"its module cannot be parsed: {why}") from None
    calls = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and [getattr(each, "id", "") for each in node.targets] == ["plugin"]
    ]
    if len(calls) != 1:
        raise PluginError('its module needs one line `plugin = Plugin("id", …)`')
    [call] = calls
    if len(call.args) > 1:
        raise PluginError(f"line {call.lineno}: only the id of a Plugin may be positional")
    values = {each.arg or "**": each.value for each in call.keywords}
    values |= dict(zip(["id"], call.args, strict=False))
    given: dict[str, Any] = {"has_settings": values.pop("config", None) is not None}
    for name, value in values.items():
        try:
            given[name] = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            where = f"line {value.lineno}: {name!r} is computed"
            raise PluginError(f"{where}; the arguments of Plugin must be literals") from None
    return make_manifest(given, ast.get_docstring(tree) or "")
