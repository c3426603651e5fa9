"""The admission of requests: check the size, tokenise, enter the queue, wait for the engine.

A full queue refuses a request before any work. Queries of asymmetric models have a queue and an engine of
their own (`query_side`). The event loop tokenises short texts and makes small results; `tokenizing` has
threads for longer texts, and `compute` has threads for larger results.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from vecmill.batching.dispatcher import Dispatcher
from vecmill.batching.prefixes import predict_tokens
from vecmill.batching.scheduler import Ask
from vecmill.batching.ticket import QueuedRequest
from vecmill.config import MillConfig, OnLongInput
from vecmill.errors import InvalidRequest, RequestTooLarge, ShuttingDown, UnsupportedTask
from vecmill.models import ModelDescription, Task
from vecmill.models.description import LONG_TEXT_TOKENS
from vecmill.operations.dropped_tokens import COUNT_WAIT_S, DroppedTokens
from vecmill.operations.output_ranges import KeptSamples, SampleEmbeddings
from vecmill.operations.query_side import QuerySide
from vecmill.operations.result_keys import Reuse
from vecmill.operations.text_stages import MeanStages
from vecmill.operations.tokenizing import Load, Tokenizing
from vecmill.requests import Priority, Purpose, R, Request, TextOptions, TextOrIds
from vecmill.results import Timings, Truncated
from vecmill.tokenization.lists import ListTokenizer
from vecmill.tokenization.pairs import PairTokenizer, encode_inputs
from vecmill.tokenization.pieces import Slices
from vecmill.tokenization.prompts import Prompt, default_prompt, find_prompt
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import LEAST_SHARED, TokenSequence, mark_shared
from vecmill.values.clock import Clock
from vecmill.values.embeddings import Embedding
from vecmill.values.engine_plan import EngineInfo
from vecmill.values.observer import Observer

# Results of at most this many numbers are made on the event loop, in about the time of a switch to a thread.
INLINE_NUMBERS = 32_768

# In English. A request counts as half of what follows from this.
CHARACTERS_PER_TOKEN = 4
# A request of fewer texts takes no more than a few milliseconds to tokenise.
FEW_TEXTS = 16

# So many requests of the largest size may wait to be tokenised: two of one client, and one of another.
LARGEST_REQUESTS = 3

# More than the special tokens that any tokenizer adds to a text.
TOKENS_AROUND = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Computation:
    """A finished request: its token sequences, and the engine's output for each, in order.

    `cached_count` of them are from the cache of results. These sequences have no token ids of their own.
    """

    sequences: list[TokenSequence]
    embeddings: list[Embedding]
    timings: Timings
    left_s: float  # until the deadline of the request
    truncated: tuple[Truncated, ...]
    cached_count: int = 0

    @property
    def token_counts(self) -> tuple[int, ...]:
        """The number of tokens of each text or pair, special tokens included."""
        return tuple(sequence.text_tokens for sequence in self.sequences)

    @property
    def token_count(self) -> int:
        """The number of tokens of all texts or pairs."""
        return sum(self.token_counts)


class Admission:
    """The admission of requests to one loaded model. Use from one event loop."""

    def __init__(
        self,
        description: ModelDescription,
        tokenizer: Tokenizer,
        dispatcher: Dispatcher,
        config: MillConfig,
        *,
        pairs: PairTokenizer | None,
        observer: Observer,
        clock: Clock,
    ) -> None:
        self.description = description
        self.tokenizer = tokenizer
        self.pairs = pairs
        self.lists: ListTokenizer | None = None  # instead of `pairs`, for models that rank lists
        self.query_side: QuerySide | None = None
        self.reuse: Reuse | None = None  # of kept results
        self.mean_stages: dict[Purpose, MeanStages] = {}  # of each route that has been asked for its means
        self.dispatcher = dispatcher
        self.sample = SampleEmbeddings(config.inputs, lambda: dispatcher.scheduler.has_open_texts)
        self._config = config
        self._observer = observer
        self._clock = clock
        self._tokenizing = Tokenizing(
            LARGEST_REQUESTS * config.inputs.max_request_characters,
            LARGEST_REQUESTS * config.inputs.max_counted_characters,
            observer=observer,
            clock=clock,
        )
        self._computing = ThreadPoolExecutor(2, thread_name_prefix="vecmill-compute")
        self._is_closed = False

    async def run(
        self,
        request: Request[Any],
        encode: Callable[[], Slices[list[TokenSequence]]],
        *,
        sizes: Sequence[int] | None = None,
        uncounted: int = 0,
        shared_size: int = 0,
        route: Purpose = Purpose.DOCUMENT,
        is_whole: bool = False,
    ) -> Computation:
        """Compute the sequences that `encode` returns: all of them, or none.

        `sizes` are the numbers of characters of the inputs with their prompts, by default `request.sizes`.
        The deadline of the request counts from this call. The last `uncounted` inputs do not count towards
        the number of inputs. All inputs begin with the same `shared_size` characters. `route` is that of the
        texts, or of most of them; if the queue of this route is full, the request is refused before any work.
        If `is_whole`, texts are read whole, and each may become several sequences.
        Raises the same errors as `Mill.run`.
        """
        sizes = request.sizes if sizes is None else sizes
        began = self._clock()
        run = None if request.timeline is None else request.timeline.begin_run(began, len(sizes))
        self.check_sizes(sizes, uncounted)
        dispatcher = self.dispatcher_of(route)
        check = partial(
            dispatcher.refuse_if_full,
            request.client,
            sum(sizes) + TOKENS_AROUND * len(sizes),
            request.priority,
            dispatcher.likely_costs_s(
                [] if is_whole else self._likely_tokens(request, sizes, shared_size, route)
            ),
        )
        check()
        most_read = None if is_whole else self.tokenizer_of(route).most_read(request.options.truncation)
        # Other requests are admitted in the meantime. If many large ones arrive together, only those that
        # will be admitted must cost the time of tokenising.
        slices = _mark_shared(encode()) if dispatcher.info.shares_prefixes else encode()
        sequences = await self.tokenize(slices, request, sizes, most_read, check)
        self.check_tokens(sum(map(len, sequences)))
        tokenized = self._clock()
        if run is not None:
            run.tokenized_at, run.tokens = tokenized, sum(map(len, sequences))
        ask = Ask(request.priority, request.client, request.timeout_s, began, run)
        dropped = DroppedTokens(sequences)
        counting = self._begin_count(dropped, request)
        try:
            ended, embeddings = await self._submit(sequences, ask)
            now = self._clock()
            if run is not None:
                run.resumed_at = now
            if counting is not None and not counting.done():
                await asyncio.wait((counting,), timeout=_count_wait_s(ended.deadline - now))
                now = self._clock()
        finally:
            if counting is not None:
                counting.cancel()
        timings = _timings(ended, began, tokenized, now)
        return Computation(sequences, embeddings, timings, ended.deadline - now, dropped.found())

    def _begin_count(self, dropped: DroppedTokens, request: Request[Any]) -> "asyncio.Task[None] | None":
        """Count the tokens that truncation dropped, beside the computation, unless they are known."""
        if not dropped.texts:
            return None
        load = Load(dropped.texts, dropped.characters, dropped.characters, request.client)
        return asyncio.ensure_future(self._tokenizing.count(dropped.count_in_slices(), load))

    async def _submit(
        self, sequences: Sequence[TokenSequence], ask: Ask
    ) -> tuple[QueuedRequest, list[Embedding]]:
        """Compute sequences of one side, or of both: all of them, or none.

        Returns the request that ended last, and the embeddings in order.
        """
        queries = [each for each in sequences if each.is_query]
        if not queries:
            ended = await self.dispatcher.submit(sequences, ask)
            return ended, _embeddings(ended)
        assert self.query_side is not None
        if len(queries) == len(sequences):
            ended = await self.query_side.dispatcher.submit(sequences, ask)
            return ended, _embeddings(ended)
        documents = [each for each in sequences if not each.is_query]
        tasks = [
            asyncio.ensure_future(self.dispatcher.submit(documents, ask)),
            asyncio.ensure_future(self.query_side.dispatcher.submit(queries, ask)),
        ]
        try:
            both = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        of_documents, of_queries = (iter(_embeddings(each)) for each in both)
        embeddings = [next(of_queries if each.is_query else of_documents) for each in sequences]
        return max(both, key=lambda each: each.finished_at or 0.0), embeddings

    def encode_in_slices(
        self, inputs: Sequence[TextOrIds], options: TextOptions, prompt: str, route: Purpose
    ) -> Slices[list[TokenSequence]]:
        """Encode inputs, with the tokenizer of their route, in slices."""
        truncation, side = options.truncation, self.side_of(route)
        if side is not None:
            return side.encode_in_slices(inputs, prompt=prompt, truncation=truncation)
        return encode_inputs(self.tokenizer, None, inputs, prompt=prompt, truncation=truncation)

    def side_of(self, route: Purpose) -> QuerySide | None:
        """Return the query side if texts of this route belong to it."""
        return self.query_side if route is Purpose.QUERY else None

    def tokenizer_of(self, route: Purpose) -> Tokenizer:
        """Return the tokenizer of texts of this route."""
        side = self.side_of(route)
        return self.tokenizer if side is None else side.tokenizer

    def dispatcher_of(self, route: Purpose) -> Dispatcher:
        """Return the dispatcher of texts of this route."""
        side = self.side_of(route)
        return self.dispatcher if side is None else side.dispatcher

    @property
    def dispatchers(self) -> tuple[Dispatcher, ...]:
        """The dispatcher of documents, and that of queries if they have their own."""
        sides = () if self.query_side is None else (self.query_side.dispatcher,)
        return (self.dispatcher, *sides)

    def keep_sample(self, cache_dir: Path) -> None:
        """Keep the sample embeddings of the model in this folder, and use those that are there."""
        self.sample.kept = KeptSamples(cache_dir, self.description, self.dispatcher.info)

    def add_query_side(self, side: QuerySide) -> None:
        """Embed queries by `side`. Ranges are then those of documents."""
        self.query_side = side
        self.sample.purpose = Purpose.DOCUMENT

    @property
    def most_tokens(self) -> int:
        """The number of tokens that all texts of one request may have."""
        return self._config.inputs.max_request_tokens

    def prompt(self, options: TextOptions) -> Prompt:
        """Return the prompt for each text, with its adapter. Raises the same errors as `find_prompt`."""
        description = self.description
        default, adapters = default_prompt(description), description.encoder.adapters
        return find_prompt(description.prompts, default, options, adapters)

    def decide_truncation(self, request: Request[R]) -> Request[R]:
        """Return the request with the decision whether texts that are too long are refused."""
        truncation = request.options.truncation
        if truncation.is_allowed is not None:
            return request
        truncation = replace(truncation, is_allowed=self._config.inputs.on_long_input is OnLongInput.CUT)
        return replace(request, options=replace(request.options, truncation=truncation))

    def report_truncated(self, texts: int) -> None:
        """Tell the observer that some texts of an answered request were truncated."""
        self._observer.truncated(texts)

    async def compute(self, work: Callable[[], T], numbers: int) -> T:
        """Return `work()`, called in another thread if it reads or makes many numbers."""
        if numbers <= INLINE_NUMBERS:
            return work()
        if self._is_closed:
            raise ShuttingDown("The server is shutting down.")
        return await asyncio.get_running_loop().run_in_executor(self._computing, work)

    def close(self) -> None:
        """Stop tokenising. May be called twice."""
        self._is_closed = True
        self.sample.close()
        self._tokenizing.close()
        self._computing.shutdown(wait=False)

    def check_sizes(self, sizes: Sequence[int], uncounted: int = 0) -> None:
        """Raise `InvalidRequest` or `RequestTooLarge` for inputs of more characters than the limits allow."""
        limits = self._config.inputs
        count = len(sizes) - uncounted
        if count < 1:
            raise InvalidRequest("`input` is empty; give at least one text.", field="input")
        if count > limits.max_inputs:
            raise InvalidRequest(
                f"`input` has {count} items; at most {limits.max_inputs} are accepted. Send it in parts.",
                field="input",
            )
        if max(sizes) > limits.max_text_characters:
            index = sizes.index(max(sizes))
            raise InvalidRequest(
                f"`input[{index}]` has {sizes[index]} characters, prompt included; at most "
                f"{limits.max_text_characters} are accepted.",
                field="input",
            )
        if sum(sizes) > limits.max_request_characters:
            raise RequestTooLarge(
                f"`input` has {sum(sizes)} characters in all; at most {limits.max_request_characters} are "
                "accepted. Send it in parts.",
                field="input",
            )

    def check_chunks(self, chunks: int) -> None:
        """Raise `RequestTooLarge` for more chunks than one request may have inputs."""
        most = self._config.inputs.max_inputs
        if chunks > most:
            raise RequestTooLarge(
                f"`input` has {chunks} chunks in all; at most {most} are accepted. Send it in parts, or ask "
                "for larger chunks.",
                field="input",
            )

    def check_tokens(self, tokens: int) -> None:
        """Raise `RequestTooLarge` for more tokens than one request may have."""
        if tokens > self.most_tokens:
            raise RequestTooLarge(
                f"`input` has {tokens} tokens in all; at most {self.most_tokens} are accepted. Send it in "
                "parts.",
                field="input",
            )

    async def tokenize(
        self,
        work: Slices[T],
        request: Request[Any],
        sizes: Sequence[int],
        most_read: int | None = None,
        check: Callable[[], None] | None = None,
    ) -> T:
        """Do `work` on the texts of a request, and return its result. See `Tokenizing.run`.

        `sizes` are the numbers of characters of the texts; at most `most_read` of each are read as a rule.
        """
        characters = sum(sizes)
        read = characters if most_read is None else sum(min(size, most_read) for size in sizes)
        deadline = self._clock() + self.longest_s(request)
        load = Load(len(sizes), characters, read, request.client)
        return await self._tokenizing.run(work, load, deadline, check)

    def _likely_tokens(
        self, request: Request[Any], sizes: Sequence[int], shared_size: int, route: Purpose
    ) -> list[int]:
        """Return the likely tokens that are computed for each text, nothing for requests surely small."""
        if len(sizes) < FEW_TEXTS:
            return []
        longest = self.tokenizer_of(route).longest(request.options.truncation)
        lengths = [min(size // CHARACTERS_PER_TOKEN + 1, longest) for size in sizes]
        shared = shared_size // CHARACTERS_PER_TOKEN
        if shared < LEAST_SHARED or not self.dispatcher_of(route).info.shares_prefixes:
            return lengths
        return predict_tokens(
            lengths, [shared if shared < length <= LONG_TEXT_TOKENS else 0 for length in lengths]
        )

    def longest_s(self, request: Request[Any]) -> float:
        """Return the seconds that a request may take."""
        # Background work is worth computing however late.
        is_background = request.priority is Priority.BACKGROUND
        longest_s = math.inf if is_background else self._config.queue.timeout_s
        return longest_s if request.timeout_s is None else min(longest_s, request.timeout_s)


def _count_wait_s(left_s: float) -> float | None:
    """Return how long an answer waits for its count if it has `left_s` until its deadline."""
    return None if math.isinf(left_s) else min(COUNT_WAIT_S, max(0.0, left_s))


def _mark_shared(slices: Slices[list[TokenSequence]]) -> Slices[list[TokenSequence]]:
    return mark_shared((yield from slices), longest=LONG_TEXT_TOKENS)


def _embeddings(ended: QueuedRequest) -> list[Embedding]:
    return [embedding for embedding in ended.embeddings if embedding is not None]


def _timings(ended: QueuedRequest, began: float, tokenized: float, now: float) -> Timings:
    assert ended.started_at is not None
    assert ended.finished_at is not None
    return Timings(
        tokenize_s=tokenized - began,
        queue_s=ended.started_at - ended.admitted_at,
        inference_s=ended.finished_at - ended.started_at,
        total_s=now - began,
    )


_DOES: Mapping[Task, str] = {
    Task.EMBED: "embeds texts, and ranks documents by their embeddings",
    Task.RERANK: "ranks documents",
    Task.CLASSIFY: "classifies texts",
    Task.CLASSIFY_TOKENS: "classifies tokens",
    Task.SPARSE: "gives sparse embeddings, and ranks documents by them",
    Task.MULTI_VECTOR: "gives an embedding for each token, and ranks documents by them",
}

_HEADS_DO = "gives dense, sparse and multi-vector embeddings, and ranks documents by them"


def require_task(description: ModelDescription, *tasks: Task, asked: str) -> None:
    """Raise `UnsupportedTask` unless the model has one of `tasks`.

    `asked` follows "it cannot" in the message.
    """
    if set(tasks).isdisjoint(description.tasks):
        does = _DOES[description.task] if description.token_heads is None else _HEADS_DO
        raise UnsupportedTask(f"The model {description.name} {does}; it cannot {asked}.", field="model")


def require_heads(description: ModelDescription, *, asked: str) -> None:
    """Raise `UnsupportedTask` unless the model has token heads.

    `asked` follows "it cannot" in the message.
    """
    if description.token_heads is None:
        raise UnsupportedTask(
            f"The model {description.name} {_DOES[description.task]}; it cannot {asked}, which needs the "
            "heads of BGE-M3.",
            field="model",
        )


def require_unfinished(description: ModelDescription, info: EngineInfo, *, asked: str, field: str) -> None:
    """Raise `UnsupportedTask` if the engine returns only finished embeddings.

    `asked` follows "it cannot" in the message. `field` is the field of the request that asks for more.
    """
    if info.is_finished:
        raise UnsupportedTask(
            f"The exported graph of the model {description.name} returns only finished embeddings; it cannot "
            f"{asked}. Export the model again, with token_embeddings or last_hidden_state.",
            field=field,
        )


def require_dimensions(dimensions: int | None, description: ModelDescription) -> None:
    """Raise `InvalidRequest` unless embeddings of the model can be truncated to `dimensions`."""
    if dimensions is not None and not 1 <= dimensions <= description.dim:
        raise InvalidRequest(
            f"`dimensions` is {dimensions}; this model's embeddings can be truncated to 1 to "
            f"{description.dim} dimensions.",
            field="dimensions",
        )
