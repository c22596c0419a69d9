"""web_search: search the web with the provider that the person chose."""

import time
from dataclasses import replace

from clawkit.config.model import Config
from clawkit.core.approval import Ask
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import ToolAuthorizationError
from clawkit.web.search.protocols import FILTERS, NO_PROVIDER, Query, Searcher, SearchError

Params = Query
OFFER_S = 120.0
"""Seconds that an offer waits for an answer."""


async def execute(params: Params, ctx: Context) -> Result:
    from clawkit.web.search.tool_result import show, show_failure

    searcher = ctx.use(Searcher)
    note = ""
    try:
        try:
            found = await searcher.search(params)
        except SearchError as error:
            if error.code != "missing_search_provider" or not searcher.may_offer:
                raise
            note = await _offer(ctx, searcher, error)
            found = await searcher.search(params)
        return show(found, "web_search", note)
    except SearchError as error:
        return show_failure(error, "web_search")


async def _offer(ctx: Context, searcher: Searcher, error: SearchError) -> str:
    """Let the person choose a provider that needs no key; returns the saved choice. Raises the
    error if they choose none: no query goes to an unwanted service."""
    from clawkit.web.search.table import OFFERED_IN_CHAT, PROVIDERS

    rows = [PROVIDERS[each] for each in OFFERED_IN_CHAT]
    names = ", ".join(row.name for row in rows)
    for number, row in enumerate(rows):
        rest = [each.name for each in rows[number + 1 :]]
        after = f" If you refuse, you are offered {' and '.join(rest)}." if rest else ""
        wish = Ask(
            title=f"search the web with {row.name} from now on (saved in the configuration)",
            description=(
                f"No search service is set. {row.name} needs no key: {row.description}.{after} For "
                "a service with a key, or your own SearXNG: clawkit configure search"
            ),
            asked_by="tools.web.search.provider",
            to_allow=f"clawkit config set tools.web.search.provider {row.id}",
            timeout_s=OFFER_S,
        )
        asked_s = time.monotonic()
        try:
            await ctx.ask(wish)
        except ToolAuthorizationError as refusal:
            if refusal.reason != "approval":  # no one can be asked
                raise error from None
            if time.monotonic() - asked_s >= OFFER_S:  # no answer
                break
        else:
            return await searcher.choose(row.id)
    searcher.may_offer = False
    words = f"{error}. The person was offered {names} and refused"
    raise SearchError(error.code, words, **error.more)


def effects(params: Params, _ctx: Context) -> tuple[Effect, ...]:
    return (Effect("network", f"web_search:{params.query}"),)


TOOL = Tool(
    name="web_search",
    label="Web search",
    description=("Search the web: titles, addresses and excerpts, or an answer with its sources."),
    parameters=Params,
    execute=execute,
    effects=effects,
)


def make_tool(config: Config, scope: Scope) -> Tool | str:
    from clawkit.web.search.table import named_provider, possible_filters

    if config.tools.web and not config.tools.web.search.enabled:
        return "tools.web.search.enabled is false"
    # On first use, the owner can be offered a provider.
    is_owned = scope.sender.owner and not scope.depth
    if not (named_provider(config) or scope.search or is_owned):
        return NO_PROVIDER
    idle = frozenset(FILTERS) - possible_filters(config, scope.search)
    return replace(TOOL, hidden=idle)
