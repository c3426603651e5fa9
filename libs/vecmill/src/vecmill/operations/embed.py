"""The requests for embeddings: `Embed` and `EmbedSparse` give one for each text, `EmbedTokens` many.

`EmbedOutputs` gives all of these at once.
"""

import asyncio
import math
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial

from vecmill.batching.ticket import OWN_WORK
from vecmill.errors import DeadlineExceeded, InvalidRequest, RequestTooLarge
from vecmill.models import Task
from vecmill.operations.cached_embeddings import embed_with_cache
from vecmill.operations.capabilities import PACKED, require_task, require_unfinished, require_whole_bytes
from vecmill.operations.chunking import embed_in_chunks
from vecmill.operations.computation import Computation, Work, compute, plan_work, time_limit_s
from vecmill.operations.late_chunking import embed_joined
from vecmill.operations.loaded_model import LoadedModel
from vecmill.operations.result_threads import INLINE_NUMBERS, TEXT_NUMBERS
from vecmill.operations.token_heads import choose_output, keep_weights
from vecmill.requests import (
    Caller,
    Embed,
    EmbedOutputs,
    EmbedSparse,
    EmbedTokens,
    Purpose,
    R,
    TextsRequest,
)
from vecmill.results import EmbedOutputsResult, EmbedResult, EmbedSparseResult, EmbedTokensResult
from vecmill.tokenization.late_interaction import encode_side_in_slices, keep_tokens, side_prompt
from vecmill.tokenization.pieces import Slices
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.values.embeddings import Output, OutputDtype
from vecmill.values.side_names import SideName
from vecmill.vectors import (
    dense,
    find_ranges,
    finish_dense,
    finish_embeddings,
    normalize_embeddings,
    sparse,
    stack_embeddings,
)

_RANGED = frozenset(dtype for dtype in OutputDtype if dtype.needs_ranges)


def embed(loaded: LoadedModel, request: Embed, caller: Caller) -> Awaitable[EmbedResult]:
    """Return an embedding for each input. Raises the same errors as `Mill.run`."""
    if not PACKED.isdisjoint(request.dtypes):
        require_whole_bytes(request.dimensions, loaded.description)
    if request.chunking is not None:
        embedding = embed_in_chunks(loaded, request, request.chunking, caller)
    elif request.late_chunking:
        embedding = embed_joined(loaded, request, caller)
    else:
        embedding = _embed_texts(loaded, request, caller)
    if not _RANGED.isdisjoint(request.dtypes):
        return _add_ranges(loaded, request, caller, embedding)
    return embedding


async def _embed_texts(loaded: LoadedModel, request: Embed, caller: Caller) -> EmbedResult:
    """Return an embedding for each input, which is read whole."""
    inputs, plan = request.inputs, loaded.plan_dense(request)
    if loaded.cache is None or caller.client == OWN_WORK:
        done = await compute(loaded, plan_work(plan, inputs), caller)
    else:
        done = await embed_with_cache(loaded, loaded.cache, plan, inputs, caller)
    if len(inputs) * loaded.description.dim <= INLINE_NUMBERS:
        return _finish(loaded, request, done)
    return await loaded.results.run(partial(_finish, loaded, request, done))


def _finish(loaded: LoadedModel, request: Embed, done: Computation) -> EmbedResult:
    embeddings = finish_dense(done.embeddings, request.dimensions, request.normalize, loaded.is_unit)
    return EmbedResult(
        embeddings,
        done.token_counts,
        done.timings,
        truncated=done.truncated,
        cached_count=done.cached_count,
    )


async def measure_ranges(loaded: LoadedModel) -> None:
    """Measure the ranges of int8 and uint8 embeddings while the model has nothing else to do.

    Cancelling the call stops the measurement, unless a request waits for it. Raises the same errors as
    `Mill.run`.
    """
    if loaded.description.task is Task.EMBED:
        await loaded.sample.measure(partial(_embed_sample, loaded))


async def _embed_sample(loaded: LoadedModel, request: Embed) -> EmbedResult:
    return await _embed_texts(loaded, request, request.caller)


async def _add_ranges(
    loaded: LoadedModel, request: Embed, caller: Caller, embedding: Awaitable[EmbedResult]
) -> EmbedResult:
    """Return the result of `embedding`, with the ranges of the dimensions."""
    began = loaded.clock()
    result = await embedding
    left_s = time_limit_s(loaded, caller) - (loaded.clock() - began)
    return replace(result, ranges=await _find_ranges(loaded, request, left_s))


