"""The request for embeddings of pictures, and of texts beside them, of a model with two encoders.

How it works. A request that has no room on the way is refused before any work. Inputs that the embedding
cache has are left out; pictures that are named by URLs are not looked for. Then the texts are tokenised,
pictures that are named by URLs are fetched, and the files are decoded and resized in other processes
(`pictures.picture_decoder`). The patches of a picture are its tokens. Then pictures and texts wait in the
queues of their encoders, all of them or none.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from vecmill.architectures.towers import cut_patches
from vecmill.batching.scheduler import Ask
from vecmill.batching.ticket import OWN_WORK
from vecmill.errors import (
    DeadlineExceeded,
    InvalidRequest,
    QueueFull,
    RequestError,
    UnsupportedTask,
    VecmillError,
    items_renamed,
)
from vecmill.operations.cache_keys import KeyedCache
from vecmill.operations.cached_embeddings import (
    CHARACTERS_PER_NUMBER,
    DIGEST_NUMBERS,
    answer_at_once,
    find_cached,
    join_found,
    to_cache,
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
from vecmill.operations.loaded_model import LoadedModel, TextPlan
from vecmill.operations.sides import PictureSide
from vecmill.operations.tokenizer_threads import Load
from vecmill.pictures.picture_decoder import pixel_bytes
from vecmill.requests import Caller, EmbedPictures, Picture, PictureUrl
from vecmill.results import EmbedResult
from vecmill.values.batch import TokenSequence
from vecmill.values.observer import Rejection
from vecmill.vectors import finish_dense

Input = Picture | str


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
    began, texts = loaded.clock(), [each for each in request.inputs if isinstance(each, str)]
    places = [index for index, each in enumerate(request.inputs) if isinstance(each, str)]
    loaded.limits.check_count(len(request.inputs))
    loaded.limits.check_pictures(len(request.inputs) - len(texts))
    with items_renamed(lambda item: f"input[{places[item]}]"):
        if texts:
            loaded.limits.check_sizes([*map(len, texts)])
    _refuse_if_full(loaded, side, request, texts, caller)
    if loaded.cache is None or caller.client == OWN_WORK:
        done = await _compute(loaded, side, dict(enumerate(request.inputs)), request, caller, began)
    else:
        done = await _compute_missing(loaded, side, loaded.cache, request, caller, began)
    return await loaded.results.run_if_large(
        partial(_finish, loaded, side, request, done), len(request.inputs) * loaded.description.dim
    )


async def _compute_missing(
    loaded: LoadedModel,
    side: PictureSide,
    keyed: KeyedCache,
    request: EmbedPictures,
    caller: Caller,
    began: float,
) -> Computation:
    """Compute the inputs that are not in the embedding cache, and keep their embeddings there."""
    inputs, texts = request.inputs, [each for each in request.inputs if isinstance(each, str)]
    plan = loaded.plan(request.options) if texts else None
    keys = await loaded.results.run_if_large(
        lambda: _make_keys(keyed, plan, inputs, caller.owner),
        sum(map(len, inputs)) // CHARACTERS_PER_NUMBER + DIGEST_NUMBERS * len(inputs),
    )
    is_cut_allowed = plan is None or not plan.truncation.is_refused
    looked_for = iter(await find_cached(keyed, [*keys.values()], is_cut_allowed=is_cut_allowed))
    found = [next(looked_for) if index in keys else None for index in range(len(inputs))]
    missing = {index: inputs[index] for index, one in enumerate(found) if one is None}
    if not missing:
        return answer_at_once(loaded, keyed, caller, found, began)
    done = await _compute(loaded, side, missing, request, caller, began)
    fresh = await loaded.results.run_if_large(
        lambda: to_cache(done, [keys.get(index) for index in missing]), len(missing) * loaded.description.dim
    )
    keyed.cache.keep(fresh)
    return join_found(found, done, search_s=0.0)  # the times are from `began` on


def _make_keys(
    keyed: KeyedCache, plan: TextPlan | None, inputs: Sequence[Input], owner: str | None
) -> dict[int, bytes]:
    """Return the key of each input that is no URL. A text, read by `plan`, has that of a request of texts."""
    texts = {index: each for index, each in enumerate(inputs) if isinstance(each, str)}
    pictures = {index: each for index, each in enumerate(inputs) if isinstance(each, Picture)}
    files = {index: each for index, each in pictures.items() if not isinstance(each, PictureUrl)}
    keys = dict(zip(files, keyed.picture_keys([*files.values()], owner), strict=True))
    if plan is not None:
        of_texts = keyed.keys([*texts.values()], plan.prompt, plan.route, plan.truncation, owner)
        keys |= zip(texts, of_texts, strict=True)
    return dict(sorted(keys.items()))


async def _compute(
    loaded: LoadedModel,
    side: PictureSide,
    inputs: Mapping[int, Input],
    request: EmbedPictures,
    caller: Caller,
    began: float,
) -> Computation:
    """Compute inputs, which are given by their numbers in the request: all of them, or none."""
    clock = loaded.clock
    run = None if caller.timeline is None else caller.timeline.begin_run(began, len(inputs))
    of_texts = await _encode_texts(loaded, inputs, request, caller)
    async with _in_time(loaded, caller, began):
        of_pictures = await _read_pictures(loaded, side, await _fetch(inputs, caller), caller)
    ordered = iter(of_pictures), iter(of_texts)
    sequences = [next(ordered[isinstance(each, str)]) for each in inputs.values()]
    prepared = clock()
    if run is not None:
        run.tokenized_at, run.tokens = prepared, sum(map(len, sequences))
    if caller.on_admission is not None:
        caller.on_admission()  # in the next turn of the loop
    ask = Ask(caller.priority, caller.client, caller.timeout_s, began, run)
    ended, embeddings = await compute_sides(loaded, sequences, ask)
    now = clock()
    if run is not None:
        run.resumed_at = now
    cuts = DroppedTokens(sequences).found() if any(each.cuts for each in sequences) else ()
    return Computation(sequences, embeddings, make_timings(ended, began, prepared, now), cuts)


def _finish(loaded: LoadedModel, side: PictureSide, request: EmbedPictures, done: Computation) -> EmbedResult:
    embeddings = finish_dense(done.embeddings, request.dimensions, request.normalize, loaded.is_unit)
    pixels = sum(isinstance(each, Picture) for each in request.inputs) * side.encoder.image_size**2
    return EmbedResult(
        embeddings,
        done.token_counts,
        done.timings,
        truncated=done.truncated,
        cached_count=done.cached_count,
        pixel_count=pixels,
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


@asynccontextmanager
async def _in_time(loaded: LoadedModel, caller: Caller, began: float) -> AsyncIterator[None]:
    """End what reads pictures when the time of the request is over. Raises `DeadlineExceeded`."""
    left_s = time_limit_s(loaded, caller) - (loaded.clock() - began)
    try:
        async with asyncio.timeout(None if math.isinf(left_s) else left_s):
            yield
    except TimeoutError:
        raise DeadlineExceeded(
            "The time of the request was over before its pictures were decoded. Try again, or allow more "
            "time."
        ) from None


async def _fetch(inputs: Mapping[int, Input], caller: Caller) -> Mapping[int, Input]:
    """Return the inputs, with the content of the pictures that are named by URLs."""
    urls = {index: each for index, each in inputs.items() if isinstance(each, PictureUrl)}
    if not urls:
        return inputs
    first = next(iter(urls.values()))
    if caller.fetch is None:
        raise InvalidRequest(
            f"`{first.field}` is a URL, and none is fetched here. Send the content.", field=first.field
        )
    fetched = await caller.fetch([*urls.values()])
    return {**inputs, **dict(zip(urls, fetched, strict=True))}


async def _read_pictures(
    loaded: LoadedModel, side: PictureSide, inputs: Mapping[int, Input], caller: Caller
) -> list[TokenSequence]:
    """Return the patches of each picture of these inputs. The error of a picture names its input."""
    places = [index for index, each in inputs.items() if isinstance(each, Picture)]
    files = [each.data for each in inputs.values() if isinstance(each, Picture)]
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
    loaded: LoadedModel, inputs: Mapping[int, Input], request: EmbedPictures, caller: Caller
) -> list[TokenSequence]:
    """Return the tokens of the texts of these inputs. The error of a text names its input."""
    places = [index for index, each in inputs.items() if isinstance(each, str)]
    texts = [each for each in inputs.values() if isinstance(each, str)]
    if not texts:
        return []
    plan, sizes = loaded.plan(request.options), [*map(len, texts)]
    load = Load.of(sizes, plan.side.tokenizer.most_read(plan.truncation), caller.client)
    deadline = loaded.clock() + time_limit_s(loaded, caller)
    with items_renamed(lambda item: f"input[{places[item]}]"):
        return await loaded.texts.run(plan.encode_in_slices(texts), load, deadline)
