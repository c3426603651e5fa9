"""The ranges by which embeddings are quantised to int8 and uint8, measured on sample texts.

If the ranges were measured on the embeddings of each request, the same text would get different vectors in
different requests, and these vectors could not be compared. So the ranges are measured once per model: sample
texts are embedded when the first client requests int8 or uint8, or before that, when a server has had nothing
to do for `QUIET_S`: most clients never request these types, so no other request should wait for the sample.

How it works. The sample is embedded in many small requests of background priority, one after the other, so
that other requests run in between. While nobody waits for it, none begins before the server is quiet again.
Their embeddings are kept in memory after a failure or a stop, and the whole sample in the cache folder, so
that the next start need not compute it. Before each request the folder is read again, because another process
may have finished first.

    cache_dir/samples/<name>      CRC-32 (4 bytes, little-endian), then float32 values (rows, dim)

The name is a digest of everything that the values depend on: the model, engine, precision, device, prompt and
texts. A file of another size or checksum, or with a value that is not finite, is ignored and written again.
Files are written under a temporary name and renamed, so that processes never read a part of one.
"""

import asyncio
import hashlib
import json
import logging
import os
import tempfile
import zlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vecmill.batching.scheduler import Scheduler
from vecmill.batching.ticket import OWN_WORK
from vecmill.config import InputConfig
from vecmill.errors import SetupError, mill_closed
from vecmill.models import ModelDescription, fingerprint_model
from vecmill.requests import Embed, Priority, Purpose, TextOptions, TextOrIds, Truncation
from vecmill.results import EmbedResult
from vecmill.tokenization.prompts import default_prompt, find_prompt
from vecmill.values.aliases import FloatArray
from vecmill.values.clock import Clock
from vecmill.values.engine_plan import EngineInfo
from vecmill.values.sample_texts import sample_texts
from vecmill.values.shared_task import share_task

