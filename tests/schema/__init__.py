"""Parameter schemas: provider rules, generated schemas and the real ones of public MCP servers."""
