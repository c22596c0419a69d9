"""A turn of `clawkit agent` in a gateway: the choice of the gateway, and the request.

It imports almost nothing, not even click: the request is sent before the rest is loaded.
Annotations are not postponed, because a NamedTuple compiles postponed ones.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from clawkit.errors import ClawkitError, ToolError
from clawkit.gateway import client

if TYPE_CHECKING:
    from clawkit.cli.gateway_answers import ChatOpened

METHOD, CHAT = "clawkit.turn", "clawkit.chat.open"
MAX_IMAGE = 6_291_456
"""Maximum bytes that a gateway accepts."""
_SCOPE = ("channel", "account", "group", "space", "sender")
_SETTINGS = {
    "model": "model",
    "thinking": "thinking",
    "maxTurns": "max_turns",
    "maxCost": "max_cost",
}
_SIMPLE = {
    "-m": "message",
    "--message": "message",
    "--session": "session",
    "--agent": "agent",
    "--model": "model",
}
_FLAGS = {"--json": "as_json", "--continue": "go_on"}
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("message", "session", "agent", "workspace", "config_file", "sandboxed")),
    **dict.fromkeys(_SETTINGS.values()),
    **dict.fromkeys(("go_on", "no_session", "local", "as_json", "print_prompt"), False),
    **dict.fromkeys(_SCOPE, ""),
    "owner": True,
    "depth": 0,
    "roles": (),
    "images": (),
}


class StartedTurn(NamedTuple):
    """A turn that was requested from the gateway."""

    link: client.Link
    number: str
    """The id of the request."""
    params: dict[str, Any]

    @property
    def run(self) -> str:
        return str(self.params["idempotencyKey"])

    def abandon(self) -> None:
        """Stop the turn, unless its follower already did."""
        with suppress(OSError):
            self.link.request("sessions.abort", {"runId": self.run})
            self.link.close()


def only_local(options: dict[str, Any]) -> str:
    """The first option that a gateway cannot support; empty if there is none."""
    if options["no_session"]:
        return "--no-session"
    if found := next((name for name in _SCOPE if options[name]), ""):
        return f"--{found}"
    others = {"--role": options["roles"], "--no-owner": not options["owner"]}
    others |= {"--sandboxed": options["sandboxed"] is not None, "--depth": options["depth"]}
    return next((name for name, is_given in others.items() if is_given), "")


def find_gateway(options: dict[str, Any], also: Sequence[str] = ()) -> client.Target | None:
    """The gateway to use for a command with these options; None to work without one. `also` are
    further options that this command cannot send."""
    if options["local"]:
        return None
    target = client.find_for_command(options["config_file"])
    if target is None:
        return None
    from clawkit.process.process_table import is_inside_command

    if is_inside_command():
        return None  # processes of an agent must not have owner rights
    given = (f"--{each.replace('_', '-')}" for each in also if options[each] is not None)
    if name := only_local(options) or next(given, ""):
        if not target.is_own:
            raise ClawkitError(f"{name} requires --local: {target.url} does not support it")
        say_local(f"{name} does not go through the gateway")
        return None
    return target


def say_local(why: str) -> None:
    from clawkit.text import printable

    print(f"clawkit: {printable(why)}; running without it", file=sys.stderr, flush=True)


def place_of(target: client.Target, options: dict[str, Any]) -> dict[str, Any]:
    """The session selected by the options, for the gateway."""
    if options["go_on"] and options["session"]:
        raise ClawkitError("--continue and --session cannot be combined")
    given = {"agentId": options["agent"], "session": options["session"]}
    given["workspace"] = options["workspace"]
    if target.is_own:
        given["cwd"] = os.getcwd()
        if options["workspace"]:
            given["workspace"] = os.path.abspath(os.path.expanduser(options["workspace"]))
    return {"goOn": options["go_on"]} | {name: value for name, value in given.items() if value}


def turn_params(target: client.Target, options: dict[str, Any], message: str) -> dict[str, Any]:
    return {
        "message": message,
        **place_of(target, options),
        "shows": "all" if options["as_json"] else "plain",
        "attachments": [attach(each) for each in options["images"]],
        **{name: options[key] for name, key in _SETTINGS.items() if options[key] is not None},
    }


def begin(target: client.Target, options: dict[str, Any], message: str) -> StartedTurn | None:
    """Request a turn; None if the gateway has another version. Raises `ToolError`."""
    params = turn_params(target, options, message) | {"idempotencyKey": os.urandom(16).hex()}
    link = open_link(target, METHOD)
    return None if link is None else StartedTurn(link, link.request(METHOD, params), params)


def open_link(target: client.Target, method: str) -> client.Link | None:
    """Connect to a gateway that has a method; None, with a notice, if it has another version."""
    link = client.connect(target)
    if method in link.methods:
        return link
    link.close()
    version = client.as_object(link.hello.get("server")).get("version", "")
    what = f"the gateway at {target.url} ({version}) has another version"
    if not target.is_own:
        raise ToolError(f"{what} and does not support this; update it, or add --local")
    say_local(f"{what} (to update it: clawkit gateway restart)")
    return None


def open_chat(
    target: client.Target, options: dict[str, Any], *, keyboard: bool
) -> "tuple[client.Link, ChatOpened] | None":
    """Open a chat; returns the link and its first state, or None if it must run without the
    gateway. Raises `ToolError`."""
    link = open_link(target, CHAT)
    if link is None:
        return None
    try:
        from clawkit.cli import gateway_answers

        params = chat_params(target, options, keyboard=keyboard)
        return link, client.read_as(gateway_answers.ChatOpened, link.call(CHAT, params))
    except ToolError as error:
        link.close()
        if not isinstance(error, client.CallError):
            raise
        say_or_raise(target, error)
        return None


def chat_params(
    target: client.Target, options: dict[str, Any], session: str | None = None, *, keyboard: bool
) -> dict[str, Any]:
    """The parameters of a chat with these options; in another session, if one is given."""
    if session is not None:
        options = {**options, "go_on": False, "session": session}
    given = {name: options[name] for name in ("model", "thinking") if options[name]}
    shows = "all" if keyboard else "plain"
    return {**place_of(target, options), **given, "keyboard": keyboard, "shows": shows}


def say_or_raise(target: client.Target, error: client.CallError) -> None:
    """Print a notice if the command can run without the gateway; else raise the error."""
    if error.code == "LOCAL_ONLY" and target.is_own:
        say_local(str(error))
        return
    exit_code = client.as_object(error.error.get("details")).get("exitCode")
    error.exit_code = exit_code if isinstance(exit_code, int) else 1
    raise error


def attach(path: str) -> dict[str, str]:
    import binascii

    try:
        with open(path, "rb") as file:
            data = file.read(MAX_IMAGE + 1)
    except OSError as error:
        raise ClawkitError(f"{path}: {error.strerror or error}") from None
    if len(data) > MAX_IMAGE:
        raise ClawkitError(f"{path}: larger than {MAX_IMAGE} bytes")
    content = binascii.b2a_base64(data, newline=False).decode()
    return {"content": content, "fileName": os.path.basename(path)[:80]}


def read_simple(args: Sequence[str]) -> dict[str, Any] | None:
    """The options of `clawkit agent`, if only options are used that accept any value."""
    found, left = dict(_DEFAULTS), iter(args)
    for arg in left:
        if arg in _FLAGS:
            found[_FLAGS[arg]] = True
        elif arg in _SIMPLE and found[_SIMPLE[arg]] is None:
            found[_SIMPLE[arg]] = next(left, "-")
        else:
            return None
    message = found["message"]
    is_plain = bool(message) and message != "-" and message.strip() and message.isprintable()
    # A value that starts with a dash, or is missing, may be another option or a mistake.
    is_plain = is_plain and not any(str(found[key]).startswith("-") for key in _SIMPLE.values())
    return found if is_plain and not (found["go_on"] and found["session"]) else None
