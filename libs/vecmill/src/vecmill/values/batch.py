"""Token sequences, and the ragged batches of token sequences that engines compute."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Self, TypeVar

import numpy as np

from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.cuts import TextCut
from vecmill.values.embeddings import HEAD_OUTPUTS, Embedding, Output, OutputShape
from vecmill.values.side_names import SideName

T = TypeVar("T")

# Makes something smaller of the output for a text, (tokens, dim).
Reduce = Callable[[FloatArray], FloatArray]

LEAST_SHARED = 8
"""The tokens of the shortest shared prefix that is worth to be known."""
_SHAPES = {
    Output.HIDDEN_STATES: OutputShape.TOKEN,
    Output.TOKEN_WEIGHTS: OutputShape.REST,
    Output.TOKEN_VECTORS: OutputShape.REST,
}


# The token types of most texts, which share the memory: a view takes a seventh of the time of an array.
_NO_TYPES: IntArray = np.zeros(512, np.int64)
_NO_TYPES.flags.writeable = False


# Nothing changes a sequence or a batch, but neither is frozen: both are made in a third of the time.
@dataclass(slots=True)
class TokenSequence:
    """The tokens of one text or pair, special tokens included. `tokenization` makes them.

    `token_ids` and `token_type_ids` are (n,) int64. The tokens of a picture are its patches: (n, values)
    uint8. The token types of a text for a model with adapters are the number of the text's adapter, or 0.
    The first `prompt_length` tokens are a prompt, which some models leave out of pooling. Two sequences have
    equal `key`s if and only if an engine computes the same output for both. No token attends to the last
    `unseen` tokens, but these tokens attend to all other tokens. `outputs` are the outputs that it asks for:
    one, or the usual output and others. `cuts` are what truncation dropped of the text or pair, or of the
    texts that were joined to it. All sequences of the request for which `shared` is not 0 begin with the same
    `shared` tokens, which a causal model computes once a call (`values.positions`). `side` is the side of the
    model to which the text or picture belongs, which has an engine of its own. `reduce` is applied to its
    only output as soon as that is computed, so that nobody keeps the whole. A text that `is_empty` has no
    tokens; a token of the model stands in for it.
    """

    token_ids: IntArray
    token_type_ids: IntArray
    prompt_length: int
    key: bytes
    unseen: int = 0
    outputs: tuple[Output, ...] = (Output.USUAL,)
    cuts: tuple[TextCut, ...] = ()
    shared: int = 0
    side: SideName = SideName.DOCUMENTS
    reduce: Reduce | None = field(default=None, compare=False, repr=False)
    is_empty: bool = False

    @classmethod
    def of(
        cls,
        token_ids: Sequence[int],
        token_type_ids: Sequence[int] | None = None,
        *,
        prompt_length: int = 0,
        unseen: int = 0,
        cuts: tuple[TextCut, ...] = (),
    ) -> Self:
        """Make a sequence from lists of ids; token types are 0 by default."""
        ids = np.asarray(token_ids, dtype=np.int64)
        has_types = token_type_ids is not None and any(token_type_ids)
        if has_types:
            types = np.asarray(token_type_ids, np.int64)
        else:  # not `zeros`, which gives up the interpreter lock to allocate a kilobyte or more
            types = _NO_TYPES[: len(ids)] if len(ids) <= len(_NO_TYPES) else np.zeros_like(ids)
        key = b"%d:%d:%d:" % (prompt_length, unseen, len(ids)) + ids.tobytes()
        key += types.tobytes() if has_types else b""
        return cls(ids, types, prompt_length, key, unseen, cuts=cuts)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def text_tokens(self) -> int:
        """The number of tokens of the text or pair, which is 0 if another token stands in for it."""
        return 0 if self.is_empty else len(self.token_ids)

    @property
    def is_truncated(self) -> bool:
        """Whether a part of the text or pair was cut off."""
        return bool(self.cuts)

    def asking(self, *outputs: Output) -> Self:
        """Return the sequence that asks for `outputs`, at least one; if for several, the usual one is one."""
        asked = {*outputs, Output.USUAL} if len(outputs) > 1 else {*outputs}
        ordered = tuple(output for output in Output if output in asked)
        prefix = b"" if ordered == (Output.USUAL,) else "+".join(ordered).encode() + b":"
        return replace(self, key=prefix + self.key, outputs=ordered)

    def reduced(self, reduce: Reduce, name: bytes) -> Self:
        """Return the sequence whose output is reduced. Equal names mean equal reductions."""
        return replace(self, key=b"reduced:%d:%b:" % (len(name), name) + self.key, reduce=reduce)

    def finish(self, output: Embedding) -> Embedding:
        """Return the computed output of a sequence that asks for it to be reduced."""
        assert self.reduce is not None
        assert isinstance(output, np.ndarray), "not one output for each token"
        return self.reduce(output)


# To count the tokens of many sequences by `map`, which takes half of the time of a comprehension.
ids_of: Callable[[TokenSequence], IntArray] = attrgetter("token_ids")


@dataclass(slots=True)
class Batch:
    """The token sequences of one engine call, end to end, without padding.

    Text `i` owns positions `offsets[i]:offsets[i + 1]` of `token_ids` and `token_type_ids` (both (tokens,),
    int64; the `token_ids` of pictures are (tokens, values), uint8); `offsets` is (texts + 1,), int64;
    `prompt_lengths` and `seen_lengths` are (texts,), int64. Tokens attend only to the first `seen_lengths`
    tokens of their text. The fields have the same names as the inputs of prepared graphs, except `outputs`,
    which are those of all sequences.
    """

    token_ids: IntArray
    token_type_ids: IntArray
    offsets: IntArray
    prompt_lengths: IntArray
    seen_lengths: IntArray
    outputs: tuple[Output, ...] = (Output.USUAL,)

    @classmethod
    def of(cls, sequences: Sequence[TokenSequence]) -> Self:
        """Concatenate sequences, at least one, which must have the same `outputs`."""
        if len(sequences) == 1:  # most calls of a server that one client uses
            return cls._of_one(sequences[0])
        end, token_ids, token_types = 0, [], []
        offsets, prompt_lengths, seen_lengths = [0], [], []
        for sequence in sequences:
            length = len(sequence.token_ids)
            end += length
            offsets.append(end)
            token_ids.append(sequence.token_ids)
            token_types.append(sequence.token_type_ids)
            prompt_lengths.append(sequence.prompt_length)
            seen_lengths.append(length - sequence.unseen)
        return cls(
            token_ids=np.concatenate(token_ids),
            token_type_ids=np.concatenate(token_types),
            offsets=np.array(offsets, np.int64),
            prompt_lengths=np.array(prompt_lengths, np.int64),
            seen_lengths=np.array(seen_lengths, np.int64),
            outputs=sequences[0].outputs,
        )

    @classmethod
    def _of_one(cls, sequence: TokenSequence) -> Self:
        length = len(sequence.token_ids)
        return cls(
            sequence.token_ids,
            sequence.token_type_ids,
            np.array((0, length), np.int64),
            np.array((sequence.prompt_length,), np.int64),
            np.array((length - sequence.unseen,), np.int64),
            sequence.outputs,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def patches(self) -> IntArray:
        """The patches of pictures, (tokens, values) uint8, which are their tokens."""
        return self.token_ids

    @property
    def lengths(self) -> IntArray:
        """The number of tokens of each text, (texts,) int64."""
        return self.offsets[1:] - self.offsets[:-1]  # a fifth of the time of `np.diff`

    @property
    def wants_tokens(self) -> IntArray:
        """1 if the batch asks for an output of its tokens, else 0: (), int64."""
        return np.array(self.outputs != (Output.USUAL,), np.int64)

    @property
    def head_tokens(self) -> IntArray:
        """The positions that the heads of `models.heads.TokenHeads` compute: (n,) int64.

        All but the first position of each text, or none if the batch asks for no output of the heads.
        """
        if not any(output in HEAD_OUTPUTS for output in self.outputs):
            return np.zeros(0, np.int64)
        return np.delete(np.arange(len(self.token_ids)), self.offsets[:-1])

    def output_shapes(self, usual: OutputShape) -> tuple[OutputShape, ...]:
        """Return the shape of each output, of an engine whose usual outputs have the shape `usual`."""
        if self.outputs == (Output.USUAL,):
            return (usual,)
        return tuple(usual if output is Output.USUAL else _SHAPES[output] for output in self.outputs)

    def row_counts(self, shape: OutputShape) -> IntArray:
        """Return the number of rows of each text in an output of this `shape`, which is not sparse."""
        match shape:
            case OutputShape.TOKEN:
                return self.lengths
            case OutputShape.REST:
                return self.lengths - 1
        return np.ones(len(self), np.int64)


def compute_in_groups(
    groups: Iterable[Sequence[int]], compute: Callable[[Sequence[int]], Iterable[T]]
) -> list[T]:
    """Compute texts in groups, and return the results in the order of the texts.

    Each group lists the indices of its texts; together they list every text once. `compute` returns a result
    for each text of a group.
    """
    found: dict[int, T] = {}
    for group in groups:
        found |= zip(group, compute(group), strict=True)
    return [found[index] for index in range(len(found))]


def mark_shared(sequences: Sequence[TokenSequence], *, longest: int) -> list[TokenSequence]:
    """Return the sequences of a request, marked with the number of tokens with which all of them begin.

    Those of more than `longest` tokens, which are computed alone, are neither compared nor marked. Each of
    the others keeps a token of its own. A prefix of less than `LEAST_SHARED` tokens is not marked.
    """
    together = [sequence for sequence in sequences if len(sequence) <= longest]
    shared = _count_shared(together) if len(together) > 1 else 0
    if shared < LEAST_SHARED:
        return list(sequences)
    return [
        replace(sequence, shared=shared) if len(sequence) <= longest else sequence for sequence in sequences
    ]


def _count_shared(sequences: Sequence[TokenSequence]) -> int:
    first, shared = sequences[0].token_ids, min(map(len, sequences)) - 1
    for sequence in sequences[1:]:
        if shared < LEAST_SHARED:
            break
        differs = sequence.token_ids[:shared] != first[:shared]
        shared = int(differs.argmax()) if differs.any() else shared
    return shared
