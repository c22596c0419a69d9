"""x_search: search posts on X with a model of xAI."""

from clawkit.config.model import Config
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.web.search.protocols import PostQuery, Searcher, SearchError

Params = PostQuery


async def execute(params: Params, ctx: Context) -> Result:
    from clawkit.web.search.tool_result import show, show_failure

    try:
        return show(await ctx.use(Searcher).search_posts(params), "x_search")
    except SearchError as error:
        return show_failure(error, "x_search")


def effects(params: Params, _ctx: Context) -> tuple[Effect, ...]:
    return (Effect("network", f"x_search:{params.query}"),)


TOOL = Tool(
    name="x_search",
    label="X search",
    description=(
        "Search posts on X (Twitter). Returns an answer in words, with links to the posts it is "
        "based on. Use it for what people say, and for news of the last minutes."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
)


def make_tool(config: Config, scope: Scope) -> Tool | str:
    settings = config.tools.web.x_search if config.tools.web else None
    if settings is not None and not settings.enabled:
        return "tools.web.x_search.enabled is false"
    if "grok" in scope.search or (settings is not None and settings.api_key):
        return TOOL
    return "it needs an xAI API key: set XAI_API_KEY, or tools.web.x_search.apiKey"
