"""Tools, results, and the one call path."""
