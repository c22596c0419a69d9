"""Searching the web, and posts on X: providers, the choice among them, and their answers."""
