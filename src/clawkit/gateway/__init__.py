"""One long-running process whose agents, sessions and approvals are shared by many clients."""

from clawkit.gateway.server import app

__all__ = ["app"]
