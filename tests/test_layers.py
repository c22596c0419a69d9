"""An import may only point downward, and every module is reached from an entry point."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from clawkit.bundled import BUNDLED
from clawkit.cli.main import COMMANDS, SUBCOMMANDS
from clawkit.core.catalog import CATALOG
from clawkit.models.client import _WIRES
from clawkit.web.search.table import PROVIDERS as SEARCH_PROVIDERS

# Every file is parsed once, by one worker.
pytestmark = pytest.mark.xdist_group("layers")
ROOT = Path(__file__).parent.parent
SRC = ROOT / "src"
TESTKIT = ROOT / "testkit" / "src"
# All that the second distribution uses of the first.
TESTKIT_USES = {
    "clawkit.content",
    "clawkit.models.protocols",
    "clawkit.testing",
    "clawkit.testing.answers",
}

LAYERS = {
    0: "errors content version installation config text terminal_text call_summary line_reader "
    "globs word_tables redact external store net",
    1: "core",
    2: "policy schema guard plugins",
    3: "fs lsp process approvals sandbox code models sessions cron nodes canvas browser web "
    "channels memory media skills mcp",
    4: "tools",
    5: "agent",
    6: "runtime services telemetry agent_session session_state delegation spawn_setup worktrees "
    "turns messenger command_check session_cron gateway mcp_server bundled run_skills run_memory "
    "own_files",
    7: "cli ui testing adapters",
    8: "__main__",
}
LAYER = {name: level for level, names in LAYERS.items() for name in names.split()}
# Within a layer a package may import itself; these may import each other.
SIDEWAYS = {
    0: {(a, b) for a in LAYERS[0].split() for b in LAYERS[0].split()},
    6: {
        *(("runtime", "services"), ("services", "session_cron"), ("services", "run_skills")),
        *(("services", "run_memory"), ("run_memory", "services"), ("services", "own_files")),
        *((one, "bundled") for one in ("runtime", "services", "agent_session", "gateway")),
        ("bundled", "telemetry"),
        *(("agent_session", other) for other in ("runtime", "services")),
        *(("agent_session", other) for other in ("session_state", "delegation", "spawn_setup")),
        *(("agent_session", other) for other in ("turns", "messenger")),
        *(("delegation", "spawn_setup"), ("spawn_setup", "worktrees")),
        # For types alone: these work for an agent, which makes them.
        *((one, "agent_session") for one in ("session_state", "delegation")),
        *((one, "agent_session") for one in ("turns", "messenger")),
        ("turns", "services"),
        *(("mcp_server", "runtime"), ("gateway", "mcp_server")),
        *(("messenger", other) for other in ("delegation", "turns")),
        *(("command_check", other) for other in ("runtime", "services")),
        *(
            ("gateway", other)
            for other in ("runtime", "services", "agent_session", "command_check", "session_cron")
        ),
    },
    7: {("cli", "ui")},
    3: {
        *(("sandbox", other) for other in ("fs", "process")),
        *((one, "process") for one in ("fs", "lsp", "media", "approvals", "nodes", "code")),
        ("mcp", "process"),
        # Large pages are read by a confined program.
        ("web", "process"),
        ("canvas", "nodes"),
        # Opening notes below their roots.
        ("memory", "fs"),
        # Opening files below a root; variables that control programs.
        *(("skills", other) for other in ("fs", "process")),
        *((one, "models") for one in ("memory", "media")),
    },
}
# Modules that are named in tables and imported on use.
BY_NAME = {path.partition(":")[0] for path, _ in COMMANDS.values()} | {
    entry.module for entry in CATALOG.values() if entry.module
}
BY_NAME |= set(BUNDLED.values())
BY_NAME |= {f"clawkit.models.wire.{module}" for module, _ in _WIRES.values()}
BY_NAME |= {
    function.partition(":")[0]
    for group in SUBCOMMANDS.values()
    for function, _ in group.values()
    if ":" in function
}
# Programs of their own, started by path or by name.
BY_NAME |= {
    "clawkit.fs.search.python_search",
    "clawkit.media.decoder",
    "clawkit.process.spawn_server",
    "clawkit.web.html_child",
}
BY_NAME |= {row.load().__module__ for row in SEARCH_PROVIDERS.values()}
BY_NAME |= {"clawkit.code.child", "clawkit.code.python_child"}
BY_NAME |= {"clawkit.sandbox.remote_helper"}
ENTRY_POINTS = {"clawkit", "clawkit.__main__", "clawkit.cli.main", "clawkit.testing"}
# For programs that use a framework, which has to be there.
ENTRY_POINTS |= {
    f"clawkit.adapters.{name}" for name in ("pydantic_ai", "openai_agents", "langchain")
}


def files_below(root: Path) -> dict[str, Path]:
    files = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


@cache
def module_files() -> dict[str, Path]:
    return files_below(SRC)


@cache
def imports_of(path: Path) -> set[str]:
    """Every clawkit module a file imports, also inside functions and under TYPE_CHECKING."""
    return all_imports_of(path) & set(module_files())


def all_imports_of(path: Path) -> set[str]:
    return read(path).imports


class Source(NamedTuple):
    """What a file has."""

    imports: set[str]
    classes: list[str]
    texts: list[str]


@cache
def read(path: Path) -> Source:
    found = Source(set(), [], [])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found.imports.update({module}, (f"{module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.ClassDef):
            found.classes.append(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.texts.append(node.value)
    return found


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_a_readme_says_what_its_package_may_import() -> None:
    wrong = {}
    for readme in sorted((SRC / "clawkit").glob("*/README.md")):
        package = readme.parent.name
        text = " ".join(readme.read_text(encoding="utf-8").split())
        said = re.search(r"[Mm]ay import (.+?)(?:;|\.(?: |$))", text)
        assert said, package
        may = {package, *re.findall(r"`(\w+)`", said[1])}
        # Which of the same layer, another test checks.
        most = LAYER[package] if "below" in said[1] else 2 if "layers 0 to 2" in said[1] else -1
        most = max(most, 0 if "the leaves" in said[1] else -1)
        does = {
            name.split(".")[1]
            for path in readme.parent.rglob("*.py")
            for name in imports_of(path) - {"clawkit"}
        }
        wrong[package] = {each for each in does - may if LAYER[each] > most}
    assert {package: names for package, names in wrong.items() if names} == {}


def test_imports_point_downward() -> None:
    modules = {name: path for name, path in module_files().items() if "." in name}
    assert {package_of(name) for name in modules} <= LAYER.keys()
    assert [
        f"{module} must not import {other}"
        for module, path in modules.items()
        for other in sorted(imports_of(path))
        if not may_import(package_of(module), package_of(other))
    ] == []


def may_import(mine: str, theirs: str) -> bool:
    if theirs in ("", mine) or LAYER[theirs] < LAYER[mine]:
        return True
    return LAYER[theirs] == LAYER[mine] and (mine, theirs) in SIDEWAYS.get(LAYER[mine], set())


def test_the_test_kit_is_used_by_the_testing_module_alone() -> None:
    users = {
        name
        for name, path in module_files().items()
        if any(each.partition(".")[0] == "clawkit_testkit" for each in all_imports_of(path))
    }
    assert users == {"clawkit.testing"}
    used = {each for path in files_below(TESTKIT).values() for each in imports_of(path)}
    assert used <= TESTKIT_USES


def test_only_the_command_line_uses_the_gateway() -> None:
    users = {
        name
        for name, path in module_files().items()
        if any(each.startswith("clawkit.gateway") for each in imports_of(path))
        and not name.startswith("clawkit.gateway")
    }
    # `clawkit cron` runs jobs as the gateway does, and uses a remote one; the login of `clawkit mcp
    # serve --http` is its.
    others = {"clawkit.cli.cron", "clawkit.cli.cron_serve", "clawkit.cli.mcp_serve"}
    assert users == others | {"clawkit.cli.gateway"} | {
        f"clawkit.cli.gateway{part}"
        for part in [
            "_chat",
            "_commands",
            "_follow",
            "_line_chat",
            "_link",
            "_service",
            "_status",
            "_turn",
        ]
    }


def test_both_distributions_have_the_same_version() -> None:
    main, kit = (
        tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (ROOT, ROOT / "testkit")
    )
    assert kit["version"] == main["version"]
    assert f"clawkit=={main['version']}" in kit["dependencies"]


def test_every_module_is_reached_from_an_entry_point() -> None:
    files = module_files()
    lazy = {"clawkit": BY_NAME | set(lazily_exported())}
    reached: set[str] = set()
    todo = set(ENTRY_POINTS) | BY_NAME
    while todo:
        module = todo.pop()
        if module in reached or module not in files:
            continue
        reached.add(module)
        todo |= imports_of(files[module]) | lazy.get(module, set())
        todo.add(module.rpartition(".")[0])
    assert set(files) - reached == set()


def lazily_exported() -> list[str]:
    import clawkit

    return list(clawkit._HOME.values())


def test_no_module_has_more_than_600_lines() -> None:
    long = {
        name: lines
        for name, path in (module_files() | files_below(TESTKIT)).items()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 600
    }
    assert long == {}


def test_class_names_are_unique() -> None:
    found: dict[str, list[str]] = {}
    for path in module_files().values():
        for name in read(path).classes:
            if name != "Params":  # every tool has its own
                found.setdefault(name, []).append(str(path.relative_to(SRC)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


# The same part of several packages.
PARTS = (
    "__init__ answers catalog client command discover errors hooks install load local masking "
    "markdown paths pipeline protocol protocols questions results schema search server service "
    "settings snapshot store tls tool"
)
# Named after their subject: commands, settings, methods of the gateway, tools, and the subject.
SUBJECTS = (
    "agents approvals config cron devices gateway heartbeat jobs mcp memory model models openai "
    "plugins protected_files sandbox sessions skills status subagents tools usage write"
)


def test_a_file_name_occurs_twice_only_if_it_means_the_same() -> None:
    found: dict[str, list[str]] = {}
    for path in module_files().values():
        found.setdefault(path.stem, []).append(str(path.relative_to(SRC)))
    repeated = {name for name, places in found.items() if len(places) > 1}
    assert repeated == set(f"{PARTS} {SUBJECTS}".split())


def test_every_public_name_can_be_imported() -> None:
    import clawkit

    for name in clawkit.__all__:
        assert getattr(clawkit, name) is not None


def test_no_expression_repeats_a_group_possessively() -> None:
    """Python before 3.11.5 goes on after a group that failed as if it had matched: `(?:ab)?+`
    becomes `(?>(?:ab)?)`, which all versions match alike."""
    possessive = re.compile(r"\)(?:[?*+]|\{[0-9,{}]+\})\+")
    found = [
        f"{path.relative_to(SRC)}: {text[at.start() - 20 : at.end()]!r}"
        for path in module_files().values()
        for text in read(path).texts
        if (at := possessive.search(text))
    ]
    assert found == []
