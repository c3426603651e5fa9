"""The facade: texts in, rows out.

    async with Mill() as mill:
        rows = await mill.embed(["a text", "another"])

`submit` is the whole way of a request: check its limits, refuse early if the queue is full,
tokenise, admit, wait, put the rows together. `embed` and `rerank` are short forms of it.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from vecmill.batching.dispatcher import Backlog, Dispatcher
from vecmill.batching.ticket import Request, Share
from vecmill.clock import Clock, monotonic
from vecmill.config import MillConfig, default_cache_dir
from vecmill.cores import CoreBudget, available_cores
from vecmill.engines import load_engine
from vecmill.engines.base import Engine
from vecmill.errors import (
    InvalidRequest,
    NotReady,
    QueueFull,
    RequestTooLarge,
    ShuttingDown,
    UnknownPrompt,
)
from vecmill.fidelity.selfcheck import check_engine
from vecmill.models import ModelDescription, describe_model, locate_model
from vecmill.observer import Observer, Rejection
from vecmill.rows import cosine_scores, cut_rows, stack_rows
from vecmill.tokens import Tokenizer
from vecmill.types import (
    CostModel,
    EmbedRequest,
    EmbedResult,
    EngineInfo,
    FloatArray,
    RerankResult,
    Timings,
    TokenSequence,
)

# Handing a text to another thread costs about as much as tokenising this many characters.
INLINE_CHARACTERS = 1_024


class MillState(StrEnum):
    """Whether a mill takes work."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    DEGRADED = "degraded"  # a lane was lost: what is left goes on, and the process wants replacing
    CLOSED = "closed"


