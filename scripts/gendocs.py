"""Writes the parts of the documentation that repeat what the code says.

Between `<!-- generated: name -->` and `<!-- end generated -->` a page holds what the generator of
that name gives. Without arguments the pages are brought up to date; `--check` only says which are
not, and ends with 1.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click
import msgspec

from clawkit.agent.assemble import load_tool
from clawkit.agent.events import Event
from clawkit.bundled import BUNDLED
from clawkit.bundled.lobster.stages import COMMANDS as STAGES
from clawkit.cli.main import main as cli
from clawkit.cli.onboarding.write import CHOICES, CUSTOM, SKIP
from clawkit.config.model import Config
from clawkit.config.section import Partial, Section, Shape, describe, layout_of
from clawkit.config.sections.tools import Attachments, SessionsSpawn, Tools
from clawkit.core.catalog import CATALOG, GROUPS, PROFILES, CatalogEntry
from clawkit.core.context import Scope, Sender
from clawkit.core.tool import Tool
from clawkit.models.discover import default_model
from clawkit.models.known import PROVIDERS
from clawkit.plugins.api import PluginContext
from clawkit.policy.pipeline import SANDBOX_ALLOW, SANDBOX_DENY
from clawkit.web.search.protocols import FILTERS
from clawkit.web.search.table import PROVIDERS as SEARCH_PROVIDERS

ROOT = Path(__file__).resolve().parent.parent
HELP_WIDTH = 80
_FILES = SessionsSpawn(attachments=Attachments(enabled=True))
ON = Config(tools=Tools(update_plan=True, sessions_spawn=_FILES))
"""Settings with which every tool is offered, with everything it takes."""
SMALL = 8
"""Objects of up to this many settings need no heading and may be told in several places."""

_PART = re.compile(r"(<!-- generated: ([^>]+?) -->\n)(.*?)(<!-- end generated -->)", re.DOTALL)
_TOLD_DEFAULT = re.compile(r"[;,] default [^;,.()]+(?: \([^)]*\))?\.$")


def pages() -> list[Path]:
    """Every page of the documentation."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def renewed(text: str) -> str:
    """A page with its generated parts as they should be. Raises KeyError for an unknown part."""

    def renew(part: re.Match[str]) -> str:
        name, _, argument = part[2].partition(" ")
        make = GENERATORS[name]
        return f"{part[1]}\n{make(argument).strip()}\n\n{part[4]}"

    return _PART.sub(renew, text)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


def code(items: Iterable[str]) -> str:
    return ", ".join(f"`{item}`" for item in items)


