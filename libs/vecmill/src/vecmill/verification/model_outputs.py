"""The inputs of a check, made from texts, and an engine's outputs for them, in random batches or one by one.

Inputs are single texts, pairs of texts, or queries and documents, by the task of the model.
"""

import logging
import random
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from vecmill.engines.base import Engine
from vecmill.models import ModelDescription, Task
from vecmill.requests import Purpose
from vecmill.tokenization.late_interaction import encode_side_in_slices, keep_tokens
from vecmill.tokenization.listwise_inputs import ListwiseTokenizer
from vecmill.tokenization.pairs import PairTokenizer, encode_inputs
from vecmill.tokenization.pieces import complete
from vecmill.tokenization.prompts import prompt_in_turn
from vecmill.tokenization.text_padding import TextPadding
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import Batch, TokenSequence, compute_in_groups
from vecmill.values.embeddings import Embedding
from vecmill.values.engine_plan import EngineInfo
from vecmill.vectors import activate_logits, dense, list_scores

# More than twice the number of best documents that are compared.
DOCUMENTS_PER_QUERY = 30
# Each query is compared with every document.
TEXTS_PER_QUERY = 10

_PROGRESS_S = 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckInput:
    """One input. `second` is the second text of a pair; only multi-vector models use `purpose`."""

    text: str
    second: str | None = None
    purpose: Purpose = Purpose.DOCUMENT

    @property
    def text_or_pair(self) -> str | tuple[str, str]:
        """The single text, or the pair of texts."""
        return self.text if self.second is None else (self.text, self.second)


CheckInputs = tuple[CheckInput, ...]


def saved_by_transformers(description: ModelDescription) -> bool:
    """Return whether transformers saved the model, instead of sentence-transformers."""
    return not (description.directory / "modules.json").exists()


def make_check_inputs(description: ModelDescription, texts: Sequence[str]) -> CheckInputs:
    """Make the inputs of a check from `texts`, by the task of the model.

    A reranker gets groups of texts; each group is a query with its documents. A classifier gets single texts,
    and pairs of adjacent texts. A multi-vector model gets all texts as documents and some as queries. All
    other models get single texts.
    """
    match description.task:
        case Task.RERANK:
            return tuple(_pair_with_documents(texts))
        case Task.CLASSIFY if not saved_by_transformers(description):
            return tuple(_pair_adjacent(texts))  # CrossEncoder accepts only pairs
        case Task.CLASSIFY:
            return (*map(CheckInput, texts), *_pair_adjacent(texts))
        case Task.MULTI_VECTOR:
            queries = texts[::TEXTS_PER_QUERY]
            return (*map(CheckInput, texts), *(CheckInput(text, purpose=Purpose.QUERY) for text in queries))
        case Task.EMBED | Task.SPARSE | Task.CLASSIFY_TOKENS:
            return tuple(map(CheckInput, texts))


def _pair_with_documents(texts: Sequence[str]) -> Iterator[CheckInput]:
    if len(texts) == 1:
        yield CheckInput(texts[0], texts[0])
    for start in range(0, len(texts), DOCUMENTS_PER_QUERY + 1):
        query, *documents = texts[start : start + DOCUMENTS_PER_QUERY + 1]
        for document in documents:
            yield CheckInput(query, document)


def _pair_adjacent(texts: Sequence[str]) -> Iterator[CheckInput]:
    for first, second in zip(texts[::2], texts[1::2], strict=False):
        # transformers' pipeline treats a pair with an empty second text as a single text.
        if second:
            yield CheckInput(first, second)


LARGEST_BATCH = 12

# The output of each input, float32: embeddings (1, dim) or (tokens, dim), scores (1, labels) or
# (tokens, labels), or a sparse embedding.
ModelOutputs = tuple[Embedding, ...]


