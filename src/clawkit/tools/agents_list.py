"""agents_list: the agents that a session may start as sub-agents."""

from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from clawkit.config.model import Config
from clawkit.config.sections.agents import Agents
from clawkit.config.sections.shared import ModelChoice
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.sessions.visibility import startable


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


NO_AGENTS = Agents()


async def execute(_params: Params, ctx: Context, agents: Agents = NO_AGENTS) -> Result:
    own = ctx.agent.strip().lower()
    allowed = agents.defaults.subagents.merged(agents.get(own).subagents).allow_agents or ()
    listed = sorted(startable(agents, own), key=lambda id_: (id_ != own, id_))
    rows = [_to_row(agents, id_) for id_ in listed]
    return Result.json(
        {"requester": own, "allowAny": "*" in map(str.strip, allowed), "agents": rows}
    )


def _to_row(agents: Agents, id_: str) -> dict[str, Any]:
    agent = agents.get(id_)
    choice = agent.model or agents.defaults.model
    model = choice.primary if isinstance(choice, ModelChoice) else choice
    row = {"id": id_, "name": agent.name, "description": agent.description, "model": model}
    row = {name: value for name, value in row.items() if value}
    return {**row, "configured": bool(agents.key_of(id_))}


TOOL = Tool(
    name="agents_list",
    label="List agents",
    description="List the agents that sessions_spawn may start: ids, what they are for, models.",
    parameters=Params,
    execute=execute,
    effects=lambda _params, _ctx: (),
)


def make_tool(config: Config, _scope: Scope) -> Tool:
    return replace(TOOL, execute=partial(execute, agents=config.agents))
