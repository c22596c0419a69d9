"""The web: fetching pages and searching."""
