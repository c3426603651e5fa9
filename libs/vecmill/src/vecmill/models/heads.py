"""The head of a task model, and the templates that build its inputs from queries and documents."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class HeadKind(StrEnum):
    """The kind of a head."""

    SEQUENCE = "sequence"  # logits for a text or a pair: `EncoderGraph.classify`
    LIST = "list"  # a vector for each token: `EncoderGraph.project_tokens`; those at marks are compared
    TOKENS = "tokens"  # logits for each token: `EncoderGraph.classify_tokens`
    VOCABULARY = "vocabulary"  # logits over the vocabulary for each token: `EncoderGraph.predict_tokens`
    STAGES = "stages"  # logits for a text or a pair: the output of the last stage
    SCORE = "score"  # one logit for a pair that a template joins, without a label: `EncoderGraph.classify`
    YES_NO = "yes_no"  # logits of one or two tokens of the vocabulary after the last token of a text


class Activation(StrEnum):
    """The function that turns logits into scores."""

    IDENTITY = "identity"
    SIGMOID = "sigmoid"
    SIGMOID_OF_FIFTH = "sigmoid_of_fifth"  # of logits that a model was trained to divide by 5
    SOFTMAX = "softmax"


class Similarity(StrEnum):
    """The measure that compares embeddings of texts. The values are those of sentence-transformers."""

    COSINE = "cosine"
    DOT = "dot"
    EUCLIDEAN = "euclidean"  # the distance, negated
    MANHATTAN = "manhattan"  # the distance, negated


@dataclass(frozen=True, slots=True)
class Head:
    """A head and the meaning of its logits.

    `labels` are the names of the logits, in order. `activation` is the model's default. `token_ids` of a
    `YES_NO` head are the tokens "yes" and, optionally, "no". Its logit is the logit of the first minus that
    of the second, so the sigmoid is the probability of "yes" among the two.
    """

    kind: HeadKind
    labels: tuple[str, ...] = ()
    activation: Activation = Activation.IDENTITY
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """A template that joins a query and a document to one text.

    The text is `start`, then `body` with `{instruction}`, `{query}` and `{document}` filled in, then `end`.
    If the text is too long for the model, the last tokens of the body are removed. No special tokens are
    added. With `strips` white space around a query and a document is removed. `most_characters` of a query
    and of a document are read, before white space is removed.
    """

    start: str
    body: str
    end: str
    instruction: str
    # Not in the fingerprint: `body` tells models apart.
    strips: bool = field(default=False, repr=False)
    most_characters: tuple[int | None, int | None] = field(default=(None, None), repr=False)

    @property
    def takes_instruction(self) -> bool:
        """Whether an instruction changes the text."""
        return "{instruction}" in self.body


@dataclass(frozen=True, slots=True)
class JoinedTemplate:
    """A template whose parts are tokenised one by one, and whose token ids are joined.

    The parts are `start`, the query, `between`, the document and `end`. `{query}`, `{document}` and
    `{instruction}` are filled in. `instruction` is the default, which may be empty. With an instruction that
    is not empty, `instructed_query` replaces `query`, if there is one. No special tokens are added.

    `longest` is the most ids of the query, `between` and the document, with `counts_start` also of `start`;
    `end` comes on top. It is less if the whole does not fit the model. The query keeps at most three quarters
    of it, however short the document is, and the document the rest.
    """

    start: tuple[str, ...]
    query: str
    between: str
    document: str
    end: tuple[str, ...]
    longest: int
    counts_start: bool = False
    instruction: str = ""
    instructed_query: str | None = None

    @property
    def takes_instruction(self) -> bool:
        """Whether an instruction changes the token ids."""
        return any("{instruction}" in part for part in (*self.end, self.query, self.instructed_query or ""))


@dataclass(frozen=True, slots=True)
class ListTemplate:
    """A template that joins a query and a list of documents to one text.

    The text is `start`, `instruction` if there is one, `document` for each document, and `end`. `{count}`,
    `{query}`, `{instruction}`, `{index}` and `{document}` are filled in. The model compares the vectors at
    `document_mark`, which ends each document, with the one at `query_mark`; these tokens are removed from the
    texts. A query has at most `query_tokens`, a document `document_tokens`, and a text `most_documents`. No
    special tokens are added.
    """

    start: str
    instruction: str
    document: str
    end: str
    document_mark: str
    query_mark: str
    query_tokens: int
    document_tokens: int
    most_documents: int

    @property
    def takes_instruction(self) -> bool:
        """Whether an instruction changes the text."""
        return bool(self.instruction)


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A Jinja template, read from `file`, that joins a query and a document to one text.

    Query and document are messages of the roles "query" and "document"; an instruction is a message of the
    role "system" before them. With `in_parts` the content of a message is a list of one part. The template
    also reads `special_tokens` (role -> token or `None`) and `variables`. If the text is too long for the
    model, it is truncated, and the suffix that all texts share replaces its last tokens. No special tokens
    are added.
    """

    file: Path = field(repr=False)  # the content is part of the fingerprint, the path is not
    source: str
    in_parts: bool
    special_tokens: tuple[tuple[str, str | None], ...]
    variables: tuple[tuple[str, str | int | float | bool | None], ...]