def slug(heading: str) -> str:
    """The anchor of a heading, as hosts of Markdown make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def catalog(_: str) -> str:
    """Every tool of the catalog."""
    head = (
        "Tool,What it does,Section,Profiles,Groups,Also called,Owner only,Sub-agents,In this build"
    )
    return table(head.split(","), map(_catalog_row, CATALOG.values()))


def _catalog_row(entry: CatalogEntry) -> tuple[str, ...]:
    return (
        f"[`{entry.id}`](../tools/{entry.id}.md)" if entry.available else f"`{entry.id}`",
        entry.description,
        entry.section,
        ", ".join((*entry.profiles, "full")),
        code(f"group:{group}" for group in entry.groups),
        code(entry.aliases),
        "yes" if entry.owner_only else "",
        entry.sub_agent,
        "yes" if entry.available else "not yet",
    )


def groups(_: str) -> str:
    """Every group of tools."""
    return table(("Group", "Tools"), ((f"`{name}`", code(ids)) for name, ids in GROUPS.items()))


def profiles(_: str) -> str:
    """Every profile."""
    rows = (
        (f"`{name}`", "every tool; the same as no profile" if ids == ("*",) else code(ids))
        for name, ids in PROFILES.items()
    )
    return table(("Profile", "Tools"), rows)


def sandbox_lists(_: str) -> str:
    """What sandboxed sessions have when nothing else is configured."""
    return table(
        ("List", "Entries when it is not set"),
        (
            ("`tools.sandbox.tools.allow`", code(SANDBOX_ALLOW)),
            ("`tools.sandbox.tools.deny`", code(SANDBOX_DENY)),
        ),
    )


def providers(_: str) -> str:
    """Every service that needs no configuration but a key."""
    rows = (
        (
            f"`{row.id}`",
            f"`{row.api}`" if row.api else "that of the model",
            f"`{row.base_url}`",
            code(row.env) or "none needed",
            code([row.models[0].id]) if row.models else "",
        )
        for row in PROVIDERS.values()
    )
    return table(("Provider", "API", "Address", "Key", "Model when none is chosen"), rows)


def search_providers(_: str) -> str:
    """Every search service."""
    rows = (
        (
            f"`{row.id}`",
            code(row.env) or "none needed",
            str(row.order or "only if named"),
            code(name for name in FILTERS if name in row.filters_in("")),
            code(row.options),
            f"`plugins.entries.{row.entry}`",
        )
        for row in SEARCH_PROVIDERS.values()
    )
    head = ("Provider", "Key or address", "Order", "Filters", "Other settings", "Settings in")
    return table(head, rows)


def parameters(name: str) -> str:
    """The parameters of one tool."""
    if name in CATALOG:
        owner = Sender(owner=True)
        scope = Scope(
            sender=owner,
            delegates=True,
            in_gateway=True,
            in_heartbeat=True,
            search=("any", "grok"),
        )
        tool = load_tool(CATALOG[name], ON, scope)
    else:
        tool = importlib.import_module(BUNDLED[name]).plugin.factories[0](PluginContext())
    if not isinstance(tool, Tool):
        raise KeyError(f"{name} is not offered: {tool}")
    required = tool.offered.get("required", ())
    rows = [
        (
            f"`{key}`",
            _schema_type(schema),
            "required" if key in required else _schema_default(schema),
            schema["description"],
            code(other for other, meant in tool.aliases.items() if meant == key),
        )
        for key, schema in tool.offered["properties"].items()
    ]
    return table(("Parameter", "Type", "Default", "What it is", "Also accepted"), rows)


def stages(_: str) -> str:
    """The stages of pipelines."""
    importlib.import_module("clawkit.bundled.lobster.workflow")  # adds some
    rows = (
        (f"`{name}`", code(f"--{each.rstrip('!')}" for each in kind.options.split()), kind.about)
        for name, kind in STAGES.items()
    )
    return table(("Stage", "Options", "What it does"), rows)


def _schema_default(schema: dict[str, Any]) -> str:
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else "none"


def _schema_type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    if "$ref" in schema:
        return "object"
    if "anyOf" in schema:
        return " or ".join(map(_schema_type, schema["anyOf"]))
    low, high = schema.get("minimum"), schema.get("maximum")
    kind = {"integer": "whole number", "boolean": "true or false"}.get(
        schema.get("type", ""), schema.get("type", "any")
    )
    if low is not None and high is not None:
        return f"{kind} from {low} to {high}"
    return f"{kind} of at least {low}" if low is not None else str(kind)


def events(_: str) -> str:
    """Everything that is told about a turn."""
    rows = (
        (
            f"`{each.__struct_config__.tag}`",
            f"`{each.__name__}`",
            code(field.encode_name for field in msgspec.structs.fields(each)),
            " ".join((each.__doc__ or "").split()),
        )
        for each in get_args(Event)
    )
    return table(("`type`", "In Python", "Fields", "What happened"), rows)


def gateway_reload(_: str) -> str:
    """What happens when a setting changes while the gateway runs."""
    from clawkit.gateway.reload import KINDS

    hot, restart = (
        code(name for name, each in KINDS.items() if each == kind and not name.startswith("$"))
        for kind in ("hot", "restart")
    )
    rows = (
        (hot, "apply from the next message to a session on"),
        (restart, "apply after a restart; until then, the gateway reports that it is needed"),
        ("settings without an effect in this version", "nothing"),
    )
    return table(("Settings", "A change"), rows)


def gateway_model_settings(_: str) -> str:
    """The settings that models may change."""
    from clawkit.gateway.tool_control import MODELS_MAY_CHANGE

    return "\n".join(f"- `{each}`" for each in MODELS_MAY_CHANGE)


def plugin_api(_: str) -> str:
    """The methods of a plugin, and the fields of its context."""
    from clawkit.plugins import Plugin, PluginContext

    parts = []
    for name in ("tool", "tool_factory", "hook", "command", "service", "prompt"):
        doc = " ".join((inspect.getdoc(getattr(Plugin, name)) or "").split())
        parts.append((f"`@plugin.{name}`", doc))
    fields = [*PluginContext.__struct_fields__, "agent", "session", "channel", "sender"]
    fields += ["sandboxed", "use(Protocol)"]
    return f"{table(('Method', ''), parts)}\n\n`PluginContext` has {code(fields)}."


def plugin_arguments(_: str) -> str:
    """What a plugin declares."""
    from clawkit.plugins import Plugin

    given = inspect.signature(Plugin).parameters.values()
    rows = ((f"`{each.name}`", f"`{each.annotation}`".replace(" | ", " or ")) for each in given)
    return table(("Argument", "Type"), rows)


def plugin_roles(_: str) -> str:
    """The roles of services, and who fills them by default."""
    from clawkit.bundled import BY_DEFAULT
    from clawkit.plugins.roles import ROLES

    rows = (
        (
            f"`{name}`",
            about,
            f"`{protocol.replace(':', '.')}`",
            code(filter(None, [BY_DEFAULT.get(name)])),
        )
        for name, (protocol, about) in ROLES.items()
    )
    return table(("Role", "", "Protocol", "By default"), rows)


def command_help(name: str) -> str:
    """The help of a command and of everything below it."""
    parent = click.Context(cli, info_name="clawkit", **_help_settings())
    if name == "clawkit":
        return _help(cli, parent)
    command = cli.get_command(parent, name)
    if command is None:
        raise KeyError(name)
    return "\n\n".join(_help_tree(command, _below(command, name, parent)))


def _help_settings() -> dict[str, Any]:
    width = {"terminal_width": HELP_WIDTH, "max_content_width": HELP_WIDTH}
    return {**cli.context_settings, **width}


def _below(command: click.Command, name: str, parent: click.Context) -> click.Context:
    return click.Context(command, info_name=name, parent=parent, **_help_settings())


def _help_tree(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"### {context.command_path}\n\n{_help(command, context)}"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from _help_tree(found, _below(found, name, context))


def _help(command: click.Command, context: click.Context) -> str:
    command._help_option = None  # that of whoever asked first, perhaps without `-h`
    lines = (line.rstrip() for line in command.get_help(context).splitlines())
    return "```text\n" + "\n".join(lines) + "\n```"


class Setting(NamedTuple):
    """One line of the reference."""

    path: str
    type: str
    default: str
    text: str


class Part(NamedTuple):
    """A heading of the reference and what stands below it."""

    heading: str
    intro: str
    settings: list[Setting]
    level: int = 3


class Reference:
    """Walks the sections of the configuration and sorts their settings under headings."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.shared: dict[type[Section], None] = {}
        self.homes: dict[type[Section], str] = {}
        self._find_homes()
        for key, shape in layout_of(Config).shapes.items():
            self._top(key, shape)
        self._shared()

    def _find_homes(self) -> None:
        """The shortest path to each section: where it is told, and where links lead."""
        queue: list[tuple[str, type[Section]]] = [("", Config)]
        while queue:
            path, cls = queue.pop(0)
            for key, shape in layout_of(cls).shapes.items():
                inner, where = _object(shape, _join(path, key))
                if inner is None or inner in self.homes:
                    continue
                if _has_plain_form(shape):
                    self.shared.setdefault(inner)
                    where = inner.__name__
                self.homes[inner] = where
                queue.append((where, inner))

    def _top(self, key: str, shape: Shape) -> None:
        inner, where = _object(shape, key)
        if inner is None:
            text = Config.descriptions()[layout_of(Config).fields[key]]
            row = Setting(key, _type(shape), _default(Config, key), text)
            self.parts.append(Part(f"`{key}`", "", [row], 2))
        else:
            self._open(inner, where, 2)

    def _open(self, cls: type[Section], path: str, level: int = 3) -> None:
        """A section under a heading of its own."""
        part = Part(f"`{path}`" if path else cls.__name__, _intro(cls), [], level)
        self.parts.append(part)
        for inner, below in self._tell(cls, path, part):
            self._open(inner, below)

    def _tell(
        self, cls: type[Section], path: str, part: Part
    ) -> Iterator[tuple[type[Section], str]]:
        """Add the settings of a section; gives those sections in it that need a heading."""
        layout, texts = layout_of(cls), cls.descriptions()
        for key, shape in layout.shapes.items():
            where = _join(path, key)
            inner, below = _object(shape, where)
            text = _plain(texts[layout.fields[key]], cls, key)
            link = self._link(inner, below, shape) if inner is not None else ""
            big = inner is not None and not link and _size(inner) > SMALL
            if big:
                link = f"See [`{below}`](#{slug(below)})."
            words = f"{text} {link}".strip()
            part.settings.append(Setting(where, _type(shape), _default(cls, key), words))
            if inner is not None and big:
                yield inner, below
            elif inner is not None and not link:
                yield from self._tell(inner, below, part)

    def _link(self, cls: type[Section], path: str, shape: Shape) -> str:
        """Where the keys of an object are told, when that is not here."""
        if _has_plain_form(shape):
            return f"As an object: [{cls.__name__}](#{slug(cls.__name__)})."
        if issubclass(cls, Partial):
            home = self.homes.get(_whole(cls), "")
            rest = "; those left out keep the general value."
        else:
            home = "" if _size(cls) <= SMALL else self.homes[cls]
            rest = "."
        return f"The keys of [`{home}`](#{slug(home)}){rest}" if home not in ("", path) else ""

    def _shared(self) -> None:
        intro = "Settings that are a plain value or an object take these objects."
        self.parts.append(Part("Values that may be objects", intro, [], 2))
        for cls in self.shared:
            self._open(cls, "")


