"""The control page in a real browser: policy, settings, devices, usage, logs, doctor."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from tests.gateway.conftest import TOKEN, Device, Ground, hello_params, serve
from tests.gateway.page_browser import NEEDS_CHROMIUM, open_chromium, shoot, visit
from tests.gateway.test_usage import asked, remember, said
from tests.lacking import needs
from tests.node import PACKAGES

pytestmark = [
    NEEDS_CHROMIUM,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("page"),
]

SECRET = "sk-very-secret-value-123456"
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>${alert(3)}"
FROM_AFAR = {"X-Forwarded-For": "203.0.113.9"}


def write(text: str) -> Path:
    path = Path(os.environ["CLAWKIT_HOME"]) / "clawkit.json5"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


@pytest.fixture
def file() -> Path:
    return write(f"""// my settings
{{
  gateway: {{ auth: {{ token: "{TOKEN}" }}, trustedProxies: ["127.0.0.2"] }}, // keep
  agents: {{ list: [
    {{ id: "main", default: true, identity: {{ name: "Claw" }} }},
    {{ id: "work", name: {json.dumps(EVIL)}, tools: {{ deny: ["write", {json.dumps(EVIL)}] }} }},
  ] }},
  models: {{ providers: {{ lab: {{ baseUrl: "http://127.0.0.1:9/v1", apiKey: "{SECRET}" }} }} }},
  tools: {{ byProvider: {{ google: {{ deny: ["grep"] }} }} }},
  env: {{ vars: {{ NOTE: {json.dumps(EVIL)} }} }},
}}
""")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with open_chromium() as made:
        yield made


async def go(page: Page, *path: str) -> None:
    await page.evaluate("(to) => { location.hash = to; }", f"#/{'/'.join(path)}")


async def save(page: Page) -> None:
    await page.get_by_role("button", name="Review").click()
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_every_tool_is_explained_for_what_was_picked(browser: Browser, file: Path) -> None:
    async with serve(str(file)) as ground, visit(browser, ground) as page:
        await go(page, "policy", "work")
        row = page.locator("table.policy > tbody > tr")
        write_row = row.filter(has=page.get_by_text("write", exact=True))
        await expect(write_row).to_contain_text("removed by policy")
        await write_row.locator("summary").click()
        await expect(write_row.locator("td table")).to_contain_text("agents.work.tools.deny")
        grep = row.filter(has=page.get_by_text("grep", exact=True))
        await expect(grep).to_contain_text("in force")
        await page.get_by_label("Model").fill("google/gemini-3-pro")
        await expect(grep).to_contain_text("removed by policy")
        await expect(grep).to_contain_text("tools.byProvider.google.deny")
        gateway = row.filter(has=page.get_by_text("gateway", exact=True))
        await page.get_by_label("Sender is the owner").select_option("No")
        await expect(gateway).to_contain_text("owner")
        await page.get_by_label("Agent").select_option("main")
        await expect(write_row).not_to_contain_text("agents.work")
        await page.get_by_label("Filter").fill("byProvider.google")
        await expect(row).to_have_count(1)
        await page.get_by_label("Filter").fill("no such thing")
        await expect(page.get_by_text("No tool fits.")).to_be_visible()


async def test_forms_change_the_file_and_keep_comments_and_secrets(
    browser: Browser, file: Path, tmp_path: Path
) -> None:
    before = file.read_text(encoding="utf-8")
    async with serve(str(file)) as ground, visit(browser, ground) as page:
        await go(page, "config", "tools")
        review = page.get_by_role("button", name="Review")
        await expect(review).to_be_disabled()
        await page.get_by_label("deny", exact=True).fill("edit\nls")
        await page.get_by_label("profile", exact=True).select_option("coding")
        await review.click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.locator(".added").first).to_contain_text('deny: ["edit", "ls"]')
        await shoot(page, tmp_path, "review")
        await dialog.get_by_role("button", name="Close").click()
        assert file.read_text(encoding="utf-8") == before
        await save(page)
        text = file.read_text(encoding="utf-8")
        assert 'deny: ["edit", "ls"]' in text
        assert 'profile: "coding"' in text
        assert "// my settings" in text
        assert "// keep" in text
        await expect(review).to_be_disabled()
        # A secret is not shown, and stays; one that is typed replaces it.
        await go(page, "config", "models")
        await page.get_by_text("providers", exact=True).click()
        await page.get_by_text("lab", exact=True).click()
        key = page.get_by_label("apiKey", exact=True)
        await expect(key).to_have_value("")
        await expect(key).to_have_attribute("type", "password")
        await page.get_by_label("baseUrl", exact=True).fill("http://127.0.0.1:8/v1")
        await save(page)
        assert SECRET in file.read_text(encoding="utf-8")
        await key.fill("another-secret-987654321")
        await review.click()
        await expect(dialog.locator(".added")).to_have_count(1)
        assert "another-secret" not in await dialog.inner_text()
        await dialog.get_by_role("button", name="Save").click()
        await expect(dialog).to_have_count(0)
        assert "another-secret-987654321" in file.read_text(encoding="utf-8")
        assert SECRET not in await page.content()


async def test_the_page_says_before_saving_whether_that_restarts_the_gateway(
    browser: Browser, file: Path
) -> None:
    async with serve(str(file)) as ground, visit(browser, ground) as page:
        for restarts, words in (
            (False, "when the gateway is restarted"),
            (True, "Saving restarts"),
        ):
            ground.gateway.on_restart = (lambda: None) if restarts else None
            await go(page, "config", "gateway")
            await page.get_by_label("port", exact=True).fill("18899")
            await page.get_by_role("button", name="Review").click()
            await expect(page.get_by_role("dialog")).to_contain_text(words)
            await page.keyboard.press("Escape")
            await page.get_by_role("button", name="Discard").click()


async def test_a_file_that_is_not_in_force_is_marked_in_every_view(
    browser: Browser, file: Path
) -> None:
    text = file.read_text(encoding="utf-8")
    async with serve(str(file)) as ground, visit(browser, ground) as page:
        views = page.get_by_role("navigation", name="Views")
        file.write_text(text.replace("trustedProxies:", "port: 18899, trustedProxies:"))
        await expect(views.get_by_label("needs a restart")).to_be_visible()
        await views.get_by_role("link", name="Configuration").click()
        await expect(page.get_by_role("note")).to_contain_text("restarted: gateway.port")
        file.write_text("{ agents: ")
        await expect(views.get_by_label("invalid")).to_be_visible()
        await expect(page.get_by_text("is never closed")).to_be_visible()
        file.write_text(text)
        await expect(views.get_by_label("invalid")).to_be_hidden()
        await expect(page.get_by_role("note")).to_have_count(0)


async def test_errors_are_shown_at_their_field_and_conflicts_are_shown(
    browser: Browser, file: Path
) -> None:
    async with serve(str(file)) as ground, visit(browser, ground) as page:
        await go(page, "config", "gateway")
        await page.get_by_label("port", exact=True).fill("700000")
        await page.get_by_role("button", name="Review").click()
        field = page.locator(".setting", has=page.get_by_label("port", exact=True)).last
        await expect(field.get_by_role("alert")).to_contain_text("65535")
        await page.get_by_role("button", name="Discard").click()
        await expect(page.get_by_label("port", exact=True)).to_have_value("")
        # Meanwhile, someone else changes the file.
        await go(page, "config", "tools")
        await page.get_by_label("deny", exact=True).fill("edit")
        await go(page, "agents")
        await expect(page.get_by_role("region", name="Agent main")).to_be_visible()
        await go(page, "config", "tools")
        await expect(page.get_by_label("deny", exact=True)).to_have_value("edit")
        other = await ground.join()
        found = await other.call("config.get")
        raw = '{tools: {profile: "coding"}}'
        await other.call("config.patch", {"raw": raw, "baseHash": found["hash"]})
        await expect(page.get_by_text("has been changed since you began")).to_be_visible()
        await page.get_by_role("button", name="Review").click()
        await expect(page.get_by_role("alert")).to_contain_text("config changed since last load")
        await page.get_by_role("button", name="Put my changes on top of it").click()
        await save(page)
        text = file.read_text(encoding="utf-8")
        assert 'deny: ["edit"]' in text
        assert 'profile: "coding"' in text


async def test_the_file_itself_can_be_edited(browser: Browser, file: Path) -> None:
    async with serve(str(file)) as ground, visit(browser, ground) as page:
        await go(page, "config", "file")
        box = page.get_by_label("The configuration file")
        text = await box.input_value()
        assert SECRET not in text
        assert TOKEN not in text
        assert "// keep" in text
        await box.fill(text.replace("// my settings", "// ours").replace('"grep"', '"find"'))
        await go(page, "config", "tools")
        await expect(page.get_by_text("unsaved changes in the file")).to_be_visible()
        await go(page, "config", "file")
        await save(page)
        saved = file.read_text(encoding="utf-8")
        assert saved.startswith("// ours")
        assert '"find"' in saved
        assert SECRET in saved
        await box.fill("{ tools: ")
        await page.get_by_role("button", name="Review").click()
        await expect(page.get_by_role("alert")).to_contain_text("JSON5")
        await page.get_by_role("button", name="Discard").click()
        await expect(page.get_by_role("button", name="Discard")).to_be_disabled()
        file.write_text('{ tools: { profile: "none" } }', encoding="utf-8")
        await go(page, "agents")
        await go(page, "config", "tools")
        await expect(page.get_by_text("is invalid.")).to_be_visible()
        await expect(page.get_by_role("link", name="tools.profile")).to_be_visible()


async def waiting(ground: Ground, name: str) -> Device:
    """A device from elsewhere that asks to be paired."""
    device, params = Device(), hello_params(["operator.read"], client=("openclaw-ios", "ui"))
    params["client"]["displayName"] = name
    _, answer = await ground.shake(params, device, headers=FROM_AFAR)
    assert answer["error"]["code"] == "NOT_PAIRED"
    return device


async def test_devices_are_approved_rejected_and_lose_their_tokens(
    browser: Browser, file: Path
) -> None:
    async with serve(str(file)) as ground, visit(browser, ground) as page:
        await go(page, "devices")
        own = page.get_by_role("region", name="Device Control page (")
        await expect(own).to_contain_text("this browser")
        phone = await waiting(ground, "Phone")
        request = page.get_by_role("region", name="Request to be paired")
        await expect(request).to_contain_text("203.0.113.9")
        await request.get_by_role("button", name="Approve").click()
        paired = page.get_by_role("region", name="Device Phone")
        await expect(paired).to_contain_text("Token for operator")
        assert ground.gateway.devices.facts_about(phone.id) is not None
        await paired.get_by_role("button", name="Rotate").click()
        await page.get_by_role("dialog").get_by_role("button", name="Replace").click()
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await paired.get_by_role("button", name="Revoke").click()
        await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        await expect(paired.get_by_role("button", name="Rotate")).to_have_count(0)
        await paired.get_by_role("button", name="Remove device").click()
        await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        await expect(paired).to_have_count(0)
        stranger = await waiting(ground, "Stranger")
        await request.get_by_role("button", name="Reject").click()
        await expect(request).to_have_count(0)
        assert ground.gateway.devices.facts_about(stranger.id) is None
        # The token of this browser is replaced, and still works afterwards.
        await own.get_by_role("button", name="Rotate").click()
        await page.get_by_role("dialog").get_by_role("button", name="Replace").click()
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.reload()
        await expect(own).to_contain_text("connected")


async def test_hidden_characters_of_names_are_shown(browser: Browser, file: Path) -> None:
    async with serve(str(file)) as ground, visit(browser, ground) as page:
        await go(page, "devices")
        await waiting(ground, "Pho\u202ene")
        request = page.get_by_role("region", name="Request to be paired")
        await expect(request.get_by_role("heading")).to_have_text("PhoU+202Ene")


async def test_capabilities_of_a_node_can_be_approved(browser: Browser, file: Path) -> None:
    async with serve(str(file)) as ground, visit(browser, ground) as page:
        await go(page, "devices")
        await expect(page.get_by_text("There are no nodes.")).to_be_visible()
        offer: dict[str, Any] = {"caps": ["system"], "commands": ["system.which"]}
        params = hello_params([], client=("node-host", "node"), role="node", **offer)
        params["client"]["displayName"] = "Lab"
        await ground.shake(params, Device())
        request = page.get_by_role("region", name="Request to be paired")
        await expect(request).to_contain_text("system.which")
        await request.get_by_role("button", name="Approve").click()
        await expect(request).to_have_count(0)
        await expect(page.get_by_role("region", name="Node Lab")).to_contain_text("system.which")


async def test_logs_are_followed_filtered_and_paused(browser: Browser, file: Path) -> None:
    log = logging.getLogger("clawkit.gateway.tests")
    async with serve(str(file)) as ground, visit(browser, ground) as page:
        await go(page, "logs")
        lines = page.get_by_role("list", name="Log").get_by_role("listitem")
        await expect(lines.filter(has_text="the gateway is ready")).to_have_count(1)
        log.warning("first of all")
        await expect(lines.filter(has_text="first of all")).to_have_count(1)
        await page.get_by_label("From level").select_option("warning")
        await expect(lines.filter(has_text="the gateway is ready")).to_have_count(0)
        await page.get_by_label("With text").fill("SECOND")
        await expect(page.get_by_text("No line fits.")).to_be_visible()
        log.error("the second one")
        await expect(lines.filter(has_text="the second one")).to_contain_text("error")
        with open(ground.gateway.log.path, "a", encoding="utf-8") as stream:
            stream.write('{"level": {}, "message": ["second"]}\nsecond, not JSON\n')
        await expect(lines.filter(has_text="second, not JSON")).to_have_count(1)
        await page.get_by_role("button", name="Pause").click()
        log.error("another second one")
        await page.get_by_role("button", name="Continue").click()
        await expect(lines.filter(has_text="another second one")).to_have_count(1)


async def test_usage_is_plotted_and_listed(browser: Browser, file: Path, tmp_path: Path) -> None:
    now, hour = datetime.now(UTC), timedelta(hours=1)
    async with serve(str(file)) as ground, visit(browser, ground) as page:
        await go(page, "usage")
        await expect(page.get_by_text("No model has been used")).to_be_visible()
        for agent, model, tokens in (("main", "lab/one", 1_200), ("work", "lab/two", 3_000)):
            question = asked(now - timedelta(seconds=4))
            answer = said(now, model=model, cost=0.25, output=tokens)
            remember(ground, agent, model[4:], question, answer, created=now - hour)
        await go(page, "agents")
        await expect(page.get_by_role("region", name="Agent main")).to_contain_text("Claw")
        await go(page, "usage")
        await expect(page.locator(".plot canvas")).to_be_visible()
        await expect(page.locator(".figures")).to_contain_text("4.2K")
        await expect(page.locator(".figures")).to_contain_text("$0.50")
        await expect(page.get_by_role("row", name="lab/one")).to_contain_text("1.2K")
        await page.get_by_label("By", exact=True).select_option("agent")
        await expect(page.get_by_role("row", name="work")).to_contain_text("4.0 s")
        await page.get_by_label("Show").select_option("latency")
        await page.get_by_label("Period").select_option("7 days")
        await expect(page.locator(".plot canvas")).to_be_visible()
        await shoot(page, tmp_path, "usage")


async def test_no_name_or_value_becomes_markup(browser: Browser, file: Path) -> None:
    """`visit` fails the test for dialogs, violations of the CSP and requests to others."""
    phone: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}
    async with serve(str(file)) as ground, visit(browser, ground, **phone) as page:
        await waiting(ground, EVIL[:200])
        logging.getLogger("clawkit.gateway.tests").warning("%s", EVIL)
        now = datetime.now(UTC)
        answer = said(now, model=f"lab/{EVIL}", output=7)
        remember(ground, "work", "evil", answer, created=now - timedelta(hours=1))
        for place in ("doctor", "agents", "devices", "logs", "usage", "policy/work"):
            await go(page, place)
            evil = page.get_by_role("main").get_by_text("<img src=x onerror=alert(1)>").first
            await expect(evil).to_be_visible(timeout=60_000)
            if place == "doctor":
                await expect(page.get_by_role("status").first).to_contain_text(" passed · ")
        await go(page, "config", "env")
        await page.get_by_text("vars", exact=True).click()
        await expect(page.get_by_label("NOTE")).to_be_visible()
        await go(page, "config", "agents")
        await page.get_by_text("list", exact=True).click()
        await page.get_by_text("work", exact=True).click()
        await expect(page.get_by_label("name", exact=True).last).to_have_value(EVIL)
        await page.get_by_label("name", exact=True).last.fill(f"{EVIL}<b>")
        await page.get_by_role("button", name="Review").click()
        await expect(page.locator(".diff .added")).to_contain_text(EVIL)
        assert await page.locator("img[src=x], main script").count() == 0


AXE = PACKAGES / "axe-core/axe.min.js"
COMPLAINTS = """async () => (await axe.run({resultTypes: ['violations']})).violations.flatMap(
    (each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 200)}`))"""
PLACES = {
    "chat": "New chat",
    "sessions": "Sessions",
    "jobs": "Jobs",
    "jobs/new": "New job",
    "jobs/failed": "failed",
    "jobs/failed/edit": "Edit job",
    "approvals": "Approvals",
    "policy": "Policy",
    "agents": "Agents",
    "devices": "Devices",
    "usage": "Usage",
    "config/gateway": "Configuration",
    "config/file": "Configuration",
    "logs": "Logs",
    "doctor": "Doctor",
}


@needs(AXE.exists(), "axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_checker_of_accessibility_finds_nothing(
    browser: Browser, file: Path, scheme: str
) -> None:
    """Names of controls, roles, contrasts, order of headings, and what else axe knows."""
    async with serve(str(file)) as ground:
        async with visit(browser, ground, login=False, color_scheme=scheme) as page:
            await page.get_by_label("Token").wait_for()
            await page.evaluate(AXE.read_text(encoding="utf-8"))
            assert await page.evaluate(COMPLAINTS) == []
        now = datetime.now(UTC)
        remember(ground, "main", "one", asked(now), said(now, output=9), created=now)
        await waiting(ground, "A phone")
        jobs = ground.gateway.job_runner.jobs()
        failed = {"name": "failed", "every": "1h", "argv": ["false"], "failureAlert": False}
        jobs.run(jobs.add(failed, by="operator")["id"], "force")
        async with visit(browser, ground, color_scheme=scheme) as page:
            await page.evaluate(AXE.read_text(encoding="utf-8"))
            for place, title in PLACES.items():
                await go(page, place)
                await expect(page.locator(".bar h1")).to_have_text(title)
                await expect(page.get_by_text("Loading…")).to_have_count(0)
                if place == "jobs/failed":
                    await expect(page.locator(".run")).to_contain_text("exited with code 1")
                assert await page.evaluate(COMPLAINTS) == [], place
