"""The options that requests share: how texts are prepared, truncated and cut into chunks."""

from dataclasses import dataclass, field, replace

from vecmill.errors import InvalidRequest
from vecmill.values.field_help import explained, setting
from vecmill.values.request_choices import ChunkingMode, ChunkingModeName, Priority, Purpose

# The tokens of a chunk of `ChunkingMode.LATE`, if the request does not say.
LATE_TOKENS = 256


@explained
@dataclass(frozen=True, slots=True)
class Truncation:
    """The truncation of a text that is longer than the model's longest input, or than `max_tokens`."""

    is_allowed: bool | None = setting(
        None,
        "Whether such a text is cut; if not, it is refused with `InputTooLong`. By default the mill decides "
        "(`InputConfig.on_long_input`).",
    )
    keeps_end: bool | None = setting(
        None, "Whether the beginning of the text is cut off instead of the end; by default the model decides."
    )
    max_tokens: int | None = setting(
        None, "Tokens that are read at most, special tokens included; by default what the model can read."
    )

    @property
    def is_refused(self) -> bool:
        """Whether such a text is refused."""
        return self.is_allowed is False

    def within(self, max_tokens: int | None) -> "Truncation":
        """Return the same truncation, with `max_tokens` as a further limit unless `max_tokens` is `None`."""
        limits = [limit for limit in (self.max_tokens, max_tokens) if limit is not None]
        return replace(self, max_tokens=min(limits, default=None))


@explained
@dataclass(frozen=True, slots=True)
class TextOptions:
    """The preparation of the texts of a request: prompt and truncation.

    The prompt is `prompt`, or the model's prompt named `prompt_name`, or the model's prompt for `purpose`, or
    its default prompt. `Mill.prompts` has the model's prompts. As in sentence-transformers, every model knows
    the names and purposes `query` and `document`: where it has no such prompt, nothing goes before the text.
    """

    prompt_name: str | None = setting(None, "The name of one of the model's prompts, else `UnknownPrompt`.")
    prompt: str | None = setting(None, "A prompt in your own words. It excludes `prompt_name`.")
    purpose: Purpose | None = setting(
        None, "What the vectors are for, a `Purpose` or its value. It chooses prompt, adapter and encoder."
    )
    truncation: Truncation = setting(Truncation(), "What becomes of texts that are too long.")
    query_tokens: int | None = setting(
        None, "Tokens of each query that a rerank reads at most, without prompt and special tokens."
    )
    document_tokens: int | None = setting(None, "The same for each document.")

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


@explained
@dataclass(frozen=True, slots=True)
class Chunking:
    """The division of texts into chunks. Raises `InvalidRequest` for numbers that cut nothing.

    Tokens are those of the text, without special tokens and prompts.
    """

    mode: ChunkingMode | ChunkingModeName = field(
        metadata={
            "help": "`pooled` gives one embedding of each text, the mean of its chunks, `chunks` one of each "
            "chunk, and `late` one of each chunk that knows the whole text."
        }
    )
    tokens: int | None = setting(
        None,
        "Tokens of a chunk; by default as many as the model can read, and at most `LATE_TOKENS` for `late`.",
    )
    overlap: int = setting(0, "Tokens that a chunk shares with the next.")
    sentences: bool = setting(
        False,
        "Whether chunks are shorter where that lets them end at the end of a sentence. They share whole "
        "sentences then, if some have at most `overlap` tokens.",
    )

    def __post_init__(self) -> None:
        if self.mode not in list(ChunkingMode):
            raise InvalidRequest(
                f"`chunking.mode` is {self.mode!r}; it must be one of {', '.join(ChunkingMode)}.",
                field="chunking.mode",
            )
        object.__setattr__(self, "mode", ChunkingMode(self.mode))
        for name, value in (("tokens", self.tokens), ("overlap", self.overlap)):
            if not isinstance(value, int | None):
                raise InvalidRequest(
                    f"`chunking.{name}` is of type {type(value).__name__}. It must be a whole number.",
                    field=f"chunking.{name}",
                )
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
