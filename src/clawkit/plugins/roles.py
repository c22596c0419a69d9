"""The names of hooks, and the roles of services with their Protocols."""

from __future__ import annotations

import importlib
from typing import Any, Literal

from clawkit.errors import PluginError

HookName = Literal[
    "before_tool_call",
    "after_tool_call",
    "tool_result_persist",
    "resolve_exec_env",
    "message_received",
    "message_sending",
    "session_start",
    "session_end",
]


NONE = "none"
"""Value in `plugins.slots`: no plugin fills the role."""
ROLES = {
    "diagnostics": ("clawkit.lsp.protocols:Diagnostics", "problems in files that were changed"),
    "telemetry": ("clawkit.agent.events:EventRecorder", "hears every event of an agent"),
    "models": ("clawkit.models.protocols:ModelProvider", "models, named `<plugin>/<model>`"),
    "sandbox": ("clawkit.sandbox.protocols:Sandbox", "where commands run confined"),
    "search": ("clawkit.web.search.protocols:SearchProvider", "searches for `web_search`"),
    "embeddings": ("clawkit.memory.embed:Embedder", "vectors of texts, for memory"),
    "documents": ("clawkit.media.protocols:PageReader", "reads the pages of documents"),
}
"""Roles that a plugin can fill, by name as in `plugins.slots`: the Protocol of the provider that
its factory returns (imported when checked), and a description. `Services.provide_role` returns the
provider, or None if no plugin fills the role. A new role needs only a row here."""


def check_provider(role: str, provider: object) -> Any:
    """The provider. Raises `PluginError` if it lacks a method of the role's Protocol."""
    module, _, name = ROLES[role][0].partition(":")
    protocol = getattr(importlib.import_module(module), name)
    wanted = [each for each in vars(protocol) if not each.startswith("_")]
    if missing := [each for each in wanted if not hasattr(provider, each)]:
        raise PluginError(
            f"its {role} service has no {' and no '.join(missing)}; it must be a {name}"
        )
    return provider
