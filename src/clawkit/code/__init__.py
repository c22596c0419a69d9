"""Interpreters that run code for tools and keep variables between calls."""
