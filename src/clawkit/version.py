"""The version, in a place that costs nothing to import."""

__version__ = "0.1.0"