def _intro(cls: type[Section]) -> str:
    return " ".join((cls.__doc__ or "").partition("\n\n")[0].split())


def _object(shape: Shape, path: str) -> tuple[type[Section] | None, str]:
    """The section that a value is, or that is in its lists and maps, and the path there."""
    while not shape.sections:
        if shape.items is not None:
            shape, path = shape.items, f"{path}[]"
        elif shape.values is not None:
            shape, path = shape.values, f"{path}.<name>"
        else:
            return None, path
    return shape.sections[0], path


def _has_plain_form(shape: Shape) -> bool:
    while not shape.sections and (inner := shape.items or shape.values) is not None:
        shape = inner
    return bool(shape.text or shape.words or shape.whole or shape.number)


def _whole(cls: type[Section]) -> type[Section]:
    """The section that an override changes."""
    found: type[Section] = getattr(
        sys.modules[cls.__module__], cls.__name__.removesuffix("Override")
    )
    return found


def _size(cls: type[Section]) -> int:
    """How many settings there are in a section, those of inner ones included."""
    total = 0
    for shape in layout_of(cls).shapes.values():
        inner, _ = _object(shape, "")
        total += 1 + (_size(inner) if inner and not _has_plain_form(shape) else 0)
    return total


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _type(shape: Shape) -> str:
    words = describe(shape) or "anything"
    if shape.values is not None and not shape.sections:
        words = words.replace("an object", "a map")
    words = words.replace(" of at least 1 character", "")
    return re.sub(r"(^|, or )an? ", r"\1", words)


