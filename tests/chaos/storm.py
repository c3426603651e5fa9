"""Many clients at once, some of which hang up or are in a hurry. Every text is sent exactly once."""

import asyncio
import json
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import httptools

from chaos.ledger import Exchange

MARKS = {"poison": 0.004, "void": 0.004}  # words for which the engine's script fails, and their priority


@dataclass(frozen=True, slots=True)
class StormConfig:
    """How bad the weather is. `patience_s` is how long a client waits before a text counts as lost."""

    texts: int
    seed: int
    clients: int = 48
    max_texts: int = 24
    leave_share: float = 0.06
    hurry_share: float = 0.08
    patience_s: float = 60.0


def make_texts(config: StormConfig) -> list[str]:
    """Unique texts, by the number in them; a few carry a mark."""
    dice = random.Random(config.seed)
    texts = []
    for number in range(config.texts):
        words = [
            f"text {number}",
            *(dice.choice(["alpha", "beta", "gamma"]) for _ in range(dice.randrange(40))),
        ]
        words += [mark for mark, priority in MARKS.items() if dice.random() < priority]
        texts.append(" ".join(words))
    return texts


async def send_storm(port: int, texts: Sequence[str], config: StormConfig) -> list[Exchange]:
    """Send all `texts` and say what came back."""
    dice = random.Random(config.seed + 1)
    pending = deque(texts)
    exchanges: list[Exchange] = []
    while pending:
        size = min(len(pending), 1 if dice.random() < 0.5 else dice.randint(2, config.max_texts))
        exchanges.append(
            Exchange([pending.popleft() for _ in range(size)], left=dice.random() < config.leave_share)
        )
    waiting = deque(exchanges)
    clients = (
        _client(port, waiting, random.Random(config.seed + 2 + c), config) for c in range(config.clients)
    )
    await asyncio.gather(*clients)
    return exchanges


async def _client(port: int, waiting: deque[Exchange], dice: random.Random, config: StormConfig) -> None:
    connection: _Connection | None = None
    while waiting:
        exchange = waiting.popleft()
        if connection is None:
            connection = await _Connection.open(port)
        hurry_ms = dice.randint(1, 30) if dice.random() < config.hurry_share else None
        try:
            async with asyncio.timeout(config.patience_s):
                keep = await connection.exchange(exchange, hurry_ms, dice)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            keep = False
        if not keep:
            await connection.close()
            connection = None
    if connection is not None:
        await connection.close()


class _Connection:
    """One keep-alive connection; parses answers with the parser that the server trusts too."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._body = b""
        self._whole = False

    @classmethod
    async def open(cls, port: int) -> "_Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def exchange(self, exchange: Exchange, hurry_ms: int | None, dice: random.Random) -> bool:
        """Send one request; record the answer; say whether the connection can go on."""
        body = json.dumps({"input": list(exchange.texts), "encoding_format": "base64"}).encode()
        head = f"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
        if hurry_ms is not None:
            head += f"x-request-timeout-ms: {hurry_ms}\r\n"
        self._writer.write(head.encode() + b"\r\n" + body)
        if exchange.left:
            # Hang up at once, or with the request queued or running.
            await self._writer.drain()
            for _ in range(dice.randrange(50)):
                await asyncio.sleep(0)
            return False
        await self._read(exchange)
        return exchange.surplus == 0

    async def _read(self, exchange: Exchange) -> None:
        self._body, self._whole = b"", False
        parser = httptools.HttpResponseParser(self)
        while not self._whole:
            data = await self._reader.read(65_536)
            if not data:
                raise ConnectionError("the server closed the connection without an answer")
            parser.feed_data(data)
        exchange.status = parser.get_status_code()
        exchange.surplus = len(self._reader._buffer)  # type: ignore[attr-defined]
        if exchange.status == 200:
            exchange.rows = [item["embedding"] for item in json.loads(self._body)["data"]]

    # Called by the parser.

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._whole = True

    async def close(self) -> None:
        self._writer.transport.abort()
