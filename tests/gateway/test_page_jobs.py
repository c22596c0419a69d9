"""The control page in a real browser: jobs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace
from playwright.async_api import Browser, Locator, Page, WebSocketRoute, expect
from tests.gateway.conftest import Ground, serve
from tests.gateway.page_browser import NEEDS_CHROMIUM, open_chromium, shoot, visit

from clawkit.cron.store import JobRow
from clawkit.testing import Gate, ScriptedModel

pytestmark = [
    NEEDS_CHROMIUM,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("page"),
]

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>${alert(3)}"
VIENNA: dict[str, Any] = {"timezone_id": "Europe/Vienna", "locale": "en-GB"}
WAIT_S = 30.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with open_chromium() as made:
        yield made


async def go(page: Page, *path: str) -> None:
    await page.evaluate("(to) => { location.hash = to; }", f"#/{'/'.join(path)}")


async def add(ground: Ground, **job: Any) -> str:
    given = {"schedule": "every day at 9:00 UTC", "message": "look", **job}
    return str(ground.gateway.job_runner.jobs().add(given, by="operator")["id"])


def stored(ground: Ground, id_: str) -> dict[str, Any]:
    """As clients see it."""
    found: dict[str, Any] = json.loads(json.dumps(ground.gateway.job_runner.jobs().get(id_)))
    return found


def change_state(ground: Ground, id_: str, **state: Any) -> None:
    def edit(row: JobRow) -> Any:
        job = replace(row.job, enabled=row.job.enabled and "auto_disabled" not in state)
        return job, replace(row.state, **state), row.planned_ms, row.next_ms

    ground.gateway.job_runner.tell("updated", ground.gateway.job_runner.store.change(id_, edit))


def runs(page: Page) -> Locator:
    return page.get_by_role("region", name="History").locator(".run")


async def test_a_walk_through_jobs(browser: Browser, tmp_path: Path) -> None:
    """`visit` fails the test for dialogs, violations of the CSP and requests to others."""
    answer = f"# Report\n\nAll **good**, {EVIL} ![x](https://evil.example/x.png)"
    async with (
        serve({}, ScriptedModel(answer, then="later")) as ground,
        visit(browser, ground, **VIENNA) as page,
    ):
        await page.get_by_role("navigation").get_by_role("link", name="Jobs").click()
        await expect(page.get_by_text("There are no jobs.")).to_be_visible()
        await page.get_by_role("button", name="New job").click()
        await page.get_by_label("When").fill("every weekday at 9:00")
        preview = page.locator(".preview")
        await expect(preview).to_contain_text("every weekday at 09:00 Europe/Vienna")
        await expect(preview.get_by_role("listitem")).to_have_count(5)
        await expect(preview.get_by_role("listitem").first).to_contain_text("09:00")
        await page.get_by_label("Message").fill("What is new?")
        await page.get_by_label("Name").fill(EVIL[:150])
        await shoot(page, tmp_path, "1-new")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator("h1")).to_have_text(EVIL)
        await expect(page.get_by_text("It has not run yet.")).to_be_visible()
        await page.get_by_role("button", name="Run now").click()
        await expect(runs(page).get_by_role("heading", name="Report")).to_be_visible()
        await expect(runs(page)).to_contain_text("by hand")
        await expect(runs(page)).to_contain_text("The answer was delivered.")
        await expect(runs(page)).to_contain_text(f"good, {EVIL}")
        await shoot(page, tmp_path, "2-history")
        await page.get_by_role("link", name="All jobs").click()
        await expect(page.get_by_role("link", name=EVIL)).to_be_visible()
        enabled = page.get_by_role("switch")
        await expect(enabled).to_be_checked()
        await enabled.press("Space")
        await expect(enabled).not_to_be_checked()
        [job] = ground.gateway.job_runner.jobs().list(include_disabled=True)["jobs"]
        assert job["enabled"] is False
        assert job["schedule"] == {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "Europe/Vienna"}
        await page.emulate_media(color_scheme="dark")
        await page.set_viewport_size({"width": 390, "height": 780})
        await shoot(page, tmp_path, "3-phone-dark")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        await page.get_by_role("link", name=EVIL).click()
        await page.get_by_role("button", name="Remove").click()
        await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        await expect(page.get_by_text("There are no jobs.")).to_be_visible()
        assert await page.locator("img[src=x], main script").count() == 0


async def test_errors_are_shown_at_their_field(browser: Browser) -> None:
    async with serve({}) as ground, visit(browser, ground) as page:
        await go(page, "jobs", "new")
        save = page.get_by_role("button", name="Save")
        when = page.get_by_label("When")
        await page.get_by_label("Message").fill("hello")
        await save.click()
        await expect(when).to_be_focused()
        await expect(page.get_by_role("alert")).to_contain_text("schedule is required")
        await when.fill("evry day at 9:00")
        await expect(page.locator(".preview")).to_contain_text("did you mean 'every'")
        await save.click()
        await expect(when).to_have_attribute("aria-invalid", "true")
        await expect(page.get_by_role("alert")).to_have_count(1)
        await when.fill("every day at 9:00")
        await expect(page.get_by_role("alert")).to_have_count(0)
        await page.get_by_label("Where").select_option("session")
        await save.click()
        await expect(page.get_by_label("Session", exact=True)).to_be_focused()
        await expect(page.get_by_role("alert")).to_contain_text("unknown sessionTarget")
        await page.get_by_label("Where").select_option("isolated")
        await page.get_by_label("Answers").select_option("webhook")
        await page.get_by_label("To the address").fill("nowhere")
        await save.click()
        await expect(page.get_by_label("To the address")).to_be_focused()
        await page.get_by_label("Answers").select_option("none")
        await page.get_by_text("Advanced").click()
        more = page.get_by_label("More fields, as JSON")
        await more.fill("{overlap}")
        await save.click()
        await expect(more).to_be_focused()
        await more.fill('{"pacing": {"min": 1}}')
        await save.click()
        await expect(page.get_by_role("alert")).to_contain_text("pacing.min")
        assert ground.gateway.job_runner.jobs().list()["total"] == 0


async def test_an_edit_changes_only_what_was_edited(browser: Browser) -> None:
    async with serve({}) as ground, visit(browser, ground, **VIENNA) as page:
        payload = {"kind": "agentTurn", "message": "look", "toolsAllow": [], "timeoutSeconds": 60}
        delivery = {"mode": "announce", "to": "agent:main:main", "bestEffort": True}
        more: Any = {"failureAlert": {"after": 3}, "grants": ["git push"]}
        id_ = await add(ground, payload=payload, delivery=delivery, **more)
        await go(page, "jobs", id_)
        await expect(page.locator(".exact")).to_have_text("git push")
        await page.get_by_role("button", name="Edit").click()
        await expect(page.get_by_role("note")).to_contain_text('{"grants":["git push"]}')
        when = page.get_by_label("When")
        await expect(when).to_have_value("every day at 09:00 UTC")
        await expect(page.locator(".preview").get_by_role("listitem")).to_have_count(5)
        await expect(page.get_by_label("Tools")).to_have_value("none")
        await page.get_by_label("Message").fill("look again")
        await page.get_by_text("Advanced").click()
        box = page.get_by_label("More fields, as JSON")
        shown = json.loads(await box.input_value())
        assert shown["payload"] == {"timeoutSeconds": 60}
        assert shown["delivery"] == {"bestEffort": True}
        # What was typed is there after a look at something else.
        await go(page, "sessions")
        await expect(page.locator("h1")).to_have_text("Sessions")
        await go(page, "jobs", id_, "edit")
        await expect(page.get_by_label("Message")).to_have_value("look again")
        # Meanwhile, someone else gives it another name.
        ground.gateway.job_runner.jobs().update(id_, {"name": "renamed"}, by="operator")
        await page.get_by_text("Advanced").click()
        await box.fill('{"overlap": true}')
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator("h1")).to_have_text("renamed")
        job = stored(ground, id_)
        assert job["payload"] == {"kind": "agentTurn", "message": "look again", "toolsAllow": []}
        assert job["delivery"] == {"mode": "announce", "to": "agent:main:main"}
        assert job["overlap"] is True
        assert not job.keys() & more.keys()
        assert job["schedule"] == {"kind": "cron", "expr": "0 9 * * *", "tz": "UTC"}
        await page.get_by_role("button", name="Edit").click()
        await when.fill("every hour at :30")
        await page.get_by_label("What").select_option("systemEvent")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("the main session")).to_be_visible()
        job = stored(ground, id_)
        assert job["payload"] == {"kind": "systemEvent", "text": "look again"}
        assert (job["sessionTarget"], job["delivery"]) == ("main", {"mode": "none"})
        assert job["schedule"] == {"kind": "cron", "expr": "30 * * * *", "tz": "Europe/Vienna"}


async def test_a_job_without_fields_of_its_own_is_edited_as_json(browser: Browser) -> None:
    payload = {"kind": "command", "argv": ["echo", EVIL]}
    schedule = {"kind": "on-exit", "command": "sleep 1000", "cwd": "/"}
    given = {"message": None, "payload": payload, "schedule": schedule, "enabled": False}
    async with serve({}) as ground, visit(browser, ground) as page:
        id_ = await add(ground, name="c", **given)
        await go(page, "jobs", id_)
        await expect(page.locator(".exact")).to_have_text(
            json.dumps(["echo", EVIL]).replace(", ", ",")
        )
        await page.get_by_role("button", name="Edit").click()
        await expect(page.get_by_label("When")).to_have_value("")
        more = page.get_by_label("More fields, as JSON")
        shown = json.loads(await more.input_value())
        assert shown["payload"] == payload
        shown["payload"]["argv"][1] = "other"
        shown["schedule"]["command"] = "sleep 999"
        await more.fill(json.dumps(shown))
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".exact")).to_have_text('["echo","other"]')
        job = stored(ground, id_)
        assert job["schedule"] == {**schedule, "command": "sleep 999"}
        assert job["payload"]["argv"] == ["echo", "other"]


async def test_failures_and_what_follows_are_shown_as_they_happen(browser: Browser) -> None:
    gate = Gate("Done with it.", after=1)
    command = {"kind": "command", "argv": ["sh", "-c", f"echo '{EVIL}' >&2; exit 3"]}
    async with serve({}, ScriptedModel(gate, then="NO_REPLY")) as ground:
        failing = await add(ground, name="fails", message=None, payload=command)
        turn = await add(ground, name="turn", delivery="http://127.0.0.1:9/hook")
        async with visit(browser, ground) as page:
            await go(page, "jobs")
            row = page.get_by_role("listitem").filter(has=page.get_by_role("link", name="turn"))
            await row.get_by_role("button", name="Run now: turn").click()
            await asyncio.wait_for(gate.reached.wait(), WAIT_S)
            await expect(row).to_contain_text("running")
            await row.get_by_role("button", name="Run now: turn").click()
            await expect(row.get_by_role("alert")).to_have_text("It is running already.")
            gate.release()
            await expect(row).to_contain_text("delivery failed")
            await row.get_by_role("link").click()
            await expect(runs(page)).to_contain_text("Done with it.")
            await expect(runs(page)).to_contain_text("The answer was not delivered: ")
            await page.get_by_role("button", name="Run now: turn").click()
            await expect(runs(page).first).to_contain_text("It had nothing to report.")
            await runs(page).first.get_by_role("link", name="Session").click()
            await expect(page.locator(".message.user")).to_contain_text("look")
            await go(page, "jobs", failing)
            await page.get_by_role("button", name="Run now: fails").click()
            await expect(runs(page)).to_contain_text(EVIL)
            await expect(runs(page)).to_contain_text("Command exited with code 3")
            change_state(
                ground, failing, auto_disabled=f"10 failures {EVIL}", consecutive_errors=10
            )
            await expect(page.get_by_role("note")).to_contain_text(
                f"disabled this job: 10 failures {EVIL}"
            )
            await page.get_by_role("switch").click()
            await expect(page.get_by_role("note")).to_have_count(0)
            ground.gateway.job_runner.jobs().remove(failing)
            await expect(page.get_by_role("alert")).to_contain_text("unknown job")
        assert stored(ground, turn)["lastRunStatus"] == "ok"


async def test_jobs_are_searched_and_shown_in_pages(browser: Browser) -> None:
    async with serve({}) as ground, visit(browser, ground) as page:
        for number in range(60):
            await add(ground, name=f"job {number:02}", enabled=number % 2 == 0)
        await go(page, "jobs")
        rows = page.get_by_role("main").get_by_role("listitem")
        await expect(rows).to_have_count(50)
        await page.get_by_role("button", name="Next").click()
        await expect(rows).to_have_count(10)
        await expect(page.get_by_text("51 to 60 of 60")).to_be_visible()
        await page.get_by_label("Show").select_option("disabled")
        await expect(rows).to_have_count(30)
        await page.get_by_label("Search names").fill("JOB 1")
        await expect(rows).to_have_count(5)
        await page.get_by_label("Search names").fill("nothing")
        await expect(page.get_by_text("No job matches.")).to_be_visible()


async def test_heartbeats_are_shown_and_not_changed(browser: Browser) -> None:
    async with serve({}) as ground, visit(browser, ground) as page:
        id_ = ground.gateway.job_runner.jobs().wake_job("main").job.id
        await go(page, "jobs")
        row = page.get_by_role("main").get_by_role("listitem")
        await expect(row).to_contain_text("heartbeat")
        await expect(row.get_by_role("button")).to_have_count(0)
        await expect(row.get_by_role("switch")).to_have_count(0)
        for path in ((id_,), (id_, "edit")):
            await go(page, "jobs", *path)
            await expect(page.get_by_role("note")).to_contain_text("heartbeat of an agent")
            await expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)


def only_reading(socket: WebSocketRoute) -> None:
    """A gateway that gives this browser the scope to read, and no other."""
    server = socket.connect_to_server()

    def answer(message: str | bytes) -> None:
        frame = json.loads(message)
        if auth := (frame.get("payload") or {}).get("auth"):
            auth["scopes"] = ["operator.read"]
        socket.send(json.dumps(frame))

    server.on_message(answer)


async def test_a_browser_without_the_scope_can_only_look(browser: Browser) -> None:
    async with serve({}) as ground, visit(browser, ground) as page:
        id_ = await add(ground, name="look")
        await page.route_web_socket("**/*", only_reading)
        await page.goto("about:blank")
        for path in ("", f"/{id_}", f"/{id_}/edit", "/new"):
            await page.goto(f"{ground.http}/#/jobs{path}")
            await expect(page.get_by_role("note")).to_contain_text("operator.admin")
            await expect(page.get_by_role("main")).to_contain_text("look")
            await expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)
            await expect(page.get_by_role("switch")).to_have_count(0)
