"""A bench for batches without a server: a store, a model with moods, and a clock that the test sets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from support.batches import request_line
from support.http_server import embedded_model
from vecmill import Mill
from vecmill.config import MillConfig
from vecmill.requests import Caller, Request
from vecmill_server.base.settings import ServerSettings
from vecmill_server.batches.execution import BatchContext, run_batch, validate_batch
from vecmill_server.batches.folder import new_file_id
from vecmill_server.batches.objects import BatchObject, FileObject, FilePurpose, NewBatch, StoreLimits
from vecmill_server.batches.store_thread import StoreThread
from vecmill_server.catalog.catalog import Catalog, ServedModel
from vecmill_server.dialects.fields import DialectOptions
from vecmill_server.dialects.token_ids import refuse_ids
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics

NOW = 1_700_000_000
HOUR_S = 3600
OPTIONS = DialectOptions(refuse_ids, lambda _name, _tasks=(), /: None)


@dataclass
class MoodyMill:
    """A mill that raises what it is told to before it answers, and remembers what it was asked."""

    real: Mill
    errors: list[BaseException] = field(default_factory=list)
    asked: list[Caller] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    async def answer(self, request: Request[Any], caller: Caller) -> Any:
        """Raise the next error, or answer."""
        self.asked.append(caller)
        if self.errors:
            raise self.errors.pop(0)
        return await self.real.answer(request, caller)


@dataclass
class Bench:
    """A context of batches whose time is told by the test. `now` and `pauses` are in seconds."""

    context: BatchContext
    mill: MoodyMill
    pauses: list[float]
    now: list[float]

    async def add(self, lines: list[str], owner: str = "") -> str:
        """A batch of these lines, which has an hour; its id."""
        access, file_id = self.context.store_thread, new_file_id()
        content = "\n".join(lines).encode()
        with access.store.folder.create(file_id) as written:
            written.write(content)
            access.store.folder.seal(written)
        record = FileObject(file_id, FilePurpose.BATCH, "in.jsonl", len(content), NOW, None, owner)
        await access.call(lambda store: store.add_file(record))
        request = NewBatch(file_id, "/v1/embeddings", "1h", HOUR_S)
        ids = (new_file_id(), new_file_id())
        return (await access.call(lambda store: store.add_batch(owner, request, ids, NOW))).id

    async def record(self, batch_id: str) -> BatchObject:
        """The batch as it is now."""
        return await self.context.store_thread.call(lambda store: store.batch(batch_id))

    async def run(self, lines: list[str]) -> BatchObject:
        """A batch of these lines, worked on to its end."""
        batch_id = await self.add(lines)
        await validate_batch(self.context, batch_id)
        await run_batch(self.context, batch_id)
        return await self.record(batch_id)

    def lines(self, file_id: str) -> list[dict[str, Any]]:
        """The lines of an output file."""
        path = self.context.store_thread.store.folder.path(file_id)
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@asynccontextmanager
async def bench(folder: Path, *, max_bytes: int = 10**9) -> AsyncIterator[Bench]:
    """A context with a store in `folder`, over the fake engine."""
    now, pauses = [float(NOW)], list[float]()
    description = embedded_model()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async with Mill(description, MillConfig(engine="fake")) as real:
        mill = MoodyMill(real)
        catalog = Catalog([ServedModel("fake", cast("Mill", mill))])
        access = StoreThread(folder, StoreLimits(100, max_bytes))
        await access.open()
        settings = ServerSettings(batch_dir=folder)
        context = BatchContext(
            access, settings, catalog, ServerMetrics(), OPTIONS, lambda: now[0], lambda: now[0], pause
        )
        try:
            yield Bench(context, mill, pauses, now)
        finally:
            await access.close()


def requests(count: int) -> list[str]:
    """Lines of so many requests."""
    return [request_line(str(number), {"input": f"text {number}"}) for number in range(count)]
