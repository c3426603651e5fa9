"""The requests that a model answers, one class for each operation, and the options that they share.

`Mill.run` takes any request. `results` has the classes of the results.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

from vecmill.errors import InvalidRequest
from vecmill.results import (
    ClassifyResult,
    ClassifyTokensResult,
    DetokenizeResult,
    EmbedOutputsResult,
    EmbedResult,
    EmbedSparseResult,
    EmbedTokensResult,
    RerankResult,
    ScoreTokensResult,
    TokenizeResult,
)
from vecmill.values.observer import Timeline
from vecmill.values.output_kinds import OutputDtype
from vecmill.values.picture import Picture as Picture
from vecmill.values.request_choices import ChunkingMode as ChunkingMode
from vecmill.values.request_choices import ChunkingModeName
from vecmill.values.request_choices import Priority as Priority
from vecmill.values.request_choices import Purpose as Purpose
from vecmill.values.task import Task

R = TypeVar("R")

# One input to embed: a text, or the model's own token ids for it.
TextOrIds = str | tuple[int, ...]

# One input to classify: a text or a pair of texts, and also the model's own token ids for a text.
TextOrPair = str | tuple[str, str]
TextPairOrIds = TextOrPair | tuple[int, ...]


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


# Of dense, sparse and multi-vector scores, by the model card of BGE-M3.
HEAD_WEIGHTS = (0.4, 0.2, 0.4)


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


LATE_TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[R]):
    """The base of every request; `R` is the class of its result.

    If `priority` is `None`, requests that take long are BULK and all others are INTERACTIVE. `timeout_s` can
    only lower the configured time limit. `client` is a name of the caller: clients share the engine equally.
    `owner` is on whose behalf embeddings are cached: no other owner finds them. `timeline`
    records the times of the request for a caller that traces it.
    """

    _TASKS: ClassVar[tuple[Task, ...]] = ()

    options: TextOptions = DEFAULT_TEXT_OPTIONS
    priority: Priority | None = None
    timeout_s: float | None = None
    client: str | None = None
    owner: str | None = None
    timeline: Timeline | None = field(default=None, compare=False, repr=False)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the models that can answer, the best first; empty if any model can."""
        return self._TASKS

    @property
    def sizes(self) -> list[int]:
        """The number of characters, or of token ids, of each input."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, how urgently, and until when: what a request says beside what it asks for.

    The fields are those of `Request`. They travel beside the request, so that nobody has to copy it.
    `on_admission` is called when the texts have entered the queue.
    """

    priority: Priority | None = None
    timeout_s: float | None = None
    client: str | None = None
    owner: str | None = None
    timeline: Timeline | None = field(default=None, compare=False, repr=False)
    on_admission: Callable[[], None] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, request: Request[Any]) -> "Caller":
        """Return the caller that a request names."""
        return cls(request.priority, request.timeout_s, request.client, request.owner, request.timeline)

    def after(self, waited_s: float) -> "Caller":
        """Return the same caller when so many seconds of its own time limit are over."""
        if not waited_s or self.timeout_s is None:
            return self
        return replace(self, timeout_s=self.timeout_s - waited_s)


@dataclass(frozen=True, slots=True)
class Embed(Request[EmbedResult]):
    """A request for one embedding of each input.

    `dimensions` keeps that many first dimensions, and normalises again if the model normalises. If
    `normalize` is true, embeddings have length 1 for any model. If it is false, the model's own final
    normalisation is left out too. The result can be quantised to any type in `dtypes`. With `late_chunking`
    the inputs are chunks of one text, which are encoded together. With `chunking` each input is cut into
    chunks instead of being truncated. Both kinds of late chunking need a multi-vector model, or an embedding
    model that takes the mean over tokens.
    """

    inputs: tuple[TextOrIds, ...]
    dimensions: int | None = None
    normalize: bool | None = None
    dtypes: tuple[OutputDtype, ...] = (OutputDtype.FLOAT,)
    late_chunking: bool = False
    chunking: Chunking | None = None

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the models that can answer, the best first."""
        if self.late_chunking:
            return (Task.MULTI_VECTOR, Task.EMBED)
        is_late = self.chunking is not None and self.chunking.mode is ChunkingMode.LATE
        return (Task.EMBED, Task.MULTI_VECTOR) if is_late else (Task.EMBED,)

    @property
    def sizes(self) -> list[int]:
        """The number of characters, or of token ids, of each input."""
        return list(map(len, self.inputs))


@dataclass(frozen=True, slots=True)
class EmbedPictures(Request[EmbedResult]):
    """A request for one embedding of each input, a picture or a text, of a model that embeds both.

    `dimensions`, `normalize` and `dtypes` are those of `Embed`.
    """

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.EMBED,)

    inputs: tuple[Picture | str, ...]
    dimensions: int | None = None
    normalize: bool | None = None
    dtypes: tuple[OutputDtype, ...] = (OutputDtype.FLOAT,)

    @property
    def sizes(self) -> list[int]:
        """The number of characters of each text, and of bytes of each picture."""
        return list(map(len, self.inputs))


@dataclass(frozen=True, slots=True)
class Rerank(Request[RerankResult]):
    """A request for the scores of documents, either for one common query or each for a query of its own.

    A cross-encoder applies its own activation function, unless `raw_scores` is set. A multi-vector model
    scores by the best match of each query token, a sparse model by the dot product, and an embedding model by
    the similarity for which it was trained. `instruction` describes the search to models that put pairs into
    a template. The prompt of `options` is for the query.

    A model with the heads of BGE-M3 scores by the mean of three scores, with these `weights`, by default
    `HEAD_WEIGHTS`: the similarity of the dense embeddings, the dot product of the sparse ones, and the best
    match of each query token, as a mean over the tokens.
    """

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.RERANK, Task.EMBED, Task.MULTI_VECTOR, Task.SPARSE)

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    raw_scores: bool = False
    instruction: str | None = None
    weights: tuple[float, float, float] | None = None

    @property
    def sizes(self) -> list[int]:
        """The number of characters of each document and its query together."""
        if len(self.queries) == 1:
            return [len(self.queries[0]) + len(document) for document in self.documents]
        return [len(query) + len(text) for query, text in zip(self.queries, self.documents, strict=False)]


def _size_of(item: TextPairOrIds) -> int:
    if isinstance(item, str):
        return len(item)
    return sum(len(part) if isinstance(part, str) else 1 for part in item)


@dataclass(frozen=True, slots=True)
class Classify(Request[ClassifyResult]):
    """A request for the score of every label for each text, pair or list of token ids.

    `raw_scores` are logits.
    """

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.CLASSIFY, Task.RERANK)

    inputs: tuple[TextPairOrIds, ...]
    raw_scores: bool = False

    @property
    def sizes(self) -> list[int]:
        """The number of characters of each text or pair, or of token ids."""
        return list(map(_size_of, self.inputs))


@dataclass(frozen=True, slots=True)
class TextsRequest(Request[R]):
    """The base of requests about texts alone. For some, an input may also be the model's own token ids."""

    texts: tuple[TextOrIds, ...]

    @property
    def sizes(self) -> list[int]:
        """The number of characters of each text, and of ids."""
        return list(map(len, self.texts))


