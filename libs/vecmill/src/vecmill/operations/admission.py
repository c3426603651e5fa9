"""The admission of requests: check the size, tokenise, enter the queue, wait for the engine.

A full queue refuses a request before any work. Long texts are tokenised in a separate thread, and the number
of characters that wait for this thread is limited too.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from vecmill.batching.dispatcher import Dispatcher
from vecmill.batching.ticket import QueuedRequest
from vecmill.config import MillConfig
from vecmill.errors import InvalidRequest, QueueFull, RequestTooLarge
from vecmill.models import ModelDescription
from vecmill.operations.output_ranges import SampleEmbeddings
from vecmill.requests import Request, TextOptions
from vecmill.results import Timings
from vecmill.tokenization.pairs import PairTokenizer
from vecmill.tokenization.prompts import find_prompt
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import TokenSequence
from vecmill.values.clock import Clock
from vecmill.values.embeddings import Embedding
from vecmill.values.observer import Observer, Rejection

# Handing a text to another thread takes about as long as tokenising this many characters.
INLINE_CHARACTERS = 1_024

# More than the special tokens that any tokenizer adds to a text.
TOKENS_AROUND = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Computation:
    """A finished request: its token sequences, and the engine's output for each, in order."""

    sequences: list[TokenSequence]
    embeddings: list[Embedding]
    timings: Timings

    @property
    def token_counts(self) -> tuple[int, ...]:
        """The number of tokens of each sequence, special tokens included."""
        return tuple(map(len, self.sequences))

    @property
    def token_count(self) -> int:
        """The number of tokens of all sequences."""
        return sum(map(len, self.sequences))


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
        self.dispatcher = dispatcher
        self.sample = SampleEmbeddings(config.inputs)
        self.idle = asyncio.Event()
        self.idle.set()
        self._config = config
        self._observer = observer
        self._clock = clock
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="vecmill-tokenize")
        self._tokenizing_characters = 0
        self._open_requests = 0

    async def run(
        self,
        request: Request[Any],
        encode: Callable[[], list[TokenSequence]],
        *,
        sizes: Sequence[int] | None = None,
        uncounted: int = 0,
    ) -> Computation:
        """Compute the sequences that `encode` returns: all of them, or none.

        `sizes` are the numbers of characters of the inputs, by default `request.sizes`. The last `uncounted`
        inputs do not count towards the number of inputs. Raises the same errors as `Mill.run`.
        """
        sizes = request.sizes if sizes is None else sizes
        began = self._clock()
        self.check_sizes(sizes, uncounted)
        most_tokens = sum(sizes) + TOKENS_AROUND * len(sizes)
        self.dispatcher.refuse_if_full(request.client, most_tokens, request.priority)
        self._open_requests += 1
        self.idle.clear()
        try:
            sequences = await self._encode(encode, sum(sizes))
            tokenized = self._clock()
            ended = await self.dispatcher.submit(
                sequences,
                priority=request.priority,
                client=request.client,
                timeout_s=request.timeout_s,
                accepted_at=began,
            )
        finally:
            self._open_requests -= 1
            if not self._open_requests:
                self.idle.set()
        embeddings = [embedding for embedding in ended.embeddings if embedding is not None]
        return Computation(sequences, embeddings, _timings(ended, began, tokenized, self._clock()))

    def prompt(self, options: TextOptions) -> str:
        """Return the prompt for each text. Raises the same errors as `find_prompt`."""
        return find_prompt(self.description.prompts, self.description.default_prompt, options)

    def close(self) -> None:
        """Stop tokenising. May be called twice."""
        self._tokenizing.shutdown(wait=False, cancel_futures=True)

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
                f"`input[{index}]` has {sizes[index]} characters; at most {limits.max_text_characters} are "
                "accepted.",
                field="input",
            )
        if sum(sizes) > limits.max_request_characters:
            raise RequestTooLarge(
                f"`input` has {sum(sizes)} characters in all; at most {limits.max_request_characters} are "
                "accepted. Send it in parts.",
                field="input",
            )

    async def _encode(
        self, encode: Callable[[], list[TokenSequence]], characters: int
    ) -> list[TokenSequence]:
        sequences = await self.tokenize(encode, characters)
        tokens, most = sum(map(len, sequences)), self._config.inputs.max_request_tokens
        if tokens > most:
            raise RequestTooLarge(
                f"`input` has {tokens} tokens in all; at most {most} are accepted. Send it in parts.",
                field="input",
            )
        return sequences

    async def tokenize(self, work: Callable[[], T], characters: int) -> T:
        """Run `work` on texts of this many characters, in a thread if it would block the event loop.

        Raises `QueueFull` if too many characters wait for the thread.
        """
        if characters <= INLINE_CHARACTERS:
            return work()
        # These texts wait too, before the queue sees them.
        if self._tokenizing_characters > 2 * self._config.inputs.max_request_characters:
            self._observer.rejected(Rejection.QUEUE_FULL)
            raise QueueFull(
                "The server has as many texts to tokenise as it accepts. Try again later.", retry_after_s=1
            )
        self._tokenizing_characters += characters
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._tokenizing, work)
        finally:
            self._tokenizing_characters -= characters


def _timings(ended: QueuedRequest, began: float, tokenized: float, now: float) -> Timings:
    assert ended.started_at is not None
    assert ended.finished_at is not None
    return Timings(
        tokenize_s=tokenized - began,
        queue_s=ended.started_at - ended.admitted_at,
        inference_s=ended.finished_at - ended.started_at,
        total_s=now - began,
    )
