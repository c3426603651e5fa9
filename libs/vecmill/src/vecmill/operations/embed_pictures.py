"""The request for embeddings of pictures, and of texts beside them, of a model with two encoders.

How it works. A request that has no room on the way is refused before any work. Then the texts are tokenised,
pictures that are named by URLs are fetched, and the files are decoded and resized in other processes
(`pictures.picture_decoder`). The patches of a picture are its tokens. Then pictures and texts wait in the
queues of their encoders, all of them or none.
"""

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from vecmill.architectures.towers import cut_patches
from vecmill.batching.scheduler import Ask
from vecmill.errors import (
    DeadlineExceeded,
    InvalidRequest,
    QueueFull,
    RequestError,
    UnsupportedTask,
    VecmillError,
    items_renamed,
)
from vecmill.operations.capabilities import PACKED, require_dimensions, require_whole_bytes
from vecmill.operations.computation import (
    TOKENS_AROUND,
    Computation,
    compute_sides,
    make_timings,
    time_limit_s,
)
from vecmill.operations.dropped_tokens import DroppedTokens
from vecmill.operations.loaded_model import LoadedModel
from vecmill.operations.sides import PictureSide
from vecmill.operations.tokenizer_threads import Load
from vecmill.pictures.picture_decoder import pixel_bytes
from vecmill.requests import Caller, EmbedPictures, Picture, PictureUrl
from vecmill.results import EmbedResult
from vecmill.values.batch import TokenSequence
from vecmill.values.observer import Rejection
from vecmill.vectors import finish_dense


async def embed_pictures(loaded: LoadedModel, request: EmbedPictures, caller: Caller) -> EmbedResult:
    """Return an embedding for each picture and each text. Raises the same errors as `Mill.run`."""
    side = _require_pictures(loaded)
    if request.dimensions is not None:
        require_dimensions(request.dimensions, loaded.description)
    if not PACKED.isdisjoint(request.dtypes):
        require_whole_bytes(request.dimensions, loaded.description)
    if any(dtype.needs_ranges for dtype in request.dtypes):
        raise InvalidRequest(
            "`dtypes` of pictures are float, binary and ubinary: the ranges of int8 and uint8 are measured "
            "with texts.",
            field="dtypes",
        )
    clock = loaded.clock
    began, texts = clock(), [each for each in request.inputs if isinstance(each, str)]
    places = [index for index, each in enumerate(request.inputs) if isinstance(each, str)]
    run = None if caller.timeline is None else caller.timeline.begin_run(began, len(request.inputs))
    loaded.limits.check_count(len(request.inputs))
    loaded.limits.check_pictures(len(request.inputs) - len(texts))
    with items_renamed(lambda item: f"input[{places[item]}]"):
        if texts:
            loaded.limits.check_sizes([*map(len, texts)])
    _refuse_if_full(loaded, side, request, texts, caller)
    of_texts = await _encode_texts(loaded, texts, places, request, caller)
    pictures = await _read_in_time(loaded, side, request, caller, began)
    ordered = iter(pictures), iter(of_texts)
    sequences = [next(ordered[isinstance(each, str)]) for each in request.inputs]
    tokens = sum(map(len, sequences))
    prepared = clock()
    if run is not None:
        run.tokenized_at, run.tokens = prepared, tokens
    if caller.on_admission is not None:
        caller.on_admission()  # in the next turn of the loop
    ask = Ask(caller.priority, caller.client, caller.timeout_s, began, run)
    ended, embeddings = await compute_sides(loaded, sequences, ask)
    now = clock()
    if run is not None:
        run.resumed_at = now
    cuts = DroppedTokens(sequences).found() if any(each.cuts for each in sequences) else ()
    done = Computation(sequences, embeddings, make_timings(ended, began, prepared, now), cuts)
    return await loaded.results.run_if_large(
        partial(_finish, loaded, side, request, done), len(sequences) * loaded.description.dim
    )


def _finish(loaded: LoadedModel, side: PictureSide, request: EmbedPictures, done: Computation) -> EmbedResult:
    embeddings = finish_dense(done.embeddings, request.dimensions, request.normalize, loaded.is_unit)
    pixels = sum(isinstance(each, Picture) for each in request.inputs) * side.encoder.image_size**2
    return EmbedResult(
        embeddings, done.token_counts, done.timings, truncated=done.truncated, pixel_count=pixels
    )