class ModelProcessor:
    """The tokenisation of one model's inputs, and the postprocessing of an engine's outputs."""

    def __init__(self, description: ModelDescription, tokenizer: Tokenizer) -> None:
        self._description = description
        self._tokenizer = tokenizer
        self._padding = TextPadding.of(description, tokenizer.library)
        self._listwise = (
            None if description.list_template is None else ListwiseTokenizer(tokenizer, description)
        )
        reads_pairs = self._listwise is None and description.task in (Task.RERANK, Task.CLASSIFY)
        self._pairs = PairTokenizer(tokenizer, description) if reads_pairs else None

    @classmethod
    def load(cls, description: ModelDescription) -> Self:
        """Load the model's tokenizer. Raises the same errors as `Tokenizer.load`."""
        return cls(description, Tokenizer.load(description))

    def tokenize(self, item: CheckInput) -> TokenSequence:
        """Return the model's tokens for an input with default text options, and one of its adapters."""
        description = self._description
        if description.task is Task.MULTI_VECTOR:
            work = encode_side_in_slices(description, self._tokenizer, [item.text], item.purpose)
        elif self._listwise is not None:
            work = self._listwise.encode_in_slices(item.text, [item.second or ""])
        else:
            prompt = prompt_in_turn(description, zlib.crc32(item.text.encode(errors="replace")))
            work = encode_inputs(self._tokenizer, self._pairs, [item.text_or_pair], prompt=prompt)
        sequences = complete(work)
        (sequence,) = sequences if self._padding is None else self._padding.pad(sequences)
        return sequence

    def postprocess(self, item: CheckInput, sequence: TokenSequence, output: Embedding) -> Embedding:
        """Convert an engine's `output` to the served form: scores for logits, without skipped tokens."""
        description = self._description
        if description.task is Task.MULTI_VECTOR:
            return keep_tokens(description, self._tokenizer, sequence, output, item.purpose)
        if description.task is Task.SPARSE:
            return output
        if description.head is None:
            return dense(output)
        if self._listwise is not None:
            query, documents = self._listwise.split_rows(sequence, dense(output))
            return list_scores(query[np.newaxis], [documents])[:, np.newaxis]
        return activate_logits(dense(output), description.head.activation)


def compute_in_batches(
    engine: Engine, processor: ModelProcessor, inputs: CheckInputs, *, seed: int
) -> ModelOutputs:
    """Compute the outputs for all `inputs` in random batches, drawn with `seed`."""
    return _compute(engine, processor, inputs, _draw_batches(len(inputs), seed))


def compute_singly(engine: Engine, processor: ModelProcessor, inputs: CheckInputs) -> ModelOutputs:
    """Compute the outputs for all `inputs`, each in a batch of its own."""
    return _compute(engine, processor, inputs, ([index] for index in range(len(inputs))))


def _compute(
    engine: Engine, processor: ModelProcessor, inputs: CheckInputs, batches: Iterator[Sequence[int]]
) -> ModelOutputs:
    sequences = [processor.tokenize(item) for item in inputs]
    progress = _Progress(engine.info, len(sequences))

    def run(members: Sequence[int]) -> list[Embedding]:
        found = engine.run(
            Batch.of([sequences[member] for member in members]), width=engine.info.lane_widths[-1]
        )
        progress.add(len(members))
        return found.split()

    return tuple(map(processor.postprocess, inputs, sequences, compute_in_groups(batches, run)))


class _Progress:
    """The number of texts that were computed, which is logged every `_PROGRESS_S` seconds."""

    def __init__(self, info: EngineInfo, texts: int) -> None:
        self._info = info
        self._texts = texts
        self._done = 0
        self._logged_s = time.monotonic()

    def add(self, texts: int) -> None:
        self._done += texts
        if time.monotonic() - self._logged_s > _PROGRESS_S:
            self._logged_s = time.monotonic()
            logger.info(
                "%s in %s: %d of %d texts are computed.",
                *(self._info.name, self._info.precision, self._done, self._texts),
            )


def _draw_batches(count: int, seed: int) -> Iterator[Sequence[int]]:
    generator = random.Random(seed)
    members = list(range(count))
    generator.shuffle(members)
    while members:
        size = generator.randint(1, LARGEST_BATCH)
        yield members[:size]
        members = members[size:]
