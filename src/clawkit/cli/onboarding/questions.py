"""Prompts that work in every terminal, and the questions of `configure`."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping
from typing import TypeVar

import click

from clawkit.cli.onboarding.write import Setting
from clawkit.cli.shared_options import columns
from clawkit.config.load import Loaded
from clawkit.net.addresses import parse_url
from clawkit.net.route import NetError
from clawkit.terminal_text import wrap
from clawkit.text import printable
from clawkit.web.search.table import (
    OFFERED,
    PROVIDERS,
    named_provider,
    ready_providers,
    settings_of,
)

T = TypeVar("T")

_ODD = "use letters, digits and punctuation only"


def say(text: str = "") -> None:
    """Print lines, folded by words in a terminal."""
    for line in printable(text).split("\n"):
        for row in wrap(line, columns() or 10_000, continuation="     " if line[:1] == " " else ""):
            click.echo(row.rstrip(), err=True)


def ask(question: str, check: Callable[[str], T], default: str = "") -> T:
    """Ask until `check` accepts the answer, and return its result; it raises ValueError with the
    message to show. Enter alone means the default. Ctrl-C and Ctrl-D raise `click.Abort`."""

    def read(text: str) -> T:
        try:
            if not text.isprintable():
                raise ValueError(_ODD)
            return check(text.strip())
        except ValueError as error:
            raise click.UsageError(printable(str(error))) from None

    shown = printable(question)
    answer: T = click.prompt(shown, default, value_proc=read, show_default=bool(default), err=True)
    return answer


def ask_unseen(question: str, check: Callable[[str], T]) -> T:
    """Like `ask`, without echoing what is typed; echo is off before the question appears."""
    while True:
        try:
            return check(getpass.getpass(printable(f"{question}: ")).strip())
        except EOFError:
            raise click.Abort from None
        except UnicodeDecodeError:
            say(f"Error: {_ODD}")
        except ValueError as error:
            say(f"Error: {error}")


def confirm(question: str, default: bool = True) -> bool:
    return click.confirm(printable(question), default, err=True)


def choose(
    question: str,
    options: Mapping[str, str],
    default: str = "",
    other: Callable[[str], str] | None = None,
) -> str:
    """Let the user choose one of `options` (name to description) by number or name; any other text
    is passed to `other`."""
    names = list(options)
    say()
    for number, name in enumerate(names, 1):
        say(f"  {number}) {name}" + (f": {options[name]}" if options[name] else ""))

    def read(text: str) -> str:
        if text.isdecimal() and len(text) < 5 and 0 < int(text) <= len(names):
            return names[int(text) - 1]
        if found := [name for name in names if name.lower() == text.lower()]:
            return found[0]
        if other is None or text.isdecimal():
            raise ValueError(f"type a number from 1 to {len(names)}")
        return other(text)

    return ask(question, read, str(names.index(default) + 1 if default in names else 1))


_PROFILES = {
    "minimal": "only the status of the session",
    "coding": "files, commands, search, sessions",
    "messaging": "messages and sessions, no files or commands",
    "full": "everything",
}
_MODES = {
    "ask": "commands in the sandbox or on the allowlist run; all others need your approval",
    "always ask": "every command needs your approval",
    "allowlist": "commands in the sandbox or on the allowlist run; all others are refused",
    "deny": "no command runs",
    "full": "every command runs without asking; for disposable machines",
}
_EXEC = {
    "mode": "What happens when an agent wants to run a command.",
    "security": "Which commands may run at all.",
    "ask": "When a person is asked.",
}


def ask_tools(loaded: Loaded) -> list[Setting]:
    tools = loaded.config.tools
    profile = choose("Which tools may an agent use?", _PROFILES, tools.profile or "coding")
    settings = [Setting(("tools", "profile"), profile, "Which tools an agent has.")]
    for question, now, path, words in (
        (
            "Keep the file tools inside the workspace?",
            tools.fs.workspace_only,
            ("tools", "fs", "workspaceOnly"),
            "Whether the file tools stay inside the workspace.",
        ),
        (
            "Stop an agent that repeats the same call without progress?",
            bool(tools.loop_detection.enabled),
            ("tools", "loopDetection", "enabled"),
            "Whether calls that repeat without progress are stopped.",
        ),
    ):
        if (wanted := confirm(question, now)) != now:
            settings.append(Setting(path, wanted, words))
    return settings


def ask_approvals(loaded: Loaded) -> list[Setting]:
    now = _mode(*loaded.config.tools.exec.policy())
    while True:
        mode = choose("What happens when an agent wants to run a command?", _MODES, now)
        question = "Every command will then run, whatever it does. Are you sure?"
        if mode != "full" or confirm(question, default=False):
            break
    if mode == now:
        return []
    always = {"security": "allowlist", "ask": "always"}
    chosen = always if mode == "always ask" else {"mode": mode}
    return [Setting(("tools", "exec", key), chosen.get(key), words) for key, words in _EXEC.items()]


def _mode(security: str, ask: str) -> str:
    if security != "deny" and ask == "always":
        return "always ask"
    if security == "allowlist":
        return "ask" if ask == "on-miss" else "allowlist"
    return security


_PROVIDER = ("tools", "web", "search", "provider")
_NO_SEARCH, _NO_CHANGE, _WITH_KEY = "none", "no change", "with a key"


def ask_search(loaded: Loaded) -> list[Setting]:
    """Which service searches the web: none unless the person says so."""
    now = named_provider(loaded.config)
    ready = ready_providers(loaded.config, loaded.env)
    keyed = [name for name in PROVIDERS if PROVIDERS[name].needs_key and name not in ready]
    is_set = {True: "its address is set", False: "its key is set"}
    options = {name: is_set[PROVIDERS[name].needs_address] for name in ready}
    options |= {name: PROVIDERS[name].description for name in OFFERED if name not in ready}
    options |= {_WITH_KEY: f"{', '.join(keyed)}; you set the key later"}
    if now:
        last, about = _NO_CHANGE, f"it stays {now}"
    else:
        last, about = _NO_SEARCH, "the first one with a key, or clawkit asks at the first search"
    options |= {last: about}
    default = now if now in options else last
    chosen = choose("Which service searches the web for you?", options, default)
    if chosen == last:
        return []
    if chosen == _WITH_KEY:
        chosen = choose("Which one?", {name: " or ".join(PROVIDERS[name].env) for name in keyed})
        say(f"Before you search: export {PROVIDERS[chosen].env[0]}=YOUR_KEY")
    settings = [Setting(_PROVIDER, chosen, "The service that searches the web.")]
    row = PROVIDERS[chosen]
    given = settings_of(loaded.config, row).get("baseUrl")
    if row.needs_address and (given or chosen not in ready):
        path = ("plugins", "entries", row.entry, "config", "webSearch", "baseUrl")
        question = f"Address of your {row.name}, such as http://127.0.0.1:8080"
        url = ask(question, _read_address, given if isinstance(given, str) else "")
        settings.append(Setting(path, url, "Where it is."))
    return settings


def _read_address(text: str) -> str:
    try:
        parse_url(text)
    except NetError as error:
        raise ValueError(str(error)) from None
    return text.rstrip("/")
