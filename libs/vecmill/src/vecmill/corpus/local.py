"""Embedding in this process: a mill that refuses nothing, since the pipeline bounds what waits."""

import math
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from vecmill.config import InputConfig, MillConfig, QueueConfig
from vecmill.corpus.embedder import PROBE, Embedded, Treatment
from vecmill.errors import EngineError, InvalidConfig, RequestError
from vecmill.mill import Mill
from vecmill.models import describe_model, fingerprint_model, locate_model
from vecmill.reading import Reading
from vecmill.rows import quantize_rows
from vecmill.types import EmbedRequest, FloatArray, JsonValue

_NO_LIMIT = sys.maxsize

# Nobody waits for a single call, and on a slow machine one over a long text of a large model takes minutes.
HANG_S = 600.0


class LocalEmbedder:
    """A mill as an `Embedder`. Make it by `open_local`."""

    # A call is tokenised in one go, while the lanes work on others.
    call_texts = 64

    def __init__(self, mill: Mill, treatment: Treatment, ranges: FloatArray | None) -> None:
        self._mill = mill
        self._ranges = ranges
        self._treatment = treatment
        self._reading = Reading(treatment.prompt_name, purpose=treatment.purpose)
        description, info = mill.description, mill.info
        self.dtype = treatment.kind.dtype
        numbers = treatment.dimensions or description.dim
        self.dim = numbers // 8 if treatment.kind.needs_bytes else numbers
        self.identity: Mapping[str, JsonValue] = {
            "name": description.name,
            "fingerprint": fingerprint_model(description),
            "engine": info.name,
            "precision": info.precision,
        }

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """As `Embedder.embed`."""
        result = await self._mill.submit(
            EmbedRequest(tuple(texts), self._reading, self._treatment.dimensions, field="text")
        )
        return Embedded(quantize_rows(result.rows, self._treatment.kind, self._ranges), result.token_count)


@asynccontextmanager
async def open_local(
    model: str | None, config: MillConfig, treatment: Treatment, *, trusts_code: bool = False
) -> AsyncIterator[LocalEmbedder]:
    """Load `model`, the embedded one if `None`. Raises `SetupError`, also if it cannot do what is asked."""
    description = describe_model(locate_model(model, trusts_code=trusts_code))
    async with Mill(description, without_limits(config)) as mill:
        numbers = treatment.dimensions or description.dim
        if treatment.kind.needs_bytes and numbers % 8:
            raise InvalidConfig(
                f"Rows of {numbers} numbers do not fill whole bytes of bits. Ask for another --dtype, or for "
                "--dimensions that are a multiple of 8."
            )
        try:
            ranges = await mill.ranges(treatment.dimensions) if treatment.kind.needs_ranges else None
            embedder = LocalEmbedder(mill, treatment, ranges)
            await embedder.embed([PROBE])
        except (RequestError, EngineError) as error:
            raise InvalidConfig(error.message) from error
        yield embedder


def without_limits(config: MillConfig) -> MillConfig:
    """`config` for texts that nobody else waits behind, however long they are and wait."""
    return replace(
        config,
        hang_s=HANG_S,
        queue=QueueConfig(max_queue_tokens=_NO_LIMIT, max_queue_texts=_NO_LIMIT, timeout_s=math.inf),
        inputs=InputConfig(
            max_inputs=_NO_LIMIT,
            max_text_characters=_NO_LIMIT,
            max_request_characters=_NO_LIMIT,
            max_request_tokens=_NO_LIMIT,
        ),
    )