FOLDER = "samples"
CHECKSUM_BYTES = 4
_VALUE = np.dtype("<f4")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptSamples:
    """The kept samples of one loaded model. All methods may be slow."""

    cache_dir: Path
    description: ModelDescription
    info: EngineInfo

    def name(self, request: Embed, texts: Sequence[TextOrIds]) -> str | None:
        """Return the name of the file for `texts`, embedded as `request` says; `None` without a fingerprint.

        Reads the weights, unless they were read to load the model.
        """
        description, info = self.description, self.info
        try:
            fingerprint = fingerprint_model(description, self.cache_dir)
            default, adapters = default_prompt(description), description.encoder.adapters
            prompt = find_prompt(description.prompts, default, request.options, adapters)
        except (SetupError, OSError):  # the files of the model have gone
            return None
        parts = (
            *(fingerprint, info.name, info.precision, info.device, prompt.text, request.normalize is False),
            *(request.options.truncation.max_tokens, texts),
            *((prompt.adapter,) if adapters else ()),
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def read(self, name: str, rows: int) -> FloatArray | None:
        """Return the kept embeddings, (rows, dim); `None` if there are none, or the file is damaged."""
        path = self.cache_dir / FOLDER / name
        size = CHECKSUM_BYTES + rows * self.description.dim * _VALUE.itemsize
        try:
            if path.stat().st_size != size:
                return None
            data = path.read_bytes()
        except OSError:
            return None
        checksum, values = data[:CHECKSUM_BYTES], data[CHECKSUM_BYTES:]
        if len(data) != size or checksum != _checksum(values):
            return None
        sample = np.frombuffer(values, _VALUE).astype(np.float32).reshape(rows, -1)
        return sample if bool(np.isfinite(sample).all()) else None

    def write(self, name: str, sample: FloatArray) -> None:
        """Keep the embeddings. A folder that cannot be written only costs the next start its time."""
        folder, values = self.cache_dir / FOLDER, sample.astype(_VALUE).tobytes()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            number, unfinished = tempfile.mkstemp(prefix=".unfinished-", dir=folder)
            try:
                with os.fdopen(number, "wb") as file:
                    file.write(_checksum(values) + values)
                os.replace(unfinished, folder / name)
            except BaseException:
                with suppress(OSError):
                    os.unlink(unfinished)
                raise
        except OSError as error:
            logger.info("The ranges of int8 embeddings cannot be kept in %s: %s.", folder, error.strerror)


def _checksum(values: bytes) -> bytes:
    return zlib.crc32(values).to_bytes(CHECKSUM_BYTES, "little")


# More texts hardly widen the ranges.
SAMPLE_TEXTS = 400
SAMPLE_REQUEST_TEXTS = 8
# A measurement that nobody waits for goes on when no request came for so long, and looks so often.
QUIET_S = 10.0
QUIET_PAUSE_S = 0.5

EmbedTexts = Callable[[Embed], Awaitable[EmbedResult]]


class Quiet:
    """The time for which a model had nothing to do, at the moments when somebody asks."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._admitted = scheduler.queue.counts.admitted
        self._since = clock()

    def lasts(self, seconds: float) -> bool:
        """Return whether, for so long, no text of a client was seen to wait, run or have come in."""
        now, admitted = self._clock(), self._scheduler.queue.counts.admitted
        if admitted != self._admitted or self._scheduler.has_open_texts:
            self._admitted, self._since = admitted, now
        return now > self._since and now - self._since >= seconds


class SampleEmbeddings:
    """The embeddings of the sample texts of one loaded model. Use from one event loop."""

    def __init__(
        self,
        limits: InputConfig,
        quiet: Quiet,
        kept: KeptSamples | None = None,
        purpose: Purpose | None = None,
    ) -> None:
        """`quiet` is that of the model. The texts are embedded for `purpose`.

        `kept` are the samples on disk, if there is a folder for them.
        """
        self._limits = limits
        self._quiet = quiet
        self._kept = kept
        self._purpose = purpose
        self._tasks: dict[bool, asyncio.Task[FloatArray]] = {}
        self._parts: dict[bool, list[FloatArray]] = {False: [], True: []}
        self._waiting = 0
        self._was_awaited = False  # then the next request for the ranges will not be long in coming
        self._is_awaited = asyncio.Event()

    async def get(self, embed: EmbedTexts, *, is_raw: bool) -> FloatArray:
        """Return the embeddings, (texts, dim); `is_raw`: those before the model's own normalisation.

        `embed` computes them at the first call, and again after a failure. The measurement continues if the
        caller leaves. Raises `ShuttingDown`, and the same errors as `embed`.
        """
        self._waiting += 1
        self._was_awaited = True
        self._is_awaited.set()
        try:
            return await self._share(embed, is_raw=is_raw)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._is_awaited.clear()

    async def measure(self, embed: EmbedTexts) -> None:
        """Measure the embeddings that most requests need, while the model has had nothing to do for a while.

        Cancelling the call stops the measurement, unless a request waits for it. Raises the same errors as
        `get`.
        """
        try:
            await self._share(embed, is_raw=False)
        except asyncio.CancelledError:
            if not self._waiting:
                self.close()
            raise

    def close(self) -> None:
        """Stop measuring. Callers that wait get `ShuttingDown`."""
        for task in self._tasks.values():
            task.cancel()

    async def _share(self, embed: EmbedTexts, *, is_raw: bool) -> FloatArray:
        task = self._tasks.get(is_raw)
        if task is None or _has_failed(task):
            task = self._tasks[is_raw] = asyncio.create_task(self._embed_sample(embed, is_raw))
        try:
            # The client that came first may leave; the others still wait.
            return await share_task(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and (caller is None or not caller.cancelling()):
                raise mill_closed() from None
            raise

    async def _embed_sample(self, embed: EmbedTexts, is_raw: bool) -> FloatArray:
        # Drawing the texts takes a time that other requests would notice on the event loop.
        requests, parts = await asyncio.to_thread(self._requests, is_raw), self._parts[is_raw]
        texts = [text for request in requests for text in request.inputs]
        kept = self._kept
        name = None if kept is None else await asyncio.to_thread(kept.name, requests[0], texts)
        while len(parts) < len(requests):
            if kept is not None and name is not None:
                found = await asyncio.to_thread(kept.read, name, len(texts))
                if found is not None:
                    return found
            while not self._waiting and not self._quiet.lasts(0.0 if self._was_awaited else QUIET_S):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._is_awaited.wait(), QUIET_PAUSE_S)
            parts.append((await embed(requests[len(parts)])).embeddings)
        sample: FloatArray = np.concatenate(parts)
        parts.clear()
        if kept is not None and name is not None:
            await asyncio.to_thread(kept.write, name, sample)
        return sample

    def _requests(self, is_raw: bool) -> list[Embed]:
        """Return the requests that embed the sample."""
        limits = self._limits
        size = min(SAMPLE_REQUEST_TEXTS, limits.max_inputs)
        longest = min(limits.max_text_characters, max(1, limits.max_request_characters // size))
        texts = [text[:longest] for text in sample_texts(SAMPLE_TEXTS) if text]
        most = max(1, limits.max_request_tokens // size)
        options = TextOptions(purpose=self._purpose, truncation=Truncation(max_tokens=most))
        return [
            Embed(
                tuple(texts[start : start + size]),
                normalize=False if is_raw else None,
                options=options,
                priority=Priority.BACKGROUND,
                client=OWN_WORK,
            )
            for start in range(0, len(texts), size)
        ]


def _has_failed(task: "asyncio.Task[FloatArray]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
