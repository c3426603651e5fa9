"""Clients that send at their own pace, however slow the server is, and some of which behave badly.

Arrivals are an open loop: a request is sent when it is due, not when an earlier one has ended, so a server
that stalls meets the requests that it made wait. Every text is sent exactly once.
"""

import asyncio
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

import httptools

from chaos.ledger import Exchange, Ledger, Rows

# Words for which the engine's script fails, and their frequency.
MARKS = {"poison": 0.004, "void": 0.004}
WORDS = ("alpha", "beta", "gamma")
MAX_TRIES = 5
# The clients measure how late their own event loop is. Shorter delays are ordinary.
TICK_S = 0.05
ORDINARY_S = 0.1


class Manner(StrEnum):
    """The behaviour of a client."""

    PLAIN = "plain"
    HURRIED = "hurried"  # with a deadline of milliseconds
    ABORTING = "aborting"  # hangs up after the request is sent
    HALF_CLOSING = "half-closing"  # closes its sending side after the request, and reads the response
    SLOW_SENDING = "slow-sending"
    SLOW_READING = "slow-reading"
    INVALID = "invalid"  # with a body that is refused


FREQUENCIES: Mapping[Manner, float] = {
    Manner.PLAIN: 0.72,
    Manner.HURRIED: 0.08,
    Manner.ABORTING: 0.05,
    Manner.HALF_CLOSING: 0.02,
    Manner.SLOW_SENDING: 0.06,
    Manner.SLOW_READING: 0.07,
}
WELL_BEHAVED: Mapping[Manner, float] = {Manner.PLAIN: 1.0}
LEAVING = (Manner.ABORTING,)


@dataclass(frozen=True, slots=True)
class StormConfig:
    """A storm. `timeout_s` is the deadline that the server gives to a request without its own deadline.

    `burstiness` is the squared coefficient of variation of the time between arrivals; 1 is Poisson's.
    `replace_every_s` is the time between two replacements of the server process. `frequencies` are those of
    the manners of clients.
    """

    texts: int
    seed: int
    requests_per_s: float = 150.0
    burstiness: float = 4.0
    max_texts: int = 24
    timeout_s: float = 20.0
    patience_s: float = 60.0
    replace_every_s: float | None = None
    frequencies: Mapping[Manner, float] = field(default_factory=lambda: FREQUENCIES)


@dataclass(frozen=True, slots=True)
class Planned:
    """One request: its number, when it is due, its texts, and how its client behaves."""

    number: int
    at_s: float
    first: int
    count: int
    manner: Manner
    timeout_ms: int | None


def make_text(seed: int, number: int) -> str:
    """Return a text that no other number has; a few texts have a mark."""
    dice = random.Random(seed << 32 | number)
    words = dice.choices(WORDS, k=dice.randrange(40))
    words += [mark for mark, frequency in MARKS.items() if dice.random() < frequency]
    return " ".join([f"text {number}", *words])


def has_mark(seed: int, number: int) -> bool:
    """Return True if the engine's script fails for this text."""
    return not MARKS.keys().isdisjoint(make_text(seed, number).split())


def plan_requests(config: StormConfig) -> Iterator[Planned]:
    """Return the requests in the order of their arrival."""
    dice = random.Random(config.seed + 1)
    at_s, first, number = 0.0, 0, 0
    shape = 1 / config.burstiness
    manners, frequencies = list(config.frequencies), list(config.frequencies.values())
    while first < config.texts:
        size = 1 if dice.random() < 0.5 else dice.randint(2, config.max_texts)
        count = min(size, config.texts - first)
        manner = dice.choices(manners, frequencies)[0]
        timeout_ms = dice.randint(1, 30) if manner is Manner.HURRIED else None
        yield Planned(number, at_s, first, count, manner, timeout_ms)
        at_s += dice.gammavariate(shape, 1 / config.requests_per_s / shape)
        first, number = first + count, number + 1


