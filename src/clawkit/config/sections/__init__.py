"""The sections of the configuration, one module for each area."""
