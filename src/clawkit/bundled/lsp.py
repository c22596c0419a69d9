"""Language servers report what a change to a file broke."""

import os
from typing import TYPE_CHECKING

from clawkit.config import paths
from clawkit.plugins.api import Plugin, PluginContext

if TYPE_CHECKING:
    from clawkit.lsp.service import LanguageServers

plugin = Plugin(
    "lsp",
    version="1.0",
    name="Language servers",
    services=["diagnostics"],
    enabled_by_default=True,
)


@plugin.service("diagnostics")
def start_servers(ctx: PluginContext) -> "LanguageServers":
    from clawkit.lsp.service import LanguageServers

    fs = ctx.config.tools.fs.merged(ctx.config.agents.get(ctx.agent).tools.fs)
    given = (*fs.write_roots, *fs.read_roots)
    roots = [os.path.join(ctx.workspace, os.path.expanduser(root)) for root in given]
    cache = os.path.join(paths.home(os.environ), "cache", "lsp")
    return LanguageServers(ctx.workspace, roots, fs.lsp, cache_dir=cache)