def _require_pictures(loaded: LoadedModel) -> PictureSide:
    if loaded.pictures is None:
        raise UnsupportedTask(
            f"The model {loaded.description.name} embeds texts alone; it cannot embed pictures. "
            "Models of CLIP and SigLIP can.",
            field="model",
        )
    return loaded.pictures


def _refuse_if_full(
    loaded: LoadedModel, side: PictureSide, request: EmbedPictures, texts: Sequence[str], caller: Caller
) -> None:
    """Raise `QueueFull` or `UnavailableError` if the texts or the pictures of a request have no room."""
    files = [len(each.data) for each in request.inputs if isinstance(each, Picture)]
    if texts:
        most_tokens = sum(map(len, texts)) + TOKENS_AROUND * len(texts)
        texts_side = loaded.plan(request.options).side
        texts_side.dispatcher.refuse_if_full(caller.client, most_tokens, caller.priority)
    if files:
        tokens = len(files) * side.encoder.max_input_tokens
        side.dispatcher.refuse_if_full(caller.client, tokens, caller.priority)
        size = sum(files) + len(files) * pixel_bytes(side.tower.settings.geometry)
        with _counting_refusals(loaded):
            side.decoder.refuse_if_full(caller.client, size)


@contextmanager
def _counting_refusals(loaded: LoadedModel) -> Iterator[None]:
    try:
        yield
    except QueueFull:
        loaded.observer.rejected(Rejection.QUEUE_FULL)
        raise


async def _read_in_time(
    loaded: LoadedModel, side: PictureSide, request: EmbedPictures, caller: Caller, began: float
) -> list[TokenSequence]:
    """Return the patches of each picture of a request. Raises `DeadlineExceeded`."""
    left_s = time_limit_s(loaded, caller) - (loaded.clock() - began)
    try:
        async with asyncio.timeout(None if math.isinf(left_s) else left_s):
            return await _read_pictures(loaded, side, await _fetch(request, caller), caller)
    except TimeoutError:
        raise DeadlineExceeded(
            "The time of the request was over before its pictures were decoded. Try again, or allow more "
            "time."
        ) from None


async def _fetch(request: EmbedPictures, caller: Caller) -> EmbedPictures:
    """Return the request with the content of the pictures that it names by URLs."""
    urls = [each for each in request.inputs if isinstance(each, PictureUrl)]
    if not urls:
        return request
    if caller.fetch is None:
        field = urls[0].field
        raise InvalidRequest(f"`{field}` is a URL, and none is fetched here. Send the content.", field=field)
    fetched = iter(await caller.fetch(urls))
    inputs = (next(fetched) if isinstance(each, PictureUrl) else each for each in request.inputs)
    return replace(request, inputs=tuple(inputs))


async def _read_pictures(
    loaded: LoadedModel, side: PictureSide, request: EmbedPictures, caller: Caller
) -> list[TokenSequence]:
    """Return the patches of each picture of a request. The error of a picture names its input."""
    places = [index for index, each in enumerate(request.inputs) if isinstance(each, Picture)]
    files = [each.data for each in request.inputs if isinstance(each, Picture)]
    if not files:
        return []
    with _counting_refusals(loaded):
        found = await side.decoder.read_each(files, side.tower.settings.geometry, caller.client)
    pixels = []
    for index, one in zip(places, found, strict=True):
        if isinstance(one, RequestError):
            one.rename_fields({"picture": f"input[{index}]"})
            one.field = "input"
        if isinstance(one, VecmillError):
            raise one
        pixels.append(one)
    values = sum(one.size for one in pixels)
    return await loaded.results.run_if_large(
        lambda: [cut_patches(one, side.encoder) for one in pixels], values
    )


async def _encode_texts(
    loaded: LoadedModel, texts: Sequence[str], places: Sequence[int], request: EmbedPictures, caller: Caller
) -> list[TokenSequence]:
    """Return the tokens of the texts of a request, which stand at `places` of its inputs."""
    if not texts:
        return []
    plan, sizes = loaded.plan(request.options), [*map(len, texts)]
    load = Load.of(sizes, plan.side.tokenizer.most_read(plan.truncation), caller.client)
    deadline = loaded.clock() + time_limit_s(loaded, caller)
    with items_renamed(lambda item: f"input[{places[item]}]"):
        return await loaded.texts.run(plan.encode_in_slices(texts), load, deadline)
