"""One storm against one fleet: the log, its verdict, and the counts of the servers."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from chaos.fleet import Fleet, Page, read_page
from chaos.ledger import ExactRows, Ledger, NearRows, Rows, Verdict, encode_row, judge
from chaos.storm import Storm, StormConfig, make_text
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import hash_row
from vecmill.models import locate_model
from vecmill.sync import SyncMill
from vecmill.tokenization.tokenizer import Tokenizer

SCRAPE_S = 0.1
SLICE = 1_024


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on a log, and what the servers counted.

    `imbalances` counts the scrapes by the admitted texts that they could not account for. `total` is the sum
    of the last pages of all processes, `retries` the requests that a closing server left without a response.
    """

    verdict: Verdict
    total: Page
    imbalances: Counter[int]
    replacements: int
    statuses: list[int]
    retries: int

    def summary(self) -> str:
        """Return the figures on one line."""
        waits_ms = sorted(1000 * wait_s for wait_s in self.verdict.waits_s) or [0.0]
        return (
            f"faults {dict(self.verdict.faults)}, ends {dict(self.verdict.ends)}, "
            f"counted {dict(self.total.texts)}, scrapes {dict(self.imbalances)}, "
            f"replacements {self.replacements}, exit statuses {self.statuses}, retries {self.retries}, "
            f"median {waits_ms[len(waits_ms) // 2]:.0f} ms, "
            f"p99 {waits_ms[int(len(waits_ms) * 0.99)]:.0f} ms"
        )


def send_weather(folder: Path, config: StormConfig, fleet: Fleet, rows: Rows) -> Outcome:
    """Send a storm to a fleet, and judge its log."""
    log = folder / "ledger.jsonl"
    imbalances, retries = asyncio.run(_send(log, config, fleet, rows))
    verdict = judge(log, config.texts, rows)
    return Outcome(verdict, fleet.total, imbalances, fleet.replacements, fleet.statuses, retries)


async def _send(log: Path, config: StormConfig, fleet: Fleet, rows: Rows) -> tuple[Counter[int], int]:
    imbalances: Counter[int] = Counter()
    beside: list[asyncio.Task[None]] = []
    try:
        await fleet.start()
        beside.append(asyncio.create_task(_scrape(fleet.port, imbalances)))
        if config.replace_every_s is not None:
            beside.append(asyncio.create_task(_roll(fleet, config.replace_every_s)))
        with Ledger(log) as ledger:
            storm = Storm(fleet.port, config, ledger, rows)
            await storm.send()
    finally:
        for task in beside:
            task.cancel()
        if beside:
            await asyncio.wait(beside)
        await fleet.stop()
    for task in beside:
        if not task.cancelled():
            await task  # raises what ended it
    return imbalances, storm.retries


async def _roll(fleet: Fleet, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        await asyncio.shield(fleet.replace())


async def _scrape(port: int, imbalances: Counter[int]) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20.0) as client:
        while True:
            with suppress(httpx.TransportError):  # the process that answered is stopping
                answer = await client.get("/metrics")
                answer.raise_for_status()
                imbalances[read_page(answer.text).imbalance] += 1
            await asyncio.sleep(SCRAPE_S)


def exact_rows(config: StormConfig) -> ExactRows:
    """Return the embeddings of the fake engine."""
    tokenizer = Tokenizer.load(describe_model(locate_model()))

    def rows() -> Iterator[str]:
        for texts in _slices(config):
            for sequence in tokenizer.encode(texts):
                yield encode_row(hash_row(sequence.token_ids, 384))

    return ExactRows(rows())


def real_rows(config: StormConfig) -> NearRows:
    """Return the embeddings of the embedded model."""
    with SyncMill() as mill:
        return NearRows(np.concatenate([mill.embed(texts) for texts in _slices(config)]))


def _slices(config: StormConfig) -> Iterator[list[str]]:
    for first in range(0, config.texts, SLICE):
        numbers = range(first, min(first + SLICE, config.texts))
        yield [make_text(config.seed, number) for number in numbers]
