"""Writing down what was chosen: the key, then the configuration, both or neither."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from clawkit.cli.onboarding_plan import Setting, Setup, edited, profile_id
from clawkit.config.change import READONLY, Change, change
from clawkit.config.include import ReadError, read_text
from clawkit.config.load import Loaded, loads
from clawkit.config.paths import config_file as usual_file
from clawkit.config.paths import expand
from clawkit.errors import ConfigError, EditError, Issue
from clawkit.models.modelsjson import agent_dir
from clawkit.models.profiles import Profiles
from clawkit.models.resolve import Catalog


class Place(NamedTuple):
    """The configuration that is to be changed, as it is now."""

    file: str
    loaded: Loaded
    agent: str
    folder: str
    """Where the agent's credentials are."""

    @property
    def key_file(self) -> str:
        return Profiles(self.folder).file


def find_place(config_file: str | None) -> Place:
    """Read what there is; no file is as good as an empty one. Raises ConfigError, EditError."""
    file = usual_file(os.environ) if config_file is None else expand(config_file, os.environ)
    if os.environ.get(READONLY, "") not in ("", "0"):
        raise EditError(f"the configuration is read-only: {READONLY} is set")
    try:
        text = read_text(file) if os.path.lexists(file) else ""
    except ReadError as error:
        raise ConfigError([Issue("", str(error), file)]) from error
    loaded = _load(text, file)
    agent = loaded.config.agents.default_id()
    return Place(file, loaded, agent, agent_dir(loaded.config, loaded.env, agent))


def _load(text: str, file: str) -> Loaded:
    return loads(text if text.strip() else "{}", file=file)


def preview(place: Place, settings: list[Setting]) -> Change:
    """The change to the file, checked but not written. Raises EditError, ConfigError."""
    return _change(place, settings, dry_run=True)


def preview_loaded(place: Place, change_: Change) -> Loaded:
    """The configuration as it would be."""
    return _load(change_.after, place.file)


def write(place: Place, settings: list[Setting], setup: Setup | None = None) -> Change:
    """Write key and configuration; what fails leaves both as they were. Ctrl-C waits for it."""
    with _undisturbed():
        before = _store_key(place, setup)
        try:
            return _change(place, settings, dry_run=False)
        except (ConfigError, EditError):
            if setup and setup.ref and setup.key.secret:
                _put_profile(place, profile_id(setup.ref), before)
            raise


def _change(place: Place, settings: list[Setting], *, dry_run: bool) -> Change:
    paths = [each.path for each in settings]
    return change(place.file, lambda text: edited(text, settings), paths=paths, dry_run=dry_run)


def _store_key(place: Place, setup: Setup | None) -> Any:
    """Put a key that was typed where only its owner can read it; gives what was there."""
    if not (setup and setup.ref and setup.key.secret):
        return None
    entry = {"type": "api_key", "provider": setup.ref.provider, "key": setup.key.secret}
    return _put_profile(place, profile_id(setup.ref), entry)


def _put_profile(place: Place, name: str, entry: Any) -> Any:
    before: list[Any] = []

    def edit(raw: dict[str, Any]) -> None:
        found = raw.get("profiles")
        profiles = raw["profiles"] = found if isinstance(found, dict) else {}
        before.append(profiles.pop(name, None))
        if entry is not None:
            profiles[name] = entry
        # Refusals of the key before say nothing about this one.
        if isinstance(stats := raw.get("usageStats"), dict):
            stats.pop(name, None)

    Profiles(place.folder).change(edit)
    return before[0]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals that end the program come when it is done."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def first_credential(place: Place, setup: Setup) -> str:
    """The credential that is used before the one that was chosen; empty when that comes first."""
    if setup.ref is None or setup.key.source not in ("env", "typed"):
        return ""
    loaded = find_place(place.file).loaded
    try:
        found = Catalog.of(loaded, place.agent).credentials.for_provider(setup.ref.provider)
    except ConfigError:
        return ""
    wanted = setup.key.secret or loaded.env.get(setup.key.name, "").strip()
    if not found or not wanted or found[0].secret == wanted:
        return ""
    return found[0].id
