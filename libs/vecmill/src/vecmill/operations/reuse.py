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

from vecmill.batching.ticket import OWN_WORK
from vecmill.errors import RequestError
from vecmill.operations.admission import Admission, Computation
from vecmill.operations.result_keys import Reuse
from vecmill.requests import Embed, Purpose, TextOrIds
from vecmill.results import Timings, Truncated
from vecmill.tokenization.pieces import Slices
from vecmill.tokenization.prompts import Prompt
from vecmill.values.batch import TokenSequence
from vecmill.values.embeddings import Embedding, UnitEmbedding
from vecmill.values.result_cache import KeptEmbedding
from vecmill.vectors import dense

# Digesting a text takes about as long as arithmetic on one number for each four characters, and 64 more.
CHARACTERS_PER_NUMBER = 4
TEXT_NUMBERS = 64

Found = list[KeptEmbedding | None]


async def embed_once(
    admission: Admission, request: Embed, prompt: Prompt, sizes: Sequence[int], route: Purpose
) -> Computation:
    """Compute the inputs of a request, except those that are in the cache of results, if there is one.

    `sizes` are those of `Admission.run`. Raises the same errors as `Mill.run`.
    """
    reuse = admission.reuse
    if reuse is None or request.client == OWN_WORK:
        return await _compute(admission, request, prompt, sizes, route)
    began = reuse.clock()
    admission.check_sizes(sizes)
    numbers = sum(sizes) // CHARACTERS_PER_NUMBER + TEXT_NUMBERS * len(sizes)
    keys = await admission.compute(lambda: reuse.keys(request, request.inputs, prompt, route), numbers)
    found = await _find(reuse, request, keys)
    missing = [index for index, one in enumerate(found) if one is None]
    if not missing:
        return _answer_at_once(admission, reuse, request, found, began)
    looked_s = reuse.clock() - began
    try:
        done = await _compute_missing(admission, request, prompt, sizes, route, found)
    except RequestError:
        if len(missing) == len(sizes):
            raise
        return await _compute(admission, request, prompt, sizes, route)
    fresh = await admission.compute(
        lambda: _keep(done, [keys[index] for index in missing]), len(missing) * admission.description.dim
    )
    reuse.cache.keep(fresh)
    return _join(found, done, looked_s)


async def _find(reuse: Reuse, request: Embed, keys: Sequence[bytes]) -> Found:
    """Return what the cache has for each key, in memory or on disk."""
    cache = reuse.cache
    found: Found = list(map(cache.find, keys))
    absent = [index for index, one in enumerate(found) if one is None]
    in_memory, on_disk = len(keys) - len(absent), 0
    if absent and cache.has_disk:
        for index, one in zip(absent, await cache.read([keys[index] for index in absent]), strict=True):
            found[index] = one
            on_disk += one is not None
    reuse.observer.looked_up(in_memory, on_disk, len(keys) - in_memory - on_disk)
    if request.options.truncation.is_allowed:
        return found
    # The error has the whole length of the text, which only the tokenizer knows.
    return [None if one is not None and one.is_cut else one for one in found]


async def _compute(
    admission: Admission, request: Embed, prompt: Prompt, sizes: Sequence[int], route: Purpose
) -> Computation:
    return await admission.run(
        request,
        lambda: admission.encode_in_slices(request.inputs, request.options, prompt, route),
        sizes=sizes,
        route=route,
    )


async def _compute_missing(
    admission: Admission,
    request: Embed,
    prompt: Prompt,
    sizes: Sequence[int],
    route: Purpose,
    found: Found,
) -> Computation:
    """Compute the inputs that were not found. All inputs together must keep the limit on tokens."""
    missing = [index for index, one in enumerate(found) if one is None]
    inputs: list[TextOrIds] = [request.inputs[index] for index in missing]
    known = sum(one.token_count for one in found if one is not None)

    def encode() -> Slices[list[TokenSequence]]:
        sequences = yield from admission.encode_in_slices(inputs, request.options, prompt, route)
        admission.check_tokens(known + sum(map(len, sequences)))
        return sequences

    return await admission.run(request, encode, sizes=[sizes[index] for index in missing], route=route)


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
    admission: Admission, reuse: Reuse, request: Embed, found: Found, began: float
) -> Computation:
    """Return the results of a request whose inputs were all found. Raises `RequestTooLarge`."""
    kept = [one for one in found if one is not None]
    tokens = sum(one.token_count for one in kept)
    admission.check_tokens(tokens)
    now = reuse.clock()
    if request.timeline is not None:
        run = request.timeline.begin_run(began, len(kept))
        run.tokens, run.tokenized_at, run.resumed_at = tokens, now, now
    timings = Timings(tokenize_s=now - began, queue_s=0.0, inference_s=0.0, total_s=now - began)
    left_s = admission.longest_s(request) - (now - began)
    return Computation(
        [*map(_stand_in, kept)],
        [*map(_embedding, kept)],
        timings,
        left_s,
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
        done.left_s - looked_s,
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
