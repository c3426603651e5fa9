"""The computation of the texts of a request: check the sizes, tokenise, enter the queue, wait for the engine.

How it works. A request is prepared by plain functions, waits once for its engine, and is finished by plain
functions. A full queue refuses it before any work. Short texts are tokenised at once, on the event loop, and
longer ones by `TokenizerThreads`. Texts of both sides of an asymmetric model wait in two queues. The tokens
that truncation dropped are counted beside the computation, if they are not known.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from vecmill.batching.prefixes import predict_tokens
from vecmill.batching.scheduler import Ask
from vecmill.batching.ticket import QueuedRequest
from vecmill.models.description import LONG_TEXT_TOKENS
from vecmill.operations.dropped_tokens import COUNT_WAIT_S, DroppedTokens
from vecmill.operations.loaded_model import LoadedModel, TextPlan
from vecmill.operations.sides import Side
from vecmill.operations.tokenizer_threads import Load
from vecmill.requests import Caller, Priority, TextOrIds, Truncation
from vecmill.results import Timings, Truncated
from vecmill.tokenization.pieces import Slices, complete
from vecmill.values.batch import LEAST_SHARED, TokenSequence, ids_of, mark_shared
from vecmill.values.embeddings import Embedding
from vecmill.values.side_names import SideName

# In English. A request counts as half of what follows from this.
CHARACTERS_PER_TOKEN = 4
# A request of fewer texts takes no more than a few milliseconds to tokenise.
FEW_TEXTS = 16
# More than the special tokens that any tokenizer adds to a text.
TOKENS_AROUND = 8


# Neither this nor `Computation` is frozen: one of each is made for every request, in a third of the time.
@dataclass(slots=True)
class Work:
    """Texts to compute: all of them, or none.

    `sizes` are the numbers of characters of the inputs with their prompts, of which the last `uncounted` do
    not count towards the number of inputs. All inputs begin with the same `shared_size` characters. `side` is
    that of the texts, or of most of them; if its queue is full, the request is refused before any work.
    `truncation` is `None` if texts are read whole, and each may become several sequences. `encode_now`
    encodes texts that turn out to be short.
    """

    side: Side
    sizes: Sequence[int]
    encode: Callable[[], Slices[list[TokenSequence]]]
    truncation: Truncation | None
    uncounted: int = 0
    shared_size: int = 0
    encode_now: Callable[[], list[TokenSequence]] | None = None


def plan_work(plan: TextPlan, inputs: Sequence[TextOrIds]) -> Work:
    """Return the computation of inputs that are read by `plan`. Token ids have no prompt."""
    sizes, extra = [*map(len, inputs)], len(plan.prompt.text)
    if extra:
        for index, item in enumerate(inputs):
            sizes[index] += extra * isinstance(item, str)
    encode, encode_now = partial(plan.encode_in_slices, inputs), partial(plan.encode_now, inputs)
    return Work(plan.side, sizes, encode, plan.truncation, encode_now=encode_now)


@dataclass(slots=True)
class Computation:
    """A finished request: its token sequences, and the engine's output for each, in order.

    `cached_count` of them are from the embedding cache. These sequences have no token ids of their own.
    """

    sequences: list[TokenSequence]
    embeddings: list[Embedding]
    timings: Timings
    truncated: tuple[Truncated, ...]
    cached_count: int = 0

    @property
    def token_counts(self) -> tuple[int, ...]:
        """The number of tokens of each text or pair, special tokens included."""
        counts = list(map(len, map(ids_of, self.sequences)))
        for index, sequence in enumerate(self.sequences):
            if sequence.is_empty:
                counts[index] = 0
        return tuple(counts)

    @property
    def token_count(self) -> int:
        """The number of tokens of all texts or pairs."""
        return sum(self.token_counts)


async def compute(loaded: LoadedModel, work: Work, caller: Caller) -> Computation:
    """Compute the sequences that `work` encodes: all of them, or none.

    The deadline of the request counts from this call. Raises the same errors as `Mill.run`.
    """
    clock, side, sizes = loaded.clock, work.side, work.sizes
    dispatcher, texts, characters = side.dispatcher, len(sizes), sum(sizes)
    began = clock()
    run = None if caller.timeline is None else caller.timeline.begin_run(began, texts)
    loaded.limits.check_sizes(sizes, work.uncounted)
    costs_s = () if texts < FEW_TEXTS or work.truncation is None else _likely_costs_s(work, work.truncation)
    most_tokens = characters + TOKENS_AROUND * texts
    check = partial(dispatcher.refuse_if_full, caller.client, most_tokens, caller.priority, costs_s)
    check()
    if loaded.texts.may_run_inline(texts, characters):
        sequences = complete(work.encode()) if work.encode_now is None else work.encode_now()
        if len(sequences) > 1:
            sequences = _mark_shared(side, sequences)
    else:
        # Other requests are admitted in the meantime. If many large ones arrive together, only those that
        # will be admitted must cost the time of tokenising.
        most_read = None if work.truncation is None else side.tokenizer.most_read(work.truncation)
        load, deadline = Load.of(sizes, most_read, caller.client), began + time_limit_s(loaded, caller)
        sequences = await loaded.texts.run_in_turns(_encode_marked(work), load, deadline, check)
    tokens, is_cut = 0, False
    for each in sequences:
        tokens += len(each.token_ids)
        is_cut = is_cut or bool(each.cuts)
    loaded.limits.check_tokens(tokens)
    tokenized = clock()
    if run is not None:
        run.tokenized_at, run.tokens = tokenized, tokens
    ask = Ask(caller.priority, caller.client, caller.timeout_s, began, run)
    dropped = DroppedTokens(sequences) if is_cut else None
    counting = None if dropped is None else _begin_count(loaded, dropped, caller)
    try:
        if loaded.queries is None:
            ended, ending = dispatcher.admit(sequences, ask)
            try:
                _tell_of_admission(caller)
                await ending
            finally:
                dispatcher.leave(ended)
            if ended.error is not None:
                raise ended.error
            embeddings = cast(list[Embedding], ended.embeddings)  # without an error none is `None`
        else:
            _tell_of_admission(caller)  # in the next turn of the loop
            ended, embeddings = await compute_sides(loaded, sequences, ask)
        now = clock()
        if run is not None:
            run.resumed_at = now
        if counting is not None and not counting.done():
            await asyncio.wait((counting,), timeout=_count_wait_s(ended.deadline - now))
            now = clock()
    finally:
        if counting is not None:
            counting.cancel()
    timings = make_timings(ended, began, tokenized, now)
    return Computation(sequences, embeddings, timings, () if dropped is None else dropped.found())


def _tell_of_admission(caller: Caller) -> None:
    if caller.on_admission is not None:
        caller.on_admission()


def time_limit_s(loaded: LoadedModel, caller: Caller) -> float:
    """Return the seconds that a request of `caller` may take."""
    # Background work is worth computing however late.
    longest_s = math.inf if caller.priority is Priority.BACKGROUND else loaded.longest_s
    return longest_s if caller.timeout_s is None else min(longest_s, caller.timeout_s)


def _likely_costs_s(work: Work, truncation: Truncation) -> list[float]:
    """Return the core seconds that each text is likely to add to the work that waits."""
    longest, dispatcher = work.side.tokenizer.longest(truncation), work.side.dispatcher
    lengths = [min(size // CHARACTERS_PER_TOKEN + 1, longest) for size in work.sizes]
    shared = work.shared_size // CHARACTERS_PER_TOKEN
    if shared >= LEAST_SHARED and dispatcher.info.shares_prefixes:
        shares = [shared if shared < length <= LONG_TEXT_TOKENS else 0 for length in lengths]
        lengths = predict_tokens(lengths, shares)
    return dispatcher.likely_costs_s(lengths)


def _mark_shared(side: Side, sequences: list[TokenSequence]) -> list[TokenSequence]:
    shares = side.dispatcher.info.shares_prefixes
    return mark_shared(sequences, longest=LONG_TEXT_TOKENS) if shares else sequences


def _encode_marked(work: Work) -> Slices[list[TokenSequence]]:
    return _mark_shared(work.side, (yield from work.encode()))


def _begin_count(loaded: LoadedModel, dropped: DroppedTokens, caller: Caller) -> "asyncio.Task[None] | None":
    """Count the tokens that truncation dropped, beside the computation, unless they are known."""
    if not dropped.texts:
        return None
    load = Load(dropped.texts, dropped.characters, dropped.characters, caller.client)
    return asyncio.ensure_future(loaded.texts.count(dropped.count_in_slices(), load))


def _count_wait_s(left_s: float) -> float | None:
    """Return how long an answer waits for its count if it has `left_s` until its deadline."""
    return None if math.isinf(left_s) else min(COUNT_WAIT_S, max(0.0, left_s))


async def compute_sides(
    loaded: LoadedModel, sequences: Sequence[TokenSequence], ask: Ask
) -> tuple[QueuedRequest, list[Embedding]]:
    """Compute sequences of several sides: all of them, or none.

    Returns the request that ended last, and the embeddings in order.
    """
    by_side: dict[SideName, list[TokenSequence]] = {}
    for each in sequences:
        by_side.setdefault(each.side, []).append(each)
    if len(by_side) == 1:  # its texts are in the queue at once
        ended = await loaded.dispatcher_of(sequences[0].side).submit(sequences, ask)
        return ended, cast(list[Embedding], ended.embeddings)
    tasks = [
        asyncio.ensure_future(loaded.dispatcher_of(side).submit(its, ask)) for side, its in by_side.items()
    ]
    try:
        requests = await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    found = {
        side: iter(cast(list[Embedding], request.embeddings))
        for side, request in zip(by_side, requests, strict=True)
    }
    embeddings = [next(found[each.side]) for each in sequences]
    return max(requests, key=lambda each: each.finished_at or 0.0), embeddings


def make_timings(ended: QueuedRequest, began: float, tokenized: float, now: float) -> Timings:
    """Return the times of a request that was tokenised, or decoded, until `tokenized`."""
    assert ended.started_at is not None
    assert ended.finished_at is not None
    return Timings(
        tokenize_s=tokenized - began,
        queue_s=ended.started_at - ended.admitted_at,
        inference_s=ended.finished_at - ended.started_at,
        total_s=now - began,
    )
