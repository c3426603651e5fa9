"""The ranges by which embeddings are quantised to int8 and uint8, measured on sample texts.

If the ranges were measured on the embeddings of each request, the same text would get different vectors in
different requests, and these vectors could not be compared. So the ranges are measured once per model: sample
texts are embedded when the first client requests int8 or uint8.
"""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np

from vecmill.config import InputConfig
from vecmill.requests import Embed, TextOptions, Truncation
from vecmill.results import EmbedResult
from vecmill.values.aliases import FloatArray
from vecmill.values.sample_texts import sample_texts

# More texts hardly widen the ranges.
SAMPLE_TEXTS = 400
# A request of this many texts is of bulk priority, behind small requests.
SAMPLE_REQUEST_TEXTS = 32

EmbedTexts = Callable[[Embed], Awaitable[EmbedResult]]


class SampleEmbeddings:
    """The embeddings of the sample texts of one loaded model. Use from one event loop."""

    def __init__(self, limits: InputConfig) -> None:
        self._limits = limits
        self._tasks: dict[bool, asyncio.Task[FloatArray]] = {}

    async def get(self, embed: EmbedTexts, *, is_raw: bool) -> FloatArray:
        """Return the embeddings, (texts, dim); `is_raw`: those before the model's own normalisation.

        `embed` computes them at the first call, and again after a failure.
        """
        task = self._tasks.get(is_raw)
        if task is None or _has_failed(task):
            task = self._tasks[is_raw] = asyncio.create_task(self._embed_sample(embed, is_raw))
        # The client that came first may leave; the others still wait.
        return await asyncio.shield(task)

    async def _embed_sample(self, embed: EmbedTexts, is_raw: bool) -> FloatArray:
        """Embed the sample in several requests, in sequence, so that other requests run in between."""
        limits = self._limits
        size = min(SAMPLE_REQUEST_TEXTS, limits.max_inputs)
        longest = min(limits.max_text_characters, max(1, limits.max_request_characters // size))
        texts = [text[:longest] for text in sample_texts(SAMPLE_TEXTS) if text]
        options = TextOptions(truncation=Truncation(max_tokens=max(1, limits.max_request_tokens // size)))
        parts = [tuple(texts[start : start + size]) for start in range(0, len(texts), size)]
        normalize = False if is_raw else None
        results = [await embed(Embed(part, normalize=normalize, options=options)) for part in parts]
        return np.concatenate([result.embeddings for result in results])


def _has_failed(task: "asyncio.Task[FloatArray]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
