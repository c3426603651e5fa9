"""The facade: texts in; rows, scores, labels out.

    async with Mill() as mill:
        rows = await mill.embed(["a text", "another"])

A mill loads one model and lets go of it; `intake` is the way of a request to the engine, and
`operations` make answers of what comes back.
"""

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from vecmill.batching.dispatcher import Backlog, Dispatcher
from vecmill.clock import Clock, monotonic
from vecmill.config import MillConfig
from vecmill.cores import CoreBudget, available_cores
from vecmill.engines import load_engine
from vecmill.engines.base import Engine
from vecmill.errors import NotReady, ShuttingDown
from vecmill.fidelity.proof import load_proven_engine
from vecmill.fidelity.selfcheck import check_engine
from vecmill.intake import Intake
from vecmill.models import ModelDescription, Task, describe_model, locate_model
from vecmill.observer import Observer, Rejection
from vecmill.operations.classify import classify
from vecmill.operations.embed import embed
from vecmill.operations.entities import classify_tokens
from vecmill.operations.late_chunking import embed_chunks
from vecmill.operations.multi_vector import embed_all
from vecmill.operations.ranges import Ranges
from vecmill.operations.rerank import rerank
from vecmill.operations.sparse import embed_sparse
from vecmill.operations.tokenize import detokenize, tokenize
from vecmill.pairs import PairTokenizer
from vecmill.reading import DEFAULT_READING, DEFAULT_TRUNCATION, Purpose, Reading, Truncation
from vecmill.tokens import Tokenizer
from vecmill.tuning.figures import Accuracy
from vecmill.tuning.serving import plan_model
from vecmill.types import (
    ClassifyResult,
    ClassifyTokensResult,
    CostModel,
    EmbedRequest,
    EmbedResult,
    EngineInfo,
    FloatArray,
    MultiVectorResult,
    RerankResult,
    SparseResult,
    TextOrPair,
    TokenizeResult,
)


