"""Selecting sessions in SQL, since there may be very many of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import msgspec

from clawkit.sessions.protocols import Filter, Visible

_SEEN = (
    "(key = :key OR agent IN (SELECT value FROM json_each(:agents)) OR"
    " (agent IN (SELECT value FROM json_each(:own_agents)) AND id IN ("
    "WITH RECURSIVE own (id) AS (SELECT id FROM session WHERE parent = :id AND :id <> ''"
    " UNION SELECT session.id FROM session JOIN own ON session.parent = own.id)"
    " SELECT id FROM own)))"
)
# The same as `keys.kind_of`; a test compares the two.
_KIND = (
    "CASE WHEN name = :main THEN 'main' WHEN name GLOB 'cron:*' THEN 'cron'"
    " WHEN name GLOB 'hook:*' THEN 'hook' WHEN name GLOB 'node-*' THEN 'node'"
    " WHEN substr(name, instr(name, ':')) GLOB ':group:?*' THEN 'group'"
    " WHEN substr(name, instr(name, ':')) GLOB ':channel:?*' THEN 'group' ELSE 'other' END"
)
_LAST_USED = "ORDER BY updated_ms DESC, row DESC"
VISIBLE_ROWS = f"SELECT row FROM session WHERE {_SEEN} {_LAST_USED}"  # noqa: S608
_WANTED = " AND ".join(
    (
        _SEEN,
        "updated_ms >= :since_ms",
        "name <> 'unknown'",
        "(name <> 'global' OR :main = 'global')",
        "(:archived IS NULL OR (archived_ms <> 0) = :archived)",
        "(:label = '' OR label = :label)",
        "(:agent = '' OR lower(agent) = :agent)",
        "(:workspace IS NULL OR workspace = :workspace)",
        "(:sub_agents OR name NOT GLOB 'subagent:*')",
        "(:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)))",
        f"(:kinds IS NULL OR {_KIND} IN (SELECT value FROM json_each(:kinds)))",  # noqa: S608
        "(:text = '' OR instr(lower(key || char(10) || label || char(10) || title), :text))",
    )
)
# Only numbers are sorted, not whole rows.
_PAGE = f"SELECT row FROM session WHERE {_WANTED} {_LAST_USED} LIMIT :limit OFFSET :offset"  # noqa: S608
COUNT = f"SELECT count(*) FROM session WHERE {_WANTED}"  # noqa: S608
LISTING = f"WHERE row IN ({_PAGE}) {_LAST_USED}"
RELATIVES = (
    f"SELECT id, parent, key FROM session"  # noqa: S608
    " WHERE (id IN (SELECT value FROM json_each(:parents))"
    " OR parent IN (SELECT value FROM json_each(:children)))"
    f" AND {_SEEN} {_LAST_USED}"
)


def see(visible: Visible) -> dict[str, str]:
    """Query parameters for visibility."""
    return {
        "id": visible.id,
        "key": visible.key,
        "agents": in_json(visible.agents),
        "own_agents": in_json(visible.own_agents),
    }


def want(wanted: Filter, ids: Iterable[str] | None) -> Mapping[str, str | bytes | int | None]:
    """What `LISTING` needs to know; `ids` are all that may be in it, None for any."""
    return {
        "since_ms": wanted.since_ms,
        "main": wanted.main,
        "archived": wanted.archived,
        "label": wanted.label,
        "agent": wanted.agent.lower(),
        "workspace": os.fsencode(wanted.workspace) if wanted.workspace else None,
        "sub_agents": wanted.sub_agents,
        "ids": None if ids is None else in_json(ids),
        "kinds": in_json(wanted.kinds) if wanted.kinds else None,
        "text": wanted.text.lower(),
    }


def in_json(values: Iterable[str | int]) -> str:
    """Any number of values as one, for `json_each`."""
    return msgspec.json.encode(list(values)).decode()
