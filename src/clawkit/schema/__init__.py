"""Adapts parameter schemas to what each model provider accepts."""
