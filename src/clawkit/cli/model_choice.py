"""Which models an agent uses and which it could, as `clawkit models` and `doctor` tell it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from clawkit.config.modelref import ModelRef
from clawkit.errors import ConfigError
from clawkit.models.credentials import Credential
from clawkit.models.discover import found_model
from clawkit.models.operator import REF as OPERATOR
from clawkit.models.resolve import Catalog

Source = Literal["config", "found", "local", "built-in"]


class Choice(NamedTuple):
    """A model that is used, or would be if it could be."""

    name: str
    """As it is written."""
    setting: str
    """Where; empty when nothing says so."""
    ref: ModelRef | None
    problem: str = ""
    """Why the name means no model."""


def chosen(catalog: Catalog) -> list[Choice]:
    """The agent's model and its fallbacks, also those whose names mean nothing."""
    found: dict[ModelRef | str, Choice] = {}
    for setting, name in catalog.chosen():
        try:
            ref = catalog.find(name)
        except ConfigError as error:
            found[setting] = Choice(name, setting, None, describe(error))
        else:
            found.setdefault(ref, Choice(name, setting, ref))
    return list(found.values())


def in_force(catalog: Catalog) -> tuple[Source, list[Choice]]:
    """What is chosen, else what is found; nothing is connected to."""
    if choices := chosen(catalog):
        return "config", choices
    if ref := found_model(catalog):
        return "found", [Choice(str(ref), "", ref)]
    return "built-in", [Choice(str(OPERATOR), "", OPERATOR)]


def describe(error: ConfigError) -> str:
    """What is wrong, without the name of the setting, which is told beside it."""
    return "; ".join(
        f"{issue.message}. {issue.hint}" if issue.hint else issue.message for issue in error.issues
    )


class Access(NamedTuple):
    """What a provider is asked with."""

    credentials: tuple[Credential, ...] = ()
    """In the order of use."""
    missing: str = ""
    """What to do where there is none: `set NAME or …`."""
    problem: str = ""


def access(catalog: Catalog, provider: str) -> Access:
    """The credentials of a provider, or what is wrong with them."""
    try:
        found = tuple(catalog.credentials.for_provider(provider))
    except ConfigError as error:
        return Access(problem=str(error))
    if found:
        return Access(found)
    return Access(missing=str(catalog.credentials.missing(provider)).partition(": ")[2])


def host_of(url: str) -> str:
    """Host and port of an address, for people."""
    return urlsplit(url).netloc


class Remarks(logging.Handler):
    """Keeps what is remarked on credentials, each remark once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.heard[record.getMessage()] = None


@contextmanager
def listening() -> Iterator[Remarks]:
    """Have remarks on models kept, not printed wherever they happen to be made."""
    logger, remarks = logging.getLogger("clawkit.models"), Remarks()
    propagates = logger.propagate
    logger.addHandler(remarks)
    logger.propagate = False
    try:
        yield remarks
    finally:
        logger.removeHandler(remarks)
        logger.propagate = propagates
