"""Decodes images and documents in separate processes."""
