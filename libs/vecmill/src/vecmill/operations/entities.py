"""Texts to what their tokens are, with places in the text.

Source of the rules: transformers 5 (`pipelines/token_classification.py`), strategies `none` and `simple`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vecmill.intake import Intake
from vecmill.models import Task
from vecmill.operations.tasks import require_task
from vecmill.reading import Truncation
from vecmill.rows import dense
from vecmill.scores import softmax
from vecmill.tokens import Spans
from vecmill.types import ClassifyTokensResult, Entity, FloatArray, TokenSequence

# What a token is that is nothing in particular; such entities are left out.
OUTSIDE = "O"


async def classify_tokens(
    intake: Intake,
    texts: Sequence[str],
    *,
    aggregate: bool,
    truncation: Truncation,
    timeout_s: float | None,
    field: str,
) -> ClassifyTokensResult:
    """The entities of each text, joined where neighbours if `aggregate`. Raises as `Mill.submit` does."""
    description = intake.description
    require_task(description, Task.CLASSIFY_TOKENS, asked="classify tokens")
    head = description.head
    assert head is not None
    spans: list[Spans] = []

    def read() -> list[TokenSequence]:
        found = intake.tokenizer.encode_with_spans(texts, truncation=truncation, field=field)
        spans.extend(span for _, span in found)
        return [sequence for sequence, _ in found]

    answer = await intake.run(read, [len(text) for text in texts], field=field, timeout_s=timeout_s)
    speller = Speller(intake.tokenizer.library, description.tokenizer_config.get("unk_token"))
    entities = []
    for text, sequence, span, row in zip(texts, answer.sequences, spans, answer.rows, strict=True):
        of_tokens = list(_of_tokens(softmax(dense(row)), head.labels, text, sequence, span, speller))
        joined = list(_join(of_tokens, speller)) if aggregate else of_tokens
        entities.append(tuple(entity for entity in joined if entity.label != OUTSIDE))
    return ClassifyTokensResult(tuple(entities), answer.token_count, answer.timings)


class Speller:
    """What tokens spell, by a tokenizer of the tokenizers library."""

    def __init__(self, library: Any, unknown: Any) -> None:
        """`unknown` is `unk_token` of tokenizer_config.json: the token, an object with it, or `None`."""
        self._library = library
        token = unknown.get("content") if isinstance(unknown, dict) else unknown
        token = token or getattr(library.model, "unk_token", None)
        self._unknown_id = library.token_to_id(token) if token else None

    def spell(self, token_id: int, text: str) -> str:
        """The token as the vocabulary has it, or what it stands for in the text if it is unknown."""
        return text if token_id == self._unknown_id else str(self._library.id_to_token(token_id))

    def join(self, words: list[str]) -> str:
        """What tokens next to each other spell together."""
        decoder = self._library.decoder
        return " ".join(words) if decoder is None else str(decoder.decode(words))


def _of_tokens(
    scores: FloatArray,
    labels: Sequence[str],
    text: str,
    sequence: TokenSequence,
    spans: Spans,
    speller: Speller,
) -> Iterator[Entity]:
    """What each token of the text is most likely."""
    best = scores.argmax(axis=1).tolist()
    for index, token_id in enumerate(sequence.token_ids.tolist()):
        if spans.is_special[index]:
            continue
        start, end = spans.starts[index], spans.ends[index]
        yield Entity(
            label=labels[best[index]],
            score=float(scores[index, best[index]]),
            word=speller.spell(token_id, text[start:end]),
            start=start,
            end=end,
            index=index,
        )


def _join(entities: Iterable[Entity], speller: Speller) -> Iterator[Entity]:
    """Neighbours of the same kind as one; a label that begins with "B-" begins another."""
    group: list[Entity] = []
    for entity in entities:
        begins = entity.label.startswith("B-")
        if group and (begins or _kind(entity.label) != _kind(group[-1].label)):
            yield _merge(group, speller)
            group = []
        group.append(entity)
    if group:
        yield _merge(group, speller)


def _kind(label: str) -> str:
    """The label without the mark of where in an entity the token is."""
    return label[2:] if label.startswith(("B-", "I-")) else label


def _merge(group: list[Entity], speller: Speller) -> Entity:
    first = group[0]
    return replace(
        first,
        label=first.label.split("-", 1)[-1],
        score=float(np.mean(np.array([entity.score for entity in group], np.float32))),
        word=speller.join([entity.word for entity in group]),
        end=group[-1].end,
        index=None,
    )
