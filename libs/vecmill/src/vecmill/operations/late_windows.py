"""The windows in which a text is read for late chunking, and the means of its chunks over all windows.

How it works. A text that fits into the model is one window. A longer one is read in windows that overlap, so
that each token is computed with tokens around it; of the tokens that two windows share, the earlier window
counts. A window asks for the sums of the token embeddings of its chunks (`TokenSequence.reduce`), so the
embeddings of single tokens are gone when the engine's call ends.

Special tokens and the prompt at the beginning belong to the first chunk, those at the end to the last. So a
text of one chunk has its usual embedding. Source: Günther et al. 2024, arXiv:2409.04701, algorithm 2, and
`chunked_pooling` and `_extend_special_tokens` of its authors.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vecmill.tokenization.pieces import Slices
from vecmill.tokenization.whole_texts import TokenRange, WholeText, cut_tokens
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.batch import Reduce, TokenSequence
from vecmill.values.embeddings import Output

# The tokens that a window shares with the next one: those of the paper, or a part of a short window.
OVERLAP_TOKENS = 256
OVERLAP_SHARE = 4


@dataclass(frozen=True, slots=True)
class PooledTokens:
    """Which tokens a model pools, and how.

    `output` is the output of the graph with an embedding for each token, `before` what is done with these
    before the mean. With `frame`, special tokens are pooled, and with `prompt` those of the prompt too.
    """

    output: Output
    before: Reduce
    frame: bool
    prompt: bool


@dataclass(frozen=True, slots=True)
class Window:
    """A window of a text. The output of its sequence has the sum for each chunk of `chunks`.

    `counts` are the numbers of tokens in these sums.
    """

    sequence: TokenSequence
    chunks: tuple[int, ...]
    counts: tuple[int, ...]


def cut_windows_in_slices(
    text: WholeText,
    chunks: Sequence[TokenRange],
    pooled: PooledTokens,
    *,
    room: int,
    kept: npt.NDArray[np.bool_] | None = None,
) -> Slices[list[Window]]:
    """Cut a text into windows of at most `room` tokens of its own, in slices.

    `chunks` are ranges in the order of the text. Only the `kept` tokens (tokens,) count, except in chunks
    without any.
    """
    spans = cut_tokens(len(text), room, window_overlap(room))
    starts, ends = [start for start, _ in chunks], [end for _, end in chunks]
    windows: list[Window] = []
    owned = 0
    for number, (first, last) in enumerate(spans):
        yield last - first
        is_first, is_last = number == 0, number == len(spans) - 1
        low = 0 if is_first else bisect_right(ends, owned)
        high = len(chunks) if is_last else bisect_left(starts, last)
        shift = len(text.frame.before) - first
        shares: dict[int, IntArray] = {}
        for chunk in range(low, high):
            tokens = _tokens_of(chunks[chunk], owned, last, kept)
            parts = [tokens + shift]
            if pooled.frame and is_first and chunk == 0:
                skipped = 0 if pooled.prompt else text.frame.prompt_length
                parts.insert(0, np.arange(skipped, len(text.frame.before)))
            if pooled.frame and is_last and chunk == len(chunks) - 1:
                end = shift + last
                parts.append(np.arange(end, end + len(text.frame.after)))
            positions = np.concatenate(parts)
            if len(positions):
                shares[chunk] = positions
        windows.append(_window(text.sequence((first, last)), shares, pooled))
        owned = last
    return windows


def window_overlap(room: int) -> int:
    """Return the tokens that windows of `room` tokens share."""
    return min(OVERLAP_TOKENS, room // OVERLAP_SHARE)


def _tokens_of(chunk: TokenRange, owned: int, last: int, kept: npt.NDArray[np.bool_] | None) -> IntArray:
    """Return the tokens of a chunk from `owned` on and before `last` that count."""
    start, end = chunk
    first, stop = max(start, owned), min(end, last)
    if kept is None or not kept[start:end].any():
        return np.arange(first, max(first, stop))
    return np.flatnonzero(kept[first:stop]) + first if first < stop else np.arange(0)


def _window(sequence: TokenSequence, shares: dict[int, IntArray], pooled: PooledTokens) -> Window:
    each = list(shares.values())
    width = [len(positions) for positions in each]

    def add_up(rows: FloatArray) -> FloatArray:
        tokens = pooled.before(rows)
        sums = np.zeros((len(each), tokens.shape[1]), np.float32)
        for row, positions in enumerate(each):
            sums[row] = _rows(tokens, positions).sum(axis=0, dtype=np.float64)
        return sums

    name = np.concatenate([[len(each)], width, *each]).astype(np.int64).tobytes()
    asking = sequence if pooled.output is Output.USUAL else sequence.asking(pooled.output)
    return Window(asking.reduced(add_up, name), tuple(shares), tuple(width))


def _rows(tokens: FloatArray, positions: IntArray) -> FloatArray:
    first, last = int(positions[0]), int(positions[-1])
    # A view, not a copy, unless there are gaps.
    return tokens[first : last + 1] if last - first + 1 == len(positions) else tokens[positions]


def average_windows(windows: Sequence[Window], sums: Sequence[FloatArray], chunks: int) -> FloatArray:
    """Return the mean of each chunk of a text, (chunks, width) float32, from the sums of its windows."""
    total = np.zeros((chunks, sums[0].shape[1]))
    counts = np.zeros(chunks)
    for window, found in zip(windows, sums, strict=True):
        for row, chunk in enumerate(window.chunks):
            total[chunk] += found[row]
            counts[chunk] += window.counts[row]
    return (total / np.maximum(counts, 1e-9)[:, None]).astype(np.float32)
