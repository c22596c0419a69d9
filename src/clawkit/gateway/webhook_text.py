"""Turns web requests into text: bodies, templates of mappings, and GitHub events. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from clawkit.external import defuse
from clawkit.text import cut, one_line

MAX_DEPTH, MAX_VALUE, MAX_COMMITS = 32, 10_000, 20
_PLACE = re.compile(r"\{\{\s*([\w$-]+(?:\.[\w$-]+|\[[0-9]{1,6}\])*)\s*\}\}")
_WHERE = "of {{repository.full_name}}: "
_GITHUB = {
    "push": "{{pusher.name}} pushed to {{ref}} of {{repository.full_name}}\n{{compare}}",
    "pull_request": "{{sender.login}}: {{action}} pull request #{{number}} "
    + _WHERE
    + "{{pull_request.title}}\n{{pull_request.html_url}}\n\n{{pull_request.body}}",
    "issues": "{{sender.login}}: {{action}} issue #{{issue.number}} "
    + _WHERE
    + "{{issue.title}}\n{{issue.html_url}}\n\n{{issue.body}}",
    "issue_comment": "{{sender.login}}: {{action}} a comment on #{{issue.number}} "
    + _WHERE
    + "{{issue.title}}\n{{comment.html_url}}\n\n{{comment.body}}",
    "workflow_run": "workflow {{workflow_run.name}} "
    + _WHERE
    + "{{action}} {{workflow_run.conclusion}}, on {{workflow_run.head_branch}}\n"
    "{{workflow_run.display_title}}\n{{workflow_run.html_url}}",
    "release": "{{sender.login}}: {{action}} release {{release.tag_name}} "
    + _WHERE
    + "{{release.name}}\n{{release.html_url}}\n\n{{release.body}}",
}
_ANY_EVENT = "{{sender.login}}: {{action}} in {{repository.full_name}}\n\n{{payload}}"


class Received(Struct, frozen=True):
    """A web request."""

    name: str
    """The path, relative to `hooks.path`."""
    body: dict[str, Any]
    headers: dict[str, str] = {}
    """Without secrets; names are in lower case."""
    query: dict[str, str] = {}


def read_json(data: bytes) -> dict[str, Any]:
    """Parse a JSON object of bounded depth without duplicate keys. Raises `ValueError`."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("it has a duplicate key")
        return found

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    try:
        found = json.loads(data.decode(), object_pairs_hook=unique, parse_constant=refuse)
        level: list[Any] = [found]
        for _ in range(MAX_DEPTH):
            inner = (each for each in level if isinstance(each, dict | list))
            level = [
                one for each in inner for one in (each.values() if isinstance(each, dict) else each)
            ]
        if level:
            raise ValueError("it is nested too deeply")
        msgspec.json.encode(found)  # lone surrogates cannot be stored
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it must be an object")
    return found


def show(value: Any) -> str:
    """A value as text of bounded length, without invisible characters."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return defuse(cut(text, MAX_VALUE))


def as_name(value: Any) -> str:
    """A value as part of the name of a session or a job."""
    return re.sub("[^a-z0-9_-]+", "-", show(value).lower())[:64].strip("-") or "-"


def render(
    template: str, received: Received, show: Callable[[Any], str] = show
) -> tuple[str, list[str]]:
    """Fill a template with values of a request; also returns the names of missing values. Inserted
    text is not expanded again."""
    missing: dict[str, None] = {}

    def insert(match: re.Match[str]) -> str:
        value = look_up(received, match[1])
        if value is None:
            missing[match[1]] = None
        return "" if value is None else show(value)

    return _PLACE.sub(insert, template), list(missing)


def look_up(received: Received, path: str) -> Any:
    """The value at a path such as `a.b[0].c`; None if there is none. A path starts in the body,
    unless its first part is `payload` or `body` (the body itself), `headers`, `query` or `path`."""
    steps = re.findall(r"[\w$-]+", path)
    value: Any = received.body
    roots = {"payload": value, "headers": received.headers, "query": received.query}
    if steps[0] in roots or (steps[0] == "body" and (len(steps) > 1 or "body" not in value)):
        value = roots.get(steps.pop(0), value)
    elif path == "path":
        return received.name
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def describe_event(event: str, received: Received) -> str:
    """A GitHub event in a few lines."""
    text, _ = render(f"GitHub {event}: {_GITHUB.get(event, _ANY_EVENT)}", received)
    commits = look_up(received, "commits") if event == "push" else None
    for commit in commits[:MAX_COMMITS] if isinstance(commits, list) else ():
        if isinstance(commit, dict):
            id_, message = (one_line(show(commit.get(each, "")), 200) for each in ("id", "message"))
            text += f"\n- {id_[:7]} {message}"
    return text
