"""update_plan: the steps of the agent's task, and their status."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from clawkit.config.model import Config
from clawkit.config.sections.agents import EmbeddedPi
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import ToolInputError
from clawkit.sessions.protocols import Plan, PlannedStep
from clawkit.text import one_line
from clawkit.tools._params import doc

MAX_STEPS, MAX_STEP, MAX_EXPLANATION = 50, 500, 2_000
_SHOWN = 80
_GPT5 = r"(openai|openai-codex)/(?i:gpt-5)(?!\d)"


class PlanStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    step: Annotated[str, doc("What to do, in a few words")]
    status: Annotated[Literal["pending", "in_progress", "completed"], doc("Its status")] = "pending"


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    plan: Annotated[
        list[PlanStep], doc("All steps in order; at most one of them in_progress", min_length=1)
    ]
    explanation: Annotated[str, doc("Why the plan changed")] = ""


async def execute(params: Params, ctx: Context) -> Result:
    steps = [PlannedStep(each.step.strip(), each.status) for each in params.plan]
    running = [one_line(each.step, _SHOWN) for each in steps if each.status == "in_progress"]
    if wrong := _fault(steps, running, params.explanation):
        raise ToolInputError(wrong)
    plan = ctx.use(Plan)
    plan.steps, plan.explanation = tuple(steps), params.explanation
    done = sum(each.status == "completed" for each in steps)
    now = f"; now: {running[0]}" if running else ""
    return Result.text(
        f"Plan updated: {done} of {len(steps)} steps completed{now}",
        plan=[msgspec.structs.asdict(each) for each in steps],
        **({"explanation": params.explanation} if params.explanation else {}),
    )


def _fault(steps: Sequence[PlannedStep], running: Sequence[str], explanation: str) -> str:
    """The error in a plan; empty if it is valid."""
    if len(steps) > MAX_STEPS:
        return f"the plan has {len(steps)} steps, more than {MAX_STEPS}; make larger ones"
    for number, each in enumerate(steps, 1):
        if not each.step:
            return f"step {number} of the plan is empty; say what to do"
        if len(each.step) > MAX_STEP:
            return f"step {number} has {len(each.step):,} characters, more than {MAX_STEP}"
    if len(explanation) > MAX_EXPLANATION:
        return f"the explanation has {len(explanation):,} characters, more than {MAX_EXPLANATION:,}"
    if len(running) > 1:
        shown = ", ".join(map(repr, running[:3]))
        return (
            f"{len(running)} steps are in_progress ({shown}); at most one can be: the others are "
            "pending or completed"
        )
    return ""


def effects(_params: Params, ctx: Context) -> tuple[Effect, ...]:
    return (Effect("write", f"plan:{ctx.session}"),)


TOOL = Tool(
    name="update_plan",
    label="Plan",
    description=(
        "Keep a plan of the steps of a longer task, which the user sees. Each call replaces the "
        "whole plan. Mark a step in_progress before you begin it and completed when it is done; "
        "at most one step is in_progress."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
)


def make_tool(config: Config, scope: Scope) -> Tool | str:
    wanted = config.tools.plan_tool()
    if wanted is None:
        defaults, agent = config.agents.defaults, config.agents.get(scope.agent)
        behaviour = EmbeddedPi().merged(defaults.embedded_pi).merged(agent.embedded_pi)
        is_strict = behaviour.execution_contract == "strict-agentic"
        if is_strict and re.match(_GPT5, str(scope.model or "")):
            return TOOL
        return (
            "tools.updatePlan is not set. By default, only GPT-5 models of OpenAI have it, if "
            "embeddedPi.executionContract is 'strict-agentic'"
        )
    return TOOL if wanted else "tools.updatePlan (or tools.experimental.planTool) is false"
