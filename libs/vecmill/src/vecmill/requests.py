"""The requests that a model answers, one class for each operation, and the options that they share.

`Mill.run` takes any request. `results` has the classes of the results.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

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
from vecmill.values.caller import Caller as Caller
from vecmill.values.caller import FetchPictures as FetchPictures
from vecmill.values.field_help import explained, setting
from vecmill.values.observer import Timeline
from vecmill.values.output_kinds import OutputDtype
from vecmill.values.picture import Picture as Picture
from vecmill.values.picture import PictureUrl as PictureUrl
from vecmill.values.picture import select_pictures
from vecmill.values.request_choices import ChunkingMode as ChunkingMode
from vecmill.values.request_choices import Priority as Priority
from vecmill.values.request_choices import Purpose as Purpose
from vecmill.values.task import Task
from vecmill.values.text_options import DEFAULT_TEXT_OPTIONS as DEFAULT_TEXT_OPTIONS
from vecmill.values.text_options import DEFAULT_TRUNCATION as DEFAULT_TRUNCATION
from vecmill.values.text_options import LATE_TOKENS as LATE_TOKENS
from vecmill.values.text_options import Chunking as Chunking
from vecmill.values.text_options import TextOptions as TextOptions
from vecmill.values.text_options import Truncation as Truncation

R = TypeVar("R")

# One input to embed: a text, or the model's own token ids for it.
TextOrIds = str | tuple[int, ...]

# One input to classify: a text or a pair of texts, and also the model's own token ids for a text.
TextOrPair = str | tuple[str, str]
TextPairOrIds = TextOrPair | tuple[int, ...]

_TEXTS = {"help": "The texts."}

# Of dense, sparse and multi-vector scores, by the model card of BGE-M3.
HEAD_WEIGHTS = (0.4, 0.2, 0.4)


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[R]):
    """The base of every request; `R` is the class of its result.

    `timeline` records the times of the request for a caller that traces it.
    """

    _TASKS: ClassVar[tuple[Task, ...]] = ()

    options: TextOptions = setting(DEFAULT_TEXT_OPTIONS, "How the texts are prepared: prompt and truncation.")
    priority: Priority | None = setting(
        None,
        "How urgent the request is. By default requests that take long are BULK, and all others INTERACTIVE.",
    )
    timeout_s: float | None = setting(
        None,
        "Seconds until the request fails with `DeadlineExceeded`, its wait for room included. It can only "
        "lower the time limit of the mill (`QueueConfig.timeout_s`).",
    )
    client: str | None = setting(
        None,
        "A name of the caller. Clients share the engine equally; requests without a name are one client.",
    )
    owner: str | None = setting(
        None, "On whose behalf embeddings are cached, if there is a cache: no other owner finds them."
    )
    timeline: Timeline | None = field(default=None, compare=False, repr=False)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the models that can answer, the best first; empty if any model can."""
        return self._TASKS

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures among the inputs; with any, only models that embed pictures can answer."""
        return ()

    @property
    def sizes(self) -> list[int]:
        """The number of characters, or of token ids, of each input."""
        raise NotImplementedError

    @property
    def caller(self) -> Caller:
        """Who asks."""
        priority = None if self.priority is None else Priority(self.priority)
        return Caller(priority, self.timeout_s, self.client, self.owner, self.timeline)


@explained
@dataclass(frozen=True, slots=True)
class Embed(Request[EmbedResult]):
    """A request for one embedding of each input; see `EmbedResult`.

    Both kinds of late chunking need a multi-vector model, or an embedding model that takes the mean over
    tokens.
    """

    inputs: tuple[TextOrIds, ...] = field(
        metadata={"help": "The texts, or a tuple of the model's own token ids for each."}
    )
    dimensions: int | None = setting(
        None,
        "How many of the first dimensions are kept, by default all. They are normalised again if the model "
        "normalises.",
    )
    normalize: bool | None = setting(
        None,
        "Whether embeddings have length 1; by default as the model does. False also leaves out the model's "
        "own final normalisation.",
    )
    dtypes: tuple[OutputDtype, ...] = setting(
        (OutputDtype.FLOAT,),
        "The types that `quantize` will make of the embeddings, which are float32 in any case; with int8 and "
        "uint8 the result has `ranges`.",
    )
    late_chunking: bool = setting(
        False, "Whether the inputs are chunks of one text, which are encoded together."
    )
    chunking: Chunking | None = setting(
        None, "How each input is cut into chunks, instead of being truncated."
    )

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


@explained
@dataclass(frozen=True, slots=True)
class PicturesRequest(Request[R]):
    """The base of requests about pictures, and texts beside them, for models that embed both."""

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.EMBED,)

    inputs: tuple[Picture | str, ...] = field(metadata={"help": "The pictures, and texts beside them."})

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures among the inputs."""
        return select_pictures(self.inputs)

    @property
    def sizes(self) -> list[int]:
        """The number of characters of each text, and of bytes of each picture."""
        return list(map(len, self.inputs))


