"""`/metrics`, read by a parser of the text format."""

from __future__ import annotations

import asyncio
import re
from typing import Any, NamedTuple

import pytest
from tests.gateway.conftest import TOKEN, Ground, serve
from tests.gateway.raw_http import send
from tests.tables import table

from clawkit.content import Assistant, Text, Usage
from clawkit.gateway.metrics import MAX_SERIES, MetricCounter, MetricHistogram, Metrics
from clawkit.models.protocols import Request
from clawkit.testing import Gate, ScriptedModel, call

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)", re.DOTALL)
_LABEL = re.compile(rf'({_NAME})="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
Key = tuple[str, tuple[tuple[str, str], ...]]


class Scrape(NamedTuple):
    types: dict[str, str]
    samples: dict[Key, float]

    def value(self, name: str, **labels: str) -> float:
        return self.samples.get((f"clawkit_gateway_{name}", tuple(sorted(labels.items()))), 0.0)

    def labels(self, label: str) -> set[str]:
        return {value for _, pairs in self.samples for name, value in pairs if name == label}


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def parse(body: bytes) -> Scrape:
    """What a scraper would read; fails if the text is not in the format."""
    text = body.decode()
    assert text.endswith("\n")
    types: dict[str, str] = {}
    samples: dict[Key, float] = {}
    family = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family
            assert name not in types
            types[name] = kind
            continue
        found = _SAMPLE.fullmatch(line)
        assert found, line
        inside = found[2] or ""
        pairs = list(_LABEL.finditer(inside))
        assert "".join(pair[0] for pair in pairs) == inside, line
        base = re.sub("_(bucket|sum|count)$", "", found[1])
        assert (base if types[family] == "histogram" else found[1]) == family
        key = found[1], tuple(sorted((pair[1], _unescape(pair[2])) for pair in pairs))
        assert key not in samples, line
        samples[key] = float(found[3])
    _check_histograms(types, samples)
    return Scrape(types, samples)


def _check_histograms(types: dict[str, str], samples: dict[Key, float]) -> None:
    for (name, labels), value in samples.items():
        family = name.removesuffix("_count")
        if family == name or types.get(family) != "histogram":
            continue
        own = [
            (float(dict(pairs)["le"]), count)
            for (each, pairs), count in samples.items()
            if each == f"{family}_bucket" and set(labels) == {p for p in pairs if p[0] != "le"}
        ]
        counts = [count for _, count in sorted(own)]
        assert counts == sorted(counts)
        assert max(own) == (float("inf"), value)
        assert samples[f"{family}_sum", labels] >= 0


async def scrape(ground: Ground) -> Scrape:
    found = await send(ground, "GET", "/metrics")
    assert found.status == 200
    assert found.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse(found.body)


async def test_requests_are_counted_by_method_and_outcome(ground: Ground) -> None:
    peer = await ground.join(["operator.read"])
    await peer.call("health")
    await peer.call("health")
    await peer.refused("health", 7)
    await peer.refused("config.set", {"raw": "{}"})
    await peer.refused('secret-words"\n')
    seen = await scrape(ground)
    assert seen.value("requests_total", method="health", outcome="ok") == 2
    assert seen.value("requests_total", method="health", outcome="invalid_request") == 1
    assert seen.value("requests_total", method="config.set", outcome="forbidden") == 1
    assert seen.value("requests_total", method="other", outcome="forbidden") == 1
    assert seen.value("request_duration_seconds_count", method="health") == 3
    assert seen.types["clawkit_gateway_requests_total"] == "counter"
    assert not any("secret" in each for each in seen.labels("method"))


async def test_clients_sessions_and_turns_of_now_are_shown() -> None:
    gate = Gate("done", after=0)
    async with serve({}, ScriptedModel(gate)) as ground:
        before = await scrape(ground)
        assert [before.value(name) for name in ("clients", "sessions_open")] == [0, 0]
        peer = await ground.join()
        await peer.call("chat.send", {"sessionKey": "x", "message": "hi", "idempotencyKey": "1"})
        await gate.reached.wait()
        during = await scrape(ground)
        values = ("clients", "sessions_open", "turns_running")
        assert [during.value(name) for name in values] == [1, 1, 1]
        gate.release()
        await peer.until_chat("final", "1")
        await peer.socket.close()
        async with asyncio.timeout(10):
            while ground.gateway.hub.clients or ground.gateway.live.running:
                await asyncio.sleep(0.01)
        after = await scrape(ground)
        assert [after.value(name) for name in values] == [0, 1, 0]
        assert after.value("uptime_seconds") > 0
        assert after.types["clawkit_gateway_clients"] == "gauge"


async def test_turns_tokens_and_cost_are_counted_by_model() -> None:
    used = Usage(100, 20, 7, 3, 0.25)
    done = Assistant((Text("Hello."),), "stop", usage=used)
    looks = Assistant((call("ls", {}),), "tool_calls", usage=used)
    async with serve({}, ScriptedModel(looks, done)) as ground:
        peer = await ground.join()
        for run in ("ok", "fails"):
            await peer.send("agent", {"message": "my words", "idempotencyKey": run})
            await peer.call("agent.wait", {"runId": run})
        seen = await scrape(ground)
        model = "scripted/model"
        assert seen.value("tokens_total", model=model, kind="input") == 200
        assert seen.value("tokens_total", model=model, kind="output") == 40
        assert seen.value("tokens_total", model=model, kind="cache_read") == 14
        assert seen.value("tokens_total", model=model, kind="cache_write") == 6
        assert seen.value("cost_dollars_total", model=model) == pytest.approx(0.5)
        assert seen.value("turns_total", outcome="done") == 1
        assert seen.value("turns_total", outcome="error") == 1
        assert seen.value("turn_duration_seconds_count") == 2
        everything = (await send(ground, "GET", "/metrics")).body.decode()
        assert "my words" not in everything
        assert "agent:main" not in everything


async def test_usage_of_sub_agents_is_counted_once() -> None:
    def answer(request: Request) -> Assistant:
        text = str(request.messages)
        if "there are three" in text:
            return Assistant((Text("It says three."),), "stop", usage=Usage(output=1))
        if "text='count the files'" in text:
            return Assistant((Text("there are three"),), "stop", usage=Usage(output=1_000))
        if len(request.messages) == 1:
            spawn = call("sessions_spawn", {"task": "count the files"})
            return Assistant((spawn,), "tool_calls", usage=Usage(output=1))
        return Assistant((Text("started one"),), "stop", usage=Usage(output=1))

    async with serve({}, ScriptedModel(then=answer)) as ground:
        peer = await ground.join()
        await peer.call("agent", {"message": "go", "idempotencyKey": "1"})
        await peer.until(
            lambda each: (
                each.get("event") == "chat"
                and each["payload"]["state"] == "final"
                and "It says three." in str(each["payload"])
            )
        )
        seen = await scrape(ground)
        output = seen.value("tokens_total", model="scripted/model", kind="output")
        assert output // 1_000 == 1


async def test_http_requests_and_lockouts_are_counted() -> None:
    limit = {"maxAttempts": 2, "lockoutMs": 1_000, "exemptLoopback": False}
    config: dict[str, Any] = {"auth": {"token": TOKEN, "rateLimit": limit}}
    async with serve({"gateway": config}) as ground:
        await send(ground, "GET", "/my-secret-path?token=x")
        await send(ground, "PURGE", "/healthz")
        await send(ground, "GET", "/sessions/private/history")
        for _ in range(2):
            wrong = {"Authorization": "Bearer guess"}
            assert (await send(ground, "GET", "/metrics", headers=wrong)).status == 401
        assert (await send(ground, "GET", "/metrics")).status == 429
        await asyncio.sleep(1.1)
        seen = await scrape(ground)
        assert seen.value("lockouts_total") == 1
        name = "http_requests_total"
        assert seen.value(name, route="/metrics", method="GET", status="401") == 2
        assert seen.value(name, route="/metrics", method="GET", status="429") == 1
        assert seen.value(name, route="other", method="GET", status="404") == 1
        assert seen.value(name, route="/healthz", method="other", status="405") == 1
        history = "/sessions/{key:path}/history"
        assert seen.value(name, route=history, method="GET", status="404") == 1
        assert not any("secret" in each or "private" in each for each in seen.labels("route"))


async def test_others_are_kept_out(ground: Ground) -> None:
    assert (await send(ground, "GET", "/metrics", login=False)).status == 401
    posted = await send(ground, "POST", "/metrics", {})
    assert (posted.status, posted.headers["allow"]) == (405, "GET, HEAD")
    for headers in ({"Host": "evil.test"}, {"Origin": "http://evil.test"}):
        assert (await send(ground, "GET", "/metrics", headers=headers)).status == 403


async def test_without_login_programs_on_this_machine_read_it() -> None:
    config = {"gateway": {"auth": {"mode": "none"}}}
    async with serve(config) as ground:
        assert (await send(ground, "GET", "/metrics", login=False)).status == 200
        far = {"X-Forwarded-For": "203.0.113.5"}
        assert (await send(ground, "GET", "/metrics", headers=far, login=False)).status == 403


@table("model", ['a"b', "a\\b", "a\nb", "a\\nb", "ä{}=,", "\\", '"', "\ud800"])
def test_label_values_are_escaped(model: str) -> None:
    metrics = Metrics()
    metrics.used(model, Usage(1))
    expected = model.encode("utf-8", "replace").decode()
    assert parse(metrics.render({})).labels("model") == {expected}


def test_values_fall_into_the_buckets_that_hold_them() -> None:
    histogram = MetricHistogram("x_seconds", "X.", (0.1, 1.0))
    for seconds in (0.1, 0.10001, 1.0, 7.0):
        histogram.observe(seconds)
    seen = parse("".join(f"{line}\n" for line in histogram.lines()).encode())
    assert [seen.value("x_seconds_bucket", le=le) for le in ("0.1", "1", "+Inf")] == [1, 3, 4]
    assert seen.value("x_seconds_sum") == pytest.approx(8.20001)


def test_the_number_of_series_is_limited() -> None:
    counter = MetricCounter("x_total", "X.", ("model",))
    for number in range(MAX_SERIES + 10):
        counter.add(str(number))
    seen = parse("".join(f"{line}\n" for line in counter.lines()).encode())
    assert len(seen.samples) == MAX_SERIES + 1
    assert seen.value("x_total", model="other") == 10
