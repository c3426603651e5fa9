"""Embeds texts once: texts whose embeddings are in the cache of results are not computed again.

How it works. A text that is found costs no tokenising and no room in the queue. All limits on a request hold
for it, found or not, and its answer has the same counts. Only the missing texts of a request are admitted,
and their embeddings are kept when they are computed.

If that raises an error about the request, all of it is run without the cache. The error is then the usual
one, which has the numbers of inputs and of tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from vecmill.errors import RequestError
from vecmill.operations.computation import Computation, compute, plan_work
from vecmill.operations.loaded_model import LoadedModel, TextPlan
from vecmill.operations.result_keys import Reuse
from vecmill.requests import Caller, TextOrIds
from vecmill.results import Timings, Truncated
from vecmill.tokenization.pieces import Slices
from vecmill.values.batch import TokenSequence
from vecmill.values.embeddings import Embedding, UnitEmbedding
from vecmill.values.result_cache import KeptEmbedding
from vecmill.vectors import dense

# Digesting a text takes about as long as arithmetic on one number for each four characters, and 64 more.
CHARACTERS_PER_NUMBER = 4
DIGEST_NUMBERS = 64

Found = list[KeptEmbedding | None]


async def embed_once(
    loaded: LoadedModel, reuse: Reuse, plan: TextPlan, inputs: Sequence[TextOrIds], caller: Caller
) -> Computation:
    """Compute inputs, except those that are in the cache of results. Raises the same errors as `Mill.run`."""
    began, whole = reuse.clock(), plan_work(plan, inputs)
    loaded.limits.check_sizes(whole.sizes)
    numbers = sum(whole.sizes) // CHARACTERS_PER_NUMBER + DIGEST_NUMBERS * len(inputs)
    keys = await loaded.results.run_if_large(
        lambda: reuse.keys(inputs, plan.prompt, plan.route, plan.truncation, caller.owner), numbers
    )
    found = await _find(reuse, keys, is_cut_allowed=not plan.truncation.is_refused)
    missing = [index for index, one in enumerate(found) if one is None]
    if not missing:
        return _answer_at_once(loaded, reuse, caller, found, began)
    looked_s = reuse.clock() - began
    try:
        done = await _compute_missing(loaded, plan, [inputs[index] for index in missing], caller, found)
    except RequestError:
        if len(missing) == len(inputs):
            raise
        return await compute(loaded, whole, caller)
    fresh = await loaded.results.run_if_large(
        lambda: _keep(done, [keys[index] for index in missing]), len(missing) * loaded.description.dim
    )
    reuse.cache.keep(fresh)
    return _join(found, done, looked_s)


async def _find(reuse: Reuse, keys: Sequence[bytes], *, is_cut_allowed: bool) -> Found:
    """Return what the cache has for each key, in memory or on disk. Texts may be cut only if allowed."""
    cache = reuse.cache
    found: Found = list(map(cache.find, keys))
    absent = [index for index, one in enumerate(found) if one is None]
    in_memory, on_disk = len(keys) - len(absent), 0
    if absent and cache.has_disk:
        for index, one in zip(absent, await cache.read([keys[index] for index in absent]), strict=True):
            found[index] = one
            on_disk += one is not None
    reuse.observer.looked_up(in_memory, on_disk, len(keys) - in_memory - on_disk)
    if is_cut_allowed:
        return found
    # The error has the whole length of the text, which only the tokenizer knows.
    return [None if one is not None and one.is_cut else one for one in found]


async def _compute_missing(
    loaded: LoadedModel, plan: TextPlan, missing: Sequence[TextOrIds], caller: Caller, found: Found
) -> Computation:
    """Compute the inputs that were not found. All inputs together must keep the limit on tokens."""
    known = sum(one.token_count for one in found if one is not None)

    def encode() -> Slices[list[TokenSequence]]:
        sequences = yield from plan.encode_in_slices(missing)
        loaded.limits.check_tokens(known + sum(map(len, sequences)))
        return sequences

    work = replace(plan_work(plan, missing), encode=encode, encode_now=None)
    return await compute(loaded, work, caller)


def _keep(done: Computation, keys: Sequence[bytes]) -> Mapping[bytes, KeptEmbedding]:
    """Return the results to keep. They own their memory: an embedding is a part of what a call returned."""
    cuts = {each.index: each for each in done.truncated}
    kept = {}
    for index, (key, embedding) in enumerate(zip(keys, done.embeddings, strict=True)):
        cut = cuts.get(index, Truncated(index, 0))
        kept[key] = KeptEmbedding(
            dense(embedding).copy(),
            embedding.length if isinstance(embedding, UnitEmbedding) else None,
            done.sequences[index].text_tokens,
            cut.token_count,
            cut.is_exact,
        )
    return kept


def _answer_at_once(
    loaded: LoadedModel, reuse: Reuse, caller: Caller, found: Found, began: float
) -> Computation:
    """Return the results of a request whose inputs were all found. Raises `RequestTooLarge`."""
    kept = [one for one in found if one is not None]
    tokens = sum(one.token_count for one in kept)
    loaded.limits.check_tokens(tokens)
    now = reuse.clock()
    if caller.timeline is not None:
        run = caller.timeline.begin_run(began, len(kept))
        run.tokens, run.tokenized_at, run.resumed_at = tokens, now, now
    timings = Timings(tokenize_s=now - began, queue_s=0.0, inference_s=0.0, total_s=now - began)
    return Computation(
        [*map(_stand_in, kept)],
        [*map(_embedding, kept)],
        timings,
        _truncated(found),
        cached_count=len(kept),
    )


def _join(found: Found, done: Computation, looked_s: float) -> Computation:
    """Return the results that were found and those that were computed, in the order of the inputs."""
    computed = zip(done.sequences, done.embeddings, strict=True)
    pairs = [next(computed) if one is None else (_stand_in(one), _embedding(one)) for one in found]
    sequences, embeddings = zip(*pairs, strict=True)
    timings = replace(
        done.timings,
        tokenize_s=done.timings.tokenize_s + looked_s,
        total_s=done.timings.total_s + looked_s,
    )
    missing = [index for index, one in enumerate(found) if one is None]
    computed_cuts = (replace(each, index=missing[each.index]) for each in done.truncated)
    truncated = sorted((*_truncated(found), *computed_cuts), key=lambda each: each.index)
    return Computation(
        [*sequences],
        [*embeddings],
        timings,
        tuple(truncated),
        cached_count=len(found) - len(missing),
    )


def _truncated(found: Found) -> tuple[Truncated, ...]:
    """Return what was cut off the texts that were found."""
    return tuple(
        Truncated(index, one.cut_tokens, one.is_exact)
        for index, one in enumerate(found)
        if one is not None and one.is_cut
    )


def _stand_in(kept: KeptEmbedding) -> TokenSequence:
    """Return a sequence that has the counts of a text which was not tokenised. Its token ids are zeros."""
    ids = np.zeros(kept.token_count, np.int64)
    return TokenSequence(ids, ids, 0, b"")


def _embedding(kept: KeptEmbedding) -> Embedding:
    return kept.values if kept.length is None else UnitEmbedding(kept.values, kept.length)
