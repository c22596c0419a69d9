"""Loads every section, which msgspec needs to convert; clawkit loads those that a file has."""

from __future__ import annotations

from clawkit.config.lookup import all_sections

list(all_sections())
