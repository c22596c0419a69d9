"""Tests that need what a machine may lack: they are skipped, and fail with CLAWKIT_TEST_ALL=1."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, NoReturn

import pytest

ALL = os.environ.get("CLAWKIT_TEST_ALL") == "1"


def lack(why: str) -> NoReturn:
    """Skip or fail the current test."""
    (pytest.fail if ALL else pytest.skip)(why)


def needs(is_here: object, what: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not ALL and not is_here, reason=f"needs {what}")


def import_or_lack(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        lack(str(error))
