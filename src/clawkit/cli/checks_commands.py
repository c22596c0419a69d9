"""What `clawkit doctor` looks at for commands: whether they run at all, and what runs them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator

from clawkit.approvals.decide import decide
from clawkit.cli.finding import Finding
from clawkit.config.model import Config
from clawkit.config.paths import commands_dir
from clawkit.process import records


def check_commands(config: Config) -> Iterator[Finding]:
    """Whether commands run, and what would keep them from it."""
    decision = decide(config.tools.exec, security=None, ask=None, host="gateway")
    if decision.verdict == "allow":
        yield Finding("commands", "ok", "every command runs unasked, with your rights")
    else:
        yield Finding("commands", "ok", "commands are refused", decision.to_allow)
    for folder in config.tools.exec.path_prepend:
        path = os.path.expanduser(folder)
        if not os.path.isabs(path):
            what = f"tools.exec.pathPrepend: {folder!r} is not absolute, so it has no effect"
            yield Finding("commands", "warn", what, "write the whole path")
        elif not os.path.isdir(path):
            what = f"tools.exec.pathPrepend: {folder!r} is not a directory"
            yield Finding("commands", "warn", what, "correct it, or leave it out")
    if not os.access("/bin/bash", os.X_OK) and not os.access("/usr/bin/bash", os.X_OK):
        yield Finding("commands", "warn", "there is no bash, so commands run with sh", "install it")
    if not sys.executable:
        what = "Python does not know its own program, which starts the commands"
        yield Finding("commands", "error", what, "run clawkit with an ordinary Python")
    folder = commands_dir(os.environ)
    if problem := records.distrust(folder):
        yield Finding("commands", "warn", f"{folder} {problem}", "without it `ps` shows nothing")
    if importlib.util.find_spec("pyte") is None:
        what = "the screens of terminals cannot be shown"
        yield Finding("commands", "ok", what, "pip install 'clawkit[screen]'")
