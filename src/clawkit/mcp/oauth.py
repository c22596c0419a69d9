"""stub"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class TokenStore:
    def __init__(self, path: str, learn: Any) -> None: ...


class OAuth:
    def __init__(
        self, name: str, entry: Any, client: Any, route: Any, tokens: Any, reveal: Any
    ) -> None:
        self._entry, self._reveal = entry, reveal

    async def headers(self) -> Mapping[str, str]:
        return {k: self._reveal(v) for k, v in self._entry.headers.items()}

    async def renew(self, status: int, challenge: str) -> bool:
        return False
