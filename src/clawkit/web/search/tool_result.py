"""Answers and failures as tool results. All external text is marked here, once."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent
from typing import Any
from urllib.parse import urlsplit

from clawkit.core.result import Result
from clawkit.external import wrap_external
from clawkit.web.search.protocols import SearchError, SearchHit, WebFindings


def show(findings: WebFindings, tool: str, note: str = "") -> Result:
    """The result of a search: one marked text for the model, marked fields for programs."""
    source = f"{'Web' if tool == 'web_search' else 'X'} search ({findings.provider})"
    answer = findings.answer

    def mark(text: str) -> str:
        return wrap_external(text, source) if text else ""

    about = {"untrusted": True, "source": tool, "provider": findings.provider, "wrapped": True}
    details: dict[str, Any] = {
        "query": findings.query,
        "provider": findings.provider,
        "tookMs": findings.took_ms,
        "cached": findings.cached,
        "externalContent": about,
    }
    if answer.text:
        pages = answer.citations
        listed = [f"[{n}] {each.title} {each.url}" for n, each in enumerate(pages, 1)]
        body = "\n\n".join(filter(None, (answer.text, "\n".join(listed))))
        cited = [{"url": each.url, "title": mark(each.title)} for each in pages]
        details |= {"content": mark(answer.text), "citations": cited}
    else:
        body = "\n\n".join(_row(number, hit) for number, hit in enumerate(answer.hits, 1))
        results = [_fields(hit, mark) for hit in answer.hits]
        details |= {"count": len(results), "results": results}
    text = mark(body) or "No results. Try other words, or fewer filters."
    return Result.text(f"{note}\n\n{text}" if note else text, **details)


def _fields(hit: SearchHit, mark: Callable[[str], str]) -> dict[str, object]:
    fields = {"title": mark(hit.title), "url": hit.url, "description": mark(hit.description)}
    date = {"published": mark(hit.published)} if hit.published else {}
    return {**fields, **date, "siteName": urlsplit(hit.url).hostname}


def _row(number: int, hit: SearchHit) -> str:
    """A result for the model. Its text is indented, so that no line of it looks like a result."""
    date = f" ({hit.published})" if hit.published else ""
    head = f"{number}. {hit.title}{date}\n{hit.url}"
    return f"{head}\n{indent(hit.description, '   ')}" if hit.description else head


def show_failure(error: SearchError, tool: str) -> Result:
    """A failure, with a code for programs."""
    said = {"detail": wrap_external(error.detail, "search service")} if error.detail else {}
    about = {"status": "error", "tool": tool, "error": error.code, "message": str(error)}
    return Result.json({**about, **error.more, **said, "code": error.status})
