"""The questions of `clawkit configure tools` and `clawkit configure approvals`."""

from __future__ import annotations

from clawkit.cli.onboarding_ask import Asker, Option
from clawkit.cli.onboarding_plan import Setting
from clawkit.config.load import Loaded

_PROFILES = {
    "minimal": "nothing but the status of the session",
    "coding": "files, commands, search, sessions",
    "messaging": "messages and sessions, no files and no commands",
    "full": "everything",
}
# Name, words, then mode, security and ask as they are written.
_MODES: tuple[tuple[str, str, str | None, str | None, str | None], ...] = (
    ("ask", "what is allowed runs, you are asked about the rest", "ask", None, None),
    ("always ask", "you are asked about every command", None, "allowlist", "always"),
    ("allowlist", "what is allowed runs, the rest is refused unasked", "allowlist", None, None),
    ("deny", "no command runs", "deny", None, None),
    ("full", "every command runs unasked; for machines you can lose", "full", None, None),
)


def ask_tools(asker: Asker, loaded: Loaded) -> list[Setting]:
    """Which tools there are, and a few things about them."""
    tools = loaded.config.tools
    names = list(_PROFILES)
    options = [Option(name, words) for name, words in _PROFILES.items()]
    at = names.index(tools.profile) if tools.profile in names else names.index("coding")
    profile = names[asker.choose("Which tools may an agent have?", options, at)]
    settings = [Setting(("tools", "profile"), profile, "Which tools an agent has.")]
    inside = asker.yes("Keep the file tools inside the workspace?", tools.fs.workspace_only)
    if inside != tools.fs.workspace_only:
        words = "Whether the file tools stay inside the workspace."
        settings.append(Setting(("tools", "fs", "workspaceOnly"), inside, words))
    guarded = bool(tools.loop_detection.enabled)
    guard = asker.yes("Stop an agent that repeats the same call without progress?", guarded)
    if guard != guarded:
        words = "Whether calls that repeat without progress are stopped."
        settings.append(Setting(("tools", "loopDetection", "enabled"), guard, words))
    return settings


def ask_approvals(asker: Asker, loaded: Loaded) -> list[Setting]:
    """Which commands run unasked."""
    options = [Option(name, words) for name, words, *_ in _MODES]
    now = [each.name for each in options].index(_mode(*loaded.config.tools.exec.policy()))
    at = asker.choose("What may happen when an agent wants to run a command?", options, now)
    question = "Then nothing stops a command, whatever it does. Are you sure?"
    if options[at].name == "full" and not asker.yes(question, default=False):
        return ask_approvals(asker, loaded)
    if at == now:
        return []
    *_, mode, new_security, new_ask = _MODES[at]
    where = ("tools", "exec")
    return [
        Setting((*where, "mode"), mode, "What may happen when an agent wants to run a command."),
        Setting((*where, "security"), new_security, "Which commands may run at all."),
        Setting((*where, "ask"), new_ask, "When a person is asked."),
    ]


def _mode(security: str, ask: str) -> str:
    """Which of the answers it is now."""
    if security == "deny":
        return "deny"
    if ask == "always":
        return "always ask"
    if security == "full":
        return "full"
    return "ask" if ask == "on-miss" else "allowlist"