def _default(cls: type[Section], key: str) -> str:
    if issubclass(cls, Partial):
        cls = _whole(cls)
    name = layout_of(cls).fields[key]
    field = next(each for each in msgspec.structs.fields(cls) if each.name == name)
    if field.required:
        return "required"
    value = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is None or isinstance(value, Section):
        return ""
    return f"`{json.dumps(value)}`"


def _plain(text: str, cls: type[Section], key: str) -> str:
    """A description without its default, which has a column of its own, but with older names."""
    if _default(cls, key):
        text = _TOLD_DEFAULT.sub(".", text)
    others = [other for other, documented in cls.ALIASES.items() if documented == key]
    return f"{text} Also {code(others)}." if others else text


def settings(_: str) -> str:
    """Every setting."""
    told = []
    for part in Reference().parts:
        rows = [(f"`{row.path}`", row.type, row.default, row.text) for row in part.settings]
        body = table(("Setting", "Type", "Default", "What it is for"), rows) if rows else ""
        told += [f"{'#' * part.level} {part.heading}", part.intro, body]
    return "\n\n".join(text for text in told if text)


def choices(_: str) -> str:
    """Everything that `clawkit onboard --auth-choice` takes."""
    others = {
        CUSTOM: "a server that is not in this table, such as your own",
        SKIP: "no model for now",
    }
    places = others | {
        each.id: f"`{each.provider}` on this machine"
        if each.is_local
        else f"`{each.provider}` at `{each.base_url or PROVIDERS[each.provider].base_url}`"
        for each in CHOICES.values()
        if each.provider
    }
    rows = (
        (
            f"`{each.id}`",
            places[each.id],
            code(each.env),
            f"`{model}`" if (model := default_model(each.provider)) else "",
        )
        for each in CHOICES.values()
    )
    return table(("Choice", "Where", "Variable with the key", "Usual model"), rows)


