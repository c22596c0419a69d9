"""Sends OpenTelemetry spans of turns, requests and calls, configured by `diagnostics.otel`."""

import os
from typing import TYPE_CHECKING

from clawkit.config.load import Loaded
from clawkit.plugins.api import Plugin, PluginContext
from clawkit.redact import Redactor

if TYPE_CHECKING:
    from clawkit.telemetry.settings import Telemetry

plugin = Plugin("telemetry", version="1.0", services=["telemetry"], enabled_by_default=True)


@plugin.service("telemetry")
def open_export(ctx: PluginContext) -> "Telemetry | None":
    diagnostics = ctx.config.diagnostics
    if not diagnostics.enabled or not diagnostics.otel.is_on(os.environ):
        return None
    from clawkit.telemetry.settings import open_telemetry

    return open_telemetry(ctx.use(Loaded), ctx.agent, ctx.use(Redactor))
