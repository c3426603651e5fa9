"""The requests for embeddings: `Embed` and `EmbedSparse` give one for each text, `EmbedTokens` many.

`EmbedOutputs` gives all of these at once.
"""

import asyncio
import math
from dataclasses import fields, replace
from functools import partial

from vecmill.errors import DeadlineExceeded, InvalidRequest, RequestTooLarge
from vecmill.models import ModelDescription, Task
from vecmill.operations.admission import (
    Admission,
    Computation,
    require_dimensions,
    require_task,
    require_unfinished,
)
from vecmill.operations.chunking import embed_in_chunks
from vecmill.operations.dense_embeddings import find_dense_route, finish_dense
from vecmill.operations.late_chunking import embed_joined
from vecmill.operations.query_side import find_route
from vecmill.operations.reuse import embed_once
from vecmill.operations.token_heads import choose_output, keep_weights
from vecmill.requests import Embed, EmbedOutputs, EmbedSparse, EmbedTokens, Purpose, R, Request, TextsRequest
from vecmill.results import EmbedOutputsResult, EmbedResult, EmbedSparseResult, EmbedTokensResult
from vecmill.tokenization.late_interaction import encode_side_in_slices, keep_tokens, side_prompt
from vecmill.tokenization.pieces import Slices
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.values.embeddings import Output
from vecmill.vectors import (
    dense,
    find_ranges,
    finish_embeddings,
    normalize_embeddings,
    sparse,
    stack_embeddings,
)


async def embed(admission: Admission, request: Embed) -> EmbedResult:
    """Return an embedding for each input. Raises the same errors as `Mill.run`."""
    _check_bytes(request, admission.description)
    if request.chunking is not None:
        result, left_s = await embed_in_chunks(admission, request, request.chunking)
    elif request.late_chunking:
        result, left_s = await embed_joined(admission, request), math.inf
    else:
        result, left_s = await _embed_texts(admission, request)
    if not any(dtype.needs_ranges for dtype in request.dtypes):
        return result
    ranges = await _find_ranges(admission, request, left_s)
    return replace(result, ranges=ranges)


async def measure_ranges(admission: Admission) -> None:
    """Measure the ranges of int8 and uint8 embeddings while the model has nothing else to do.

    Cancelling the call stops the measurement, unless a request waits for it. Raises the same errors as
    `Mill.run`.
    """
    if admission.description.task is Task.EMBED:
        await admission.sample.measure(partial(_embed_sample, admission))


async def _embed_sample(admission: Admission, request: Embed) -> EmbedResult:
    result, _ = await _embed_texts(admission, request)
    return result


async def _embed_texts(admission: Admission, request: Embed) -> tuple[EmbedResult, float]:
    """Return an embedding for each input, and the seconds until the deadline of the request."""
    description = admission.description
    require_task(description, Task.EMBED, asked="embed texts")
    require_dimensions(request.dimensions, description)
    route, prompt = find_dense_route(admission, request)
    # Token ids have no prompt.
    sizes = [len(item) + len(prompt) * isinstance(item, str) for item in request.inputs]
    done = await embed_once(admission, request, prompt, sizes, route)
    embeddings = await admission.compute(
        lambda: finish_dense(done.embeddings, request, normalizes=description.normalize),
        len(sizes) * description.dim,
    )
    counts = done.token_counts
    result = EmbedResult(
        embeddings, counts, done.timings, truncated=done.truncated, cached_count=done.cached_count
    )
    return result, done.left_s


def _check_bytes(request: Embed, description: ModelDescription) -> None:
    numbers = request.dimensions or description.dim
    if numbers % 8 and any(dtype.needs_bytes for dtype in request.dtypes):
        raise InvalidRequest(
            f"Embeddings of {numbers} dimensions do not fill whole bytes of bits. Ask for another type, or "
            "for `dimensions` that are a multiple of 8.",
            field="dimensions",
        )


