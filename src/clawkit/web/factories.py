"""Creates the web services on first use, and imports them only then."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from clawkit.config import paths
from clawkit.config.load import Loaded
from clawkit.config.section import SecretInput
from clawkit.errors import ToolError
from clawkit.web.protocols import WebPages

if TYPE_CHECKING:
    from clawkit.config.model import Config
    from clawkit.config.sections.web import WebFetch
    from clawkit.web.fetch import Fetcher


def web_factories(
    loaded: Loaded, session: str, reveal: Callable[[SecretInput], str]
) -> dict[type, Callable[[], object]]:
    """By Protocol, for one session; `reveal` resolves a secret."""

    def pages() -> Fetcher:
        from pathlib import Path

        from clawkit.config.sections.web import Web
        from clawkit.web.cache import Cache
        from clawkit.web.fetch import Fetcher

        env = {**os.environ, **loaded.env}
        settings = _with_plugin((loaded.config.tools.web or Web()).fetch, loaded.config)
        cache = Cache(Path(paths.web_cache_file(os.environ)))
        folder = Path(paths.pages_dir(os.environ, session))
        return Fetcher(settings, cache, folder=folder, env=env, reveal=reveal)

    return {WebPages: pages}


def _with_plugin(settings: WebFetch, config: Config) -> WebFetch:
    """The settings, merged with Firecrawl's plugin settings of other programs; ours take
    precedence."""
    import msgspec
    from msgspec.structs import replace

    entry = config.plugins.entries.get("firecrawl") if config.plugins else None
    given = entry.config.get("webFetch") if entry else None
    if given is None:
        return settings
    try:
        own = msgspec.to_builtins(settings.firecrawl)
        both = msgspec.convert({**given, **own}, type(settings.firecrawl))
    except (TypeError, msgspec.ValidationError) as error:
        raise ToolError(f"plugins.entries.firecrawl.config.webFetch: {error}") from None
    return replace(settings, firecrawl=both)
