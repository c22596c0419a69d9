"""What `clawkit doctor` looks at for commands: whether they run at all, and what runs them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator

from clawkit.approvals.allow.safebins import safe_bin_warnings
from clawkit.approvals.base import Policy, Rules
from clawkit.approvals.combine import combine
from clawkit.approvals.document import BadDocumentError, read_document
from clawkit.cli.finding import Finding
from clawkit.config.model import Config
from clawkit.config.paths import approvals_file, commands_dir
from clawkit.process import landlock, records


def check_commands(config: Config) -> Iterator[Finding]:
    """Whether commands run, and what would keep them from it."""
    yield from _check_security(config)
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


def _check_security(config: Config) -> Iterator[Finding]:
    """Which commands may run, and how well they are held to it."""
    agent, path = config.agents.default_id(), approvals_file(os.environ)
    settings = config.tools.exec.merged(config.agents.get(agent).tools.exec)
    try:
        document = read_document(path)
    except BadDocumentError as error:
        what = f"every command is refused: {error}"
        yield Finding("commands", "error", what, "correct the file, or move it away")
        return
    policy = combine(settings, document.policy_for(agent), where=path)
    what = f"{_describe(policy)} ({', '.join(policy.sources)})"
    yield Finding("commands", "ok", what, policy.to_loosen or "clawkit approvals check 'git log'")
    if policy.security == "allowlist" and not landlock.available():
        what = "the kernel has no Landlock: listed programs are not held to what they may start"
        yield Finding("commands", "warn", what, "Linux 5.13 or later has it")
    rules = Rules(
        safe_bins=tuple(settings.safe_bins),
        profiles=settings.safe_bin_profiles,
        trusted_dirs=tuple(settings.safe_bin_trusted_dirs),
    )
    for warning in safe_bin_warnings(rules):
        yield Finding("commands", "warn", warning, "see tools.exec.safeBins")


def _describe(policy: Policy) -> str:
    if policy.security == "deny":
        return "no command runs"
    if policy.ask == "always":
        return "every command is asked about"
    if policy.security == "full":
        return "every command runs unasked, with your rights"
    others = "refused" if policy.ask == "off" else "asked about"
    return f"what is listed runs, everything else is {others}"