class Storm:
    """The clients of one storm against the server on `port`."""

    def __init__(self, port: int, config: StormConfig, ledger: Ledger, rows: Rows) -> None:
        self._port = port
        self._config = config
        self._ledger = ledger
        self._rows = rows
        self._idle: list[_Connection] = []
        self.retries = 0  # requests that a closing server left without a response
        self._late_s = 0.0  # the sum of the delays of this event loop
        self._tick_due_s: float | None = None

    async def send(self) -> None:
        """Send all requests, and return when each has ended."""
        clock = asyncio.get_running_loop().time
        began = clock()
        ticking = asyncio.create_task(self._tick())
        async with asyncio.TaskGroup() as group:
            for planned in plan_requests(self._config):
                early_s = began + planned.at_s - clock()
                # Without a pause, a client behind its schedule would never read.
                await asyncio.sleep(max(0.0, early_s))
                group.create_task(self.send_one(planned, began + planned.at_s))
        ticking.cancel()
        self.close()

    def close(self) -> None:
        """Close the connections."""
        for connection in self._idle:
            connection.abort()

    async def send_one(self, planned: Planned, due_s: float) -> None:
        """Send one request, and return when it has ended."""
        clock = asyncio.get_running_loop().time
        began_s, late_s = clock(), self._lateness_s(clock())
        own_s = planned.timeout_ms / 1000 if planned.timeout_ms else self._config.timeout_s
        left = planned.manner in LEAVING
        exchange = Exchange(planned.number, planned.first, planned.count, due_s, own_s, left)
        self._ledger.sent(exchange)
        head, body = self._request(planned)
        for _ in range(MAX_TRIES):
            if await self._try(planned.manner, exchange, head, body) or left:
                break
            self.retries += 1
        exchange.ended_s = clock()
        exchange.lag_s = began_s - due_s + self._lateness_s(exchange.ended_s) - late_s
        self._ledger.ended(exchange)

    async def _tick(self) -> None:
        """Add up the delays of this event loop, in which no client could read."""
        clock = asyncio.get_running_loop().time
        while True:
            self._tick_due_s = clock() + TICK_S
            await asyncio.sleep(TICK_S)
            self._late_s = self._lateness_s(clock())

    def _lateness_s(self, now_s: float) -> float:
        """The delays until now. A response may be read before the late tick that comes with it."""
        if self._tick_due_s is None:
            return 0.0
        late_s = now_s - self._tick_due_s
        return self._late_s + (late_s if late_s > ORDINARY_S else 0.0)

    def _request(self, planned: Planned) -> tuple[bytes, bytes]:
        texts = [make_text(self._config.seed, planned.first + place) for place in range(planned.count)]
        body = json.dumps({"input": texts, "encoding_format": "base64"}).encode()
        if planned.manner is Manner.INVALID:
            body = body[:-1]
        lines = ["POST /v1/embeddings HTTP/1.1", "host: x", f"content-length: {len(body)}"]
        lines.append(f"x-request-id: {planned.number}")
        if planned.timeout_ms is not None:
            lines.append(f"x-request-timeout-ms: {planned.timeout_ms}")
        return "\r\n".join([*lines, "", ""]).encode(), body

    async def _try(self, manner: Manner, exchange: Exchange, head: bytes, body: bytes) -> bool:
        """Send the request once; return False if it may be sent again, since nothing came back."""
        connection = self._idle.pop() if self._idle else None
        dice = random.Random(exchange.number)
        try:
            async with asyncio.timeout(self._config.patience_s):
                connection = connection or await _Connection.open(self._port)
                await connection.exchange(exchange, manner, head, body, dice)
        except TimeoutError:
            if connection is not None:
                connection.abort()
            return True
        except (ConnectionError, asyncio.IncompleteReadError):
            if connection is not None:
                connection.abort()
            return connection is not None and connection.has_answered
        if exchange.status == 200:
            exchange.rows = [self._rows.keep(row) for row in connection.rows]
        exchange.echo = connection.echo
        if connection.is_open and not exchange.left and not exchange.surplus:
            self._idle.append(connection)
        else:
            connection.abort()
        return True


class _Connection:
    """One keep-alive connection, with the parser that the server uses too."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._body = bytearray()
        self._whole = False
        self._parser: httptools.HttpResponseParser | None = None
        self.has_answered = False
        self.is_open = True
        self.echo = ""

    @classmethod
    async def open(cls, port: int) -> "_Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    @property
    def rows(self) -> list[str]:
        """The embeddings of the response, in base64."""
        return [item["embedding"] for item in json.loads(self._body)["data"]]

    async def exchange(
        self, exchange: Exchange, manner: Manner, head: bytes, body: bytes, dice: random.Random
    ) -> None:
        """Send one request and read its response. A client that leaves reads nothing."""
        self._body.clear()
        self._whole = self.has_answered = False
        if manner is Manner.SLOW_SENDING:
            await self._trickle(head + body)
        else:
            self._writer.write(head + body)
        if manner is Manner.HALF_CLOSING:
            self._writer.write_eof()
        if exchange.left:
            await self._writer.drain()
            # The request is by then unread, queued or running.
            await asyncio.sleep(dice.random() * 0.02)
            return
        await self._read(exchange, is_slow=manner is Manner.SLOW_READING)
        self.is_open = self.is_open and manner is not Manner.HALF_CLOSING

    async def _trickle(self, data: bytes) -> None:
        step = max(1, len(data) // 7)
        for start in range(0, len(data), step):
            self._writer.write(data[start : start + step])
            await self._writer.drain()
            await asyncio.sleep(0.004)

    async def _read(self, exchange: Exchange, *, is_slow: bool) -> None:
        self._parser = parser = httptools.HttpResponseParser(self)
        while not self._whole:
            if is_slow:
                await asyncio.sleep(0.002)
            data = await self._reader.read(1_000 if is_slow else 65_536)
            if not data:
                raise ConnectionError("the server closed the connection without a whole response")
            self.has_answered = True
            parser.feed_data(data)
        self.is_open = parser.should_keep_alive()
        exchange.status = parser.get_status_code()
        exchange.surplus = len(self._reader._buffer)  # type: ignore[attr-defined]

    # Called by the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self.echo = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        assert self._parser is not None
        # A client that has closed its sending side gets an interim response if it has to wait.
        if self._parser.get_status_code() != 100:
            self._whole = True

    def abort(self) -> None:
        """Close the connection with a reset."""
        with suppress(RuntimeError):
            self._writer.transport.abort()
