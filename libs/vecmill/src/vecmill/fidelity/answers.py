"""Our own answers to the questions of a check: an engine's, in batches of random company or each alone."""

import random
from collections.abc import Iterator, Sequence
from typing import Self

from vecmill.engines.base import Engine
from vecmill.fidelity.questions import Question, Questions
from vecmill.models import ModelDescription, Task
from vecmill.operations.classify import read_texts_and_pairs
from vecmill.operations.multi_vector import kept_rows, read_side
from vecmill.pairs import PairTokenizer
from vecmill.rows import dense
from vecmill.scores import activate_logits
from vecmill.tokens import Tokenizer
from vecmill.types import Batch, Row, TokenSequence

LARGEST_BATCH = 12

# What each question gets, float32: rows (1, dim) or (tokens, dim), scores (1, labels) or (tokens, labels),
# or a sparse row.
Answers = tuple[Row, ...]


class Reader:
    """How one model reads questions, and makes answers of what an engine gives for them."""

    def __init__(self, description: ModelDescription, tokenizer: Tokenizer) -> None:
        self._description = description
        self._tokenizer = tokenizer
        reads_pairs = description.task in (Task.RERANK, Task.CLASSIFY)
        self._pairs = PairTokenizer(tokenizer, description) if reads_pairs else None

    @classmethod
    def load(cls, description: ModelDescription) -> Self:
        """Read the model's tokenizer. Raises as `Tokenizer.load`."""
        return cls(description, Tokenizer.load(description))

    def read(self, question: Question) -> TokenSequence:
        """The tokens that the model gets, as if it was asked without any options."""
        description = self._description
        if description.task is Task.MULTI_VECTOR:
            (sequence,) = read_side(description, self._tokenizer, [question.text], question.side)
            return sequence
        (sequence,) = read_texts_and_pairs(
            self._tokenizer, self._pairs, [question.as_input], prompt=description.default_prompt
        )
        return sequence

    def finish(self, question: Question, sequence: TokenSequence, row: Row) -> Row:
        """What is served of an engine's `row`: scores in place of logits, no rows of skipped tokens."""
        description = self._description
        if description.task is Task.MULTI_VECTOR:
            return kept_rows(description, self._tokenizer, sequence, row, question.side)
        if description.task is Task.SPARSE or description.head is None:
            return row
        return activate_logits(dense(row), description.head.activation)


def answer_in_company(engine: Engine, reader: Reader, questions: Questions, *, seed: int) -> Answers:
    """The answers to all `questions`, computed in batches that `seed` draws."""
    return _answer(engine, reader, questions, _draw_batches(len(questions), seed))


def answer_alone(engine: Engine, reader: Reader, questions: Questions) -> Answers:
    """The answers to all `questions`, each computed in a batch of its own."""
    return _answer(engine, reader, questions, ([index] for index in range(len(questions))))


def _answer(
    engine: Engine, reader: Reader, questions: Questions, batches: Iterator[Sequence[int]]
) -> Answers:
    sequences = [reader.read(question) for question in questions]
    width = engine.info.lane_widths[0]
    found: dict[int, Row] = {}
    for members in batches:
        rows = engine.run(Batch.of([sequences[member] for member in members]), width=width).parts()
        for member, row in zip(members, rows, strict=True):
            found[member] = reader.finish(questions[member], sequences[member], row)
    return tuple(found[index] for index in range(len(questions)))


def _draw_batches(count: int, seed: int) -> Iterator[Sequence[int]]:
    chance = random.Random(seed)
    members = list(range(count))
    chance.shuffle(members)
    while members:
        size = chance.randint(1, LARGEST_BATCH)
        yield members[:size]
        members = members[size:]
