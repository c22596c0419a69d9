"""The terminal in which people talk with an agent."""
