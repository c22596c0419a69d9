"""Starts other programs, confined to what they need."""
