"""Codes for the control page: each lets one browser log in, once, within a few minutes."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict

from clawkit.gateway.auth import hash_token
from clawkit.gateway.limits import Clock

VALID_S = 600.0
MAX_CODES = 20


class LoginCodes:
    """The valid codes. Kept in memory only, as hashes."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._until: OrderedDict[str, float] = OrderedDict()

    def make(self) -> str:
        """A new code; drops the oldest if there are too many."""
        code = secrets.token_urlsafe(24)
        self._until[hash_token(code)] = self._clock() + VALID_S
        if len(self._until) > MAX_CODES:
            self._until.popitem(last=False)
        return code

    def redeem(self, code: str) -> bool:
        """Whether a code is valid; works only once."""
        return self._until.pop(hash_token(code), 0.0) > self._clock()
