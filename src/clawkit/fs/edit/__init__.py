"""Replacing texts in a file: exactly, or tolerant where it is certain what is meant."""