@dataclass(frozen=True, slots=True)
class ClassifyTokens(TextsRequest[ClassifyTokensResult]):
    """A request for the entities in each text, as transformers' token-classification pipeline finds them.

    `aggregate` is the pipeline's strategy `simple`, which joins neighbouring tokens of the same label to one
    entity; without it the strategy is `none`, and each token is an entity.
    """

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.CLASSIFY_TOKENS,)

    texts: tuple[str, ...]
    aggregate: bool = True


@dataclass(frozen=True, slots=True)
class ScoreTokens(TextsRequest[ScoreTokensResult]):
    """A request for the score of every label for each token of each text; `raw_scores` are logits."""

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.CLASSIFY_TOKENS,)

    texts: tuple[str, ...]
    raw_scores: bool = False


@dataclass(frozen=True, slots=True)
class EmbedSparse(TextsRequest[EmbedSparseResult]):
    """A request for one sparse embedding of each text: weights over the vocabulary.

    A model with the heads of BGE-M3 gives a weight to each different token of the text. An input may also be
    the model's own token ids.
    """

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.SPARSE,)


@dataclass(frozen=True, slots=True)
class EmbedTokens(TextsRequest[EmbedTokensResult]):
    """A request for an embedding of each token of each text. By default, texts are embedded as documents.

    A model with the heads of BGE-M3 gives an embedding for each token but the first, special tokens included.
    With `hidden_states`, any other embedding model answers too: with the last hidden state of each token,
    special tokens included, before pooling and normalisation. `normalize` scales these states to length 1.
    The embeddings of other models' tokens have length 1 already, and refuse `normalize=False`. An input may
    also be token ids, except for multi-vector models, which mark their queries and documents.
    """

    hidden_states: bool = False
    normalize: bool | None = None

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the models that can answer, the best first."""
        return (Task.MULTI_VECTOR, Task.EMBED) if self.hidden_states else (Task.MULTI_VECTOR,)


@dataclass(frozen=True, slots=True)
class EmbedOutputs(TextsRequest[EmbedOutputsResult]):
    """A request for several outputs of a model, which one pass computes.

    `dense` asks for the embedding of `Embed`, `sparse` for that of `EmbedSparse`, and `vectors` for those of
    `EmbedTokens`. Only models with the heads of BGE-M3 have more than one of these.
    """

    texts: tuple[str, ...]
    dense: bool = True
    sparse: bool = True
    vectors: bool = True

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks that a model needs, the rarest first."""
        asked = ((Task.MULTI_VECTOR, self.vectors), (Task.SPARSE, self.sparse), (Task.EMBED, self.dense))
        return tuple(task for task, is_asked in asked if is_asked)


@dataclass(frozen=True, slots=True)
class Tokenize(TextsRequest[TokenizeResult]):
    """A request for the tokens of each text, without a length limit; with special tokens if `special`."""

    texts: tuple[str, ...]
    special: bool = True


@dataclass(frozen=True, slots=True)
class Detokenize(Request[DetokenizeResult]):
    """A request for the text of each list of token ids."""

    ids: tuple[tuple[int, ...], ...]
    skip_special: bool = True

    @property
    def sizes(self) -> list[int]:
        """The number of token ids of each list."""
        return list(map(len, self.ids))
