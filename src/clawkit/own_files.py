"""clawkit's own files outside its home, and all of its files that commands cannot read."""

from __future__ import annotations

import os
from contextlib import suppress

from clawkit.config.load import Loaded
from clawkit.config.paths import home
from clawkit.core.paths import is_below
from clawkit.errors import ConfigError
from clawkit.sessions.protocols import files_of_store, locate_store
from clawkit.store import backups_of


def elsewhere(loaded: Loaded) -> list[str]:
    """The configuration with its backups, sessions, and directories of agents outside the home."""
    from clawkit.models.providers import agent_dirs  # imported on use: few runs need it

    found = agent_dirs(loaded.config, {**os.environ, **loaded.env})
    # A configuration that was not read from a file has a name such as `<mapping>`.
    for file in filter(os.path.isfile, loaded.files):
        for path in (os.path.abspath(file), os.path.realpath(file)):
            found += (path, *backups_of(path))
    with suppress(ConfigError):
        found += files_of_store(locate_store(loaded.config.session.store, os.environ))
    # The home may contain links to files elsewhere, such as a directory of dotfiles.
    state = os.path.realpath(home(os.environ))
    return [each for each in dict.fromkeys(found) if not is_below(os.path.realpath(each), state)]


def hidden_from_commands(loaded: Loaded, workspace: str) -> tuple[str, ...]:
    """Secrets anywhere, and all of clawkit's files outside the workspace: only a directory also
    hides what is created or replaced in it while a command runs."""
    from clawkit.models.providers import secret_places

    place = os.path.realpath(workspace)
    outside = (each for each in elsewhere(loaded) if not is_below(os.path.realpath(each), place))
    return (*secret_places(loaded), *outside)
