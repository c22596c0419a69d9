"""The cost of plugins: none without plugins, and little with many."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, fastest
from clawkit.agent.assemble import _assemble, assemble
from clawkit.bundled import plugin_tools
from clawkit.config.load import loads
from clawkit.core.context import Scope
from clawkit.plugins.discover import read_plugin
from clawkit.plugins.load import _load_all, _modules
from clawkit.plugins.trust import write_record

PLUGINS, TOOLS = 50, 10
_TOOL = '''

@plugin.tool
def {name}(text: str, count: int = 1) -> str:
    """Repeat a text.

    Args:
        text: What to repeat.
        count: How often.
    """
    return text * count
'''


def write_plugins(home: Path) -> str:
    """Write and enable plugins; returns the configuration."""
    folder = home / "plugins"
    folder.mkdir(mode=0o700)
    for number in range(PLUGINS):
        names = [f"repeat_{number}_{each}" for each in range(TOOLS)]
        head = '"""Repeats."""\nfrom clawkit.plugins import Plugin\n\n'
        head += f'plugin = Plugin("p{number}", tools={names})\n'
        file = folder / f"p{number}.py"
        file.write_text(head + "".join(_TOOL.format(name=name) for name in names))
        found = read_plugin(str(file), "home")
        write_record(str(home), found.id, found.record)
    entries = ", ".join(f"p{number}: {{enabled: true}}" for number in range(PLUGINS))
    return f"{{plugins: {{entries: {{{entries}}}}}}}"


def measure() -> Iterator[Figure]:
    code = "import sys; from clawkit import Toolkit; Toolkit.open({}, workspace='/'); "
    code += "print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = ("clawkit.plugins", "clawkit.bundled.")
    count = sum(name.startswith(ours) for name in done.stdout.split())
    yield Figure("no plugins", count, "modules loaded", 0)
    before = os.environ.get("CLAWKIT_HOME")
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLAWKIT_HOME"] = home
        try:
            yield _many(Path(home))
        finally:
            os.environ.pop("CLAWKIT_HOME")
            if before is not None:
                os.environ["CLAWKIT_HOME"] = before


def _many(home: Path) -> Figure:
    config = loads(write_plugins(home)).config
    scope = Scope()

    def load() -> None:
        _modules.clear()
        _load_all.cache_clear()
        for name in [name for name in sys.modules if name.startswith("_clawkit_plugin_")]:
            del sys.modules[name]
        plugin_tools(config, scope, "/tmp")

    def assembly() -> None:
        _assemble.cache_clear()
        tools = plugin_tools(config, scope, "/tmp")
        assert len(tools) == PLUGINS * TOOLS
        assemble(config, scope, tools)

    loaded = fastest(load, 3)
    note = f"loading them: {loaded * 1e3:.0f} ms, once per process"
    return Figure("50 plugins, 500 tools: assembly", fastest(assembly, 10) * 1e3, "ms", 50, note)
