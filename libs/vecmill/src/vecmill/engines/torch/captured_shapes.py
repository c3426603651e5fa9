"""The shapes of calls that are captured on an accelerator, so that a small call is one launch.

A kernel of a small call takes less time than Python takes to launch it. So calls of frequent shapes are
captured, and replayed as a whole. A batch is padded to the smallest captured shape that holds it, if that is
not much larger; any other batch is launched kernel by kernel.

Shapes are captured after the model is ready, between calls, the largest first, whose memory the smaller ones
then use too. Capturing ends when all are captured, when they hold more memory than they may, when the device
has no memory left, or at any other error. What was captured until then stays in use.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from vecmill.engines.torch.replica import Program
from vecmill.values.positions import BatchShape

logger = logging.getLogger(__name__)

# Accelerators read 16 bytes at once, so lengths that are not multiples of 8 are slower than padding.
LENGTH_MULTIPLE = 8
MOST_TOKENS = 4_096
MOST_BYTES = 2**30
_TEXTS = (1, 2, 4, 8, 16, 32)
_LENGTHS = (16, 32, 64, 128, 256, 512)
# A batch takes a shape of at most so many times its tokens, or of so many tokens.
_MOST_OVERSIZE, _ALWAYS_TOKENS = 2, 64
# Calls for outputs of token heads are not captured. No size of a call is 0 (`ShapeRounding`).
_HEADS = 1

Capture = Callable[[BatchShape], Program]


def list_shapes(max_tokens: int, *, is_packed: bool) -> tuple[BatchShape, ...]:
    """Return the shapes to capture for a model that reads `max_tokens` tokens, the largest first.

    With `is_packed` attention has no padding: texts of unlike lengths have shapes of half as many tokens.
    """
    return tuple(sorted(set(_draw_shapes(max_tokens, is_packed=is_packed)), key=_size, reverse=True))


def _draw_shapes(max_tokens: int, *, is_packed: bool) -> Iterator[BatchShape]:
    for texts in _TEXTS:
        last = min(-(-max_tokens // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, _LENGTHS[-1])
        for length in (*(each for each in _LENGTHS if each < last), last):
            for tokens in (texts * length, texts * length // 2)[: 1 + (is_packed and texts > 1)]:
                if tokens <= MOST_TOKENS:
                    yield BatchShape(tokens, texts, length, texts, length, _HEADS)


def _size(shape: BatchShape) -> tuple[int, int]:
    return shape.positions, shape.texts * shape.longest


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """A captured program and the shape of its inputs."""

    shape: BatchShape
    program: Program


class CapturedShapes:
    """The captured calls of one device, and the shapes that wait to be captured.

    `capture` captures a shape, and `captured_bytes` tells the memory of the device that captured calls hold,
    which may be `most_bytes`.
    """

    def __init__(
        self,
        shapes: tuple[BatchShape, ...],
        capture: Capture,
        captured_bytes: Callable[[], int],
        *,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._waiting = list(reversed(shapes))
        self._capture = capture
        self._captured_bytes = captured_bytes
        self._most_bytes = most_bytes
        self._calls: tuple[CapturedCall, ...] = ()  # the smallest first; replaced, never changed

    def find(self, needed: BatchShape) -> CapturedCall | None:
        """Return the smallest captured call that holds a batch of the shape `needed`, if it fits well."""
        most = max(_MOST_OVERSIZE * needed.positions, _ALWAYS_TOKENS)
        for call in self._calls:
            if call.shape.positions > most:
                return None
            if call.shape.holds(needed):
                return call
        return None

    def capture_next(self) -> bool:
        """Capture the next shape. Return whether there may be more; an error ends all captures."""
        if not self._waiting:
            return False
        shape = self._waiting.pop()
        try:
            program = self._capture(shape)
        except torch.OutOfMemoryError:
            return self._end("the device has no memory left")
        except Exception as error:
            return self._end(f"{type(error).__name__}: {error}")
        if self._captured_bytes() > self._most_bytes:
            return self._end(f"they hold more than {self._most_bytes / 2**20:.0f} MiB")
        self._calls = tuple(
            sorted((*self._calls, CapturedCall(shape, program)), key=lambda one: _size(one.shape))
        )
        return bool(self._waiting)

    def _end(self, reason: str) -> bool:
        left = len(self._waiting) + 1
        logger.warning("%d shapes of calls are not captured: %s.", left, reason)
        self._waiting.clear()
        return False
