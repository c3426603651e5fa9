"""The facade of the library: a `Mill` loads one model and answers requests.

    async with Mill() as mill:
        embeddings = await mill.embed(["a text", "another"])

`operations` answers the requests, through the queue and the lanes of `batching`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from vecmill.batching.dispatcher import Dispatcher
from vecmill.batching.scheduler import Backlog, sum_backlogs
from vecmill.batching.ticket import CountsSnapshot
from vecmill.config import MillConfig
from vecmill.engines.base import Engine
from vecmill.errors import closed_for_good, mill_closed
from vecmill.hardware.budget import CoreBudget
from vecmill.hardware.cores import count_cores
from vecmill.hardware.memory import return_freed_memory
from vecmill.model_load import LoadSettings, ModelLoad, ModelSource, check_settings, read_description
from vecmill.models import ModelDescription
from vecmill.models.directory import load_failures
from vecmill.models.space import ModelIdentity
from vecmill.operations import OPERATIONS
from vecmill.operations.answer_spaces import AnswerSpace
from vecmill.operations.backpressure import Backpressure
from vecmill.operations.computation import time_limit_s
from vecmill.operations.embed import measure_ranges
from vecmill.operations.loaded_model import LoadedModel
from vecmill.operations.request_types import check_call, to_tuple
from vecmill.operations.start_record import StartRecord
from vecmill.requests import (
    DEFAULT_TEXT_OPTIONS,
    Caller,
    Classify,
    Embed,
    Priority,
    Purpose,
    Request,
    Rerank,
    TextOptions,
    TextOrPair,
    Truncation,
)
from vecmill.results import ClassifyResult, RerankResult
from vecmill.serving_plan.plans import Accuracy
from vecmill.tokenization.shared import SharedTokenizers
from vecmill.values.aliases import FloatArray
from vecmill.values.clock import Clock, monotonic
from vecmill.values.embedding_cache import EmbeddingCache
from vecmill.values.engine_plan import CostModel, EngineInfo
from vecmill.values.mill_state import MillState as MillState
from vecmill.values.observer import Observer, Rejection
from vecmill.values.preparation_log import show_to_watchers
from vecmill.values.request_choices import PriorityName, PurposeName
from vecmill.values.text_options import to_priority, to_purpose

R = TypeVar("R")
_IS_LOST = attrgetter("is_lost")  # called for each request


class Mill:
    """One model, ready for requests. Use from one event loop.

    `model` is a directory, a name, a description that was read before, or a function that returns the
    description and may take long. `None` means the embedded model. If `engine` is given, the mill uses it
    instead of the configured engine, and closes it. Mills with the same `budget` share its cores. Those with
    the same `tokenizers` have equal tokenizers in memory once. If `embedding_cache` is set before the start,
    embeddings are cached there, and no text is computed twice. Mills may share it, and none closes it.
    """

    def __init__(
        self,
        model: ModelSource | None = None,
        config: MillConfig | None = None,
        *,
        observer: Observer | None = None,
        engine: Engine | None = None,
        budget: CoreBudget | None = None,
        tokenizers: SharedTokenizers | None = None,
        clock: Clock = monotonic,
    ) -> None:
        # Of the engine's calls. A mill that is given the cost of an earlier one does not measure it.
        self.cost: CostModel | None = None
        check_settings(model, config)
        self.config = config or MillConfig()
        self._model = model
        self._observer = observer or Observer()
        self._given_engine = engine
        self._budget = budget or CoreBudget(count_cores(self.config.cores), clock=clock)
        self._tokenizers = tokenizers
        self.embedding_cache: EmbeddingCache | None = None
        self._clock = clock
        self._description = model if isinstance(model, ModelDescription) else None
        self._model_load: ModelLoad | None = None  # which has the engines
        self.accuracy: Accuracy | None = None  # that `vecmill optimize` measured for the served plan
        self._loaded: LoadedModel | None = None
        self._dispatchers: tuple[Dispatcher, ...] = ()  # of the loaded model, when they have started
        self._backpressure = Backpressure()
        self._loop: asyncio.AbstractEventLoop | None = None  # which started the mill
        self._starts = StartRecord()
        self._state = MillState.LOADING

    async def start(self) -> None:
        """Load the model once. Raises `SetupError`, whatever goes wrong, and `ShuttingDown` after `close`.

        The first start in int8 prepares the model, for about 15 seconds, and says so in the log.
        """
        if self._state is MillState.CLOSED:
            raise closed_for_good()
        self._loop = asyncio.get_running_loop()
        async with self._starts.attempt():
            if self._loaded is None:
                with show_to_watchers():
                    description = await self.describe()
                    with load_failures(description.directory):
                        await self._load(description)

    async def describe(self) -> ModelDescription:
        """Read the settings of the model, without its weights. Raises `SetupError`."""
        if self._description is None:
            self._description = await asyncio.to_thread(read_description, self._model)
        return self._description

    async def prepare(self) -> None:
        """Prepare the files of the model at low priority, so that `start` only has to open them.

        Without it `start` prepares them, at the priority of the process. For engines whose threads would keep
        the low priority, nothing is prepared. Raises `SetupError`.
        """
        description = await self.describe()
        with load_failures(description.directory):
            await self._make_load(description).prepare()

    async def _load(self, description: ModelDescription) -> None:
        load = self._model_load = self._make_load(description)
        try:
            self._loaded = loaded = await load.run()
        finally:
            self.cost, self.accuracy = load.cost, load.accuracy
        loaded.start()
        self._dispatchers = loaded.dispatchers
        await asyncio.to_thread(return_freed_memory)  # of the files that were read
        self._state = MillState.READY

    def _make_load(self, description: ModelDescription) -> ModelLoad:
        settings = LoadSettings(
            self.config, self._given_engine, self._budget, self._tokenizers, self._observer, self._clock
        )
        return ModelLoad(description, settings, cost=self.cost, embedding_cache=self.embedding_cache)

    async def close(self) -> None:
        """Fail all waiting requests with `ShuttingDown`, and release all resources. May be called twice."""
        if self._state is MillState.CLOSED:
            return
        self._state = MillState.CLOSED
        self._backpressure.close()
        try:
            if self._loaded is not None:
                await self._loaded.close()
        finally:  # also if the call is cancelled
            if self._model_load is not None:
                await self._model_load.close()

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
        """The state of this mill."""
        if self._state is MillState.READY:
            if self.is_lost:
                return MillState.LOST
            if any(each.is_degraded for each in self._dispatchers):
                return MillState.DEGRADED
        return self._state

    @property
    def is_lost(self) -> bool:
        """Whether a side of the model has no lane that works, and none can be replaced."""
        return any(map(_IS_LOST, self._dispatchers))

    @property
    def description(self) -> ModelDescription:
        """The description of the model. Raises `NotReady` until the model directory has been read."""
        if self._description is None:
            raise self._starts.not_ready()
        return self._description

    @property
    def prompts(self) -> Mapping[str, str]:
        """The prompts of the model by name, which `prompt_name` chooses from. Raises `NotReady`."""
        return self.description.prompts

    @property
    def info(self) -> EngineInfo:
        """The properties of the engine, in an asymmetric model that of the documents. Raises `NotReady`."""
        load = self._model_load
        if load is None or load.engine is None:
            raise self._starts.not_ready()
        return load.engine.info

    @property
    def query_info(self) -> EngineInfo | None:
        """The properties of the engine of queries, if that is another one than the engine of documents."""
        return None if self._model_load is None else self._model_load.query_info

    @property
    def picture_info(self) -> EngineInfo | None:
        """The properties of the engine of pictures, if the model has one. Its precision is its own."""
        return None if self._model_load is None else self._model_load.picture_info

    @property
    def identity(self) -> ModelIdentity:
        """What the space of the model's vectors is made of, and how they are computed. Raises `NotReady`."""
        if self._loaded is None:
            raise self._starts.not_ready()
        return self._loaded.spaces.identity

    @property
    def space(self) -> str:
        """The digest of the space: vectors of equal spaces are comparable. Raises `NotReady`."""
        return self.identity.space

    @property
    def exact(self) -> str:
        """The digest of the space and its computation: equal texts have equal vectors. Raises `NotReady`."""
        return self.identity.exact

    def find_space(self, request: Request[Any]) -> AnswerSpace | None:
        """Return the space of the answer to a request, `None` if the answer has no vectors.

        Raises `NotReady`.
        """
        if self._loaded is None:
            raise self._starts.not_ready()
        return self._loaded.spaces.find(request)

    @property
    def batch_tokens(self) -> int:
        """The tokens of a full batch; before the model is loaded, as configured."""
        if self._loaded is None:
            return self.config.batch.batch_tokens
        return self._loaded.documents.dispatcher.scheduler.batch_tokens

    @property
    def backlog(self) -> Backlog:
        """The waiting work. Its seconds are a part of the time that all models with this budget need."""
        return sum_backlogs(each.measure_backlog() for each in self._dispatchers)

    @property
    def text_counts(self) -> CountsSnapshot:
        """The counts of texts since the start, as they are at one moment."""
        return sum((each.counts_snapshot() for each in self._dispatchers), CountsSnapshot())

    def refuse_if_full(self, client: str | None, most_tokens: int) -> None:
        """Raise the error that `run` would raise for any request of `client` of at most so many tokens.

        Takes almost no time, so that an overloaded server can refuse a request before it reads the texts,
        which tell their side: of several, all must be full. Raises `QueueFull` or `UnavailableError`.
        """
        *others, last = self._accepting().dispatchers
        if all(each.find_refusal(client, most_tokens) is not None for each in others):
            last.refuse_if_full(client, most_tokens)

    def least_delay_s(self, client: str | None, most_tokens: int) -> float:
        """Return the seconds for which `refuse_if_full` would refuse such requests, 0 if it would not."""
        if len(self._dispatchers) == 1:
            return self._dispatchers[0].least_delay_s(client, most_tokens)
        return min((each.least_delay_s(client, most_tokens) for each in self._dispatchers), default=0.0)

    async def run(self, request: Request[R], *, wait_for_room: bool = True) -> R:
        """Answer one request of `vecmill.requests`, either completely or not at all.

        While the queue is full, the request waits for room, in the order of the calls; requests of background
        priority wait behind the others. Without `wait_for_room` it is refused with `QueueFull`.

        Raises `RequestError` if the request can never work, `OverloadError` if it may work later,
        `UnavailableError` if this process cannot answer, `EngineError` if the engine or the tokenizer failed.
        Cancelling the call cancels the work.
        """
        check_call(request, self._loop)
        caller = request.caller
        if not wait_for_room:
            return await self.answer(request, caller)
        limit_s = time_limit_s(self._accepting(), caller)
        return await self._backpressure.run(partial(self._try, request), caller, request.sizes, limit_s)

    async def _try(self, request: Request[R], caller: Caller) -> R:
        result: Any = await self.answer(request, caller)
        if caller.room_s:
            result = replace(result, timings=result.timings.after_room(caller.room_s))
        return cast(R, result)

    async def answer(self, request: Request[R], caller: Caller) -> R:
        """Answer a request for `caller`, whoever it names, without waiting for room. Raises as `run` does."""
        operation = OPERATIONS[type(request)]
        result: Any = await operation(self._accepting(), request, caller)
        if result.truncated:
            self._observer.truncated(len(result.truncated))
        return cast(R, result)

    async def measure_ranges(self) -> None:
        """Measure the ranges of int8 and uint8 embeddings, which their first request would wait for.

        The measurement runs while the model has nothing else to do, unless the ranges are kept in the cache.
        A model that gives no embedding of a text needs none. Cancelling the call stops the measurement,
        unless a request waits for it. Raises the same errors as `run`.
        """
        await measure_ranges(self._accepting())

    async def embed(  # noqa: PLR0913  written by name
        self,
        texts: str | Sequence[str],
        *,
        prompt_name: str | None = None,
        purpose: Purpose | PurposeName | None = None,
        dimensions: int | None = None,
        truncate: bool | None = None,
        timeout_s: float | None = None,
        priority: Priority | PriorityName | None = None,
        client: str | None = None,
    ) -> FloatArray:
        """Embed `texts`: (texts, dim) float32; (1, dim) for a single string.

        For `prompt_name` and `purpose` see `TextOptions`, for `timeout_s`, `priority` and `client` `Request`,
        for `dimensions` `Embed`. Texts that are too long are cut, unless `truncate` is false. Raises the same
        errors as `run`.
        """
        inputs = (texts,) if isinstance(texts, str) else to_tuple("texts", texts)
        options = TextOptions(prompt_name, purpose=to_purpose(purpose), truncation=Truncation(truncate))
        request = Embed(inputs, dimensions, options=options)
        return (await self._run_for(request, timeout_s, priority, client)).embeddings

    async def rerank(  # noqa: PLR0913  written by name
        self,
        query: str | Sequence[str],
        documents: Sequence[str],
        *,
        raw_scores: bool = False,
        instruction: str | None = None,
        options: TextOptions = DEFAULT_TEXT_OPTIONS,
        timeout_s: float | None = None,
        priority: Priority | PriorityName | None = None,
        client: str | None = None,
    ) -> RerankResult:
        """Score each document for the query, or for its own query: see `Rerank`.

        Raises the same errors as `run`.
        """
        queries = (query,) if isinstance(query, str) else to_tuple("query", query)
        inputs = queries, to_tuple("documents", documents)
        request = Rerank(*inputs, raw_scores, instruction, options=options)
        return await self._run_for(request, timeout_s, priority, client)

    async def classify(
        self,
        inputs: Sequence[TextOrPair],
        *,
        raw_scores: bool = False,
        options: TextOptions = DEFAULT_TEXT_OPTIONS,
        timeout_s: float | None = None,
        priority: Priority | PriorityName | None = None,
        client: str | None = None,
    ) -> ClassifyResult:
        """Score every label for each text or pair: see `Classify`. Raises the same errors as `run`."""
        request = Classify(to_tuple("inputs", inputs), raw_scores, options=options)
        return await self._run_for(request, timeout_s, priority, client)

    async def _run_for(
        self, request: Request[R], timeout_s: float | None, priority: str | None, client: str | None
    ) -> R:
        """Run a request of a short form, where a priority may be a string."""
        urgency = to_priority(priority)
        return await self.run(replace(request, timeout_s=timeout_s, priority=urgency, client=client))

    def _accepting(self) -> LoadedModel:
        if self._loaded is None:
            self._observer.rejected(Rejection.NOT_READY)
            raise self._starts.not_ready()
        if self._state is MillState.CLOSED:
            self._observer.rejected(Rejection.SHUTTING_DOWN)
            raise mill_closed()
        return self._loaded
