"""The acceptance list with OpenClaw's own command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pytest
from tests.gateway.reference.openclaw import MARKS, Reference
from tests.scale import FULL

from clawkit.gateway.methods import METHODS

pytestmark = MARKS
UNKNOWN = r"unknown method: |missing scope: operator\.admin"
"""What a client hears of a method that this gateway does not have."""


class Row(NamedTuple):
    """A command, what it must print, and the methods that it calls."""

    command: str
    prints: str
    needs: tuple[str, ...] = ()
    status: int = 0

    @property
    def is_known(self) -> bool:
        return all(each in METHODS for each in self.needs)


JOB = r'"id": "'
PENDING = ("exec.approval.list", "plugin.approval.list", "openclaw.approval.list")
TABLE = (
    Row("gateway call health", r"Gateway call: health\n\{\n  \"ok\": true"),
    Row("gateway call nope.x", r"unknown method: nope\.x", status=1),
    Row("gateway call health --url {ws} --token wrong", r"unauthorized: ", status=1),
    Row("gateway status", r"Connectivity probe: ok"),
    Row("gateway probe", r"Reachable: yes\nCapability: \S+"),
    Row("health", r"Agents: main"),
    Row("status", r"reachable [0-9.]+m?s"),
    Row("agent --agent main -m list", r"a\.txt"),
    Row("agent --agent main -m list --json", r'"text": "[^\n]*a\.txt'),
    Row("system presence", r'\[\n  \{[^\]]*"mode": "gateway"'),
    Row("system event --text x --mode now", r"ok", ("wake",)),
    Row("system heartbeat last", r"null|\{", ("last-heartbeat",)),
    # `cron add` may run at the same time.
    Row("cron status", r'"jobs": [01]', ("cron.status",)),
    Row("cron list", r"No automations\.|\bx\b", ("cron.list",)),
    Row("cron add --name x --every 1h --message hi --json", JOB, ("cron.add", "cron.status")),
    Row("approvals get --gateway", r"Effective exec policy"),
    Row("approvals pending", r"No pending approvals\.", PENDING),
    Row("nodes status", r"Known: 0 · Paired: 0 · Connected: 0", ("node.list",)),
    Row("devices list", r"No device pairing entries\."),
    Row("logs --limit 5", r"the gateway is ready"),
    Row("channels status", r"Gateway reachable\.", ("channels.status",)),
    Row("skills list", r"No skills found", ("skills.status",)),
    Row("gateway usage-cost", r"(?i)total", ("usage.cost",)),
    Row("secrets reload", r"Secrets reloaded\.", ("secrets.reload",)),
    Row("gateway call gateway.identity.get", r'"publicKey": "', ("gateway.identity.get",)),
    Row("gateway call models.authStatus", r'"providers": \[', ("models.authStatus",)),
)
FEW = ("agent --agent main -m list", "approvals pending")
"""Each command takes OpenClaw seconds of processor time, so the others are for the long tests."""
ROWS = [row for row in TABLE if FULL or row.command in FEW]


@pytest.fixture(scope="module")
def outcomes(
    reference: Reference, request: pytest.FixtureRequest
) -> Iterator[dict[Row, Future[tuple[int, str]]]]:
    """All commands that are wanted, two at a time."""
    found = [getattr(each, "callspec", None) for each in request.session.items]
    rows = [
        each.params["row"] for each in found if each and isinstance(each.params.get("row"), Row)
    ]
    with ThreadPoolExecutor(2) as pool:
        yield {
            row: pool.submit(
                reference.openclaw,
                *row.command.format(ws=f"ws://127.0.0.1:{reference.port}").split(),
            )
            for row in rows
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.command)
def test_a_command_prints_what_it_should(
    outcomes: dict[Row, Future[tuple[int, str]]], row: Row
) -> None:
    status, text = outcomes[row].result()
    if row.is_known:
        assert (status, bool(re.search(row.prints, text))) == (row.status, True), text
    else:
        assert re.search(UNKNOWN, text), text
