"""Detects calls that repeat without progress, from the calls of a run and their results."""
