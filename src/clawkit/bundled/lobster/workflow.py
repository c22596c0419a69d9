"""Runs workflows: steps with commands, pipelines or other workflows, and gates between them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from clawkit.bundled.lobster import pipeline
from clawkit.bundled.lobster import values as v
from clawkit.bundled.lobster.conditions import Args, Results, fill, holds, value_of
from clawkit.bundled.lobster.host import PipelineHost
from clawkit.bundled.lobster.pipeline import Stage
from clawkit.bundled.lobster.stages import COMMANDS, Items, StageKind, field, run_stages
from clawkit.bundled.lobster.state import Halted, Progress
from clawkit.bundled.lobster.values import PipelineError, PipelineSyntaxError, Value
from clawkit.bundled.lobster.workflow_file import Approval, Parallel, Step, Workflow, load
from clawkit.errors import ToolError

MAX_LOOP = 10_000
"""Maximum items of a `for_each`."""
MAX_NESTED = 8
MAX_PREVIEW = 2_000
Result = dict[str, Value]


class HaltedError(ToolError):
    """A workflow cannot continue, regardless of `retry` and `on_error`."""


async def run_workflow(progress: Progress, host: PipelineHost) -> Items | Halted:
    """Run a workflow from its start or a gate to its end or the next gate. Raises
    `PipelineError`."""
    run = await _open(progress, host)
    host.ledger.cost += progress.cost
    return await run.go_on()


async def _open(progress: Progress, host: PipelineHost) -> _WorkflowRun:
    path = progress.file
    place, text = await host.read(path)
    if place in host.workflows or len(host.workflows) >= MAX_NESTED:
        why = "is already being executed: a cycle" if place in host.workflows else "is nested"
        raise HaltedError(f"the workflow {path} {why}, at most {MAX_NESTED} levels deep")
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    if host.files is not None and host.files.get(place) != digest:
        raise HaltedError(f"{path} has changed since it halted, or was not part of it")
    workflow = await asyncio.to_thread(load, text, path)
    args = {name: each["default"] for name, each in workflow.args.items() if each}
    progress = replace(progress, file=place, digest=digest, args=args | progress.args)
    host = replace(host, workflows=(*host.workflows, place))
    return _WorkflowRun(workflow, host, progress)


class Nested(NamedTuple):
    """A workflow that a stage or a step runs."""

    path: str
    args: Args
    host: PipelineHost

    async def run(self) -> Items:
        ended = await run_workflow(Progress(self.path, self.args), self.host)
        if isinstance(ended, Halted):
            raise HaltedError(f"{self.path} halted: only the outermost workflow can have gates")
        return ended


def nested_in(stages: Iterable[Stage], host: PipelineHost) -> Iterator[Nested]:
    """The workflows that these stages run, as far as known yet."""
    for stage in stages:
        if stage.name == "workflows.run":
            with suppress(PipelineError):
                yield _named(stage, host)


async def digest_all(nested: Iterable[Nested], digests: dict[str, str]) -> dict[str, str]:
    """Add the digests of workflow files, and of those that they run. Unreadable files have none."""
    for path, args, host in nested:
        with suppress(ToolError):
            full = os.path.join(host.folder, path)
            if full not in digests:
                digests[full] = ""
                run = await _open(Progress(path, args), replace(host, files=None))
                digests[full] = digests[run.progress.file] = run.progress.digest
                await digest_all(run.nested(), digests)
    return digests


class _WorkflowRun(Struct):
    workflow: Workflow
    host: PipelineHost
    progress: Progress

    @property
    def results(self) -> Results:
        return self.progress.results

    def _fill(self, text: Value, results: Results) -> Value:
        return fill(text, self.progress.args, results, self.host.ledger)

    def _value(self, given: Value, results: Results) -> Value:
        return value_of(given, self.progress.args, results, self.host.ledger)

    async def go_on(self) -> Items | Halted:
        start = self.progress.index
        for index, step in enumerate(self.workflow.steps[start:], start):
            if not _applies(step, self.results):
                self.results[step.id] = {"skipped": True}
                continue
            try:
                self.results[step.id] = await self._try(step)
            except PipelineError as error:
                if step.on_error == "stop":
                    raise
                self.results[step.id] = {"error": True, "errorMessage": str(error)}
                if step.on_error == "skip_rest":
                    break
                continue
            self._check_cost()
            if step.input or step.approval:
                self.progress = replace(self.progress, index=index + 1, step=step.id)
                return await self._halt(step)
        last = _subject(self._last())
        return [] if last == "" else _as_items(last)

    def _last(self) -> Result:
        """The result of the last step that was not skipped."""
        done = [self.results.get(step.id, {"skipped": True}) for step in self.workflow.steps]
        return next((each for each in done[::-1] if not {"skipped", "error"} & each.keys()), {})

    def _check_cost(self) -> None:
        limit, spent = self.workflow.cost_limit, self.host.ledger.cost
        if limit is not None and spent > limit.max_usd:
            said = f"the workflow has cost ${spent:.4f}, over its limit of ${limit.max_usd:g}"
            if limit.action == "stop":
                raise HaltedError(said)
            self.host.ledger.warnings[said.partition(",")[2]] = said

    async def _try(self, step: Step) -> Result:
        error = late = PipelineError(f"Step '{step.id}' timed out after {step.timeout_ms}ms")
        for attempt in range(step.retry.max):
            await asyncio.sleep(step.retry.delay_s(attempt - 1) if attempt else 0)
            try:
                async with asyncio.timeout(step.timeout_ms / 1000 if step.timeout_ms else None):
                    return await self._execute(step)
            except PipelineError as failed:
                error = failed
            except TimeoutError:
                error = late
        raise error

    async def _execute(self, step: Step) -> Result:
        if step.input:
            given = self._value(step.stdin, self.results)
            return {"subject": _subject(self._last()) if step.stdin is None else given}
        if step.parallel:
            return await self._branch(step, step.parallel)
        if step.for_each:
            return await self._loop(step)
        if step.workflow:
            return _told(await self._nested(step).run())
        return await self._simple(step, self.results)

    def _nested(self, step: Step) -> Nested:
        file = self._fill(step.workflow, self.results)
        path = os.path.join(os.path.dirname(self.progress.file), file)
        given = step.workflow_args.items()
        args = {name: self._fill(value, self.results) for name, value in given}
        return Nested(path, args, self._host_for(step, self.results))

    def nested(self) -> Iterator[Nested]:
        """The workflows that the remaining steps run, as far as known yet."""
        for outer in self.workflow.steps[self.progress.index :]:
            if outer.workflow:
                yield self._nested(outer)
            for step in (outer, *outer.inner):
                with suppress(PipelineError):  # as one without a pipeline raises, too
                    host = self._host_for(step, self.results)
                    yield from nested_in(self._stages(step, self.results), host)

    def _host_for(self, step: Step, results: Results) -> PipelineHost:
        args, host = self.progress.args, self.host
        env = {"LOBSTER_ARGS_JSON": v.to_json(args)} if args else {}
        for name, value in args.items():
            key = re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")
            env[f"LOBSTER_ARG_{key}"] = v.to_text(value)
        own = self.workflow.env | step.env
        env |= {name: self._fill(v.to_text(value), results) for name, value in own.items()}
        cwd = os.path.join(host.cwd, self._fill(step.cwd or self.workflow.cwd, {}))
        return replace(host, cwd=cwd, env={**host.env, **env})

    async def _simple(self, step: Step, results: Results) -> Result:
        """Run a command or a pipeline; a step that has neither shows its `stdin`."""
        host, given = self._host_for(step, results), self._value(step.stdin, results)
        if command := step.run or step.command:
            stdin = None if given is None else v.to_text(given)
            return _read(await host.run(self._fill(command, results), stdin))
        items = _as_items(given)
        if not step.pipeline:
            return _read(given) if isinstance(given, str) else _told(items)
        stages = self._stages(step, results)
        outcome = await run_stages(stages, items, host)
        if isinstance(outcome, Halted):
            gate = stages[-1 - len(outcome.stages)]
            where = f"inside the pipeline stage {gate.name}"
            how = "use a separate approval or input step in the workflow file"
            raise HaltedError(f"Workflow step {step.id} halted {where}; {how}")
        return _told(outcome)

    def _stages(self, step: Step, results: Results) -> list[Stage]:
        try:
            return pipeline.parse(self._fill(step.pipeline, results))
        except PipelineSyntaxError as error:
            raise PipelineError(f"Workflow step {step.id} pipeline parse failed: {error}") from None

    async def _branch(self, step: Step, parallel: Parallel) -> Result:
        branches = {each.id: self._simple(each, self.results) for each in step.inner}
        tasks = {id_: asyncio.create_task(work) for id_, work in branches.items()}
        is_any = parallel.wait == "any"
        when = asyncio.FIRST_COMPLETED if is_any else asyncio.FIRST_EXCEPTION
        timeout_s = parallel.timeout_ms / 1000 if parallel.timeout_ms else None
        try:
            done, rest = await asyncio.wait(tasks.values(), timeout=timeout_s, return_when=when)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        try:
            found = {id_: task.result() for id_, task in tasks.items() if task in done}
        except PipelineError as error:
            raise PipelineError(f"Parallel branch failed: {error}") from None
        if rest and not (is_any and done):
            raise PipelineError(f"Parallel step {step.id} timed out after {parallel.timeout_ms}ms")
        found = dict(list(found.items())[: 1 if is_any else None])
        self.results.update(found)
        merged = _told([{id_: result.get("json") for id_, result in found.items()}])
        return merged | ({"stdout": found.popitem()[1]["stdout"]} if is_any else {})

    async def _loop(self, step: Step) -> Result:
        items = self._value(step.for_each, self.results)
        if not isinstance(items, list) or len(items) > MAX_LOOP:
            got = f"{len(items):,} items" if isinstance(items, list) else type(items).__name__
            said = f"expected array of at most {MAX_LOOP:,}, got {got}"
            raise PipelineError(f"Workflow step {step.id} for_each: {said}")
        rounds, steps = [], step.inner
        for index, item in enumerate(items):
            is_pause = index and index % step.batch_size == 0
            await asyncio.sleep(step.pause_ms / 1000 if is_pause else 0)
            loop = {step.item_var: item, step.index_var: index}
            results = self.results | {name: _told([value]) for name, value in loop.items()}
            for each in steps:
                if not _applies(each, results):
                    results[each.id] = {"skipped": True}
                    continue
                results[each.id] = made = await self._simple(each, results)
                loop[each.id] = made.get("json", made.get("stdout"))
                self._check_cost()
            rounds.append(loop)
        return _told([rounds])

    async def _halt(self, step: Step) -> Halted:
        result, rules = self.results[step.id], step.approval
        if not isinstance(rules, Approval):
            is_prompt = isinstance(rules, str) and rules != "required"
            rules = Approval(prompt=str(rules) if is_prompt else "")
        request = {"type": "approval_request", **_shown(rules, result, step.id)}
        if step.input:
            request = {"type": "input_request", **to_builtins(step.input), **result}
        progress = replace(self.progress, cost=self.host.ledger.cost)
        files = await digest_all(self.nested(), {progress.file: progress.digest})
        return Halted(request, progress=progress, rules=rules, files=files)


def _shown(rules: Approval, result: Result, id_: str) -> dict[str, Value]:
    """The question for a person. A step may print `{prompt, items, preview}` itself."""
    value = result.get("json")
    own = field(value, "requiresApproval") or value
    own = own if not rules.prompt and isinstance(field(own, "prompt"), str) else {}
    items = _as_items(field(own, "items") if own else value)
    preview = rules.preview or v.to_text(field(own, "preview") if own else result.get("stdout"))
    request = {"prompt": rules.prompt or field(own, "prompt") or f"Approve {id_}?"}
    request["items"] = items if rules.items is None else rules.items
    return request | ({"preview": preview.strip()[:MAX_PREVIEW]} if preview else {})


def _applies(step: Step, results: Results) -> bool:
    return holds(step.condition if step.when is None else step.when, results)


def _as_items(value: Value) -> Items:
    return value if isinstance(value, list) else [] if value is None else [value]


def _told(items: Items) -> Result:
    """The result of a step that produced items."""
    if not items:
        return {"stdout": ""}
    value = items[0] if len(items) == 1 else items
    is_text = all(isinstance(item, str) for item in items)
    return {"stdout": "\n".join(items) if is_text else v.to_text(value), "json": value}


def _read(text: str) -> Result:
    """The result of a step that printed a text."""
    try:
        return {"stdout": text, "json": v.parse_json(text)}
    except PipelineError:
        return {"stdout": text}


def _subject(result: Result) -> Value:
    return next((result[key] for key in ("json", "response", "stdout") if key in result), None)


async def _list_workflows(_stage: Stage, _items: Items, host: PipelineHost) -> Items:
    names = [name for name in await host.list_names() if name.endswith(".lobster")]
    return [{"name": name.removesuffix(".lobster"), "file": name} for name in names]


def _named(stage: Stage, host: PipelineHost) -> Nested:
    if not re.fullmatch(r"[\w.-]+", name := stage.word("name")):
        raise PipelineError(f"Unknown workflow: {name[:80] or 'workflows.run requires --name'}")
    return Nested(f"{name}.lobster", stage.object_option("args-json"), host)


async def _run_named(stage: Stage, _items: Items, host: PipelineHost) -> Items:
    return await _named(stage, host).run()


COMMANDS["workflows.list"] = StageKind(_list_workflows, "", "List the workflows of the directory")
COMMANDS["workflows.run"] = StageKind(_run_named, "name args-json", "Run one of them")
