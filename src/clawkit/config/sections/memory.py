"""Long-term memory: `memory`, and `memorySearch` of agents."""

from typing import Annotated, Literal, Self

import msgspec
from msgspec import Meta

from clawkit.config.section import Override, Positive, SecretInput, Section
from clawkit.config.sections.shared import Headers, Switch


class MemoryBatch(Section):
    enabled: bool = False  #: Use the provider's batch requests.


class MemoryRemote(Section):
    base_url: str | None = None  #: Address of the service.
    api_key: SecretInput | None = None  #: Key of the service.
    headers: Headers = {}  #: Extra headers; values may be secret references.
    batch: MemoryBatch = MemoryBatch()  #: Sending many texts in one request.


class MemoryLocal(Section):
    model_path: str | None = None  #: File of the model.


class MemoryPath(Section):
    """Another location of notes."""

    path: str  #: Directory or file.
    pattern: str | None = None  #: Which files in it, such as `**/*.md`.


class Multimodal(Section):
    enabled: bool = False  #: Also index media files.
    modalities: list[Literal["image", "audio"]] = []  #: Kinds of media to index.
    max_file_bytes: Positive = 10_485_760  #: Largest file to index, in bytes.


class MemoryFts(Section):
    tokenizer: Literal["unicode61", "trigram"] = "unicode61"  #: trigram is for Asian languages.


class MemoryVector(Section):
    enabled: bool = True  #: Use the SQLite vector extension if found.
    extension_path: str | None = None  #: File of the extension.


class MemoryStore(Section):
    fts: MemoryFts = MemoryFts()  #: The keyword index.
    vector: MemoryVector = MemoryVector()  #: The vector index.


class MemoryQuery(Section):
    max_results: Positive = 6  #: Results of a search.
    min_score: Annotated[float, Meta(ge=0, le=1)] = 0.35  #: Lowest score of a result, 0 to 1.


class MemoryExperimental(Section):
    session_memory: bool = False  #: Also index past conversations.


class MemorySearch(Section):
    """The memory tools and their index."""

    enabled: bool = True  #: Offer the memory tools.
    provider: str | None = None  #: Embeddings: `auto`, `none` (keywords only), or such as `openai`.
    model: str | None = None  #: Embedding model.
    fallback: str = "none"  #: Service to use when the first fails; default `none`.
    remote: MemoryRemote = MemoryRemote()  #: The embedding service.
    local: MemoryLocal = MemoryLocal()  #: An embedding model on this machine.
    input_type: str | None = None  #: Input type sent to the service.
    query_input_type: str | None = None  #: Input type for queries.
    document_input_type: str | None = None  #: Input type for notes.
    output_dimensionality: Positive | None = None  #: Length of the vectors.
    sources: list[Literal["memory", "sessions"]] | None = None  #: Notes (default), past sessions.
    extra_paths: list[str | MemoryPath] = []  #: More locations of notes; agents add theirs.
    multimodal: Multimodal = Multimodal()  #: Indexing of images and audio.
    store: MemoryStore = MemoryStore()  #: How the index is stored.
    query: MemoryQuery = MemoryQuery()  #: Defaults of a search.
    cache: Switch = Switch()  #: Cache of embeddings.
    experimental: MemoryExperimental = MemoryExperimental()  #: Parts that may still change.

    def merged(self, override: "Override[Self] | None") -> Self:
        result = super().merged(override)
        more = getattr(override, "extra_paths", None) or []
        return msgspec.structs.replace(result, extra_paths=[*self.extra_paths, *more])


class Memory(Section):
    """Long-term memory."""

    citations: Literal["auto", "on", "off"] = "auto"  #: Name sources; auto does in direct chats.
    search: MemorySearch = MemorySearch()


class AgentMemory(Section):
    """Memory of one agent."""

    search: "Override[MemorySearch] | None" = None
