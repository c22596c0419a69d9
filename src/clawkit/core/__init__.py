"""Tools, results, and the one way a tool is called."""
