"""memory_search: passages of notes, and of past sessions if they are indexed."""

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from clawkit.config.model import Config
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import ToolError, ToolInputError
from clawkit.memory.protocols import Corpus, Hit, Memory, MemoryHits
from clawkit.sessions.visibility import Sight
from clawkit.tools import _memory as _m
from clawkit.tools import _sessions as _s
from clawkit.tools._params import doc

MAX_RESULTS, MAX_BYTES = 50, 64 * 1024
SPARE = 4
"""Factor of additional hits to request, because rules may hide some."""

DEFAULTS = Config()


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    query: Annotated[
        str,
        doc("Words or a question", min_length=1, max_length=2_000),
    ]
    max_results: (
        Annotated[int, doc("How many passages; 6 if left out", ge=1, le=MAX_RESULTS)] | UnsetType
    ) = UNSET
    min_score: (
        Annotated[float, doc("Lowest score of a passage; 0.35 if left out", ge=0, le=1)] | UnsetType
    ) = UNSET
    corpus: Annotated[Corpus, doc("Notes, past sessions if they are indexed, or both")] = "memory"


async def execute(params: Params, ctx: Context, config: Config = DEFAULTS) -> Result:
    from clawkit.memory.settings import settings_of

    wanted = params.max_results or settings_of(config, ctx.agent).query.max_results
    search = ctx.use(Memory).search(
        params.query,
        max_results=min(MAX_RESULTS, SPARE * wanted),
        min_score=None if params.min_score is UNSET else params.min_score,
        corpus=params.corpus,
    )
    try:
        found = await _m.within_time(search)
    except ToolInputError:
        raise
    except ToolError as error:
        return _m.unavailable(error, results=[])
    hits = [hit for hit in found.hits if ctx.permits(hit.path)][:wanted]
    cites = _m.cites(config, ctx.scope)
    rows = [_to_row(hit, cites=cites) for hit in hits]
    rows = rows[: _s.count_fitting(rows, _s.room_for(ctx, MAX_BYTES))]
    payload = {"results": rows, **_facts(found, rows)}
    if params.corpus != "memory":
        payload |= _s.VisibleSessions(ctx, Sight.of(config, ctx.agent)).limits()
    return _s.to_result(payload)


def _to_row(hit: Hit, *, cites: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "path": hit.path,
        "startLine": hit.start_line,
        "endLine": hit.end_line,
        "score": round(hit.score, 3),
        "snippet": _m.as_quoted(hit.path, hit.snippet),
        "source": hit.source,
    }
    if cites:
        lines = f"L{hit.start_line}"
        lines += f"-L{hit.end_line}" if hit.end_line > hit.start_line else ""
        row["citation"] = f"{hit.path}#{lines}"
        row["snippet"] += f"\n\nSource: {row['citation']}"
    return row


def _facts(hits: MemoryHits, rows: list[dict[str, Any]]) -> dict[str, Any]:
    facts: dict[str, Any] = {"mode": hits.mode}
    facts |= {"provider": hits.provider, "model": hits.model} if hits.provider else {}
    facts["citations"] = "on" if any("citation" in row for row in rows) else "off"
    if any(row["source"] == "sessions" for row in rows):
        from clawkit.external import NOTICE

        facts["notice"] = NOTICE
    facts |= {"error": hits.error, "action": _m.ACTION} if hits.error else {}
    return facts | ({"warning": hits.warning} if hits.warning else {})


TOOL = Tool(
    name="memory_search",
    label="Search memory",
    description=(
        "Search the notes in MEMORY.md and memory/ for what was said, decided or learned before; "
        "memory_get shows more."
    ),
    parameters=Params,
    execute=execute,
    effects=_m.reads_notes,
    aliases={"q": "query", "text": "query", "limit": "maxResults", "source": "corpus"},
    # No parameter names a file; rules about `path` apply to each file found.
    touches=lambda params: (params["path"],) if "path" in params else (),
)


def make_tool(config: Config, scope: Scope) -> Tool | str:
    return _m.why_not(config, scope) or replace(TOOL, execute=partial(execute, config=config))
