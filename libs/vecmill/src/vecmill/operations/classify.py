"""The requests for scores of labels: `Classify` of texts and pairs, `ClassifyTokens` and `ScoreTokens`.

Source of the rules for entities: transformers 5 (`pipelines/token_classification.py`), strategies `none` and
`simple`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vecmill.models import Task
from vecmill.models.heads import Activation
from vecmill.models.tokenizer_file import TOKENIZER_CONFIG, read_token
from vecmill.operations.capabilities import require_task
from vecmill.operations.computation import Work, compute
from vecmill.operations.loaded_model import LoadedModel
from vecmill.operations.result_threads import TEXT_NUMBERS
from vecmill.requests import Caller, Classify, ClassifyTokens, ScoreTokens
from vecmill.results import ClassifyResult, ClassifyTokensResult, Entity, ScoreTokensResult
from vecmill.tokenization.pairs import encode_inputs
from vecmill.tokenization.pieces import Slices
from vecmill.tokenization.token_lists import Spans
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.values.embeddings import Embedding
from vecmill.vectors import activate_logits, dense, softmax, stack_embeddings


async def classify(loaded: LoadedModel, request: Classify, caller: Caller) -> ClassifyResult:
    """Return a score for each label of each input. Raises the same errors as `Mill.run`."""
    head = loaded.description.head
    # A cross-encoder is a classifier of pairs with one label, unless it judges by a template.
    tasks = (Task.CLASSIFY, Task.RERANK) if head is not None and head.labels else (Task.CLASSIFY,)
    require_task(loaded.description, *tasks, asked="classify texts")
    assert head is not None
    prompt, truncation = loaded.prompt(request.options), loaded.truncation(request.options)
    activation = None if request.raw_scores else head.activation
    work = Work(
        loaded.documents,
        [size + len(prompt.text) for size in request.sizes],
        lambda: encode_inputs(
            loaded.tokenizer, loaded.pairs, request.inputs, prompt=prompt, truncation=truncation
        ),
        truncation,
    )
    done = await compute(loaded, work, caller)
    scores = await loaded.results.run_if_large(
        lambda: _score(done.embeddings, activation), len(request.inputs) * len(head.labels)
    )
    return ClassifyResult(head.labels, scores, done.token_count, done.timings, done.truncated)


def _score(embeddings: Sequence[Embedding], activation: Activation | None) -> FloatArray:
    logits = stack_embeddings(embeddings)
    return logits if activation is None else activate_logits(logits, activation)


# The label of tokens outside of any entity, which are left out.
OUTSIDE = "O"
# Making an entity takes about as long as arithmetic on this many numbers.
ENTITY_NUMBERS = 1_000


async def classify_tokens(
    loaded: LoadedModel, request: ClassifyTokens, caller: Caller
) -> ClassifyTokensResult:
    """Return the entities of each text, neighbours joined if `aggregate`.

    Raises the same errors as `Mill.run`.
    """
    description, tokenizer = loaded.description, loaded.tokenizer
    require_task(description, Task.CLASSIFY_TOKENS, asked="classify tokens")
    head = description.head
    assert head is not None
    truncation = loaded.truncation(request.options)
    spans: list[Spans] = []

    def encode() -> Slices[list[TokenSequence]]:
        found = yield from tokenizer.encode_with_spans_in_slices(request.texts, truncation=truncation)
        spans.extend(span for _, span in found)
        return [sequence for sequence, _ in found]

    done = await compute(loaded, Work(loaded.documents, request.sizes, encode, truncation), caller)
    speller = Speller(
        tokenizer.library, read_token(description.tokenizer_config, "unk_token", TOKENIZER_CONFIG)
    )

    def find(text: str, sequence: TokenSequence, span: Spans, logits: Embedding) -> tuple[Entity, ...]:
        of_tokens = list(_of_tokens(softmax(dense(logits)), head.labels, text, sequence, span, speller))
        joined = list(_join(of_tokens, speller)) if request.aggregate else of_tokens
        return tuple(entity for entity in joined if entity.label != OUTSIDE)

    entities = await loaded.results.run_if_large(
        lambda: tuple(map(find, request.texts, done.sequences, spans, done.embeddings)),
        done.token_count * (ENTITY_NUMBERS + len(head.labels)),
    )
    return ClassifyTokensResult(entities, done.token_count, done.timings, done.truncated)


class Speller:
    """The conversion of tokens to text, by a tokenizer of the tokenizers library."""

    def __init__(self, library: Any, unknown: str | None) -> None:
        """`unknown` is the unknown token that tokenizer_config.json names, or `None`."""
        self._library = library
        token = unknown or getattr(library.model, "unk_token", None)
        self._unknown_id = library.token_to_id(token) if token else None

    def spell(self, token_id: int, text: str) -> str:
        """Return the spelling of a token in the vocabulary, or its `text` if it is the unknown token."""
        return text if token_id == self._unknown_id else str(self._library.id_to_token(token_id))

    def join(self, words: list[str]) -> str:
        """Join the words of adjacent tokens into one text."""
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
    """Return the most likely label of each token of the text."""
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
    """Join adjacent tokens of the same kind of label; a label that begins with "B-" starts an entity."""
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
    """Return the label without its prefix, which marks the position of the token in its entity."""
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


async def score_tokens(loaded: LoadedModel, request: ScoreTokens, caller: Caller) -> ScoreTokensResult:
    """Return the scores of each token, special tokens included. Raises the same errors as `Mill.run`."""
    description, truncation = loaded.description, loaded.truncation(request.options)
    require_task(description, Task.CLASSIFY_TOKENS, asked="score the labels of tokens")
    head = description.head
    assert head is not None
    work = Work(
        loaded.documents,
        request.sizes,
        lambda: loaded.tokenizer.encode_in_slices(request.texts, truncation=truncation),
        truncation,
    )
    done = await compute(loaded, work, caller)

    def score() -> tuple[FloatArray, ...]:
        logits = map(dense, done.embeddings)
        return tuple(logits) if request.raw_scores else tuple(map(softmax, logits))

    numbers = done.token_count * len(head.labels) + TEXT_NUMBERS * len(request.texts)
    scores = await loaded.results.run_if_large(score, numbers)
    return ScoreTokensResult(head.labels, scores, done.token_count, done.timings, done.truncated)
