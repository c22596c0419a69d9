"""Understanding and producing media: `tools.media` and `tts`."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta

from clawkit.config.section import Conflict, Positive, SecretInput, Section
from clawkit.config.sections.shared import Headers, Request, Scope

Capability = Literal["image", "audio", "video"]


class MediaModel(Section):
    """One way to understand media: a provider's model, or a program."""

    type: Literal["provider", "cli"] = "provider"  #: A provider's model (default), or a program.
    provider: str | None = None  #: Provider id, such as `openai`.
    model: str | None = None  #: Model id; unset is the provider's default.
    profile: str | None = None  #: Auth profile to use.
    preferred_profile: str | None = None  #: Auth profile to try first.
    command: str | None = None  #: Program to run for type `cli`.
    args: list[str] = []  #: Arguments; {{MediaPath}}, {{Prompt}} and {{MaxChars}} are filled in.
    capabilities: list[Capability] | None = None  #: What it understands; unset asks the provider.
    prompt: str | None = None  #: What to ask about the media.
    max_chars: Positive | None = None  #: Maximum characters of the answer.
    max_bytes: Positive | None = None  #: Largest file it is given, in bytes.
    timeout_seconds: Positive | None = None  #: Seconds until it fails.
    language: str | None = None  #: Language spoken in the media, such as `de`.
    base_url: str | None = None  #: Address of the provider's API.
    headers: Headers = {}  #: Extra headers; values may be secret references.
    provider_options: dict[str, Any] = {}  #: Options passed to the provider unchanged.
    request: Request | None = None  #: Transport settings of the requests.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        if raw.get("type") == "cli":
            if not raw.get("command"):
                yield "command", "missing although type is 'cli'", "Name the program to run"
        elif raw.get("command"):
            yield "command", "only for type 'cli'", "Set type to cli, or remove command"


class MediaAttachments(Section):
    mode: Literal["first", "all"] = "first"  #: The first one (default), or all.
    max_attachments: Positive = 1  #: Maximum files for mode `all`.
    prefer: Literal["first", "last", "path", "url"] | None = None  #: Which file comes first.


class Understanding(Section):
    """How one kind of media is understood when it arrives."""

    enabled: bool | None = None  #: Turn it on or off; unset means on when a model can do it.
    models: list[MediaModel] = []  #: Ways to do it, tried in this order.
    preferred_model: str | None = None  #: Entry of the shared `models` list to try first.
    max_bytes: Positive | None = None  #: Largest file in bytes; unset is 10, 20, 50 MB by kind.
    max_chars: Positive | None = None  #: Longest answer; unset is 500, without limit for audio.
    timeout_seconds: Positive | None = None  #: Seconds until it fails; unset is 60, for video 120.
    prompt: str | None = None  #: What to ask about the media.
    language: str | None = None  #: Language spoken in the media, such as `de`.
    scope: Scope = Scope()  #: Conversations in which it is done.
    attachments: MediaAttachments = MediaAttachments()  #: Which files of a message are looked at.
    echo_transcript: bool = False  #: Send the transcript back to the conversation.
    echo_format: str | None = None  #: Format of the transcript sent back.
    base_url: str | None = None  #: Address of the provider's API.
    headers: Headers = {}  #: Extra headers; values may be secret references.
    provider_options: dict[str, Any] = {}  #: Options passed to the provider unchanged.
    request: Request | None = None  #: Transport settings of the requests.


class AsyncCompletion(Section):
    direct_send: bool = False  #: Ignored: finished media always goes through the agent.


class Media(Section):
    """Understanding media that arrives."""

    concurrency: Positive = 2  #: Files looked at in parallel.
    models: list[MediaModel] = []  #: Ways to understand media, shared by all kinds.
    image: Understanding = Understanding()  #: Understanding images.
    audio: Understanding = Understanding()  #: Understanding audio.
    video: Understanding = Understanding()  #: Understanding video.
    async_completion: AsyncCompletion = AsyncCompletion()  #: What happens when media is ready.


class TtsProvider(Section, forbid_unknown_fields=False):
    OPEN = True

    api_key: SecretInput | None = None  #: Key of the service.


class Tts(Section):
    """Speech output."""

    enabled: bool | None = None  #: Turn speech output on or off.
    auto: Literal["off", "always", "inbound", "tagged"] = "off"  #: When replies are spoken.
    mode: Literal["final", "all"] = "final"  #: Speak the final reply (default), or every part.
    provider: str | None = None  #: Speech service, such as `openai` or `elevenlabs`.
    providers: dict[str, TtsProvider] = {}  #: Settings of speech services, by name.
    max_text_length: Positive = 4096  #: Longest text that is spoken, in characters.
    timeout_ms: Annotated[int, Meta(ge=1000, le=120_000)] = 30_000  #: Milliseconds until it fails.
    summary_model: str | None = None  #: Model that shortens long replies before they are spoken.
    prefs_path: str | None = None  #: File with people's preferences.
