"""Long-term memory: Markdown notes of an agent, and their index."""