class MillState(StrEnum):
    """Whether a mill takes work."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    DEGRADED = "degraded"  # a lane was lost: what is left goes on, and the process wants replacing
    CLOSED = "closed"


class Mill:
    """One model, ready for requests. Use from one event loop.

    `model` is a directory, a name, or a description read before; `None` means the embedded model.
    An `engine` given here is used instead of the configured one, and closed with the mill. Mills that share a
    `budget` share its cores.
    """

    def __init__(
        self,
        model: str | Path | ModelDescription | None = None,
        config: MillConfig | None = None,
        *,
        observer: Observer | None = None,
        engine: Engine | None = None,
        budget: CoreBudget | None = None,
        clock: Clock = monotonic,
    ) -> None:
        self.config = config or MillConfig()
        self._model = model
        self._observer = observer or Observer()
        self._given_engine = engine
        self._budget = budget or CoreBudget(self.config.cores or available_cores())
        self._clock = clock
        self._description = model if isinstance(model, ModelDescription) else None
        self._engine: Engine | None = None
        self._accuracy: Accuracy | None = None
        self._intake: Intake | None = None
        self._ranges: Ranges | None = None
        self._state = MillState.LOADING

    async def start(self) -> None:
        """Load the model. Raises `SetupError`."""
        if self._description is None:
            self._description = await asyncio.to_thread(self._describe)
        description = self._description
        (self._engine, cost), tokenizer = await asyncio.gather(
            asyncio.to_thread(self._load_engine, description),
            asyncio.to_thread(Tokenizer.load, description),
        )
        await asyncio.to_thread(check_engine, description, self._engine, tokenizer)
        reads_pairs = description.task in (Task.RERANK, Task.CLASSIFY)
        dispatcher = Dispatcher(
            self._engine,
            self.config.sized_for(self._engine.info),
            budget=self._budget,
            observer=self._observer,
            pace=1 / cost.per_token_s,
            clock=self._clock,
        )
        self._intake = Intake(
            description,
            tokenizer,
            dispatcher,
            self.config,
            pairs=PairTokenizer(tokenizer, description) if reads_pairs else None,
            observer=self._observer,
            clock=self._clock,
        )
        self._ranges = Ranges(self._intake)
        dispatcher.start()
        self._state = MillState.READY

    async def drain(self, timeout_s: float) -> bool:
        """Take nothing new and wait for what was accepted; say whether all of it was answered."""
        self._state = MillState.DRAINING
        if self._intake is None:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._intake.idle.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Answer what still waits with `ShuttingDown` and free everything. Twice is fine."""
        if self._state is MillState.CLOSED:
            return
        self._state = MillState.CLOSED
        if self._intake is not None:
            await self._intake.dispatcher.close()
            self._intake.close()
        if self._engine is not None:
            await asyncio.to_thread(self._engine.close)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def state(self) -> MillState:
        """Whether this mill takes work."""
        intake = self._intake
        if self._state is MillState.READY and intake is not None and intake.dispatcher.is_degraded:
            return MillState.DEGRADED
        return self._state

    @property
    def description(self) -> ModelDescription:
        """What the model directory says. Raises `NotReady` while it has not been read."""
        if self._description is None:
            raise _not_ready()
        return self._description

    @property
    def info(self) -> EngineInfo:
        """What the engine says of itself. Raises `NotReady` while it is loading."""
        if self._engine is None:
            raise _not_ready()
        return self._engine.info

    @property
    def accuracy(self) -> Accuracy | None:
        """How accurate `vecmill optimize` found what is served; `None` where it did not look."""
        return self._accuracy

    @property
    def backlog(self) -> Backlog:
        """What waits now."""
        return Backlog(0, 0, 0.0) if self._intake is None else self._intake.dispatcher.backlog

    async def embed(
        self,
        texts: str | Sequence[str],
        *,
        prompt_name: str | None = None,
        purpose: Purpose | None = None,
        dimensions: int | None = None,
        truncate: bool = True,
        timeout_s: float | None = None,
    ) -> FloatArray:
        """Embed `texts`: (texts, dim) float32; (1, dim) for a single string. Raises as `submit` does."""
        inputs = (texts,) if isinstance(texts, str) else tuple(texts)
        reading = Reading(prompt_name, purpose=purpose, truncation=Truncation(truncate))
        result = await self.submit(EmbedRequest(inputs, reading, dimensions, timeout_s=timeout_s))
        return result.rows

    async def submit(self, request: EmbedRequest) -> EmbedResult:
        """Embed one request, all of it or nothing.

        Raises `RequestError` if it can never work, `OverloadError` if it may later, `UnavailableError` if
        this process cannot, `EngineError` if the engine failed. Cancelling the wait cancels the work.
        """
        operation = embed_chunks if request.late_chunking else embed
        return await operation(self._accepting(), request)

    async def rerank(
        self,
        query: str | Sequence[str],
        documents: Sequence[str],
        *,
        raw_scores: bool = False,
        instruction: str | None = None,
        reading: Reading = DEFAULT_READING,
        timeout_s: float | None = None,
    ) -> RerankResult:
        """Score each document for the query: (documents,) float32, in input order.

        Several queries are one for each document. A cross-encoder scores by its own activation (by none with
        `raw_scores`), a multi-vector model by the best match of each token of the query, a sparse model by
        the dot product, an embedding model by the similarity that it is meant for.
        `instruction` tells a model that reads pairs as prose what is looked for; a prompt of `reading` is the
        query's. Raises as `submit` does.
        """
        return await rerank(
            self._accepting(),
            (query,) if isinstance(query, str) else query,
            documents,
            raw_scores=raw_scores,
            reading=reading,
            instruction=instruction,
            timeout_s=timeout_s,
        )

    async def classify(
        self,
        inputs: Sequence[TextOrPair],
        *,
        raw_scores: bool = False,
        reading: Reading = DEFAULT_READING,
        timeout_s: float | None = None,
        field: str = "input",
    ) -> ClassifyResult:
        """Score every label for each text or pair: (inputs, labels) float32, in input order.

        `raw_scores` leaves out the model's activation. Raises as `submit` does.
        """
        return await classify(
            self._accepting(),
            inputs,
            raw_scores=raw_scores,
            reading=reading,
            timeout_s=timeout_s,
            field=field,
        )

    async def classify_tokens(
        self,
        texts: Sequence[str],
        *,
        aggregate: bool = True,
        truncation: Truncation = DEFAULT_TRUNCATION,
        timeout_s: float | None = None,
        field: str = "input",
    ) -> ClassifyTokensResult:
        """Find the entities of each text, as a token-classification pipeline of transformers does.

        With `aggregate` as its strategy `simple`: neighbouring tokens of a kind are one entity. Without as
        `none`: each token is one. Raises as `submit` does.
        """
        return await classify_tokens(
            self._accepting(),
            texts,
            aggregate=aggregate,
            truncation=truncation,
            timeout_s=timeout_s,
            field=field,
        )

    async def embed_sparse(
        self,
        texts: Sequence[str],
        *,
        reading: Reading = DEFAULT_READING,
        timeout_s: float | None = None,
        field: str = "input",
    ) -> SparseResult:
        """Embed each text as weights over the vocabulary, without the zeros. Raises as `submit` does."""
        return await embed_sparse(
            self._accepting(),
            texts,
            reading=reading,
            timeout_s=timeout_s,
            field=field,
        )

    async def embed_all(
        self,
        texts: Sequence[str],
        *,
        reading: Reading = DEFAULT_READING,
        timeout_s: float | None = None,
        field: str = "input",
    ) -> MultiVectorResult:
        """Embed each token of each text, as a document unless told otherwise. Raises as `submit` does."""
        return await embed_all(self._accepting(), texts, reading=reading, timeout_s=timeout_s, field=field)

    async def ranges(self, dimensions: int | None = None, *, normalize: bool | None = None) -> FloatArray:
        """What `quantize_rows` needs for 8 bits: (2, dim), the same for every request.

        Found by embedding texts of our own, once. Raises as `submit` does.
        """
        self._accepting()
        assert self._ranges is not None
        return await self._ranges.find(dimensions, normalize=normalize)

    async def tokenize(
        self, texts: Sequence[str], *, special: bool = True, field: str = "input"
    ) -> TokenizeResult:
        """The tokens of each text, all of them; with the model's special ones if `special`.

        Raises `InvalidRequest`, `RequestTooLarge` or `UnavailableError`.
        """
        return await tokenize(self._accepting(), texts, special=special, field=field)

    async def detokenize(
        self, ids: Sequence[Sequence[int]], *, skip_special: bool = True, field: str = "tokens"
    ) -> tuple[str, ...]:
        """The text that each list of token ids spells. Raises as `tokenize` does."""
        return await detokenize(self._accepting(), ids, skip_special=skip_special, field=field)

    def _describe(self) -> ModelDescription:
        assert not isinstance(self._model, ModelDescription)
        return describe_model(locate_model(self._model))

    def _load_engine(self, description: ModelDescription) -> tuple[Engine, CostModel]:
        engine = self._given_engine
        if engine is None:
            served = plan_model(description, self.config)
            self._accuracy = served.accuracy
            cores = self._budget.total
            # What was measured when it was optimised was asked for then.
            load = load_proven_engine if served.accuracy is None else load_engine
            engine = load(description, served.plan, cores=cores, cache_dir=served.cache_dir)
        return engine, engine.warm_up()

    def _accepting(self) -> Intake:
        if self._intake is None:
            self._observer.rejected(Rejection.NOT_READY)
            raise _not_ready()
        if self._state in (MillState.DRAINING, MillState.CLOSED):
            self._observer.rejected(Rejection.SHUTTING_DOWN)
            raise ShuttingDown("This server is shutting down. Another one may answer.")
        return self._intake


def _not_ready() -> NotReady:
    return NotReady("The model is still loading. Try again in a moment.")