@explained
@dataclass(frozen=True, slots=True)
class EmbedPictures(PicturesRequest[EmbedResult]):
    """A request for one embedding of each picture and each text, of a model that embeds both."""

    dimensions: int | None = setting(None, "As in `Embed`.")
    normalize: bool | None = setting(None, "As in `Embed`.")
    dtypes: tuple[OutputDtype, ...] = setting(
        (OutputDtype.FLOAT,), "As in `Embed`, without int8 and uint8, whose ranges are measured with texts."
    )


@explained
@dataclass(frozen=True, slots=True)
class Rerank(Request[RerankResult]):
    """A request for the scores of documents, either for one common query or each for a query of its own.

    A cross-encoder applies its own activation function. A multi-vector model scores by the best match of each
    query token, a sparse model by the dot product, and an embedding model by the similarity for which it was
    trained. The prompt of `options` is for the query.
    """

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.RERANK, Task.EMBED, Task.MULTI_VECTOR, Task.SPARSE)

    queries: tuple[str, ...] = field(metadata={"help": "One query for all documents, or one for each."})
    documents: tuple[str, ...] = field(metadata={"help": "The texts that are scored, in any order."})
    raw_scores: bool = setting(False, "Whether a cross-encoder leaves out its activation function.")
    instruction: str | None = setting(
        None, "What the search is for, to models that put pairs into a template with an instruction."
    )
    weights: tuple[float, float, float] | None = setting(
        None,
        "Of models with the heads of BGE-M3, which score by the mean of three scores, by default with "
        "`HEAD_WEIGHTS`: the similarity of the dense embeddings, the dot product of the sparse ones, and the "
        "best match of each query token, as a mean over the tokens.",
    )

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


@explained
@dataclass(frozen=True, slots=True)
class Classify(Request[ClassifyResult]):
    """A request for the score of every label for each text, pair or list of token ids."""

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.CLASSIFY, Task.RERANK)

    inputs: tuple[TextPairOrIds, ...] = field(
        metadata={"help": "Texts, pairs of texts as tuples, or the model's own token ids for a text."}
    )
    raw_scores: bool = setting(False, "Whether scores are logits, before the activation function.")

    @property
    def sizes(self) -> list[int]:
        """The number of characters of each text or pair, or of token ids."""
        return list(map(_size_of, self.inputs))


@explained
@dataclass(frozen=True, slots=True)
class ClassifyByLabels(PicturesRequest[ClassifyResult]):
    """A request for the score of each of `labels` for each text and picture, of an embedding model.

    Zero-shot classification: each label is put into the template, and its embedding is compared with that of
    the input. Pictures need a model that embeds both. In `truncated`, the labels follow the inputs.
    """

    labels: tuple[str, ...] = field(metadata={"help": "The labels, in the order of the scores."})
    template: str | None = setting(
        None,
        "A text with {} in the place of the label; by default that of transformers' pipelines: 'This is a "
        "photo of {}.' if an input is a picture, else 'This example is {}.'",
    )
    raw_scores: bool = setting(False, "Whether scores are logits, before softmax or sigmoid.")

    @property
    def sizes(self) -> list[int]:
        """The number of characters of each text and label, and of bytes of each picture."""
        return [*map(len, self.inputs), *map(len, self.labels)]


