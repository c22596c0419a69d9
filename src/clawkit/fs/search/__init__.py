"""Searching files: by their contents and by their names."""
