"""The terminal interface for chats with an agent."""
