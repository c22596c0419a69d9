"""Replaces text in a file: exactly, or with tolerance if the intent is unambiguous."""
