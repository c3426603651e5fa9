"""Padding texts to one length, and dividing a batch among shapes that were compiled ahead.

Where a runtime compiles for fixed shapes, a grid of buckets is compiled: so many texts of so many tokens. A
batch is divided among them so that little is computed for nothing:

    texts by length, longest first      40 38 | 12 11 10 9 9
    buckets 1x16 4x16 1x64 4x64         4x64 holds 40 and 38, and two places are free for 12 and 11
                                        4x16 holds 10, 9 and 9
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vecmill.types import Batch, IntArray

# A bucket with free places is taken while it is at most so many times as large as needed.
_LARGEST_SPARE = 2


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """A shape that is compiled: `texts` of `length` tokens."""

    length: int
    texts: int


@dataclass(frozen=True, slots=True)
class Share:
    """Which texts of a batch a call computes, by their places in the batch, and in which bucket."""

    bucket: Bucket
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BucketGrid:
    """Every length in every number of texts. Both ascending."""

    lengths: tuple[int, ...]
    texts: tuple[int, ...]

    @classmethod
    def covering(
        cls, max_tokens: int, *, shortest: int = 32, texts: tuple[int, ...] = (1, 4, 16)
    ) -> "BucketGrid":
        """Lengths that double from `shortest` up to `max_tokens`, which is always the last."""
        lengths = [shortest]
        while lengths[-1] < max_tokens:
            lengths.append(lengths[-1] * 2)
        return cls((*(length for length in lengths if length < max_tokens), max_tokens), texts)

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """All shapes to compile, the smallest first."""
        return tuple(Bucket(length, texts) for length in self.lengths for texts in self.texts)

    def length_for(self, tokens: int) -> int:
        """The shortest length that holds `tokens`. Raises `ValueError` if none does."""
        found = next((length for length in self.lengths if length >= tokens), None)
        if found is None:
            raise ValueError(
                f"a text of {tokens} tokens does not fit into buckets of at most {self.lengths[-1]}"
            )
        return found

    def divide(self, lengths: Sequence[int]) -> Iterator[Share]:
        """Divide texts of so many tokens among buckets, each text once."""
        waiting = sorted(range(len(lengths)), key=lambda place: -lengths[place])
        while waiting:
            length = self.length_for(lengths[waiting[0]])
            alike = sum(1 for place in waiting if self.length_for(lengths[place]) == length)
            bucket = Bucket(length, self._choose_texts(alike))
            # Places that are computed anyway go to the next shorter texts.
            taken, waiting = waiting[: bucket.texts], waiting[bucket.texts :]
            yield Share(bucket, tuple(taken))

    def _choose_texts(self, count: int) -> int:
        """The smallest number that holds `count` texts if few places stay free, else the largest below it."""
        holding = next((texts for texts in self.texts if texts >= count), None)
        if holding is not None and holding <= _LARGEST_SPARE * count:
            return holding
        return max((texts for texts in self.texts if texts <= count), default=self.texts[0])


def select_texts(batch: Batch, places: Sequence[int]) -> Batch:
    """The texts at `places` as a batch of their own, in that order."""
    chosen = np.asarray(places, np.int64)
    lengths = batch.lengths[chosen]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    tokens = np.arange(offsets[-1]) + np.repeat(batch.offsets[chosen] - offsets[:-1], lengths)
    return Batch(
        batch.token_ids[tokens],
        batch.token_type_ids[tokens],
        offsets,
        batch.prompt_lengths[chosen],
        batch.seen_lengths[chosen],
    )


def pad_texts(batch: Batch, *, texts: int, length: int, filler: int) -> Mapping[str, IntArray]:
    """Inputs as transformers' models take them, each (texts, length), int64, padded on the right.

    `input_ids`, `attention_mask`, `token_type_ids` and `position_ids`. Places beyond the end of a text hold
    the token `filler`; texts beyond those of the batch are one such token. The batch must fit.
    """
    lengths = np.ones(texts, np.int64)
    lengths[: len(batch)] = batch.lengths
    seen_lengths = np.ones(texts, np.int64)
    seen_lengths[: len(batch)] = batch.seen_lengths
    slots = np.arange(length, dtype=np.int64)
    is_token = slots < lengths[:, None]
    is_token[len(batch) :] = False

    def lay_out(values: IntArray, empty: int) -> IntArray:
        padded = np.full((texts, length), empty, np.int64)
        padded[is_token] = values
        return padded

    return {
        "input_ids": lay_out(batch.token_ids, filler),
        # A softmax over nothing would be NaN, so that a text that is not there sees its first place.
        "attention_mask": (slots < seen_lengths[:, None]).astype(np.int64),
        "token_type_ids": lay_out(batch.token_type_ids, 0),
        "position_ids": np.broadcast_to(slots, (texts, length)).copy(),
    }
