"""Measurements: ratios to a baseline taken in the same run."""
