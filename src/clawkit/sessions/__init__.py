"""Stored conversations."""