@dataclass(frozen=True, slots=True)
class QueryExpansion:
    """Padding of a multi-vector model's queries to `length` tokens with copies of `token`.

    Each copy has an embedding. Other tokens attend to the copies only with `attend`. With `fixed` a longer
    query is truncated to `length`. With `stands_first` the copies come before the query.
    """

    length: int
    token: str
    attend: bool
    fixed: bool
    # Not in the fingerprint: a correction tells these models apart.
    stands_first: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class MultiVector:
    """The differences between queries and documents of a multi-vector model, apart from their prompts.

    `query_tokens` and `document_tokens` are their longest inputs, `None` for the model's. Tokens in `skipped`
    have no embedding on the sides `skipped_in`: "query", "document". `prefixes` are markers at the front of
    prompts that must stay one token each.
    """

    query_tokens: int | None = None
    document_tokens: int | None = None
    expansion: QueryExpansion | None = None
    skipped: tuple[str, ...] = ()
    skipped_in: tuple[str, ...] = ("document",)
    prefixes: tuple[str, ...] = ()

    @property
    def most_unseen(self) -> int:
        """The most tokens of a query that no token attends to. At least its first token is attended to."""
        expansion = self.expansion
        return 0 if expansion is None or expansion.attend else expansion.length - 1


# The files of `TokenHeads`, by the names that FlagEmbedding gives them, the preferred ending first.
_TOKEN_HEADS = ("sparse_linear", "colbert_linear")
_HEAD_ENDINGS = (".safetensors", ".pt")


def find_head_files(names: Collection[str]) -> list[str]:
    """Return the files of both heads of `TokenHeads` among `names`; an empty list if one is missing."""
    found = [
        next((f"{head}{ending}" for ending in _HEAD_ENDINGS if f"{head}{ending}" in names), None)
        for head in _TOKEN_HEADS
    ]
    files = [name for name in found if name is not None]
    return files if len(files) == len(_TOKEN_HEADS) else []


@dataclass(frozen=True, slots=True)
class TokenHeads:
    """The heads with which an embedding model gives sparse and multi-vector embeddings too (BGE-M3).

    `weights_file` holds `weight` (1, hidden_size) and `bias`, `vectors_file` `weight` (hidden_size,
    hidden_size) and `bias`. The tokens `unweighted` have no weight in sparse embeddings.

    Source: FlagEmbedding's `EncoderOnlyEmbedderM3Model` and `M3Embedder`; Chen et al. 2024, arXiv:2402.03216.
    """

    weights_file: Path
    vectors_file: Path
    unweighted: tuple[str, ...]

    @property
    def files(self) -> tuple[Path, Path]:
        """The files of both heads."""
        return self.weights_file, self.vectors_file
