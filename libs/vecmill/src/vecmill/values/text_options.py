"""The options that requests share: how texts are prepared, truncated and cut into chunks."""

from dataclasses import dataclass, replace

from vecmill.errors import InvalidRequest
from vecmill.values.request_choices import ChunkingMode, ChunkingModeName, Priority, Purpose

# The tokens of a chunk of `ChunkingMode.LATE`, if the request does not say.
LATE_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Truncation:
    """The truncation of a text that is longer than the model's longest input, or than `max_tokens`.

    Such a text is refused if `is_allowed` is false. If it is `None`, the setting `on_long_input` of the mill
    decides. `keeps_end` cuts off the beginning of the text instead of the end; if it is `None`, the model
    decides.
    """

    is_allowed: bool | None = None
    keeps_end: bool | None = None
    max_tokens: int | None = None

    @property
    def is_refused(self) -> bool:
        """Whether such a text is refused."""
        return self.is_allowed is False

    def within(self, max_tokens: int | None) -> "Truncation":
        """Return the same truncation, with `max_tokens` as a further limit unless `max_tokens` is `None`."""
        limits = [limit for limit in (self.max_tokens, max_tokens) if limit is not None]
        return replace(self, max_tokens=min(limits, default=None))


@dataclass(frozen=True, slots=True)
class TextOptions:
    """The preparation of the texts of a request: prompt and truncation.

    The prompt is `prompt`, or the model's prompt named `prompt_name`, or the model's prompt for `purpose`, or
    its default prompt. A rerank uses at most `query_tokens` tokens of each query and `document_tokens` tokens
    of each document. Prompts and special tokens do not count.
    """

    prompt_name: str | None = None
    prompt: str | None = None
    purpose: Purpose | None = None
    truncation: Truncation = Truncation()
    query_tokens: int | None = None
    document_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.purpose is not None and type(self.purpose) is not Purpose:
            object.__setattr__(self, "purpose", to_purpose(self.purpose))


DEFAULT_TRUNCATION = Truncation()
DEFAULT_TEXT_OPTIONS = TextOptions()


def to_purpose(name: str | None) -> Purpose | None:
    """Return the purpose of this name. Raises `InvalidRequest`."""
    if name is None or name in list(Purpose):
        return None if name is None else Purpose(name)
    raise InvalidRequest(f"`purpose` is {name!r}; it must be one of {', '.join(Purpose)}.", field="purpose")


def to_priority(name: str | None) -> Priority | None:
    """Return the priority of this name. Raises `InvalidRequest`."""
    if name is None or name in list(Priority):
        return None if name is None else Priority(name)
    raise InvalidRequest(
        f"`priority` is {name!r}; it must be one of {', '.join(Priority)}.", field="priority"
    )


@dataclass(frozen=True, slots=True)
class Chunking:
    """The division of texts into chunks of `tokens` tokens, each of which shares `overlap` with the next.

    With `sentences`, chunks are shorter where that lets them end at the end of a sentence, and share whole
    sentences if some have at most `overlap` tokens. Tokens are those of the text, without special tokens and
    prompts. By default, chunks are as long as the model can read, and those of `LATE` have `LATE_TOKENS`
    tokens if the model reads more. Raises `InvalidRequest` for numbers that cut nothing.
    """

    mode: ChunkingMode | ChunkingModeName
    tokens: int | None = None
    overlap: int = 0
    sentences: bool = False

    def __post_init__(self) -> None:
        if self.mode not in list(ChunkingMode):
            raise InvalidRequest(
                f"`chunking.mode` is {self.mode!r}; it must be one of {', '.join(ChunkingMode)}.",
                field="chunking.mode",
            )
        object.__setattr__(self, "mode", ChunkingMode(self.mode))
        if self.tokens is not None and self.tokens < 1:
            raise InvalidRequest(
                f"`chunking.tokens` is {self.tokens}; a chunk has at least 1 token.", field="chunking.tokens"
            )
        if self.overlap < 0 or (self.tokens is not None and self.overlap >= self.tokens):
            most = "" if self.tokens is None else f", and less than `chunking.tokens`, {self.tokens}"
            raise InvalidRequest(
                f"`chunking.overlap` is {self.overlap}; it must be at least 0{most}.",
                field="chunking.overlap",
            )

    def describe(self) -> dict[str, str | int | None]:
        """Return the fields as a request of the server has them; `sentences` only if it is asked for."""
        found: dict[str, str | int | None] = {
            "mode": self.mode,
            "tokens": self.tokens,
            "overlap": self.overlap,
        }
        return {**found, "sentences": True} if self.sentences else found
