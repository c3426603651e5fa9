"""The way of one request to the lanes, whatever is asked: check its size, read it, admit it, wait.

A full queue refuses before any work. Long texts are read in a thread of their own, and what waits to
be read there is bounded too.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from vecmill.batching.dispatcher import Dispatcher
from vecmill.batching.ticket import Request, Share
from vecmill.clock import Clock
from vecmill.config import InputConfig, MillConfig
from vecmill.errors import InvalidRequest, QueueFull, RequestTooLarge
from vecmill.models import ModelDescription
from vecmill.observer import Observer, Rejection
from vecmill.pairs import PairTokenizer
from vecmill.reading import Reading, find_prompt
from vecmill.tokens import Tokenizer
from vecmill.types import Row, Timings, TokenSequence

# Handing a text to another thread costs about as much as tokenising this many characters.
INLINE_CHARACTERS = 1_024

T = TypeVar("T")
Read = Callable[[], list[TokenSequence]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request: its sequences, and what each of them gets, in order."""

    sequences: list[TokenSequence]
    rows: list[Row]
    timings: Timings

    @property
    def token_counts(self) -> tuple[int, ...]:
        """Tokens of each sequence, special ones included."""
        return tuple(map(len, self.sequences))

    @property
    def token_count(self) -> int:
        """Tokens of the whole request."""
        return sum(map(len, self.sequences))


class Intake:
    """Takes the requests for one loaded model. Use from one event loop."""

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
        self.idle = asyncio.Event()
        self.idle.set()
        self._config = config
        self._observer = observer
        self._clock = clock
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="vecmill-tokenize")
        self._reading_characters = 0
        self._open_requests = 0

    async def run(
        self,
        read: Read,
        sizes: Sequence[int],
        *,
        field: str,
        timeout_s: float | None = None,
        uncounted: int = 0,
        is_bulk: bool = False,
    ) -> Answer:
        """Compute what `read` gives: all of it, or nothing.

        `sizes` are the characters of each input, `field` what errors call them; the last `uncounted` do
        not count towards the number of inputs. `is_bulk` gives way to other requests however few its inputs
        are and however long they have waited, and has no deadline but `timeout_s`. Raises as `Mill.submit`
        does.
        """
        began = self._clock()
        self.check_sizes(sizes, field, uncounted)
        self.dispatcher.refuse_if_full()
        self._open_requests += 1
        self.idle.clear()
        try:
            sequences = await self._read_sequences(read, sum(sizes), field)
            tokenized = self._clock()
            ended = await self._dispatch(sequences, timeout_s, is_bulk=is_bulk)
        finally:
            self._open_requests -= 1
            if not self._open_requests:
                self.idle.set()
        rows = [row for row in ended.rows if row is not None]
        return Answer(sequences, rows, _timings(ended, began, tokenized, self._clock()))

    @property
    def limits(self) -> InputConfig:
        """What one request may carry."""
        return self._config.inputs

    def prompt(self, reading: Reading) -> str:
        """What goes before each text. Raises as `find_prompt` does."""
        return find_prompt(self.description.prompts, self.description.default_prompt, reading)

    def close(self) -> None:
        """Read nothing more. Twice is fine."""
        self._reading.shutdown(wait=False, cancel_futures=True)

    def check_sizes(self, sizes: Sequence[int], field: str, uncounted: int = 0) -> None:
        """Raise `InvalidRequest` or `RequestTooLarge` for inputs of more characters than are accepted."""
        limits = self._config.inputs
        count = len(sizes) - uncounted
        if count < 1:
            raise InvalidRequest(f"`{field}` is empty; give at least one text.", field=field)
        if count > limits.max_inputs:
            raise InvalidRequest(
                f"`{field}` has {count} items; at most {limits.max_inputs} are accepted. Send it in parts.",
                field=field,
            )
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

    async def _read_sequences(self, read: Read, characters: int, field: str) -> list[TokenSequence]:
        sequences = await self.read(read, characters)
        tokens = sum(map(len, sequences))
        if tokens > self._config.inputs.max_request_tokens:
            raise RequestTooLarge(
                f"`{field}` has {tokens} tokens in all; at most "
                f"{self._config.inputs.max_request_tokens} are accepted. Send it in parts.",
                field=field,
            )
        return sequences

    async def read(self, read: Callable[[], T], characters: int) -> T:
        """What `read` gives of so many characters, without keeping the event loop from others for long.

        Raises `QueueFull`.
        """
        if characters <= INLINE_CHARACTERS:
            return read()
        # What is being read waits too, before the queue sees it: bound it as well.
        if self._reading_characters > 2 * self._config.inputs.max_request_characters:
            self._observer.rejected(Rejection.QUEUE_FULL)
            raise QueueFull("The server has as much to read as it accepts. Try again later.", retry_after_s=1)
        self._reading_characters += characters
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._reading, read)
        finally:
            self._reading_characters -= characters

    async def _dispatch(
        self, sequences: list[TokenSequence], timeout_s: float | None, *, is_bulk: bool
    ) -> Request:
        # What nobody waits for at a screen is worth computing however late.
        longest_s = math.inf if is_bulk else self._config.queue.timeout_s
        is_large = len(sequences) > self._config.batch.bulk_texts
        return await self.dispatcher.submit(
            sequences,
            share=Share.PATIENT if is_bulk else Share.BULK if is_large else Share.INTERACTIVE,
            timeout_s=longest_s if timeout_s is None else min(longest_s, timeout_s),
        )


def _timings(ended: Request, began: float, tokenized: float, now: float) -> Timings:
    assert ended.started_at is not None
    assert ended.finished_at is not None
    return Timings(
        tokenize_s=tokenized - began,
        queue_s=ended.started_at - ended.admitted_at,
        inference_s=ended.finished_at - ended.started_at,
        total_s=now - began,
    )
