"""What a task model has on top of its encoder, and how its inputs are put together."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class HeadKind(StrEnum):
    """Which of a family's heads."""

    SEQUENCE = "sequence"  # logits for a text or a pair: `Family.classify`
    TOKENS = "tokens"  # logits for each token: `Family.classify_tokens`
    VOCABULARY = "vocabulary"  # logits over the vocabulary for each token: `Family.predict_tokens`
    STAGES = "stages"  # logits for a text or a pair: what the last stage gives
    YES_NO = "yes_no"  # logits of one or two tokens of the vocabulary after the last token of a text


class Activation(StrEnum):
    """What makes scores of logits."""

    IDENTITY = "identity"
    SIGMOID = "sigmoid"
    SOFTMAX = "softmax"


class Similarity(StrEnum):
    """How rows of texts are compared. The values are those of sentence-transformers."""

    COSINE = "cosine"
    DOT = "dot"
    EUCLIDEAN = "euclidean"  # the distance, negated
    MANHATTAN = "manhattan"  # the distance, negated


@dataclass(frozen=True, slots=True)
class Head:
    """A head and how its logits are read.

    `labels` names the logits in order; `activation` is the model's own. `token_ids` are, for a
    `YES_NO` head, the "yes" and perhaps the "no": the one logit is that of the first less that of the
    second, so its sigmoid is the share of "yes" among the two.
    """

    kind: HeadKind
    labels: tuple[str, ...] = ()
    activation: Activation = Activation.IDENTITY
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """How a query and a document become one text, for a model that reads pairs as prose.

    The text is `start`, then `body` with `{instruction}`, `{query}` and `{document}` filled in, then
    `end`. Where it is longer than the model reads, the body's last tokens go: start and end are whole.
    No special tokens are added.
    """

    start: str
    body: str
    end: str
    instruction: str


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """How a query and a document become one text by a Jinja template, from `file`.

    They are the contents of messages of those roles, after one of the role "system" where there is an
    instruction; each a list of one part where `in_parts`. `special_tokens` (role -> token, `None` for none)
    and `variables` are what the template sees besides. Where the text is longer than the model reads, what
    all texts end in is put over the end of what is kept. No special tokens are added.
    """

    file: Path = field(repr=False)  # what it says is part of the fingerprint, where it lies is not
    source: str
    in_parts: bool
    special_tokens: tuple[tuple[str, str | None], ...]
    variables: tuple[tuple[str, str | int | float | bool | None], ...]


@dataclass(frozen=True, slots=True)
class QueryExpansion:
    """Queries of a multi-vector model are filled up to `length` tokens with copies of `token`.

    The copies give rows like any other token. Other tokens see them only with `attend`. A longer query
    is cut to `length` where `fixed`.
    """

    length: int
    token: str
    attend: bool
    fixed: bool


@dataclass(frozen=True, slots=True)
class MultiVector:
    """What tells queries and documents of a multi-vector model apart, beside their prompts.

    `query_tokens` and `document_tokens` are their longest inputs, where they have limits of their own.
    Tokens in `skipped` give no row, on the sides named: "query", "document". `prefixes` are markers at
    the front of prompts that must stay one token each.
    """

    query_tokens: int | None = None
    document_tokens: int | None = None
    expansion: QueryExpansion | None = None
    skipped: tuple[str, ...] = ()
    skipped_in: tuple[str, ...] = ("document",)
    prefixes: tuple[str, ...] = ()