async def _find_ranges(admission: Admission, request: Embed, left_s: float) -> FloatArray:
    """Return the range of each dimension: (2, dim), for embeddings truncated and normalised as requested.

    The first call may take longer than the `left_s` until the deadline, and the computation continues then.
    Raises `DeadlineExceeded`.
    """
    description = admission.description
    try:
        async with asyncio.timeout(None if math.isinf(left_s) else left_s):
            sample = await admission.sample.get(
                partial(_embed_sample, admission), is_raw=request.normalize is False
            )
    except TimeoutError:
        raise DeadlineExceeded(
            "The range of the model's dimensions, which int8 and uint8 need, is still being measured. Try "
            "again, or allow more time."
        ) from None
    return await admission.compute(
        lambda: find_ranges(
            finish_embeddings(sample, request.dimensions, request.normalize, description.normalize)
        ),
        sample.size,
    )


async def embed_sparse(admission: Admission, request: EmbedSparse) -> EmbedSparseResult:
    """Return a sparse embedding for each text. Raises the same errors as `Mill.run`."""
    description, tokenizer = admission.description, admission.tokenizer
    require_task(description, Task.SPARSE, asked="give sparse embeddings")
    if description.token_heads is not None:
        done = await _compute_outputs(admission, request, Output.TOKEN_WEIGHTS)
        weights = await admission.compute(
            lambda: tuple(keep_weights(description, tokenizer, each) for each in done.embeddings),
            done.token_count + TEXT_NUMBERS * len(request.texts),
        )
        return EmbedSparseResult(weights, done.token_count, done.timings, done.truncated)
    route, prompt = find_route(description, request.options), admission.prompt(request.options)
    done = await admission.run(
        request,
        lambda: admission.encode_in_slices(request.texts, request.options, prompt, route),
        sizes=[size + len(prompt) for size in request.sizes],
        route=route,
    )
    embeddings = tuple(map(sparse, done.embeddings))
    return EmbedSparseResult(embeddings, done.token_count, done.timings, done.truncated)


# The fixed time of a text takes about as long as arithmetic on this many numbers.
TEXT_NUMBERS = 2_000
# Hidden states and the vectors of token heads are wider than the embeddings of multi-vector models. So many
# take 64 MB, and more as JSON.
MOST_HIDDEN_NUMBERS = 2**24


async def embed_tokens(admission: Admission, request: EmbedTokens) -> EmbedTokensResult:
    """Return the token embeddings of each text. By default, texts are embedded as documents.

    Raises the same errors as `Mill.run`.
    """
    description, tokenizer = admission.description, admission.tokenizer
    output = Output.TOKEN_VECTORS if description.token_heads is not None else Output.HIDDEN_STATES
    if output is Output.TOKEN_VECTORS or (request.hidden_states and description.task is Task.EMBED):
        if output is Output.TOKEN_VECTORS:
            _require_unit_length(request)
        done = await _compute_outputs(admission, request, output)
        vectors = tuple(map(dense, done.embeddings))
        if output is Output.HIDDEN_STATES and request.normalize:
            numbers = done.token_count * description.dim
            vectors = await admission.compute(lambda: tuple(map(normalize_embeddings, vectors)), numbers)
        return EmbedTokensResult(vectors, done.token_count, done.timings, done.truncated)
    require_task(description, Task.MULTI_VECTOR, asked="give an embedding for each token")
    _require_unit_length(request)
    side = request.options.purpose or Purpose.DOCUMENT
    prompt = side_prompt(description, side, request.options)
    done = await admission.run(
        request,
        lambda: encode_side_in_slices(description, tokenizer, request.texts, side, request.options),
        sizes=[size + len(prompt) for size in request.sizes],
    )

    def keep() -> tuple[FloatArray, ...]:
        pairs = zip(done.sequences, done.embeddings, strict=True)
        return tuple(keep_tokens(description, tokenizer, *pair, side) for pair in pairs)

    numbers = done.token_count * description.dim + TEXT_NUMBERS * len(request.texts)
    embeddings = await admission.compute(keep, numbers)
    return EmbedTokensResult(embeddings, done.token_count, done.timings, done.truncated)