async def _find_ranges(loaded: LoadedModel, request: Embed, left_s: float) -> FloatArray:
    """Return the range of each dimension: (2, dim), for embeddings truncated and normalised as requested.

    The first call may take longer than the `left_s` until the deadline, and the computation continues then.
    Raises `DeadlineExceeded`.
    """
    description = loaded.description
    try:
        async with asyncio.timeout(None if math.isinf(left_s) else left_s):
            sample = await loaded.sample.get(
                partial(_embed_sample, loaded), is_raw=request.normalize is False
            )
    except TimeoutError:
        raise DeadlineExceeded(
            "The range of the model's dimensions, which int8 and uint8 need, is still being measured. Try "
            "again, or allow more time."
        ) from None
    return await loaded.results.run_if_large(
        lambda: find_ranges(
            finish_embeddings(sample, request.dimensions, request.normalize, description.normalize)
        ),
        sample.size,
    )


async def embed_sparse(loaded: LoadedModel, request: EmbedSparse, caller: Caller) -> EmbedSparseResult:
    """Return a sparse embedding for each text. Raises the same errors as `Mill.run`."""
    description, tokenizer = loaded.description, loaded.tokenizer
    require_task(description, Task.SPARSE, asked="give sparse embeddings")
    if description.token_heads is not None:
        done = await _compute_outputs(loaded, request, caller, Output.TOKEN_WEIGHTS)
        weights = await loaded.results.run_if_large(
            lambda: tuple(keep_weights(description, tokenizer, each) for each in done.embeddings),
            done.token_count + TEXT_NUMBERS * len(request.texts),
        )
        return EmbedSparseResult(weights, done.token_count, done.timings, done.truncated)
    done = await compute(loaded, plan_work(loaded.plan(request.options), request.texts), caller)
    embeddings = tuple(map(sparse, done.embeddings))
    return EmbedSparseResult(embeddings, done.token_count, done.timings, done.truncated)


# Hidden states and the vectors of token heads are wider than the embeddings of multi-vector models. So many
# take 64 MB, and more as JSON.
MOST_HIDDEN_NUMBERS = 2**24


async def embed_tokens(loaded: LoadedModel, request: EmbedTokens, caller: Caller) -> EmbedTokensResult:
    """Return the token embeddings of each text. By default, texts are embedded as documents.

    Raises the same errors as `Mill.run`.
    """
    description, tokenizer = loaded.description, loaded.tokenizer
    output = Output.TOKEN_VECTORS if description.token_heads is not None else Output.HIDDEN_STATES
    if output is Output.TOKEN_VECTORS or (request.hidden_states and description.task is Task.EMBED):
        if output is Output.TOKEN_VECTORS:
            _require_unit_length(request)
        done = await _compute_outputs(loaded, request, caller, output)
        vectors = tuple(map(dense, done.embeddings))
        if output is Output.HIDDEN_STATES and request.normalize:
            numbers = done.token_count * description.dim
            vectors = await loaded.results.run_if_large(
                lambda: tuple(map(normalize_embeddings, vectors)), numbers
            )
        return EmbedTokensResult(vectors, done.token_count, done.timings, done.truncated)
    require_task(description, Task.MULTI_VECTOR, asked="give an embedding for each token")
    _require_unit_length(request)
    texts = tuple(each for each in request.texts if isinstance(each, str))
    if len(texts) < len(request.texts):
        raise InvalidRequest(
            "Token ids are not for this model, which marks its queries and documents. Send texts.",
            field="input",
        )
    side = request.options.purpose or Purpose.DOCUMENT
    request = loaded.limits.decide(request)
    prompt = side_prompt(description, side, request.options)
    work = Work(
        loaded.documents,
        [size + len(prompt.text) for size in request.sizes],
        lambda: encode_side_in_slices(description, tokenizer, texts, side, request.options),
        request.options.truncation,
    )
    done = await compute(loaded, work, caller)

    def keep() -> tuple[FloatArray, ...]:
        pairs = zip(done.sequences, done.embeddings, strict=True)
        return tuple(keep_tokens(description, tokenizer, *pair, side) for pair in pairs)

    numbers = done.token_count * description.dim + TEXT_NUMBERS * len(request.texts)
    embeddings = await loaded.results.run_if_large(keep, numbers)
    return EmbedTokensResult(embeddings, done.token_count, done.timings, done.truncated)


