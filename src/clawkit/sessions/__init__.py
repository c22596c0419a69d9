"""Conversations on the disk."""
