"""Interpreters that run code for tools, and keep its variables."""
