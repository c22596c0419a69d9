"""The ids of search services for the configuration."""

_SAME = (
    *("brave", "minimax", "perplexity", "firecrawl", "exa", "tavily", "parallel", "parallel-free"),
    *("kagi", "serper", "searxng", "duckduckgo", "ollama"),
)
SEARCH_ENTRIES = {**dict(zip(_SAME, _SAME, strict=True)), "gemini": "google"}
SEARCH_ENTRIES |= {"grok": "xai", "kimi": "moonshot"}
"""Each with the name of its settings: `plugins.entries.<name>.config.webSearch`."""
SEARCH_SETTINGS = frozenset(SEARCH_ENTRIES.values())
"""Entries of `plugins.entries` that are not plugins here, but may be in other programs."""