def gateway_methods(module: str) -> str:
    """The methods of one module of the gateway: who may call them, and their parameters."""
    from importlib import import_module

    found = import_module(f"clawkit.gateway.methods.{module}").METHODS
    return "\n\n".join(map(_gateway_method, found))


def _gateway_method(method: Any) -> str:
    scope = f"`{method.scope}`" + (f"; {method.more.__doc__}" if method.more else "")
    words = [scope + ("; at most 30 calls a minute" if method.limited else "") + "."]
    fields = sorted(msgspec.structs.fields(method.params), key=lambda each: not each.required)
    told = [method.run, *([method.params] if fields else [])]
    words += [" ".join(each.__doc__.split()) for each in told if _says(each)]
    rows = (
        (f"`{each.encode_name}`", _gateway_type(each.type), _gateway_default(each))
        for each in fields
    )
    shown = table(("Parameter", "Type", "Default"), rows) if fields else ""
    return f"#### `{method.name}`\n\n{' '.join(words)}\n\n{shown}".strip()


def _says(thing: Any) -> bool:
    """Whether it has a description of its own: classes inherit those of their bases."""
    return bool(thing.__doc__) and (not isinstance(thing, type) or "__doc__" in vars(thing))


def _gateway_default(field: Any) -> str:
    value = field.default
    if field.required:
        return "required"
    is_shown = isinstance(value, bool | int | float | str) and value != ""
    return f"`{json.dumps(value)}`" if is_shown else ""


def _gateway_type(kind: Any) -> str:
    """A type of a parameter, with its limits, in words."""
    from clawkit.gateway.protocol import Ignored

    if kind == Ignored:
        return "no effect; named in `ignored` of the answer"
    return _gateway_words(msgspec.inspect.type_info(kind))


def _gateway_words(info: Any) -> str:
    kinds = msgspec.inspect
    match info:
        case kinds.UnionType(types=types):
            return "; or ".join(map(_gateway_words, types))
        case kinds.LiteralType(values=values):
            return ", ".join(f"`{each}`" for each in values)
        case kinds.StrType(min_length=low, max_length=high):
            return "string" + _limits(low, high, " characters")
        case kinds.IntType(ge=low, le=high) | kinds.FloatType(ge=low, le=high):
            name = "integer" if isinstance(info, kinds.IntType) else "number"
            return name + _limits(low, high, "")
        case kinds.ListType(item_type=item, min_length=low, max_length=high):
            return f"list of {_gateway_words(item)}" + _limits(low, high, " entries")
        case kinds.StructType(fields=fields):
            keys = (each.encode_name + ("" if each.required else "?") for each in fields)
            return f"object: {code(keys)}"
        case kinds.DictType():
            return "object"
        case kinds.DateType():
            return "date, such as `2026-03-05`"
        case kinds.BoolType() | kinds.NoneType():
            return "boolean" if isinstance(info, kinds.BoolType) else "null"
    return "any JSON"


def _limits(low: float | None, high: float | None, unit: str) -> str:
    if low is None and high is None:
        return ""
    if high is None:
        return f", at least {low}{unit}"
    return f", {low} to {high}{unit}" if low is not None else f", at most {high}{unit}"


def gateway_events(_: str) -> str:
    """Every event of the gateway, with the scope that it needs."""
    from clawkit.gateway.hub import EVENTS

    rows = ((f"`{name}`", f"`{scope}`" if scope else "") for name, scope in EVENTS.items())
    return table(("Event", "Scope"), rows)


GENERATORS: dict[str, Callable[[str], str]] = {
    "choices": choices,
    "catalog": catalog,
    "groups": groups,
    "profiles": profiles,
    "sandbox": sandbox_lists,
    "parameters": parameters,
    "stages": stages,
    "providers": providers,
    "events": events,
    "gateway-methods": gateway_methods,
    "gateway-events": gateway_events,
    "gateway-model-settings": gateway_model_settings,
    "gateway-reload": gateway_reload,
    "help": command_help,
    "plugin-api": plugin_api,
    "plugin-arguments": plugin_arguments,
    "plugin-roles": plugin_roles,
    "search-providers": search_providers,
    "settings": settings,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 on drift")
    check = parser.parse_args().check
    stale = 0
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new = renewed(text)
        if new == text:
            continue
        stale += 1
        print(f"{page.relative_to(ROOT)} {'is out of date' if check else 'brought up to date'}")
        if not check:
            page.write_text(new, encoding="utf-8")
    if check and stale:
        print("run `make docs`")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