@explained
@dataclass(frozen=True, slots=True)
class TextsRequest(Request[R]):
    """The base of requests about texts alone. For some, an input may also be the model's own token ids."""

    texts: tuple[TextOrIds, ...] = field(metadata=_TEXTS)

    @property
    def sizes(self) -> list[int]:
        """The number of characters of each text, and of ids."""
        return list(map(len, self.texts))


@explained
@dataclass(frozen=True, slots=True)
class ClassifyTokens(TextsRequest[ClassifyTokensResult]):
    """A request for the entities in each text, as transformers' token-classification pipeline finds them."""

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.CLASSIFY_TOKENS,)

    texts: tuple[str, ...] = field(metadata=_TEXTS)
    aggregate: bool = setting(
        True,
        "Whether neighbouring tokens of the same label are one entity (the pipeline's strategy `simple`), or "
        "each token is one (`none`).",
    )


@explained
@dataclass(frozen=True, slots=True)
class ScoreTokens(TextsRequest[ScoreTokensResult]):
    """A request for the score of every label for each token of each text."""

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.CLASSIFY_TOKENS,)

    texts: tuple[str, ...] = field(metadata=_TEXTS)
    raw_scores: bool = setting(False, "Whether scores are logits, before the activation function.")


@explained
@dataclass(frozen=True, slots=True)
class EmbedSparse(TextsRequest[EmbedSparseResult]):
    """A request for one sparse embedding of each text: weights over the vocabulary.

    A model with the heads of BGE-M3 gives a weight to each different token of the text. An input may also be
    the model's own token ids.
    """

    _TASKS: ClassVar[tuple[Task, ...]] = (Task.SPARSE,)


@explained
@dataclass(frozen=True, slots=True)
class EmbedTokens(TextsRequest[EmbedTokensResult]):
    """A request for an embedding of each token of each text. By default, texts are embedded as documents.

    A model with the heads of BGE-M3 gives an embedding for each token but the first, special tokens included.
    An input may also be token ids, except for multi-vector models, which mark their queries and documents.
    """

    hidden_states: bool = setting(
        False,
        "Whether any other embedding model answers too: with the last hidden state of each token, special "
        "tokens included, before pooling and normalisation.",
    )
    normalize: bool | None = setting(
        None,
        "Whether hidden states are scaled to length 1, by default not. Embeddings of tokens of other models "
        "have length 1 already, and refuse false.",
    )

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the models that can answer, the best first."""
        return (Task.MULTI_VECTOR, Task.EMBED) if self.hidden_states else (Task.MULTI_VECTOR,)


@explained
@dataclass(frozen=True, slots=True)
class EmbedOutputs(TextsRequest[EmbedOutputsResult]):
    """A request for several outputs of a model, which one pass computes.

    Only models with the heads of BGE-M3 have more than one of these.
    """

    texts: tuple[str, ...] = field(metadata=_TEXTS)
    dense: bool = setting(True, "Whether to compute the embedding of `Embed`.")
    sparse: bool = setting(True, "Whether to compute that of `EmbedSparse`.")
    vectors: bool = setting(True, "Whether to compute those of `EmbedTokens`.")

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks that a model needs, the rarest first."""
        asked = ((Task.MULTI_VECTOR, self.vectors), (Task.SPARSE, self.sparse), (Task.EMBED, self.dense))
        return tuple(task for task, is_asked in asked if is_asked)


@explained
@dataclass(frozen=True, slots=True)
class Tokenize(TextsRequest[TokenizeResult]):
    """A request for the tokens of each text, without a length limit."""

    texts: tuple[str, ...] = field(metadata=_TEXTS)
    special: bool = setting(True, "Whether special tokens are among them.")


@explained
@dataclass(frozen=True, slots=True)
class Detokenize(Request[DetokenizeResult]):
    """A request for the text of each list of token ids."""

    ids: tuple[tuple[int, ...], ...] = field(metadata={"help": "The token ids of each text."})
    skip_special: bool = setting(True, "Whether special tokens are left out.")

    @property
    def sizes(self) -> list[int]:
        """The number of token ids of each list."""
        return list(map(len, self.ids))
