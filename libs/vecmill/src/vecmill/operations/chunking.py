"""The `Embed` request with `chunking`: texts of any length, in chunks that the model can read.

How it works. A text is tokenised whole, and cut by its tokens (`tokenization.whole_texts`). The chunks are
ordinary texts for the queue. Then `pooled` takes the mean of their embeddings, weighted by their tokens, and
`chunks` returns them with their places. `late` returns chunks too, whose tokens were computed within the
whole text (`late_chunking`).

Source of the weighted mean: vLLM's chunked processing of long texts (`enable_chunked_processing`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np

from vecmill.errors import InvalidRequest
from vecmill.operations.capabilities import require_dimensions
from vecmill.operations.computation import Computation, Work, compute
from vecmill.operations.late_chunking import CHUNK_NUMBERS, average_texts, find_late_model, require_texts
from vecmill.operations.late_windows import Window, window_overlap
from vecmill.operations.loaded_model import LoadedModel
from vecmill.requests import LATE_TOKENS, Caller, Chunking, ChunkingMode, Embed
from vecmill.results import Chunk, EmbedResult
from vecmill.tokenization.pieces import Slices
from vecmill.tokenization.prompts import Prompt
from vecmill.tokenization.sentences import cut_at_sentences, find_sentence_ends
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.tokenization.whole_texts import TokenRange, WholeText, count_parts, cut_tokens, read_in_slices
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.vectors import finish_dense, normalize_embeddings


@dataclass(frozen=True, slots=True)
class CutText:
    """A text, and the ranges of tokens of its chunks."""

    text: WholeText
    chunks: list[TokenRange]

    @property
    def counts(self) -> list[int]:
        """The number of tokens of each chunk."""
        return [end - start for start, end in self.chunks]


async def embed_in_chunks(
    loaded: LoadedModel, request: Embed, chunking: Chunking, caller: Caller
) -> EmbedResult:
    """Return an embedding for each input or chunk. Raises the same errors as `Mill.run`."""
    if request.late_chunking:
        raise InvalidRequest(
            "Send `late_chunking`, for inputs that are chunks of one text, or `chunking`, which cuts each "
            "input. Not both.",
            field="chunking",
        )
    if request.options.truncation.max_tokens is not None:
        raise InvalidRequest(
            "`truncate_prompt_tokens` cuts texts off, and `chunking` keeps all of them. Send "
            "`chunking.tokens` for the length of chunks.",
            field="truncate_prompt_tokens",
        )
    if chunking.mode is ChunkingMode.LATE:
        return await _embed_late(loaded, request, chunking, caller)
    return await _embed_alone(loaded, request, chunking, caller)


async def _embed_alone(
    loaded: LoadedModel, request: Embed, chunking: Chunking, caller: Caller
) -> EmbedResult:
    """Embed each chunk as a text of its own."""
    description = loaded.description
    plan = loaded.plan_dense(request)
    side, prompt = plan.side, plan.prompt
    texts = require_texts(request, _NO_IDS)
    cut: list[CutText] = []

    def encode() -> Slices[list[TokenSequence]]:
        cut.extend((yield from cut_in_slices(loaded, side.tokenizer, texts, prompt, chunking)))
        found = []
        for each in cut:
            for chunk in each.chunks:
                yield chunk[1] - chunk[0]  # takes no longer than to read as many characters
                found.append(replace(each.text.sequence(chunk), side=side.name))
        return found

    sizes = [size + len(prompt.text) for size in request.sizes]
    done = await compute(loaded, Work(side, sizes, encode, None), caller)

    def finish() -> FloatArray:
        rows = finish_dense(done.embeddings, request.dimensions, request.normalize, description.normalize)
        if chunking.mode is ChunkingMode.CHUNKS:
            return rows
        wants_unit = description.normalize if request.normalize is None else request.normalize
        return pool_chunks(rows, [each.counts for each in cut], is_unit=wants_unit)

    embeddings = await loaded.results.run_if_large(finish, len(done.sequences) * description.dim)
    counts = _add_up(done, [len(each.chunks) for each in cut])
    chunks = None if chunking.mode is ChunkingMode.POOLED else _describe(cut)
    return EmbedResult(embeddings, counts, done.timings, chunks=chunks)


async def _embed_late(loaded: LoadedModel, request: Embed, chunking: Chunking, caller: Caller) -> EmbedResult:
    """Read texts whole, and take the mean over the tokens of each chunk."""
    require_dimensions(request.dimensions, loaded.description)
    model = find_late_model(loaded, request.options, asked="`chunking` late", field="chunking.mode")
    texts = require_texts(request, _NO_IDS)
    cut: list[CutText] = []
    windows: list[list[Window]] = []

    def encode() -> Slices[list[TokenSequence]]:
        cut.extend((yield from cut_in_slices(loaded, model.side.tokenizer, texts, model.prompt, chunking)))
        for each in cut:
            own = yield from model.windows_in_slices(each.text, each.chunks)
            windows.append(own)
        return model.side.mark([window.sequence for each in windows for window in each])

    sizes = [size + len(model.prompt.text) for size in request.sizes]
    done = await compute(loaded, Work(model.side, sizes, encode, None), caller)
    counts = [len(each.chunks) for each in cut]
    embeddings = await loaded.results.run_if_large(
        lambda: model.finish(average_texts(done, windows, counts), request), sum(counts) * CHUNK_NUMBERS
    )
    token_counts = _add_up(done, list(map(len, windows)))
    return EmbedResult(embeddings, token_counts, done.timings, chunks=_describe(cut))


_NO_IDS = "`chunking` cuts texts, and finds no places in token ids. Send text."


def cut_in_slices(
    loaded: LoadedModel, tokenizer: Tokenizer, texts: Sequence[str], prompt: Prompt, chunking: Chunking
) -> Slices[list[CutText]]:
    """Tokenise texts, and choose the ranges of their chunks, in slices.

    Raises `InvalidRequest` for chunks that the model cannot read, and `RequestTooLarge` for more chunks or
    tokens than a request may have, before there are any.
    """
    read = yield from read_in_slices(
        tokenizer,
        texts,
        prompt=prompt.text,
        adapter=prompt.adapter,
        most_tokens=loaded.limits.most_tokens,
    )
    is_late = chunking.mode is ChunkingMode.LATE
    sizes = []
    chunks = tokens = 0
    for text in read:
        room = _room(tokenizer, text)
        size = _size(chunking, room)
        count = count_parts(len(text), size, chunking.overlap)
        chunks += count
        shared, windows = (count - 1) * chunking.overlap, count
        if is_late:
            # Late chunks are not computed, but the windows around them. Both are limited: the tokens of a
            # chunk are listed, so large chunks with a large overlap take memory.
            windows = count_parts(len(text), room, window_overlap(room))
            shared = max(shared, (windows - 1) * window_overlap(room))
        tokens += len(text) + shared + windows * len(text.frame)
        sizes.append(size)
    loaded.limits.check_chunks(chunks)
    loaded.limits.check_tokens(tokens)
    if chunking.sentences:
        return (yield from _cut_at_sentences(loaded, texts, read, sizes, chunking))
    return [
        CutText(text, cut_tokens(len(text), size, chunking.overlap))
        for text, size in zip(read, sizes, strict=True)
    ]


def _cut_at_sentences(
    loaded: LoadedModel,
    texts: Sequence[str],
    read: Sequence[WholeText],
    sizes: Sequence[int],
    chunking: Chunking,
) -> Slices[list[CutText]]:
    """Choose chunks that end at sentences, which may be up to twice as many. Raises `RequestTooLarge`."""
    cut = []
    for text, whole, size in zip(texts, read, sizes, strict=True):
        yield len(text)  # takes less time than to tokenise it
        ends = find_sentence_ends(text, whole.bounds)
        cut.append(CutText(whole, cut_at_sentences(len(whole), size, chunking.overlap, ends)))
    loaded.limits.check_chunks(sum(len(each.chunks) for each in cut))
    if chunking.mode is not ChunkingMode.LATE:
        frames = sum(len(each.chunks) * len(each.text.frame) for each in cut)
        loaded.limits.check_tokens(frames + sum(sum(each.counts) for each in cut))
    return cut


def _room(tokenizer: Tokenizer, text: WholeText) -> int:
    """Return the number of tokens of a text that the model reads at once."""
    room = tokenizer.max_tokens - len(text.frame)
    if room < 1:
        raise InvalidRequest(
            f"The prompt and the special tokens have {len(text.frame)} tokens, and the model reads "
            f"{tokenizer.max_tokens}. Send a shorter prompt.",
            field="prompt",
        )
    return room


def _size(chunking: Chunking, room: int) -> int:
    """Return the number of tokens of a chunk. Raises `InvalidRequest` if the model cannot read as many."""
    is_late = chunking.mode is ChunkingMode.LATE
    size = chunking.tokens or (min(LATE_TOKENS, room) if is_late else room)
    if size > room and not is_late:
        raise InvalidRequest(
            f"`chunking.tokens` is {size}; beside its special tokens and the prompt, this model reads {room} "
            "tokens at once.",
            field="chunking.tokens",
        )
    if chunking.overlap >= size:
        raise InvalidRequest(
            f"`chunking.overlap` is {chunking.overlap}; it must be less than the {size} tokens of a chunk.",
            field="chunking.overlap",
        )
    return size


def pool_chunks(rows: FloatArray, counts: Sequence[Sequence[int]], *, is_unit: bool) -> FloatArray:
    """Return the mean of the embeddings of each text's chunks, weighted by their tokens: (texts, dim).

    `rows` (chunks, dim) are the embeddings of all chunks, and `counts` the tokens of the chunks of each text.
    With `is_unit` the means are scaled to length 1. A text of one chunk keeps the embedding of the chunk.
    """
    ends = accumulate(map(len, counts), initial=0)
    return np.concatenate(
        [
            rows[first:last] if last - first == 1 else _average(rows[first:last], weights, is_unit=is_unit)
            for weights, (first, last) in zip(counts, pairwise(ends), strict=True)
        ]
    )


def _average(rows: FloatArray, weights: Sequence[int], *, is_unit: bool) -> FloatArray:
    mean = np.average(rows, axis=0, weights=np.array(weights, np.float64))[None].astype(np.float32)
    return normalize_embeddings(mean) if is_unit else mean


def _add_up(done: Computation, counts: Sequence[int]) -> tuple[int, ...]:
    """Return the number of computed tokens of each text; `counts` are the sequences of each."""
    lengths = done.token_counts
    ends = accumulate(counts, initial=0)
    return tuple(sum(lengths[first:last]) for first, last in pairwise(ends))


def _describe(cut: Sequence[CutText]) -> tuple[Chunk, ...]:
    return tuple(
        Chunk(number, index, *each.text.place(chunk), chunk[1] - chunk[0])
        for number, each in enumerate(cut)
        for index, chunk in enumerate(each.chunks)
    )
