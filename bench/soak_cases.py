"""Follows commands to their end, and checks them on the way."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bench.soak_plans import Makers, Plan, part_of, text_of
from bench.soak_watch import FaultError, alive, expect, until
from clawkit.core.result import Result
from clawkit.runtime import Toolkit

STAYING = 10
"""Commands that are left running until everything is closed."""
KEPT = 0.08
"""How many are not forgotten: with more, one could be pushed out while it is looked at."""
GIVEN_UP = 0.1
"""How many polls are cancelled."""
TIMEOUTS = ("overall-timeout", "no-output-timeout")
CASE_S = 90.0
HEARD_S = 15.0
"""Seconds by which a poll may miss the end of a command, however busy the machine is."""


class Soak:
    """One toolkit, and many commands through it."""

    def __init__(self, kit: Toolkit, makers: Makers, seed: int, run: str) -> None:
        self.kit = kit
        self.makers = makers
        self.seed = seed
        self.run = run
        self.told: set[str] = set()
        """Files that results spoke of."""
        self.faults: list[str] = []
        self.kinds: Counter[str] = Counter()
        self.ways: dict[str, str] = {}
        self.staying = 0

    async def call(self, tool: str, **params: Any) -> Result:
        result = await self.kit.call(tool, params)
        if path := result.details.get("spillPath"):
            self.told.add(path)
        return result

    async def exec(self, plan: Plan, mark: str, **params: Any) -> Result:
        given = {"env": {"SOAK": mark}, "yieldMs": 60_000, **plan.params, **params}
        return await self.call("exec", command=f": {mark}\n{plan.text}", **given)

    async def case(self, number: int) -> None:
        """One command, from its start until it is removed."""
        rng = random.Random(f"{self.seed}-{number}")
        mark = f"{self.run}{number:06}"
        weights = [weight for weight, _ in CASES.values()]
        name = rng.choices(list(CASES), weights)[0]
        self.kinds[name] += 1
        try:
            async with asyncio.timeout(CASE_S):
                await CASES[name][1](self, rng, mark)
        except (FaultError, TimeoutError, LookupError) as error:
            way = self.ways.get(mark, "")
            self.faults.append(f"#{number} {name} {way}: {type(error).__name__} {error}")

    async def wait(self, plan: Plan, rng: random.Random, mark: str) -> None:
        await self.ended(plan, await self.exec(plan, mark), rng, mark)

    async def later(self, plan: Plan, rng: random.Random, mark: str) -> None:
        """In the foreground until it takes too long."""
        result = await self.exec(plan, mark, yieldMs=rng.randrange(10, 400))
        if result.details["status"] == "running":
            result = await self.follow(plan, result, rng)
        await self.ended(plan, result, rng, mark)

    async def poll(self, plan: Plan, rng: random.Random, mark: str) -> None:
        result = await self.exec(plan, mark, background=True)
        expect(result.details["status"], "running", "status")
        await self.ended(plan, await self.follow(plan, result, rng), rng, mark)

    async def follow(
        self, plan: Plan, result: Result, rng: random.Random, told: str = ""
    ) -> Result:
        """Poll a command to its end. Its output is what the polls show or report as skipped."""
        id_ = result.details["sessionId"]
        is_plain = plan.is_text and not plan.params.get("pty")
        started, at, skipped, is_sure = time.time(), len(told), 0, True
        while True:
            wait = rng.choice((0, 100, 2_000, 30_000))
            poll = self.call("process", action="poll", sessionId=id_, timeout=wait)
            task = asyncio.create_task(poll)
            if rng.random() < GIVEN_UP:
                await asyncio.sleep(rng.random() / 10)
                task.cancel()
            try:
                result = await task
            except asyncio.CancelledError:
                # Cancelled in its last moment, it has told what nobody hears.
                is_sure = False
                continue
            details = result.details
            skipped += details.get("skippedBytes", 0)
            at += details.get("skippedBytes", 0)
            text = details["aggregated"]
            if is_plain and is_sure:
                expect(text, part_of(plan, at + len(text))[at:].decode(), f"output from {at}")
            at += len(text)
            told += text
            if details["status"] != "running":
                break
            if not wait:
                await asyncio.sleep(0.05)
        if time.time() - started - details["durationMs"] / 1000 > HEARD_S:
            raise FaultError("its end was told late")
        size = details["outputBytes"]
        if is_plain and is_sure:
            expect(at, size, "what was told or skipped")
        elif plan.is_text and is_sure and not skipped:
            expect(told, text_of(part_of(plan, size)), "what was told")
        return Result(result.content, {**details, "aggregated": None})

    async def ended(
        self, plan: Plan, result: Result, rng: random.Random, mark: str, *others: str
    ) -> None:
        """Check how it ended; `others` are reasons that are good as well."""
        details = result.details
        reason = details["exitReason"]
        if reason not in others:
            expect(reason, plan.reason, f"reason ({details})")
            expect(details["exitCode"], plan.code, "code")
            signal = details["exitSignal"]
            if signal not in (plan.signals or (None,)):
                raise FaultError(f"the signal is {signal} and not {plan.signals} ({details})")
            expect(details.get("timedOut", False), reason in TIMEOUTS, "timedOut")
            expect(len(details.get("leftRunning", ())), plan.left, "processes left running")
        status = "completed" if reason in ("exit", "manual-cancel") else "failed"
        expect(details["status"], status, "status")
        expect(result.is_error, status == "failed", "being an error")
        whole = not plan.endless and reason not in others
        self.written(plan, details, whole=whole)
        if reason not in ("exit", "signal"):
            expect(alive(mark), [], f"what is there after {reason}")
        elif not plan.left and not await until(lambda: not alive(mark)):
            raise FaultError(f"still there: {alive(mark)}")
        if "sessionId" in details:
            await self.looked_at(plan, details, rng, mark)

    def written(self, plan: Plan, details: Mapping[str, Any], *, whole: bool) -> None:
        """Check every byte of its output."""
        size = details["outputBytes"]
        if "droppedBytes" in details:
            raise FaultError("output was dropped")
        if path := details.get("spillPath"):
            expect(details["spillBytes"], size, "size of the file as told")
            expect(os.path.getsize(path), size, "size of the file")
            with open(path, "rb") as file:
                at = 0
                while data := file.read(len(plan.out) * 1000 if plan.endless else 1 << 20):
                    unit = plan.out * 1000 if plan.endless else plan.out[at:]
                    expect(data, unit[: len(data)], f"the file after {at}")
                    at += len(data)
        elif details["aggregated"] is not None:
            expect(details["truncated"], False, "truncated")
            expect(details["aggregated"], text_of(part_of(plan, size)).rstrip(), "output")
        if whole:
            expect(size, len(plan.out), f"size of output ({details})")

    async def looked_at(
        self, plan: Plan, details: Mapping[str, Any], rng: random.Random, mark: str
    ) -> None:
        """Page through the output of a command that has ended, and have it forgotten or not."""
        id_, path = details["sessionId"], details.get("spillPath", "")
        size = details["outputBytes"]
        if plan.is_text and size < 1_000_000 and rng.random() < 0.5:
            pages: list[str] = []
            offset: int | None = 0
            while offset is not None:
                page = await self.call(
                    "process", action="log", sessionId=id_, offset=offset, limit=900
                )
                pages.append(page.details["output"])
                offset = page.details["nextOffset"]
            text = text_of(part_of(plan, size)).removesuffix("\n")
            expect("\n".join(pages), text, "the pages of output")
        if rng.random() < KEPT and size < 10_000_000:
            return
        if plan.left and rng.random() < 0.5:
            await self.call("process", action="kill", sessionId=id_)
            expect(alive(mark), [], "what is there after a kill")
        if not plan.left and rng.random() < 0.5:
            await self.gone(id_, path, "clear", mark)
        else:
            await self.gone(id_, path, "remove", mark)

    async def gone(self, id_: str, path: str, action: str, mark: str) -> None:
        """Remove a command, and check that nothing of it is left."""
        result = await self.call("process", action=action, sessionId=id_)
        expect(result.is_error, False, f"{action} ({result.as_text()})")
        expect(alive(mark), [], f"what is there after {action}")
        result = await self.call("process", action="log", sessionId=id_)
        if result.details.get("code") != 404:
            # Another command may have got its name.
            expect(await self.listed(mark), [], "what is listed")
        if path:
            files = os.listdir(os.path.dirname(path))
            expect(os.path.basename(path) in files, False, "the file being there")

    async def listed(self, mark: str) -> list[str]:
        """The sessions of a command that are known: one or none."""
        listed = (await self.call("process", action="list")).details["sessions"]
        return [each["sessionId"] for each in listed if mark in each["command"]]

    async def cancel(self, plan: Plan, rng: random.Random, mark: str) -> None:
        """Give up the call at some moment."""
        params: dict[str, Any] = {"yieldMs": rng.choice((20, 60_000))}
        if hangs := plan.reason in TIMEOUTS:
            params |= {"timeout": 0, "noOutputTimeout": 0}  # nothing else ends it
        task = asyncio.create_task(self.exec(plan, mark, **params))
        await asyncio.wait({task}, timeout=_moment(rng))
        task.cancel()
        try:
            result = await task
        except asyncio.CancelledError:
            # It may have ended or gone to the background just before, and is listed then.
            for id_ in await self.listed(mark):
                await self.gone(id_, "", "remove", mark)
            if not await until(lambda: not alive(mark)):
                raise FaultError(f"there after a cancel: {alive(mark)}") from None
            return
        if hangs:
            await self.gone(result.details["sessionId"], "", "remove", mark)
            return
        if result.details["status"] == "running":
            result = await self.follow(plan, result, rng)
        await self.ended(plan, result, rng, mark)

    async def kill(self, plan: Plan, rng: random.Random, mark: str) -> None:
        result = await self.exec(plan, mark, background=True)
        id_ = result.details["sessionId"]
        await asyncio.sleep(_moment(rng))
        name = rng.choice(("", "", "KILL", "9"))
        signal = {"signal": name} if name else {}
        result = await self.call("process", action="kill", sessionId=id_, **signal)
        expect(result.is_error, False, f"kill ({result.as_text()})")
        if not name:
            expect(alive(mark), [], "what is there after a kill")
        result = await self.follow(plan, result, rng)
        if name and result.details["exitReason"] == "signal" and plan.reason != "signal":
            expect(result.details["exitSignal"], "SIGKILL", "signal")
        if result.details.get("leftRunning"):
            # A signal may miss what is being started just then.
            await self.call("process", action="kill", sessionId=id_)
        await self.ended(plan, result, rng, mark, "signal" if name else "manual-cancel")

    async def remove(self, plan: Plan, rng: random.Random, mark: str) -> None:
        result = await self.exec(plan, mark, background=True)
        await asyncio.sleep(_moment(rng))
        await self.gone(result.details["sessionId"], "", "remove", mark)

    async def talk(self, rng: random.Random, mark: str) -> None:
        """Write to a command and read it back."""
        text = self.makers.some(rng, rng.choice((100, 5_000, 300_000)))[1].decode()
        plan = Plan(f"cat; echo over {mark}", f"{text}over {mark}\n".encode())
        result = await self.exec(plan, mark, background=True)
        id_ = result.details["sessionId"]
        cuts = sorted(rng.randrange(len(text)) for _ in range(rng.randrange(1, 5)))
        for start, end in zip((0, *cuts), (*cuts, len(text)), strict=True):
            eof = end == len(text)
            if start < end or eof:
                sent = await self.call(
                    "process", action="write", sessionId=id_, data=text[start:end], eof=eof
                )
                expect(sent.is_error, False, f"write ({sent.as_text()})")
        await self.ended(plan, await self.follow(plan, result, rng), rng, mark)

    async def talk_in_terminal(self, rng: random.Random, mark: str) -> None:
        """The same line by line, in a terminal."""
        lines = [f"{n} {rng.random()} {mark}" for n in range(rng.randrange(1, 8))]
        text = 'stty -echo; echo ready; while read -r line; do echo "<$line>"; done; echo over'
        out = "".join(f"{each}\r\n" for each in ("ready", *(f"<{n}>" for n in lines), "over"))
        plan = Plan(text, out.encode(), params={"pty": True})
        result = await self.exec(plan, mark, background=True)
        id_ = result.details["sessionId"]
        heard = ""
        for answer, line in zip(("ready", *(f"<{n}>" for n in lines)), (*lines, ""), strict=True):
            while answer not in heard:
                news = await self.call("process", action="poll", sessionId=id_, timeout=5_000)
                heard += news.details["aggregated"]
            if line:
                await self.call("process", action="submit", sessionId=id_, data=line)
        await self.call("process", action="write", sessionId=id_, eof=True)
        await self.ended(plan, await self.follow(plan, result, rng, heard), rng, mark)

    async def late(self, rng: random.Random, mark: str) -> None:
        """What a process writes that was left running is output as well."""
        plan = Plan(f"(sleep 2; echo late {mark}) & echo first")
        result = await self.exec(plan, mark)
        while f"late {mark}" not in result.as_text():
            id_ = result.details["sessionId"]
            await asyncio.sleep(0.05)
            result = await self.call("process", action="log", sessionId=id_)
        expect(result.as_text().startswith("first\n"), True, "the first line being there")

    async def lives_on(self, rng: random.Random, mark: str) -> None:
        """Detached: its output and its end are in files until it is forgotten."""
        text, out = self.makers.some(rng, rng.choice((0, 500, 300_000)))
        code = rng.randrange(100)
        hangs = rng.random() < 0.4
        plan = Plan(f"{text}; " + (f"sleep 999.{mark}" if hangs else f"exit {code}"), out)
        result = await self.exec(plan, mark, background=True, detach=True)
        id_, path = result.details["sessionId"], ""
        if not hangs:
            result = await self.follow(plan, result, rng)
            expect(result.details["exitCode"], code, "code")
            path = result.details["spillPath"]
            self.written(plan, result.details, whole=True)
        await self.gone(id_, path, "remove", mark)

    async def stays(self, rng: random.Random, mark: str) -> None:
        """Left running until everything is closed."""
        if self.staying < STAYING:
            self.staying += 1
            plan = Plan(f"trap '' HUP; sleep 999.{mark} & sleep 998.{mark}")
            await self.exec(plan, mark, background=True, pty=rng.random() < 0.3)


def _moment(rng: random.Random) -> float:
    return rng.choice((0, 0.002, 0.02, 0.2)) * rng.random()


Way = Callable[[Soak, Plan, random.Random, str], Awaitable[None]]
Case = Callable[[Soak, random.Random, str], Awaitable[None]]
CALM: tuple[Way, ...] = (Soak.wait, Soak.later, Soak.poll)
WAYS: tuple[Way, ...] = (*CALM, Soak.cancel, Soak.kill, Soak.remove)


def _planned(make: Callable[[Makers, random.Random, str], Plan]) -> Case:
    async def case(soak: Soak, rng: random.Random, mark: str) -> None:
        plan = make(soak.makers, rng, mark)
        way = rng.choice(WAYS if plan.can_break else CALM)
        soak.ways[mark] = way.__name__
        await way(soak, plan, rng, mark)

    return case


CASES: dict[str, tuple[float, Case]] = {
    "plain": (20, _planned(Makers.plain)),
    "in turns": (6, _planned(Makers.in_turns)),
    "edge": (5, _planned(Makers.edge)),
    "much": (6, _planned(Makers.much)),
    "not found": (4, _planned(Makers.not_found)),
    "by signal": (6, _planned(Makers.by_signal)),
    "hang": (14, _planned(Makers.hang)),
    "stubborn": (2, _planned(Makers.stubborn)),
    "endless": (4, _planned(Makers.endless)),
    "daemons": (6, _planned(Makers.daemons)),
    "nameless": (1, _planned(Makers.nameless)),
    "closes output": (4, _planned(Makers.closes_output)),
    "lively": (3, _planned(Makers.lively)),
    "terminal": (8, _planned(Makers.in_terminal)),
    "talk": (6, Soak.talk),
    "talk in terminal": (4, Soak.talk_in_terminal),
    "late": (2, Soak.late),
    "lives on": (3, Soak.lives_on),
    "stays": (1, Soak.stays),
}
"""Kinds of commands, and how often each of them comes."""
