"""The synchronous face, for notebooks and scripts.

    with SyncMill() as mill:
        rows = mill.embed(["a text", "another"])

An event loop of its own runs in a thread of its own, so that it works where a loop runs already
(as in a notebook) and may be called from any thread.
"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from vecmill.config import MillConfig
from vecmill.mill import Mill
from vecmill.models import ModelDescription
from vecmill.reading import DEFAULT_READING, Purpose, Reading
from vecmill.types import (
    ClassifyResult,
    ClassifyTokensResult,
    EngineInfo,
    FloatArray,
    MultiVectorResult,
    RerankResult,
    SparseResult,
    TextOrPair,
)

T = TypeVar("T")


class SyncMill:
    """A `Mill` whose methods wait. It loads when it is made; `close` it, or use `with`."""

    def __init__(
        self, model: str | Path | ModelDescription | None = None, config: MillConfig | None = None
    ) -> None:
        """Load the model. Raises `SetupError`."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vecmill-loop", daemon=True)
        self._thread.start()
        self._mill = Mill(model, config)
        try:
            self._wait(self._mill.start())
        except BaseException:
            self.close()
            raise

    @property
    def info(self) -> EngineInfo:
        """What the engine says of itself."""
        return self._mill.info

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        prompt_name: str | None = None,
        purpose: Purpose | None = None,
        dimensions: int | None = None,
        truncate: bool = True,
    ) -> FloatArray:
        """As `Mill.embed`: (texts, dim) float32."""
        return self._wait(
            self._mill.embed(
                texts, prompt_name=prompt_name, purpose=purpose, dimensions=dimensions, truncate=truncate
            )
        )

    def rerank(
        self,
        query: str | Sequence[str],
        documents: Sequence[str],
        *,
        raw_scores: bool = False,
        instruction: str | None = None,
        reading: Reading = DEFAULT_READING,
    ) -> RerankResult:
        """As `Mill.rerank`."""
        return self._wait(
            self._mill.rerank(
                query, documents, raw_scores=raw_scores, instruction=instruction, reading=reading
            )
        )

    def classify(self, inputs: Sequence[TextOrPair], *, raw_scores: bool = False) -> ClassifyResult:
        """As `Mill.classify`."""
        return self._wait(self._mill.classify(inputs, raw_scores=raw_scores))

    def classify_tokens(self, texts: Sequence[str], *, aggregate: bool = True) -> ClassifyTokensResult:
        """As `Mill.classify_tokens`."""
        return self._wait(self._mill.classify_tokens(texts, aggregate=aggregate))

    def embed_sparse(self, texts: Sequence[str], *, reading: Reading = DEFAULT_READING) -> SparseResult:
        """As `Mill.embed_sparse`."""
        return self._wait(self._mill.embed_sparse(texts, reading=reading))

    def embed_all(self, texts: Sequence[str], *, reading: Reading = DEFAULT_READING) -> MultiVectorResult:
        """As `Mill.embed_all`."""
        return self._wait(self._mill.embed_all(texts, reading=reading))

    def close(self) -> None:
        """Free everything. Twice is fine."""
        if self._loop.is_closed():
            return
        self._wait(self._mill.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
