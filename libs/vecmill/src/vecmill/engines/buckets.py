"""Padding of texts to one length, and division of a batch among shapes that were compiled in advance.

A runtime that compiles for fixed shapes gets a grid of buckets: each bucket is a number of texts and a
number of tokens per text. A batch is divided among the buckets with little padding:

    text lengths, longest first         40 38 | 12 11 10 9 9
    buckets 1x16 4x16 1x64 4x64         4x64 holds 40 and 38; its two free slots take 12 and 11
                                        4x16 holds 10, 9 and 9
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vecmill.values.aliases import IntArray
from vecmill.values.batch import Batch

# A bucket with free slots is used if it has at most this many times the slots that are needed.
_MAX_OVERSIZE = 2


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """A compiled shape: `texts` texts of `length` tokens."""

    length: int
    texts: int


@dataclass(frozen=True, slots=True)
class BucketAssignment:
    """The texts that one call computes, by their indices in the batch, and the bucket of the call."""

    bucket: Bucket
    text_indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BucketGrid:
    """The buckets of all combinations of `lengths` and numbers of `texts`, both ascending."""

    lengths: tuple[int, ...]
    texts: tuple[int, ...]

    @classmethod
    def covering(
        cls, max_tokens: int, *, shortest: int = 32, texts: tuple[int, ...] = (1, 4, 16)
    ) -> "BucketGrid":
        """Return a grid whose lengths double from `shortest`; the last length is `max_tokens`."""
        lengths = [shortest]
        while lengths[-1] < max_tokens:
            lengths.append(lengths[-1] * 2)
        return cls((*(length for length in lengths if length < max_tokens), max_tokens), texts)

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """All buckets, the shortest first."""
        return tuple(Bucket(length, texts) for length in self.lengths for texts in self.texts)

    def length_for(self, tokens: int) -> int:
        """Return the shortest length that holds `tokens` tokens. Raises `ValueError` if there is none."""
        found = next((length for length in self.lengths if length >= tokens), None)
        if found is None:
            raise ValueError(
                f"a text of {tokens} tokens does not fit into buckets of at most {self.lengths[-1]} tokens"
            )
        return found

    def divide(self, lengths: Sequence[int]) -> Iterator[BucketAssignment]:
        """Divide texts with these `lengths`, in tokens, among buckets. Each text is assigned once."""
        waiting = sorted(range(len(lengths)), key=lambda index: -lengths[index])
        while waiting:
            length = self.length_for(lengths[waiting[0]])
            alike = sum(1 for index in waiting if self.length_for(lengths[index]) == length)
            bucket = Bucket(length, self._choose_texts(alike))
            # Slots that stay free go to the next shorter texts.
            taken, waiting = waiting[: bucket.texts], waiting[bucket.texts :]
            yield BucketAssignment(bucket, tuple(taken))

    def _choose_texts(self, count: int) -> int:
        """Return the smallest size that holds `count` texts with few free slots, or else the next smaller."""
        holding = next((texts for texts in self.texts if texts >= count), None)
        if holding is not None and holding <= _MAX_OVERSIZE * count:
            return holding
        return max((texts for texts in self.texts if texts <= count), default=self.texts[0])


def select_texts(batch: Batch, indices: Sequence[int]) -> Batch:
    """Return a batch of the texts of `batch` with these `indices`, in that order."""
    chosen = np.asarray(indices, np.int64)
    lengths = batch.lengths[chosen]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    tokens = np.arange(offsets[-1]) + np.repeat(batch.offsets[chosen] - offsets[:-1], lengths)
    return Batch(
        batch.token_ids[tokens],
        batch.token_type_ids[tokens],
        offsets,
        batch.prompt_lengths[chosen],
        batch.seen_lengths[chosen],
        batch.outputs,
    )


def pad_texts(batch: Batch, *, texts: int, length: int, pad_id: int) -> Mapping[str, IntArray]:
    """Return the inputs of a transformers model, each (texts, length), int64, padded on the right.

    The inputs are `input_ids`, `attention_mask`, `token_type_ids` and `position_ids`. Padding is the token
    `pad_id`. Slots that the batch does not fill hold texts of one padding token. The batch must fit.
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
        "input_ids": lay_out(batch.token_ids, pad_id),
        # A softmax over nothing would be NaN, so a text that is only padding attends to its first token.
        "attention_mask": (slots < seen_lengths[:, None]).astype(np.int64),
        "token_type_ids": lay_out(batch.token_type_ids, 0),
        "position_ids": np.broadcast_to(slots, (texts, length)).copy(),
    }
