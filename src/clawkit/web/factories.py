"""Makes the services of the web on first use. Imports nothing before."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from clawkit.config import paths
from clawkit.config.load import Loaded
from clawkit.config.section import SecretInput
from clawkit.web.protocols import WebPages

if TYPE_CHECKING:
    from clawkit.web.fetch import Fetcher


def web_factories(
    loaded: Loaded, session: str, reveal: Callable[[SecretInput], str]
) -> dict[type, Callable[[], object]]:
    """By Protocol, for one session; `reveal` resolves a secret."""

    def pages() -> Fetcher:
        from clawkit.config.sections.web import Web
        from clawkit.web.cache import Cache
        from clawkit.web.fetch import Fetcher

        env = {**os.environ, **loaded.env}
        settings = (loaded.config.tools.web or Web()).fetch
        cache = Cache(Path(paths.web_cache_file(os.environ)))
        folder = Path(paths.pages_dir(os.environ, session))
        return Fetcher(settings, cache, folder=folder, env=env, reveal=reveal)

    return {WebPages: pages}
