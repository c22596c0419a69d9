"""MiniMax: the search of its plans for coding."""

from __future__ import annotations

from clawkit.web.search.protocols import Query, SearchAnswer, SearchError
from clawkit.web.search.wire import ProviderSetup, Steps, as_text, listed, pick, post, read_hits


def search(query: Query, setup: ProviderSetup) -> Steps:
    reply = yield post(setup, "/v1/coding_plan/search", {"q": query.query}, setup.bearer)
    data = reply.data
    if code := pick(data, "base_resp.status_code"):
        said = as_text(pick(data, "base_resp.status_msg"))
        raise SearchError("provider_error", f"reported the error {str(code)[:20]}", said)
    return SearchAnswer(read_hits(listed(data, "organic"), "snippet", "date", url="link"))