def _require_unit_length(request: EmbedTokens) -> None:
    if request.normalize is False:
        raise InvalidRequest(
            "`normalize` is false, but this model's embeddings of tokens always have length 1.",
            field="normalize",
        )


async def embed_outputs(loaded: LoadedModel, request: EmbedOutputs, caller: Caller) -> EmbedOutputsResult:
    """Return several outputs of a model. Raises the same errors as `Mill.run`."""
    description, tokenizer = loaded.description, loaded.tokenizer
    if not request.tasks:
        raise InvalidRequest("The request asks for no output; ask for at least one.", field="dense")
    for task in request.tasks:
        require_task(description, task, asked=_OUTPUTS[task])
    if description.token_heads is None:
        return await _give_only_output(loaded, request, caller)
    asked = {
        Output.USUAL: request.dense,
        Output.TOKEN_WEIGHTS: request.sparse,
        Output.TOKEN_VECTORS: request.vectors,
    }
    done = await _compute_outputs(loaded, request, caller, *(output for output in asked if asked[output]))

    def finish() -> EmbedOutputsResult:
        found = done.embeddings
        return EmbedOutputsResult(
            stack_embeddings([choose_output(each, Output.USUAL) for each in found])
            if request.dense
            else None,
            tuple(keep_weights(description, tokenizer, each) for each in found) if request.sparse else None,
            tuple(dense(choose_output(each, Output.TOKEN_VECTORS)) for each in found)
            if request.vectors
            else None,
            done.token_count,
            done.timings,
            done.truncated,
        )

    return await loaded.results.run_if_large(finish, done.token_count + TEXT_NUMBERS * len(request.texts))


_OUTPUTS = {
    Task.EMBED: "embed texts",
    Task.SPARSE: "give sparse embeddings",
    Task.MULTI_VECTOR: "give an embedding for each token",
}


async def _give_only_output(loaded: LoadedModel, request: EmbedOutputs, caller: Caller) -> EmbedOutputsResult:
    """Return the output of a model that has no other."""
    dense_rows, sparse_rows, vectors, cached_count = None, None, None, 0
    result: EmbedResult | EmbedSparseResult | EmbedTokensResult
    if request.dense:
        result = await embed(loaded, Embed(request.texts, options=request.options), caller)
        dense_rows, cached_count = result.embeddings, result.cached_count
    elif request.sparse:
        result = await embed_sparse(loaded, EmbedSparse(request.texts, options=request.options), caller)
        sparse_rows = result.embeddings
    else:
        result = await embed_tokens(loaded, EmbedTokens(request.texts, options=request.options), caller)
        vectors = result.embeddings
    return EmbedOutputsResult(
        *(dense_rows, sparse_rows, vectors),
        result.token_count,
        result.timings,
        result.truncated,
        cached_count,
    )


async def _compute_outputs(
    loaded: LoadedModel, request: TextsRequest[R], caller: Caller, *outputs: Output
) -> Computation:
    """Compute `outputs` of an embedding model for each text, special tokens included."""
    plan = loaded.plan(request.options)
    side = plan.side
    gives_states = outputs == (Output.HIDDEN_STATES,)
    asked = "return hidden states" if gives_states else "give sparse or multi-vector embeddings"
    require_unfinished(loaded.description, side.dispatcher.info, asked=asked, field="model")
    if side.name is SideName.QUERIES and side.description.is_table:
        raise InvalidRequest(
            "Queries of this model have no hidden states: they are looked up in a table. Send `document` as "
            "`input_type`.",
            field="input_type",
        )

    def encode() -> Slices[list[TokenSequence]]:
        sequences = yield from plan.encode_in_slices(request.texts)
        if not {Output.HIDDEN_STATES, Output.TOKEN_VECTORS}.isdisjoint(outputs):
            _check_numbers(sum(map(len, sequences)), side.description.encoder.output_size)
        return [sequence.asking(*outputs) for sequence in sequences]

    sizes = [size + len(plan.prompt.text) for size in request.sizes]
    return await compute(loaded, Work(side, sizes, encode, plan.truncation), caller)


def _check_numbers(tokens: int, width: int) -> None:
    most = MOST_HIDDEN_NUMBERS // width
    if tokens > most:
        raise RequestTooLarge(
            f"`input` has {tokens} tokens in all; at most {most} hidden states or vectors of this model are "
            "returned at once. Send it in parts.",
            field="input",
        )
