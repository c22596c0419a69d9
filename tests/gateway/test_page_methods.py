"""Methods that the control page needs: login codes, judging commands, describing schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from tests.gateway.conftest import Device, Ground, Peer, hello_params

from clawkit.gateway.login_codes import MAX_CODES, VALID_S, LoginCodes
from clawkit.gateway.scopes import OWNER, READ


def test_a_code_works_once_and_expires() -> None:
    now = [100.0]
    codes = LoginCodes(lambda: now[0])
    first, second = codes.make(), codes.make()
    assert len(first) >= 32
    assert first != second
    assert codes.redeem(first)
    assert not codes.redeem(first)
    assert not codes.redeem("")
    now[0] += VALID_S
    assert not codes.redeem(second)


def test_the_oldest_codes_make_room() -> None:
    codes = LoginCodes()
    made = [codes.make() for _ in range(MAX_CODES + 1)]
    assert not codes.redeem(made[0])
    assert codes.redeem(made[1])
    assert codes.redeem(made[-1])


async def redeem(ground: Ground, code: str, device: Device) -> tuple[Peer, dict[str, Any]]:
    params = hello_params(list(OWNER), client=("webchat", "webchat"), auth={"bootstrapToken": code})
    return await ground.shake(params, device)


async def test_a_code_pairs_one_device(ground: Ground) -> None:
    owner = await ground.join()
    made = await owner.call("device.pair.loginCode")
    assert made["path"] == "/"
    device = Device()
    _, frame = await redeem(ground, made["code"], device)
    auth = frame["payload"]["auth"]
    assert (auth["method"], auth["scopes"]) == ("bootstrap-token", list(OWNER))
    _, again = await redeem(ground, made["code"], Device())
    assert again["error"]["details"]["code"] == "AUTH_BOOTSTRAP_TOKEN_INVALID"
    params = hello_params([READ], client=("webchat", "webchat"))
    params["auth"] = {"deviceToken": auth["deviceToken"]}
    _, frame = await ground.shake(params, device)
    assert frame["payload"]["auth"]["method"] == "device-token"


async def test_a_command_is_judged_part_by_part(ground: Ground) -> None:
    owner = await ground.join()
    found = await owner.call(
        "exec.approvals.check", {"command": "uname -a | wc -c", "place": "host"}
    )
    assert found["verdict"] == "ask"
    assert found["segments"][0]["by"] is None
    listed = {"command": "uname -a", "place": "host", "allowlist": ["/usr/bin/uname"]}
    found = await owner.call("exec.approvals.check", listed)
    assert (found["verdict"], found["segments"][0]["by"]) == ("allow", "entry")
    error = await owner.refused("exec.approvals.check", {"command": "ls", "agentId": "nobody"})
    assert error["message"] == "unknown agent id 'nobody'"
    error = await owner.refused("exec.approvals.check", {"command": "a\0b"})
    assert error["message"] == "command: contains a NUL character"
    error = await owner.refused("exec.approvals.check", {"command": "ls", "allowlist": [7]})
    assert "an entry is int" in error["message"]
    reader = await ground.join([READ], Device())
    error = await reader.refused("exec.approvals.check", {"command": "ls"})
    assert error["details"]["missingScope"] == "operator.admin"


async def test_a_schedule_is_described_with_its_next_times(ground: Ground) -> None:
    reader = await ground.join([READ])
    given = {"schedule": "weekdays at 9am", "tz": "Europe/Vienna"}
    found = await reader.call("cron.describe", given)
    assert found["text"] == "every weekday at 09:00 Europe/Vienna"
    assert found["schedule"] == {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "Europe/Vienna"}
    again = await reader.call("cron.describe", {"schedule": found["schedule"]})
    assert again == found
    times = [datetime.fromtimestamp(at / 1000, ZoneInfo("Europe/Vienna")) for at in found["next"]]
    assert len(times) == 5
    assert times == sorted(set(times))
    assert {(at.hour, at.minute, at.weekday() < 5) for at in times} == {(9, 0, True)}
    once = await reader.call("cron.describe", {"schedule": "in 20 minutes"})
    assert len(once["next"]) == 1
    error = await reader.refused("cron.describe", {"schedule": "evry day at 9"})
    assert "did you mean 'every'" in error["message"]
    assert "id is required" in (await reader.refused("cron.describe"))["message"]
    missing = await reader.refused("cron.describe", {"id": "none"})
    assert missing["details"]["code"] == "NOT_FOUND"


async def test_a_job_is_described_with_its_own_delay(ground: Ground) -> None:
    owner = await ground.join()
    spread = {"schedule": "every day at 0:00 UTC within 10m", "payload": "look"}
    job = await owner.call("cron.add", spread)
    own = await owner.call("cron.describe", {"id": job["id"]})
    assert own["next"][0] == job["nextRunAtMs"]
    plain = await owner.call("cron.describe", {"schedule": job["schedule"]})
    # Just after midnight, the next slot without the delay is a day later.
    assert (own["next"][0] - plain["next"][0]) % 86_400_000 <= 600_000
    listed = await owner.call("cron.list")
    assert listed["schedules"] == {job["id"]: "every day at 00:00 UTC within 10 minutes"}


async def test_null_removes_what_is_optional_in_a_job(ground: Ground) -> None:
    owner = await ground.join()
    delivery = {"mode": "announce", "to": "agent:main:main", "bestEffort": True}
    given = {"delivery": delivery, "failureAlert": False}
    job = await owner.call("cron.add", {"schedule": "every hour", "payload": "look", **given})
    gone = {"failureAlert": None, "delivery": {"to": None, "bestEffort": None}}
    changed = await owner.call("cron.update", {"id": job["id"], "patch": gone})
    assert changed["delivery"] == {"mode": "announce"}
    assert "failureAlert" not in changed
