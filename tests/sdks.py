"""The official clients of the services, which know what these send and take."""

from __future__ import annotations

import pytest

SDKS = pytest.mark.xdist_group("sdks")
"""Tests with the clients: one worker imports them, and no other."""
