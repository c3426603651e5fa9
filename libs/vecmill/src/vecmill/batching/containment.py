"""Engine calls that contain failures: only the texts that cause a failure get an error.

If a call raises, its batch is split in two and each half is tried again, until the failing texts are found.
One failing text among n takes at most 2 * ceil(log2(n)) extra calls. A batch in which every text fails takes
2n - 2 extra calls. A text whose embedding is not finite fails without affecting the others.

A call that runs out of memory sets a limit for all lanes, so that the next batches do not fail first: a batch
that is larger is split before its call. The limit halves with each such failure, and grows slowly with calls
that use it up. Without such a failure there is no limit.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vecmill.errors import DeviceLost, InferenceFailed, LaneLost, NonFiniteOutput, VecmillError
from vecmill.values.batch import Batch, TokenSequence, ids_of
from vecmill.values.embeddings import Embedding, Embeddings

Outcome = Embedding | VecmillError
Run = Callable[[Batch], Embeddings]

logger = logging.getLogger(__name__)

# The growth at each call that uses the limit up. It doubles the limit in about 70 calls.
GROWTH = 1.01

# Parts of messages of ONNX Runtime, OpenVINO and device drivers.
_MESSAGES = ("bad_alloc", "failed to allocate", "out of memory", "can't allocate memory", "cannot allocate")


class MemoryLimit:
    """The limit of all lanes of an engine; see the module docstring. Used by all threads."""

    def __init__(self) -> None:
        self.tokens = math.inf
        self._lock = threading.Lock()

    def allows(self, tokens: int, texts: int) -> bool:
        """Return whether a call of this size may be tried. A call with one text always may."""
        return texts == 1 or tokens <= self.tokens

    def halve(self, tokens: int) -> None:
        """Allow half of `tokens`, the size of a call that ran out of memory, unless the limit is lower."""
        with self._lock:
            self.tokens = max(1.0, min(self.tokens, tokens / 2))

    def grow(self, tokens: int) -> None:
        """Raise the limit a little if a call of `tokens`, near the limit, had enough memory."""
        if tokens > self.tokens / 2:
            with self._lock:
                self.tokens *= GROWTH


@dataclass(slots=True)
class Outcomes:
    """The outcome of each text, in order, and the number of positions that the engine computed."""

    outcomes: list[Outcome]
    computed_tokens: int


def run_contained(run: Run, sequences: Sequence[TokenSequence], memory: MemoryLimit) -> Outcomes:
    """Run `sequences` as one batch. If the call fails, find the sequences that cause the failure.

    `memory` is the size that a call may have, and learns from the calls.

    Whatever a call raises, `SystemExit` too, becomes the outcome of the sequences that cause it, except
    `DeviceLost`, which ends the lane, and `LaneLost`, which `run` raises if the lane was given up.
    """
    tokens = sum(map(len, map(ids_of, sequences)))
    if len(sequences) > 1:
        if len({sequence.outputs for sequence in sequences}) > 1:
            return _run_kinds(run, sequences, memory)
        if not memory.allows(tokens, len(sequences)):
            return _run_halves(run, sequences, memory)
    try:
        rows = run(Batch.of(sequences))
        if len(rows) != len(sequences):
            raise InferenceFailed(f"The engine returned {len(rows)} rows for {len(sequences)} texts.")
        outcomes = _check_rows(rows, sequences)
    except (DeviceLost, LaneLost):
        raise
    except BaseException as error:
        if is_out_of_memory(error):
            memory.halve(tokens)
            logger.warning("Memory ran out on %d tokens. The next calls have %d.", tokens, memory.tokens)
        return _split(run, sequences, memory, error)
    memory.grow(tokens)
    return Outcomes(outcomes, rows.computed_tokens)


def _run_kinds(run: Run, sequences: Sequence[TokenSequence], memory: MemoryLimit) -> Outcomes:
    """Run the sequences apart that ask for different outputs."""
    outcomes: dict[int, Outcome] = {}
    computed_tokens = 0
    for outputs in dict.fromkeys(one.outputs for one in sequences):
        places = [place for place, one in enumerate(sequences) if one.outputs == outputs]
        part = run_contained(run, [sequences[place] for place in places], memory)
        outcomes |= zip(places, part.outcomes, strict=True)
        computed_tokens += part.computed_tokens
    return Outcomes([outcomes[place] for place in range(len(sequences))], computed_tokens)


def _split(
    run: Run, sequences: Sequence[TokenSequence], memory: MemoryLimit, error: BaseException
) -> Outcomes:
    if len(sequences) == 1:
        logger.error("inference failed for one text of %d tokens: %s", len(sequences[0]), error)
        return Outcomes([_as_ours(error)], 0)
    logger.warning("a batch of %d texts failed and is split: %s", len(sequences), error)
    return _run_halves(run, sequences, memory)


def _run_halves(run: Run, sequences: Sequence[TokenSequence], memory: MemoryLimit) -> Outcomes:
    middle = len(sequences) // 2
    parts = [run_contained(run, part, memory) for part in (sequences[:middle], sequences[middle:])]
    return Outcomes(
        [outcome for part in parts for outcome in part.outcomes], sum(part.computed_tokens for part in parts)
    )


def _as_ours(error: BaseException) -> VecmillError:
    if isinstance(error, VecmillError):
        return error
    return InferenceFailed("The engine failed for this text. The log says more.")


def _check_rows(rows: Embeddings, sequences: Sequence[TokenSequence]) -> list[Outcome]:
    parts: list[Outcome] = []
    for sequence, output in zip(sequences, rows.split(), strict=True):
        parts.append(output if sequence.reduce is None else sequence.finish(output))
    if rows.is_finite():
        return parts
    pairs = zip(parts, rows.are_finite(), strict=True)
    return [part if is_finite else _not_finite() for part, is_finite in pairs]


def _not_finite() -> NonFiniteOutput:
    return NonFiniteOutput("The model computed a row that is not finite for this text.")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error`, or an error that caused it, says that there was not enough memory."""
    return any(
        isinstance(one, MemoryError) or any(part in str(one).lower() for part in _MESSAGES)
        for one in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__
