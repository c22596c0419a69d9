"""Reads PDFs: the text of their pages, or images of pages without text."""

from typing import TYPE_CHECKING

from clawkit.plugins.api import Plugin, PluginContext

if TYPE_CHECKING:
    from clawkit.media.local import LocalMedia

plugin = Plugin(
    "pdf", version="1.0", name="PDF reading", services=["documents"], enabled_by_default=True
)


@plugin.service("documents")
def open_decoder(_ctx: PluginContext) -> "LocalMedia":
    from clawkit.media.local import LocalMedia

    return LocalMedia()
