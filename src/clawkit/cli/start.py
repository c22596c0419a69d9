"""The entry point of `clawkit`: a simple `clawkit agent` is sent to the gateway first."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command line and exit."""
    args = sys.argv[1:]
    if args[:1] == ["agent"]:
        from clawkit.cli.gateway_turn import begun_early

        with begun_early(args[1:]):
            _run()
    _run()


def _run() -> None:
    from clawkit.cli.main import run as run_all

    run_all()