class Mill:
    """One model, ready to embed. Use from one event loop.

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
        self._description: ModelDescription | None = None
        self._engine: Engine | None = None
        self._tokenizer: Tokenizer | None = None
        self._dispatcher: Dispatcher | None = None
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="vecmill-tokenize")
        self._tokenizing_characters = 0
        self._open_requests = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._state = MillState.LOADING

    async def start(self) -> None:
        """Load the model. Raises `SetupError`."""
        self._description = await asyncio.to_thread(self._describe)
        (self._engine, cost), tokenizer = await asyncio.gather(
            asyncio.to_thread(self._load_engine, self._description),
            asyncio.to_thread(Tokenizer.load, self._description),
        )
        await asyncio.to_thread(check_engine, self._description, self._engine, tokenizer)
        self._tokenizer = tokenizer
        self._dispatcher = Dispatcher(
            self._engine,
            self.config,
            budget=self._budget,
            observer=self._observer,
            pace=1 / cost.per_token_s,
            clock=self._clock,
        )
        self._dispatcher.start()
        self._state = MillState.READY

    async def drain(self, timeout_s: float) -> bool:
        """Take nothing new and wait for what was accepted; say whether all of it was answered."""
        self._state = MillState.DRAINING
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Answer what still waits with `ShuttingDown` and free everything. Twice is fine."""
        if self._state is MillState.CLOSED:
            return
        self._state = MillState.CLOSED
        if self._dispatcher is not None:
            await self._dispatcher.close()
        self._tokenizing.shutdown(wait=False, cancel_futures=True)
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
        if self._state is MillState.READY and self._running.is_degraded:
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
    def backlog(self) -> Backlog:
        """What waits now."""
        return Backlog(0, 0, 0.0) if self._dispatcher is None else self._dispatcher.backlog

    async def embed(
        self,
        texts: str | Sequence[str],
        *,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        truncate: bool = True,
        timeout_s: float | None = None,
    ) -> FloatArray:
        """Embed `texts`: (texts, dim) float32; (1, dim) for a single string. Raises as `submit` does."""
        inputs = (texts,) if isinstance(texts, str) else tuple(texts)
        result = await self.submit(EmbedRequest(inputs, prompt_name, dimensions, truncate, timeout_s))
        return result.rows

    async def submit(self, request: EmbedRequest) -> EmbedResult:
        """Embed one request, all of it or nothing.

        Raises `RequestError` if it can never work, `OverloadError` if it may later, `UnavailableError` if
        this process cannot, `EngineError` if the engine failed. Cancelling the wait cancels the work.
        """
        return await self._submit(request)

    async def _submit(self, request: EmbedRequest, *, extra_inputs: int = 0) -> EmbedResult:
        dispatcher = self._accepting()
        began = self._clock()
        self._check_size(request, extra_inputs)
        dispatcher.refuse_if_full()
        self._enter()
        try:
            sequences = await self._tokenize(request)
            tokenized = self._clock()
            answer = await self._dispatch(dispatcher, request, sequences)
        finally:
            self._leave()
        rows = self._finish_rows(request, answer)
        return EmbedResult(
            rows, tuple(map(len, sequences)), _timings(answer, began, tokenized, self._clock())
        )

    async def rerank(
        self, query: str, documents: Sequence[str], *, timeout_s: float | None = None
    ) -> RerankResult:
        """Score each document by its cosine with the query: (documents,) float32, in input order.

        Raises as `submit` does.
        """
        if not documents:
            raise InvalidRequest("`documents` is empty; give at least one.", field="documents")
        # The query goes last, so that what errors call `documents[3]` is just that.
        request = EmbedRequest((*documents, query), timeout_s=timeout_s, field="documents")
        result = await self._submit(request, extra_inputs=1)
        scores = cosine_scores(result.rows[-1], result.rows[:-1])
        return RerankResult(scores, result.token_count, result.timings)

    # Loading.

    def _describe(self) -> ModelDescription:
        if isinstance(self._model, ModelDescription):
            return self._model
        return describe_model(locate_model(self._model))

    def _load_engine(self, description: ModelDescription) -> tuple[Engine, CostModel]:
        engine = self._given_engine
        if engine is None:
            cache_dir = self.config.cache_dir or default_cache_dir()
            engine = load_engine(
                self.config.engine, description, cores=self._budget.total, cache_dir=cache_dir
            )
        return engine, engine.warm_up()

    # One request.

    @property
    def _running(self) -> Dispatcher:
        assert self._dispatcher is not None
        return self._dispatcher

    def _accepting(self) -> Dispatcher:
        if self._dispatcher is None:
            self._observer.rejected(Rejection.NOT_READY)
            raise _not_ready()
        if self._state in (MillState.DRAINING, MillState.CLOSED):
            self._observer.rejected(Rejection.SHUTTING_DOWN)
            raise ShuttingDown("This server is shutting down. Another one may answer.")
        return self._dispatcher

    def _enter(self) -> None:
        self._open_requests += 1
        self._idle.clear()

    def _leave(self) -> None:
        self._open_requests -= 1
        if not self._open_requests:
            self._idle.set()

    def _check_size(self, request: EmbedRequest, extra_inputs: int) -> None:
        limits, field = self.config.inputs, request.field
        if not request.inputs:
            raise InvalidRequest(f"`{field}` is empty; give at least one text.", field=field)
        count = len(request.inputs) - extra_inputs
        if count > limits.max_inputs:
            raise InvalidRequest(
                f"`{field}` has {count} items; at most {limits.max_inputs} are accepted. Send it in parts.",
                field=field,
            )
        sizes = [len(item) for item in request.inputs]
        if max(sizes) > limits.max_text_characters:
            index = sizes.index(max(sizes))
            raise InvalidRequest(
                f"`{field}[{index}]` has {sizes[index]} characters; at most {limits.max_text_characters} "
                "are accepted.",
                field=field,
            )
        if sum(sizes) > limits.max_request_characters:
            raise RequestTooLarge(
                f"`{field}` has {sum(sizes)} characters in all; at most {limits.max_request_characters} are "
                "accepted. Send it in parts.",
                field=field,
            )
        dim = self.description.dim
        if request.dimensions is not None and not 1 <= request.dimensions <= dim:
            raise InvalidRequest(
                f"`dimensions` is {request.dimensions}; this model's rows can be cut to 1 to {dim}.",
                field="dimensions",
            )

    async def _tokenize(self, request: EmbedRequest) -> list[TokenSequence]:
        prompt = self._prompt(request.prompt_name)
        characters = sum(map(len, request.inputs))
        if characters <= INLINE_CHARACTERS:
            sequences = self._encode(request, prompt)
        else:
            sequences = await self._encode_in_thread(request, prompt, characters)
        tokens = sum(map(len, sequences))
        if tokens > self.config.inputs.max_request_tokens:
            raise RequestTooLarge(
                f"`{request.field}` has {tokens} tokens in all; at most "
                f"{self.config.inputs.max_request_tokens} are accepted. Send it in parts.",
                field=request.field,
            )
        return sequences

    async def _encode_in_thread(
        self, request: EmbedRequest, prompt: str, characters: int
    ) -> list[TokenSequence]:
        # What is being tokenised waits too, before the queue sees it: bound it as well.
        if self._tokenizing_characters > 2 * self.config.inputs.max_request_characters:
            self._observer.rejected(Rejection.QUEUE_FULL)
            raise QueueFull("The server has as much to read as it accepts. Try again later.", retry_after_s=1)
        self._tokenizing_characters += characters
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._tokenizing, self._encode, request, prompt)
        finally:
            self._tokenizing_characters -= characters

    def _encode(self, request: EmbedRequest, prompt: str) -> list[TokenSequence]:
        assert self._tokenizer is not None
        tokenizer, truncate, field = self._tokenizer, request.truncate, request.field
        texts = [item for item in request.inputs if isinstance(item, str)]
        of_texts = iter(tokenizer.encode(texts, prompt=prompt, truncate=truncate, field=field))
        return [
            next(of_texts)
            if isinstance(item, str)
            else tokenizer.from_ids(item, truncate=truncate, field=f"{field}[{index}]")
            for index, item in enumerate(request.inputs)
        ]

    def _prompt(self, name: str | None) -> str:
        description = self.description
        name = name if name is not None else description.default_prompt_name
        if name is None:
            return ""
        if name not in description.prompts:
            known = ", ".join(sorted(description.prompts)) or "none"
            raise UnknownPrompt(
                f"The model has no prompt named {name[:100]!r}. It has: {known}.", field="prompt_name"
            )
        return description.prompts[name]

    async def _dispatch(
        self, dispatcher: Dispatcher, request: EmbedRequest, sequences: list[TokenSequence]
    ) -> Request:
        timeout_s = self.config.queue.timeout_s
        if request.timeout_s is not None:
            timeout_s = min(timeout_s, request.timeout_s)
        is_bulk = len(sequences) > self.config.batch.bulk_texts
        share = Share.BULK if is_bulk else Share.INTERACTIVE
        return await dispatcher.submit(sequences, share=share, timeout_s=timeout_s)

    def _finish_rows(self, request: EmbedRequest, answer: Request) -> FloatArray:
        rows = stack_rows([row for row in answer.rows if row is not None])
        if request.dimensions is not None and request.dimensions < rows.shape[1]:
            rows = cut_rows(rows, request.dimensions, normalize=self.description.normalize)
        return rows


def _not_ready() -> NotReady:
    return NotReady("The model is still loading. Try again in a moment.")


def _timings(answer: Request, began: float, tokenized: float, ended: float) -> Timings:
    assert answer.started_at is not None
    assert answer.finished_at is not None
    return Timings(
        tokenize_s=tokenized - began,
        queue_s=answer.started_at - answer.admitted_at,
        inference_s=answer.finished_at - answer.started_at,
        total_s=ended - began,
    )