def _require_unit_length(request: EmbedTokens) -> None:
    if request.normalize is False:
        raise InvalidRequest(
            "`normalize` is false, but this model's embeddings of tokens always have length 1.",
            field="normalize",
        )


async def embed_outputs(admission: Admission, request: EmbedOutputs) -> EmbedOutputsResult:
    """Return several outputs of a model. Raises the same errors as `Mill.run`."""
    description, tokenizer = admission.description, admission.tokenizer
    if not request.tasks:
        raise InvalidRequest("The request asks for no output; ask for at least one.", field="dense")
    for task in request.tasks:
        require_task(description, task, asked=_OUTPUTS[task])
    if description.token_heads is None:
        return await _give_only_output(admission, request)
    asked = {
        Output.USUAL: request.dense,
        Output.TOKEN_WEIGHTS: request.sparse,
        Output.TOKEN_VECTORS: request.vectors,
    }
    done = await _compute_outputs(admission, request, *(output for output in asked if asked[output]))

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

    return await admission.compute(finish, done.token_count + TEXT_NUMBERS * len(request.texts))


_OUTPUTS = {
    Task.EMBED: "embed texts",
    Task.SPARSE: "give sparse embeddings",
    Task.MULTI_VECTOR: "give an embedding for each token",
}


async def _give_only_output(admission: Admission, request: EmbedOutputs) -> EmbedOutputsResult:
    """Return the output of a model that has no other."""
    given = {each.name: getattr(request, each.name) for each in fields(Request)}
    dense_rows, sparse_rows, vectors, cached_count = None, None, None, 0
    result: EmbedResult | EmbedSparseResult | EmbedTokensResult
    if request.dense:
        result = await embed(admission, Embed(request.texts, **given))
        dense_rows, cached_count = result.embeddings, result.cached_count
    elif request.sparse:
        result = await embed_sparse(admission, EmbedSparse(request.texts, **given))
        sparse_rows = result.embeddings
    else:
        result = await embed_tokens(admission, EmbedTokens(request.texts, **given))
        vectors = result.embeddings
    return EmbedOutputsResult(
        *(dense_rows, sparse_rows, vectors),
        result.token_count,
        result.timings,
        result.truncated,
        cached_count,
    )


async def _compute_outputs(admission: Admission, request: TextsRequest[R], *outputs: Output) -> Computation:
    """Compute `outputs` of an embedding model for each text, special tokens included."""
    description = admission.description
    route = find_route(description, request.options)
    side = admission.side_of(route)
    gives_states = outputs == (Output.HIDDEN_STATES,)
    asked = "return hidden states" if gives_states else "give sparse or multi-vector embeddings"
    require_unfinished(description, admission.dispatcher_of(route).info, asked=asked, field="model")
    if side is not None and side.description.is_table:
        raise InvalidRequest(
            "Queries of this model have no hidden states: they are looked up in a table. Send `document` as "
            "`input_type`.",
            field="input_type",
        )
    prompt = admission.prompt(request.options)

    def encode() -> Slices[list[TokenSequence]]:
        sequences = yield from admission.encode_in_slices(request.texts, request.options, prompt, route)
        if not {Output.HIDDEN_STATES, Output.TOKEN_VECTORS}.isdisjoint(outputs):
            encoder = (description if side is None else side.description).encoder
            _check_numbers(sum(map(len, sequences)), encoder.output_size)
        return [sequence.asking(*outputs) for sequence in sequences]

    sizes = [size + len(prompt) for size in request.sizes]
    return await admission.run(request, encode, sizes=sizes, route=route)


def _check_numbers(tokens: int, width: int) -> None:
    most = MOST_HIDDEN_NUMBERS // width
    if tokens > most:
        raise RequestTooLarge(
            f"`input` has {tokens} tokens in all; at most {most} hidden states or vectors of this model are "
            "returned at once. Send it in parts.",
            field="input",
        )
