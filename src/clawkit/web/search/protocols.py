"""Data types of searches: queries, answers, errors; and the interfaces of providers and of a run's
service."""

# Not `from __future__ import annotations`: the parameters of tools are declared at every start.

from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct

from clawkit.errors import ToolError

MAX_COUNT = 10
MAX_TOKENS = 1_000_000
MAX_HANDLES = 20
NO_PROVIDER = "no search service is configured; choose one: clawkit configure search"
_FIXABLE = ("invalid_", "conflicting_", "missing_", "unsupported_")
Count = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Handles = Annotated[list[str], Meta(max_length=MAX_HANDLES)]
Words = Annotated[str, Meta(min_length=1, max_length=2_000)]
Limited = Annotated[int, Meta(ge=1, le=MAX_TOKENS)]


def _doc(text: str) -> Meta:
    return Meta(description=text)


class Query(Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of `web_search`, and the query for a provider."""

    query: Annotated[Words, _doc("What to search for")]
    count: Annotated[Count | None, _doc(f"Number of results, up to {MAX_COUNT}")] = None
    country: Annotated[str, _doc("Two-letter country code, such as DE")] = ""
    language: Annotated[str, _doc("Language of results, such as de")] = ""
    freshness: Annotated[str, _doc("Only the last day, week, month or year")] = ""
    date_after: Annotated[str, _doc("Only since this day, YYYY-MM-DD")] = ""
    date_before: Annotated[str, _doc("Only until this day, YYYY-MM-DD")] = ""
    search_lang: Annotated[str, _doc("Language of results, as Brave has it")] = ""
    ui_lang: Annotated[str, _doc("Language of labels, such as en-US")] = ""
    domain_filter: Annotated[
        list[str], _doc("Only these domains; or not these, as -example.org")
    ] = []
    max_tokens: Annotated[Limited | None, _doc("Maximum tokens of all results together")] = None
    max_tokens_per_page: Annotated[Limited | None, _doc("Maximum tokens of one result")] = None

    @property
    def filters(self) -> tuple[str, ...]:
        """The filters that are set."""
        return tuple(name for name in FILTERS if getattr(self, name))


FILTERS = Query.__struct_fields__[2:]
"""The query fields besides the text and the number of results."""


class PostQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of `x_search`."""

    query: Annotated[Words, _doc("What to look for")]
    allowed_x_handles: Annotated[Handles, _doc("Only posts of these accounts")] = []
    excluded_x_handles: Annotated[Handles, _doc("No posts of these accounts")] = []
    from_date: Annotated[str, _doc("Only since this day, YYYY-MM-DD")] = ""
    to_date: Annotated[str, _doc("Only until this day, YYYY-MM-DD")] = ""
    enable_image_understanding: Annotated[bool, _doc("Look at images of posts")] = False
    enable_video_understanding: Annotated[bool, _doc("Look at videos of posts")] = False


class SearchHit(Struct, frozen=True):
    """One result, or one source of an answer."""

    title: str
    url: str
    description: str = ""
    published: str = ""


class SearchAnswer(Struct, frozen=True):
    """The answer of a provider: results, or a text with its sources."""

    hits: tuple[SearchHit, ...] = ()
    text: str = ""
    citations: tuple[SearchHit, ...] = ()


class WebFindings(Struct, frozen=True):
    """An answer, and facts about the search."""

    query: str
    provider: str
    answer: SearchAnswer
    took_ms: int
    cached: bool = False


class SearchError(ToolError):
    """A search failed. `code` is for programs, `detail` the untrusted message of the provider;
    `more` are further facts for the caller."""

    def __init__(self, code: str, message: str, detail: str = "", **more: Any) -> None:
        self.code, self.detail, self.more = code, detail, more
        if code.startswith("missing_"):
            self.more = {"docs": "docs/web-search.md", **more}
        # Errors that the caller or a person can fix, then errors of the provider.
        self.status = 400 if code.startswith(_FIXABLE) else 502
        super().__init__(message)


class SearchProvider(Protocol):
    """A search service provided by a plugin."""

    @property
    def id(self) -> str:
        """Its name in `tools.web.search.provider`."""

    @property
    def filters(self) -> frozenset[str]:
        """The supported `FILTERS`; others are never set in a query."""

    async def search(self, query: Query) -> SearchAnswer:
        """Search. Raises `SearchError`."""


class Searcher(Protocol):
    """The search service of a run, with the provider that the person chose."""

    async def search(self, query: Query) -> WebFindings:
        """Raises `SearchError`, with the code `missing_search_provider` if there is none."""

    async def search_posts(self, query: PostQuery) -> WebFindings:
        """Search posts on X. Raises `SearchError`."""

    may_offer: bool
    """Whether a provider can still be offered to the person, who has not declined."""

    async def choose(self, provider: str) -> str:
        """Use a provider from now on, and save the choice; returns a message for the person."""
