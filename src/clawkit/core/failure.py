"""What stands for an exception, where failures become results."""

from __future__ import annotations

import logging

from clawkit.core.result import Result
from clawkit.errors import ClawkitError, ToolAuthorizationError, ToolError

log = logging.getLogger(__name__)


def failure(tool: str, error: Exception) -> Result:
    """The result that stands for an exception."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, ToolAuthorizationError):
        reason, code = str(error), error.status
        denied = {"deniedReason": error.reason, "reason": reason, "code": code}
        return Result.text(reason, status="blocked", tool=tool, **denied)
    if isinstance(error, ClawkitError):
        code = error.status if isinstance(error, ToolError) else 500
        return Result.error(tool, str(error), code=code)
    log.debug("%s failed", tool, exc_info=error)
    try:
        words = str(error)
    except Exception:  # noqa: BLE001  # somebody else's class
        words = "it does not say why"
    return Result.error(tool, f"{type(error).__name__}: {words}", code=500)
