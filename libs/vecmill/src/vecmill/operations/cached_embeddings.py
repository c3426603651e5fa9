"""Embeds texts with the embedding cache: what is in it is not computed again. Pictures use parts of it.

How it works. A text that is found costs no tokenising and no room in the queue. All limits on a request hold
for it, found or not, and its answer has the same counts. Only the missing texts of a request are admitted,
and their embeddings are cached when they are computed.

If that raises an error about the request, all of it is run without the cache. The error is then the usual
one, which has the numbers of inputs and of tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from vecmill.errors import RequestError
from vecmill.operations.cache_keys import KeyedCache
from vecmill.operations.computation import Computation, compute, plan_work
from vecmill.operations.loaded_model import LoadedModel, TextPlan
from vecmill.requests import Caller, TextOrIds
from vecmill.results import Timings, Truncated
from vecmill.tokenization.pieces import Slices
from vecmill.values.batch import TokenSequence
from vecmill.values.embedding_cache import CachedEmbedding
from vecmill.values.embeddings import Embedding, UnitEmbedding
from vecmill.vectors import dense

# Digesting a text takes about as long as arithmetic on one number for each four characters, and 64 more.
CHARACTERS_PER_NUMBER = 4
DIGEST_NUMBERS = 64

Found = list[CachedEmbedding | None]


async def embed_with_cache(
    loaded: LoadedModel, keyed: KeyedCache, plan: TextPlan, inputs: Sequence[TextOrIds], caller: Caller
) -> Computation:
    """Compute inputs, except those that are in the embedding cache. Raises the same errors as `Mill.run`."""
    began, whole = keyed.clock(), plan_work(plan, inputs)
    loaded.limits.check_sizes(whole.sizes)
    numbers = sum(whole.sizes) // CHARACTERS_PER_NUMBER + DIGEST_NUMBERS * len(inputs)
    keys = await loaded.results.run_if_large(
        lambda: keyed.keys(inputs, plan.prompt, plan.route, plan.truncation, caller.owner), numbers
    )
    found = await find_cached(keyed, keys, is_cut_allowed=not plan.truncation.is_refused)
    missing = [index for index, one in enumerate(found) if one is None]
    if not missing:
        return answer_at_once(loaded, keyed, caller, found, began)
    search_s = keyed.clock() - began
    try:
        done = await _compute_missing(loaded, plan, [inputs[index] for index in missing], caller, found)
    except RequestError:
        if len(missing) == len(inputs):
            raise
        return await compute(loaded, whole, caller)
    fresh = await loaded.results.run_if_large(
        lambda: to_cache(done, [keys[index] for index in missing]), len(missing) * loaded.description.dim
    )
    keyed.cache.keep(fresh)
    return join_found(found, done, search_s)


async def find_cached(keyed: KeyedCache, keys: Sequence[bytes], *, is_cut_allowed: bool) -> Found:
    """Return what the cache has for each key, in memory or on disk. Texts may be cut only if allowed."""
    cache = keyed.cache
    found: Found = list(map(cache.find, keys))
    absent = [index for index, one in enumerate(found) if one is None]
    in_memory, on_disk = len(keys) - len(absent), 0
    if absent and cache.has_disk:
        for index, one in zip(absent, await cache.read([keys[index] for index in absent]), strict=True):
            found[index] = one
            on_disk += one is not None
    keyed.observer.cache_searched(in_memory, on_disk, len(keys) - in_memory - on_disk)
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


def to_cache(done: Computation, keys: Sequence[bytes | None]) -> Mapping[bytes, CachedEmbedding]:
    """Return the embeddings to cache, those with a key.

    They own their memory: one is a part of what a call returned.
    """
    cuts = {each.index: each for each in done.truncated}
    cached = {}
    for index, (key, embedding) in enumerate(zip(keys, done.embeddings, strict=True)):
        if key is None:
            continue
        cut = cuts.get(index, Truncated(index, 0))
        cached[key] = CachedEmbedding(
            dense(embedding).copy(),
            embedding.length if isinstance(embedding, UnitEmbedding) else None,
            done.sequences[index].text_tokens,
            cut.token_count,
            cut.is_exact,
        )
    return cached


def answer_at_once(
    loaded: LoadedModel, keyed: KeyedCache, caller: Caller, found: Found, began: float
) -> Computation:
    """Return the results of a request whose inputs were all found. Raises `RequestTooLarge`."""
    cached = [one for one in found if one is not None]
    tokens = sum(one.token_count for one in cached)
    loaded.limits.check_tokens(tokens)
    now = keyed.clock()
    if caller.timeline is not None:
        run = caller.timeline.begin_run(began, len(cached))
        run.tokens, run.tokenized_at, run.resumed_at = tokens, now, now
    timings = Timings(tokenize_s=now - began, queue_s=0.0, inference_s=0.0, total_s=now - began)
    return Computation(
        [*map(_stand_in, cached)],
        [*map(_embedding, cached)],
        timings,
        _truncated(found),
        cached_count=len(cached),
    )


def join_found(found: Found, done: Computation, search_s: float) -> Computation:
    """Return the results that were found and those that were computed, in the order of the inputs."""
    computed = zip(done.sequences, done.embeddings, strict=True)
    pairs = [next(computed) if one is None else (_stand_in(one), _embedding(one)) for one in found]
    sequences, embeddings = zip(*pairs, strict=True)
    timings = replace(
        done.timings,
        tokenize_s=done.timings.tokenize_s + search_s,
        total_s=done.timings.total_s + search_s,
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


def _stand_in(cached: CachedEmbedding) -> TokenSequence:
    """Return a sequence that has the counts of a text which was not tokenised. Its token ids are zeros."""
    ids = np.zeros(cached.token_count, np.int64)
    return TokenSequence(ids, ids, 0, b"")


def _embedding(cached: CachedEmbedding) -> Embedding:
    return cached.values if cached.length is None else UnitEmbedding(cached.values, cached.length)
