"""One long-running process whose agents, sessions and approvals are shared by many clients."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clawkit.gateway.server import app

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: the commands that start and stop a gateway do not need the server.
    if name == "app":
        from clawkit.gateway.server import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
