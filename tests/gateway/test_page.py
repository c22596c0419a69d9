"""The control page in a real browser: login, chat, sessions, approvals."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from tests.gateway.conftest import TOKEN, Ground, serve
from tests.gateway.page_browser import NEEDS_CHROMIUM, open_chromium, say, shoot, visit
from tests.scale import scaled

from clawkit.content import Assistant, Text, User
from clawkit.gateway.scopes import OWNER
from clawkit.models.protocols import Facts
from clawkit.sessions.protocols import Filter
from clawkit.testing import Gate, ScriptedModel, call
from clawkit.testing import say as words

pytestmark = [
    NEEDS_CHROMIUM,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("page"),
]

MAX_FIRST_LOAD = 60_000
WAIT_S = 30.0
ASKS: dict[str, Any] = {
    "tools": {"exec": {"security": "allowlist", "ask": "always", "host": "gateway"}}
}
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
PAYLOADS = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    '"><svg/onload=alert(1)>',
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "[a](javascript:alert(1))",
    "[b](data:text/html,<script>alert(1)</script>)",
    "![c](https://evil.example/c.png)",
    "<a href='javascript:alert(1)' onclick=alert(1)>d</a>",
    "<style>@import 'https://evil.example/s.css'</style>",
    "<form action=https://evil.example><button>go</button></form>",
    "<math><mtext><table><mglyph><style><!--</style>"
    "<img title='--&gt;&lt;img src=x onerror=alert(1)&gt;'>",
    "${alert(1)} {{constructor.constructor('alert(1)')()}}",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with open_chromium() as made:
        yield made


def bubbles(page: Page, role: str) -> Any:
    return page.locator(f".message.{role}")


async def test_a_walk_through_the_page(browser: Browser, tmp_path: Path) -> None:
    """What a person does on the first day; the pictures are kept for people to look at."""
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    edit = {"path": "a.txt", "edits": [{"oldText": "two", "newText": "TWO"}]}
    gate = Gate("A **long** answer, word by word.", after=2)
    model = ScriptedModel(
        [words("Let me look."), call("read", {"path": "a.txt"}), call("edit", edit)],
        "# Done\n\n- changed `a.txt`\n\n```python\nprint(1)\n```",
        call("exec", {"command": "printf 'a\u202eb'; echo out-put"}),
        gate,
        then="next",
    )
    config = {**ASKS, "agents": {"defaults": {"workspace": str(tmp_path)}}}
    pictures = tmp_path / "pictures"
    async with serve(config, model) as ground, visit(browser, ground) as page:
        titles = page.get_by_role("navigation").get_by_role("link")
        await expect(titles.filter(has_text="0")).to_have_count(0)
        await say(page, "Please change it")
        await expect(page.get_by_role("heading", name="Done")).to_be_visible()
        titles = page.get_by_role("navigation").get_by_role("link")
        await expect(titles.filter(has_text="0")).to_have_count(0)
        await page.locator("details.call", has_text="edit").locator("summary").click()
        await expect(page.locator(".diff .added")).to_have_text("+TWO\n")
        await shoot(page, pictures, "1-chat")
        await say(page, "Run something")
        asked = page.get_by_role("region", name="Approval")
        await expect(asked.locator(".exact")).to_have_text("printf 'aU+202Eb'; echo out-put")
        await expect(page.get_by_role("navigation").get_by_label("1 pending")).to_be_visible()
        await expect(page.locator("details.call .badge").last).to_have_text("needs approval")
        await shoot(page, pictures, "2-approval")
        await page.emulate_media(color_scheme="dark")
        await asked.get_by_role("button", name="Allow once").click()
        await asyncio.wait_for(gate.reached.wait(), WAIT_S)
        await expect(bubbles(page, "assistant").last).to_contain_text("A long")
        await shoot(page, pictures, "3-streaming-dark")
        await page.set_viewport_size({"width": 390, "height": 780})
        await shoot(page, pictures, "4-phone")
        wide = await page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390
        await page.get_by_role("button", name="Stop").click()
        await expect(page.get_by_text("Stopped.")).to_be_visible()
        await page.set_viewport_size({"width": 1100, "height": 800})
        await page.get_by_role("link", name="Sessions").click()
        await expect(page.get_by_role("link", name="Please change it")).to_be_visible()
        await shoot(page, pictures, "5-sessions")
        await page.get_by_role("link", name="Approvals").click()
        await expect(page.get_by_role("region", name="History").locator(".exact")).to_be_visible()
        await shoot(page, pictures, "6-approvals")
    assert len(list(pictures.iterdir())) == 6


async def test_a_one_time_address_works_once_and_the_browser_stays_logged_in(
    browser: Browser,
) -> None:
    async with serve({}) as ground:
        code = ground.gateway.codes.make()
        async with visit(browser, ground, f"/#code={code}", login=False) as page:
            await page.get_by_role("navigation").wait_for()
            assert code not in page.url
            await page.reload()
            await page.get_by_role("navigation").wait_for()
            [device] = ground.gateway.devices.paired()
            assert device.scopes == list(OWNER)
            assert not await page.evaluate("localStorage.length + document.cookie.length")
            await page.get_by_role("button", name="Log out").click()
            await page.get_by_label("Token").wait_for()
            assert ground.gateway.devices.paired() == []
        async with visit(browser, ground, f"/#code={code}", login=False) as page:
            await expect(page.get_by_role("alert")).to_contain_text("has been used or has expired")
        logs = Path(os.environ["CLAWKIT_HOME"], "logs")
        assert code not in "".join(path.read_text() for path in logs.glob("*"))


async def test_a_secret_is_typed_and_a_wrong_one_explained(browser: Browser) -> None:
    limit = {"maxAttempts": 3, "exemptLoopback": False}
    config = {"gateway": {"auth": {"token": TOKEN, "rateLimit": limit}}}
    async with serve(config) as ground, visit(browser, ground, login=False) as page:
        field = page.get_by_label("Token")
        await field.fill(f" {TOKEN} ")
        await field.press("Enter")
        await page.get_by_role("navigation").wait_for()
        await page.get_by_role("button", name="Log out").click()
        for _ in range(3):
            await field.fill("wrong")
            await field.press("Enter")
            await expect(page.get_by_role("alert")).to_contain_text("That token is wrong.")
        await field.fill(TOKEN)
        await field.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("Try again in 5 min.")
        # A page over plain HTTP from elsewhere has no keys.
        await page.add_init_script("Object.defineProperty(crypto, 'subtle', {value: undefined})")
        await page.reload()
        await expect(page.get_by_text("needs HTTPS or an address of this machine")).to_be_visible()
        await expect(page.locator(".exact")).to_contain_text(f":127.0.0.1:{ground.port} ")


async def test_a_code_is_taken_from_an_address_that_is_pasted(browser: Browser) -> None:
    async with serve({}) as ground, visit(browser, ground, login=False) as page:
        await page.get_by_label("Token").wait_for()
        code = ground.gateway.codes.make()
        await page.evaluate("(code) => { location.hash = `code=${code}`; }", code)
        await page.get_by_role("navigation").wait_for()
        assert code not in page.url
        # One that is not needed is not used, but does not stay in the address either.
        spare = ground.gateway.codes.make()
        await page.evaluate("(code) => { location.hash = `code=${code}`; }", spare)
        await page.wait_for_url(lambda url: spare not in url)
        assert ground.gateway.codes.redeem(spare)


async def test_a_password_is_asked_for_by_its_name(browser: Browser) -> None:
    config = {"gateway": {"auth": {"mode": "password", "password": TOKEN}}}
    async with serve(config) as ground, visit(browser, ground, login=False) as page:
        await page.get_by_label("Password").fill(TOKEN)
        await page.get_by_role("button", name="Log in").click()
        await page.get_by_role("navigation").wait_for()


async def test_a_browser_waits_for_approval(browser: Browser) -> None:
    config = {"gateway": {"nodes": {"pairing": {"autoApproveLocal": False}}}}
    async with serve(config) as ground, visit(browser, ground, login=False) as page:
        admin = await ground.join()
        await page.get_by_label("Token").fill(TOKEN)
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_text("waiting for approval")).to_be_visible()
        [pending] = (await admin.call("device.pair.list"))["pending"]
        await expect(page.locator(".exact")).to_contain_text(pending["requestId"])
        await admin.call("device.pair.reject", {"requestId": pending["requestId"]})
        await expect(page.get_by_role("alert")).to_contain_text("rejected, or has expired")
        await page.get_by_label("Token").fill(TOKEN)
        await page.get_by_role("button", name="Log in").click()
        await expect(page.get_by_text("waiting for approval")).to_be_visible()
        pending = (await admin.call("device.pair.list"))["pending"][-1]
        await admin.call("device.pair.approve", {"requestId": pending["requestId"]})
        await page.get_by_role("navigation").wait_for()


async def test_a_lost_connection_doubles_and_loses_nothing(browser: Browser) -> None:
    gate = Gate("First words, and then the rest of the answer.", after=2)
    async with (
        serve({}, ScriptedModel(gate, then="later")) as ground,
        visit(browser, ground) as page,
    ):
        await say(page, "hello")
        await asyncio.wait_for(gate.reached.wait(), WAIT_S)
        await expect(bubbles(page, "assistant")).to_contain_text("First words")
        for client in list(ground.gateway.hub.clients.values()):
            client.close(1012, "service restart")
        await expect(page.get_by_text("Reconnecting")).to_be_visible()
        # What is said in the meantime is sent when the connection is back.
        await say(page, "are you there?")
        await expect(page.get_by_text("Reconnecting")).to_be_hidden()
        gate.release()
        await expect(bubbles(page, "assistant")).to_have_count(2)
        await expect(bubbles(page, "user")).to_have_count(2)
        await expect(bubbles(page, "assistant").first).to_contain_text("rest of the answer")
        stored = ground.gateway.store.find("agent:main:main")
        assert stored is not None
        assert len(ground.gateway.store.history(stored.id, 100)) == 4


async def test_two_tabs_show_the_same_and_log_out_together(browser: Browser) -> None:
    async with serve({}) as ground, visit(browser, ground) as page:
        other = await page.context.new_page()
        await other.goto(ground.http)
        await say(other, "from the other tab")
        await expect(bubbles(page, "assistant")).to_contain_text("Hello there, friend.")
        await expect(bubbles(page, "user")).to_contain_text("from the other tab")
        await other.get_by_role("button", name="Log out").click()
        await expect(page.get_by_role("alert")).to_contain_text("was logged out")
        await expect(page.get_by_label("Token")).to_be_focused()


async def test_a_view_that_failed_to_load_can_be_loaded_later(browser: Browser) -> None:
    async with serve({}) as ground, visit(browser, ground) as visited:
        page = await visited.context.new_page()  # where errors are expected
        await page.goto(ground.http)
        await page.route("**/views/agents.js", lambda route: route.fulfill(status=204))
        await page.get_by_role("link", name="Agents").click()
        await expect(page.get_by_role("alert")).to_be_visible()
        await page.unroute_all()
        for client in list(ground.gateway.hub.clients.values()):
            client.close(1012, "service restart")
        await expect(page.get_by_role("region", name="Agent main")).to_be_visible()


NO_SOCKET = """() => {
    window.Real = WebSocket;
    window.tried = new Promise((done) => {
        window.WebSocket = class { constructor() { done(); } close() {} };
    });
}"""


async def test_messages_typed_offline_are_sent_from_any_view(browser: Browser) -> None:
    async with serve({}) as ground, visit(browser, ground) as page:
        await page.get_by_label("Message", exact=True).wait_for()
        # Without a socket, until it is told to try again.
        await page.evaluate(NO_SOCKET)
        for client in list(ground.gateway.hub.clients.values()):
            client.close(1012, "service restart")
        await page.evaluate("() => window.tried")
        await say(page, "are you there?")
        await page.get_by_role("link", name="Sessions").click()
        await page.evaluate("() => { window.WebSocket = window.Real; }")
        await page.get_by_role("button", name="Retry now").click()
        await expect(page.get_by_role("link", name="are you there?")).to_be_visible()
        await page.get_by_role("link", name="Chat").click()
        await expect(page.get_by_text("Hello there, friend.")).to_have_count(1)
        await expect(page.locator(".pending")).to_have_count(0)


async def test_a_new_conversation_is_shown_at_once(browser: Browser) -> None:
    async with serve({}) as ground, visit(browser, ground) as page:
        await say(page, "first words")
        await expect(bubbles(page, "assistant")).to_contain_text("Hello there, friend.")
        await say(page, "/new")
        await expect(page.get_by_text("Nothing has been said")).to_be_visible()
        await expect(page.get_by_text("first words")).to_have_count(0)


async def test_the_chat_that_was_open_is_opened_again(browser: Browser) -> None:
    async with serve({}) as ground, visit(browser, ground) as page:
        await page.get_by_role("button", name="New chat").click()
        await page.wait_for_url("**/#/chat/**")
        before = page.url
        await page.get_by_role("link", name="Approvals").click()
        await page.get_by_role("link", name="Chat").click()
        assert page.url == before


async def test_sessions_can_be_switched_while_a_turn_runs(browser: Browser) -> None:
    gate = Gate("The first session goes on.", after=2)
    async with (
        serve({}, ScriptedModel(gate, "Second answer.", then="x")) as ground,
        visit(browser, ground) as page,
    ):
        await say(page, "work")
        await asyncio.wait_for(gate.reached.wait(), WAIT_S)
        await page.get_by_label("Message", exact=True).fill("a draft")
        await page.get_by_role("button", name="New chat").click()
        await expect(page.get_by_text("Nothing has been said")).to_be_visible()
        await say(page, "other")
        await expect(page.get_by_text("Second answer.")).to_be_visible()
        await page.go_back()
        await expect(page.get_by_label("Message", exact=True)).to_have_value("a draft")
        await expect(page.get_by_text("Working…")).to_be_visible()
        gate.release()
        await expect(page.get_by_text("The first session goes on.")).to_be_visible()
        await expect(page.get_by_text("Second answer.")).to_be_hidden()


MODELS: dict[str, Any] = {
    "providers": {
        "local": {
            "baseUrl": "http://127.0.0.1:9/v1",
            "api": "openai-completions",
            "models": [{"id": "small", "name": "Small"}],
        }
    }
}


async def test_a_turn_is_steered_and_the_model_chosen(browser: Browser) -> None:
    gate = Gate([call("ls", {})], after=0)
    model = ScriptedModel(gate, then="Both read.", facts=Facts(reasoning=True))
    async with serve({"models": MODELS}, model) as ground, visit(browser, ground) as page:
        await say(page, "start")
        await asyncio.wait_for(gate.reached.wait(), WAIT_S)
        await expect(page.get_by_role("button", name="Steer")).to_be_visible()
        await say(page, "rather this")
        await expect(page.locator(".pending")).to_have_count(1)
        gate.release()
        await expect(page.get_by_text("Both read.")).to_have_count(1)
        await expect(page.locator(".pending")).to_have_count(0)
        await expect(bubbles(page, "user")).to_have_count(2)
        assert len(model.requests) == 2
        await page.get_by_label("Thinking").select_option("high")
        await page.get_by_label("Model").select_option("local/small")
        await expect(page.get_by_label("Model")).to_have_value("local/small")
        stored = ground.gateway.store.get("main", "main")
        assert (stored.thinking, stored.model_override) == ("high", "local/small")


async def test_the_model_can_be_chosen_before_the_first_message(browser: Browser) -> None:
    agents = {"list": [{"id": "main"}, {"id": "work"}]}
    config = {"models": MODELS, "agents": agents}
    model = ScriptedModel(then="ok", facts=Facts(reasoning=True))
    async with serve(config, model) as ground, visit(browser, ground) as page:
        await page.goto(f"{ground.http}/#/chat/agent:work:main")
        await expect(page.get_by_label("Model")).to_have_value("scripted/model")
        await page.get_by_label("Thinking").select_option("low")
        await expect(page.get_by_label("Thinking")).to_have_value("low")
        await page.get_by_label("Model").select_option("local/small")
        await expect(page.get_by_label("Model")).to_have_value("local/small")
        stored = ground.gateway.store.get("main", "work")
        assert (stored.thinking, stored.model_override) == ("low", "local/small")
        # What is refused is not shown as chosen.
        await page.get_by_label("Model").evaluate("(each) => each.add(new Option('no/such'))")
        await page.get_by_label("Model").select_option("no/such")
        await expect(page.get_by_role("note")).to_contain_text("invalid model")
        await expect(page.get_by_label("Model")).to_have_value("local/small")
        await page.goto(f"{ground.http}/#/chat/agent:nobody:main")
        await expect(page.get_by_role("note")).to_contain_text("nobody")
        await expect(page.get_by_text("Loading…")).to_have_count(0)


async def test_nothing_that_was_typed_is_left_for_the_next_person(browser: Browser) -> None:
    async with serve({}) as ground, visit(browser, ground) as page:
        box = page.get_by_label("Message", exact=True)
        await box.fill("my secret plans")
        await page.get_by_role("button", name="Log out").click()
        await page.get_by_label("Token").fill(TOKEN)
        await page.get_by_role("button", name="Log in").click()
        await expect(box).to_have_value("")
        # Nor is it sent for them: the device is removed while the message waits for a connection.
        await page.evaluate(NO_SOCKET)
        [device] = ground.gateway.devices.paired()
        for client in list(ground.gateway.hub.clients.values()):
            client.close(1012, "service restart")
        await page.evaluate("() => window.tried")
        await say(page, "for nobody else")
        ground.gateway.devices.remove(device.about.device_id)
        await page.evaluate("() => { window.WebSocket = window.Real; }")
        await page.get_by_role("button", name="Retry now").click()
        await page.get_by_label("Token").fill(TOKEN)
        await page.get_by_role("button", name="Log in").click()
        await expect(box).to_have_value("")
        await say(page, "hello")
        await expect(bubbles(page, "assistant")).to_contain_text("Hello there, friend.")
        await expect(page.get_by_text("for nobody else")).to_have_count(0)


async def test_output_of_a_command_is_shown_while_it_runs(browser: Browser, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = f"echo so-far; cat {pipe}; echo and-after"
    model = ScriptedModel(call("exec", {"command": command}), then="Done.")
    tools = {"exec": {"security": "full", "ask": "off", "host": "gateway"}}
    async with serve({"tools": tools}, model) as ground, visit(browser, ground) as page:
        await say(page, "run")
        output, badge = page.get_by_label("Output of exec"), page.locator("details.call .badge")
        await expect(output).to_have_text("so-far\n")
        await expect(badge).to_have_text("running")
        # Also for those who come later.
        await page.reload()
        await expect(badge).to_have_text("running")
        await asyncio.to_thread(pipe.write_text, "")
        await expect(page.get_by_text("Done.")).to_be_visible()
        await expect(badge).to_have_text("done")
        await expect(output).to_be_hidden()
        await page.locator("details.call summary").click()
        await expect(page.locator(".call .output")).to_contain_text("and-after")


def fill(ground: Ground, count: int) -> str:
    """The key of a long conversation."""
    session = ground.gateway.live.create("main", "long", "")
    for number in range(count // 2):
        question, answer = Text(f"question {number}"), Text(f"**answer** {number}\n\n- a\n- b")
        for message in (User((question,)), Assistant((answer,))):
            ground.gateway.store.append(session.id, message, is_redacted=True)
    return session.key


async def test_long_conversations_are_loaded_in_parts(browser: Browser) -> None:
    count = scaled(5_000)
    async with serve({}) as ground:
        key = fill(ground, count)
        async with visit(browser, ground) as page:
            await page.goto(f"{ground.http}/#/chat/{key}")
            await expect(page.get_by_text(f"answer {count // 2 - 1}")).to_be_visible()
            assert await page.locator(".message").count() == 50
            loaded = 50
            while loaded < count:
                await page.locator(".scroll").evaluate("each => each.scrollTo(0, -1e9)")
                await expect(
                    page.locator(".message").nth(min(loaded + 49, count - 1))
                ).to_be_attached()
                loaded = await page.locator(".message").count()
            texts = await bubbles(page, "user").locator(".plain").all_text_contents()
            assert texts == [f"question {number}" for number in range(count // 2)]
            await say(page, "one more")
            await expect(page.get_by_text("Hello there, friend.")).to_be_visible()


PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 780},
    "has_touch": True,
    "is_mobile": True,
}
TOO_WIDE = "() => document.documentElement.scrollWidth > 390"


async def test_on_a_phone_everything_fits_and_enter_is_a_new_line(browser: Browser) -> None:
    name = "long " * 20
    async with serve({}) as ground, visit(browser, ground, **PHONE) as page:
        ground.gateway.live.create("main", name, "")
        box = page.get_by_label("Message", exact=True)
        await box.press_sequentially("one")
        await box.press("Enter")
        await box.press_sequentially("x" * 100)
        await expect(box).to_have_value(f"one\n{'x' * 100}")
        await page.get_by_role("button", name="Send").tap()
        await expect(bubbles(page, "assistant")).to_contain_text("Hello there, friend.")
        assert not await page.evaluate(TOO_WIDE)
        for link in await page.get_by_role("navigation").get_by_role("link").all():
            await link.tap()
            await expect(link).to_have_attribute("aria-current", "page")
            await expect(page.get_by_text("Loading…")).to_have_count(0)
            assert not await page.evaluate(TOO_WIDE), await link.inner_text()


DROP = """([name, type, data]) => {
    const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
    const files = new DataTransfer();
    files.items.add(new File([bytes], name, {type}));
    document.querySelector('.messages').dispatchEvent(
        new DragEvent('drop', {dataTransfer: files, bubbles: true, cancelable: true}));
}"""


async def test_images_are_attached_and_long_results_fetched_when_opened(
    browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "long.txt").write_text("line\n" * 2_500 + "the end\n")
    model = ScriptedModel(call("read", {"path": "long.txt", "limit": 3_000}), then="That is all.")
    config = {"agents": {"defaults": {"workspace": str(tmp_path)}}}
    async with serve(config, model) as ground, visit(browser, ground) as page:
        data = base64.b64encode(PIXEL).decode()
        await page.get_by_label("Message", exact=True).wait_for()
        await page.evaluate(DROP, ["<b>x</b>.txt", "text/plain", data])
        await expect(page.get_by_text("<b>x</b>.txt: only images")).to_be_visible()
        await page.evaluate(DROP, ["pixel.png", "image/png", data])
        await expect(page.get_by_role("img", name="pixel.png")).to_be_visible()
        await say(page, "look at this")
        await expect(bubbles(page, "user").locator("img.picture")).to_have_count(1)
        await expect(page.locator(".attached")).to_have_count(0)
        await expect(page.get_by_text("That is all.")).to_be_visible()
        await page.reload()
        await page.locator("details.call summary").click()
        await expect(page.locator(".call .output")).to_contain_text("the end")
        await expect(page.locator(".call .output")).not_to_contain_text("[… cut]")


async def test_hostile_text_stays_text(browser: Browser, tmp_path: Path) -> None:
    """In answers, results, names of files and sessions, and questions."""
    for number, payload in enumerate(PAYLOADS):
        name = payload.replace("/", "_")[:200]
        (tmp_path / f"{number}{name}").write_text(payload)
    everything = "\n\n".join(PAYLOADS)
    model = ScriptedModel(
        [call("ls", {}), call("read", {"path": f"{0}{PAYLOADS[0]}"})],
        everything,
        call("exec", {"command": f"echo {everything}"}),
        then="ok",
    )
    config = {**ASKS, "agents": {"defaults": {"workspace": str(tmp_path)}}}
    async with serve(config, model) as ground, visit(browser, ground) as page:
        admin = await ground.join()
        await say(page, everything)
        await expect(bubbles(page, "assistant").last).to_contain_text("<script>alert(1)</script>")
        for each in await page.locator("details.call summary").all():
            await each.click()
        await expect(page.locator(".call .output").first).to_contain_text("onerror")
        await say(page, "run it")
        await expect(page.locator(".approval .exact")).to_contain_text("<iframe srcdoc")
        for label in PAYLOADS:
            await admin.call("sessions.create", {"label": label[:120]})
        dangerous = (
            "script, iframe, form:not(.composer), svg:not(.lines), style, [onerror], [onclick]"
        )
        inside = f"main :is({dangerous})"
        assert await page.locator(inside).count() == 0
        assert await page.locator(".markdown img").count() == 0
        links = await page.locator(".markdown a").all()
        assert links
        for each in links:
            assert (await each.get_attribute("href") or "https:").startswith("https:")
            assert await each.get_attribute("rel") == "noopener noreferrer nofollow"
        await page.get_by_role("link", name="Approvals").click()
        await expect(page.locator(".approval .exact")).to_contain_text("<iframe srcdoc")
        await page.get_by_role("link", name="Sessions").click()
        await expect(page.get_by_role("link", name=PAYLOADS[0], exact=True)).to_be_visible()
        assert await page.locator(inside).count() == 0
        # What the page itself would do wrong is stopped by the browser.
        other = await page.context.new_page()
        await other.goto(ground.http)
        tried = "try { document.body.innerHTML = '<b>x</b>'; 'done' } catch (e) { e.name }"
        assert await other.evaluate(tried) == "TypeError"


HEAVY = {
    "quotes": ">" * 4_000 + "a",
    "numbers": "1. " * 1_500 + "a",
    "mixed": "> - " * 1_000 + "a",
    "slow": "_a__" * 8_000,
}
MAX_BUSY_S = 2.0


@pytest.mark.parametrize("name", HEAVY)
async def test_text_that_is_hard_to_parse_is_shown_as_it_is(browser: Browser, name: str) -> None:
    text = HEAVY[name]
    async with (
        serve({}, ScriptedModel(text, then="# ok")) as ground,
        visit(browser, ground) as page,
    ):
        # Of the page's own thread: how long that takes depends on what else the machine does.
        meter = await page.context.new_cdp_session(page)
        await meter.send("Performance.enable", {"timeDomain": "threadTicks"})
        await say(page, "first")
        if name == "slow":
            await expect(page.get_by_role("button", name="Send")).to_be_visible()
            await page.get_by_role("button", name="Show all").click()
        await expect(bubbles(page, "assistant").locator(".plain")).to_have_text(text)
        metrics = (await meter.send("Performance.getMetrics"))["metrics"]
        [busy_s] = [each["value"] for each in metrics if each["name"] == "TaskDuration"]
        assert busy_s < MAX_BUSY_S
        await say(page, "second")
        await expect(page.get_by_role("heading", name="ok")).to_be_visible()


async def test_of_a_long_answer_being_written_the_end_is_shown(browser: Browser) -> None:
    gate = Gate(" ".join(str(number) for number in range(5_000)), after=4_900)
    async with serve({}, ScriptedModel(gate)) as ground, visit(browser, ground) as page:
        await say(page, "count")
        await asyncio.wait_for(gate.reached.wait(), WAIT_S)
        written = page.get_by_label("Answer, being written")
        await expect(written).to_contain_text(" 4800 ")
        assert len(await written.inner_text()) < 5_000
        gate.release()
        await expect(bubbles(page, "assistant")).to_contain_text("0 1 2 3")


async def test_sessions_are_named_searched_reset_and_deleted(browser: Browser) -> None:
    async with serve({}) as ground, visit(browser, ground) as page:
        await say(page, "first words")
        await expect(page.get_by_text("Hello there, friend.")).to_be_visible()
        await page.get_by_role("button", name="New chat").click()
        await page.wait_for_url("**/#/chat/**")
        await page.get_by_role("link", name="Sessions").click()
        main = ground.gateway.store.get("main", "main")
        child = ground.gateway.store.create("main", workspace="", label="helper", parent=main.id)
        ground.gateway.store.append(child.id, User((Text("task"),)))
        await page.reload()
        below = page.locator("li", has=page.get_by_role("link", name="first words")).locator("ul")
        await expect(below.get_by_role("link", name="helper")).to_be_visible()
        await page.get_by_role("button", name="Rename agent:main:dashboard").click()
        await page.get_by_role("textbox", name="Name").fill("My project")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("link", name="My project")).to_be_visible()
        await page.get_by_label("Search names and keys").fill("project")
        await expect(page.get_by_role("link", name="first words")).to_be_hidden()
        await page.get_by_role("button", name="Delete My project").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("No session matches.")).to_be_visible()
        await page.get_by_label("Search names and keys").fill("")
        await expect(page.get_by_role("link", name="helper")).to_be_visible()
        await page.get_by_role("button", name="Reset first words").click()
        await page.get_by_role("dialog").get_by_role("button", name="Reset").click()
        await expect(page.get_by_role("dialog")).to_be_hidden()
        stored = ground.gateway.store.find("agent:main:main")
        assert stored is not None
        assert ground.gateway.store.history(stored.id, 10) == []
        assert ground.gateway.session_list.list(Filter(label="My project"), 10) == []


async def check_keyboard_and_names(page: Page) -> None:
    """Everything can be reached by keyboard, and screen readers have a name for it."""
    await page.get_by_label("Message", exact=True).wait_for()
    await page.get_by_role("link", name="Skip to content").press("Enter")
    await expect(page.locator("main")).to_be_focused()
    assert await page.locator("#live[role=status]").count() == 1
    for name in ("Chat", "Sessions", "Approvals"):
        await page.get_by_role("navigation").get_by_role("link", name=name).press("Enter")
        await expect(page.locator("main h1")).to_be_visible()
        unnamed = await page.evaluate(
            """() => [...document.querySelectorAll('button, input, select, textarea, a')]
                .filter((each) => !(each.ariaLabel || each.innerText || each.labels?.length
                    || each.title)).map((each) => each.outerHTML)"""
        )
        assert unnamed == []


async def test_the_allowlist_is_edited_and_tested_part_by_part(browser: Browser) -> None:
    async with serve(ASKS) as ground, visit(browser, ground, reduced_motion="reduce") as page:
        await check_keyboard_and_names(page)
        await page.get_by_label("Command").fill("uname -a | wc -c")
        await page.get_by_role("button", name="Test").click()
        rows = page.locator("[aria-live] tbody tr")
        await expect(rows.first).to_contain_text("not allowed")
        await expect(rows.last).not_to_contain_text("not allowed")  # wc is a safe filter
        await page.get_by_role("button", name="Add an entry").click()
        await page.get_by_label("Program").fill("/usr/bin/uname")
        await page.get_by_role("button", name="Test").click()
        await expect(rows.first).to_contain_text("entry")
        admin = await ground.join()
        assert (await admin.call("exec.approvals.get"))["exists"] is False
        await page.get_by_role("button", name="Save").click()
        saved = page.locator("button[disabled][aria-busy=false]", has_text="Save")
        await expect(saved).to_be_visible()
        shown = await admin.call("exec.approvals.get")
        [entry] = shown["file"]["agents"]["main"]["allowlist"]
        assert entry["pattern"] == "/usr/bin/uname"
        # Someone else changes the file: what was edited here must not overwrite that.
        await page.get_by_label("Program").fill("/usr/bin/id")
        changed = {"version": 1, "agents": {}}
        await admin.call("exec.approvals.set", {"file": changed, "baseHash": shown["hash"]})
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("alert")).to_contain_text("changed since last load")


HOLDS_ITS_FIELDS = """(card) => {
    const {left, right} = card.getBoundingClientRect();
    const fields = [...card.querySelectorAll('select, input')];
    const boxes = fields.map((each) => each.getBoundingClientRect());
    return boxes.length > 0 && boxes.every((each) => each.left >= left && each.right <= right);
}"""


async def test_a_question_shows_where_it_runs_and_what_is_stored(browser: Browser) -> None:
    command = call("exec", {"command": "uname -s", "workdir": "/tmp"})
    model = ScriptedModel(command, "no then", command, then="All right.")
    on_miss = {"exec": {"security": "allowlist", "ask": "on-miss", "host": "gateway"}}
    async with serve({"tools": on_miss}, model) as ground, visit(browser, ground) as page:
        await say(page, "run")
        asked = page.get_by_role("region", name="Approval")
        await expect(asked).to_be_visible()
        [question] = ground.gateway.desk.pending()
        await expect(asked).to_contain_text(question.question.place)
        assert question.question.place
        offers = asked.get_by_label("What is always allowed").locator("option")
        await expect(offers).to_have_text([each.words for each in question.question.lasting])
        first = question.question.lasting[0].words
        await expect(asked.get_by_text(f"Allow always means: {first}")).to_be_visible()
        await page.set_viewport_size({"width": 390, "height": 780})
        assert await asked.evaluate(HOLDS_ITS_FIELDS)
        await expect(asked.get_by_role("button").first).to_have_text("Deny")
        await asked.get_by_label("Why not").fill("use lsb_release")
        await asked.get_by_role("button", name="Deny").click()
        await expect(page.get_by_text("no then")).to_be_visible()
        assert "use lsb_release" in str(model.requests[-1].messages[-1])
        await say(page, "again")
        await asked.get_by_label("What is always allowed").select_option(value="exact")
        await asked.get_by_role("button", name="Allow always").click()
        await expect(page.get_by_text("All right.")).to_be_visible()
        await page.get_by_role("link", name="Approvals").click()
        listed = page.get_by_role("region", name="Allowlist")
        await expect(listed).to_contain_text("with exactly these arguments, in this directory")
        await expect(listed).not_to_contain_text("sha256")


async def test_a_double_click_allows_no_question_that_moves_below_it(browser: Browser) -> None:
    names = ("-s", "-a", "-r")
    model = ScriptedModel([call("exec", {"command": f"uname {name}"}) for name in names])
    async with serve(ASKS, model) as ground, visit(browser, ground) as page:
        await say(page, "run")
        for view in ("Chat", "Approvals"):
            await page.get_by_role("link", name=view).click()
            pending = ground.gateway.desk.pending
            asked = page.get_by_role("region", name="Approval")
            await expect(asked).to_have_count(count := len(pending()))
            # In the chat the last question stays in place, in the list the first.
            card = asked.last if view == "Chat" else asked.first
            allow = card.get_by_role("button", name="Allow once")
            await expect(allow).to_be_enabled()
            await allow.scroll_into_view_if_needed()
            place = await allow.bounding_box()
            assert place is not None
            for _ in range(3):
                await page.mouse.click(place["x"] + 9, place["y"] + 9)
                await asyncio.sleep(0.15)
            await expect(asked).to_have_count(count - 1)
            assert len(pending()) == count - 1
        await expect(asked.get_by_role("button", name="Allow once")).to_be_enabled()


async def test_the_first_load_is_small_and_comes_from_the_gateway(browser: Browser) -> None:
    async with serve({}) as ground, visit(browser, ground, login=False) as page:
        await page.get_by_label("Token").wait_for()
        await page.goto("about:blank")  # before counting: the login is loaded when needed
        sizes: list[int] = []

        async def count(response: Any) -> None:
            found = await response.request.sizes()
            sizes.append(found["responseBodySize"])

        loading: list[Any] = []
        page.on("response", lambda response: loading.append(count(response)))
        await page.goto(f"{ground.http}/#code={ground.gateway.codes.make()}")
        await page.get_by_label("Message", exact=True).wait_for()
        await page.wait_for_load_state("networkidle")
        for each in loading:
            await each
        assert len(sizes) >= 12
        assert sum(sizes) <= MAX_FIRST_LOAD, sum(sizes)
