"""The log of what a client sent and received, and the check of this log.

The log is a file of JSON lines that is only appended to: one line when a request is sent, one when it ends.
The check runs afterwards and knows the right embedding of each text, so a wrong embedding has an owner.
"""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from vecmill.values.aliases import FloatArray

# Every status with which an accepted text may end without its embedding.
REFUSALS = frozenset({429, 500, 503, 504})

# A response may come so much later than the deadline, without the time in which the client stood still.
GRACE_S = 3.0
MIN_COSINE = 0.9999


@dataclass(slots=True)
class Exchange:
    """One request: the numbers of its texts, and its response.

    `at_s` is the time at which the request was due, `ended_s` that of the response. `status` is `None` while
    there is no whole response. A request that its client gave up has `left`. `lag_s` is the time of this
    exchange in which the client did not run.
    """

    number: int
    first: int
    count: int
    at_s: float
    timeout_s: float
    left: bool = False
    ended_s: float | None = None
    lag_s: float = 0.0
    status: int | None = None
    echo: str = ""  # the request id in the response
    rows: Sequence[str] = ()  # as `keep` wrote them
    surplus: int = 0  # bytes after the response

    @property
    def texts(self) -> range:
        """The numbers of the texts."""
        return range(self.first, self.first + self.count)


class Rows(Protocol):
    """The right embeddings of all texts, and how the log keeps an embedding."""

    def keep(self, row: str) -> str:
        """Return what the log keeps of an embedding in base64."""

    def owner(self, text: int, row: str) -> int | None:
        """Return the text whose embedding `row` is: `text` itself, another one, or `None`."""


def encode_row(row: FloatArray) -> str:
    """Return an embedding in base64, as the server writes it."""
    return base64.b64encode(np.ascontiguousarray(row, "<f4").tobytes()).decode()


class ExactRows:
    """Embeddings that are functions of the text, compared byte by byte."""

    def __init__(self, rows: Iterator[str]) -> None:
        """`rows` are the embeddings of the texts 0, 1, 2 ... in base64."""
        self._digests = [self.keep(row) for row in rows]
        self._owners = {digest: number for number, digest in enumerate(self._digests)}
        assert len(self._owners) == len(self._digests), "two texts share an embedding: no swap would be seen"

    def keep(self, row: str) -> str:
        """Return the digest of an embedding."""
        return hashlib.blake2b(row.encode(), digest_size=10).hexdigest()

    def owner(self, text: int, row: str) -> int | None:
        """Return the text with this digest."""
        return text if self._digests[text] == row else self._owners.get(row)


class NearRows:
    """Embeddings of a real engine, which may differ in the last digits from batch to batch."""

    def __init__(self, rows: FloatArray) -> None:
        """`rows` are the embeddings of the texts, (texts, dim), of unit length."""
        self._rows = rows

    def keep(self, row: str) -> str:
        """Return the embedding as 16-bit floats in base64."""
        return base64.b64encode(np.frombuffer(base64.b64decode(row), "<f4").astype("<f2").tobytes()).decode()

    def owner(self, text: int, row: str) -> int | None:
        """Return the text whose embedding is nearest, if it is near enough."""
        found = np.frombuffer(base64.b64decode(row), "<f2").astype(np.float32)
        if self._rows[text] @ found >= MIN_COSINE:
            return text
        cosines = self._rows @ found
        nearest = int(cosines.argmax())
        return nearest if cosines[nearest] >= MIN_COSINE else None


class Ledger:
    """The log, open for writing."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def sent(self, exchange: Exchange) -> None:
        """Write that a request is being sent."""
        fields = ("number", "first", "count", "at_s", "timeout_s", "left")
        self._write({"event": "sent", **{name: getattr(exchange, name) for name in fields}})

    def ended(self, exchange: Exchange) -> None:
        """Write the response of a request, or that there was none."""
        fields = ("number", "ended_s", "lag_s", "status", "echo", "rows", "surplus")
        self._write({"event": "ended", **{name: getattr(exchange, name) for name in fields}})

    def _write(self, entry: Mapping[str, object]) -> None:
        self._file.write(json.dumps(entry) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


@dataclass(slots=True)
class Verdict:
    """The number of texts that came out wrong, by kind, and how the others ended."""

    lost: int = 0  # no response, or a 200 without their embedding
    unexpected: int = 0  # a response to another request, or to none
    duplicated: int = 0  # more embeddings, or more responses, than texts
    swapped: int = 0  # the embedding of another text
    corrupted: int = 0  # the embedding of no text
    late: int = 0  # a response after the deadline
    undocumented: int = 0  # a status that no request should get
    served: int = 0  # their own embedding
    ends: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)  # of requests, of clients that stayed
    left: int = 0  # requests
    waits_s: list[float] = field(default_factory=list)  # from the time a request was due to its 200
    failed: list[range] = field(default_factory=list)  # the texts of each request that ended with 500

    @property
    def faults(self) -> Mapping[str, int]:
        """The kinds of wrong that occurred."""
        kinds = ("lost", "unexpected", "duplicated", "swapped", "corrupted", "late", "undocumented")
        return {kind: found for kind in kinds if (found := getattr(self, kind))}


def judge(path: Path, texts: int, rows: Rows) -> Verdict:
    """Compare a log with the right embeddings of `texts` texts."""
    verdict = Verdict()
    open_exchanges: dict[int, Exchange] = {}
    seen = bytearray(texts)
    for entry in _read(path):
        if entry.pop("event") == "sent":
            exchange = Exchange(**entry)
            open_exchanges[exchange.number] = exchange
            for text in exchange.texts:
                assert not seen[text], f"text {text} was sent twice: the log is of another run"
                seen[text] = 1
            continue
        ending = open_exchanges.pop(entry["number"], None)
        if ending is None:
            verdict.unexpected += 1
            continue
        for name, value in entry.items():
            setattr(ending, name, value)
        _judge_one(ending, rows, verdict)
    for exchange in open_exchanges.values():
        _judge_one(exchange, rows, verdict)
    verdict.lost += seen.count(0)  # never sent
    return verdict


def _read(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as log:
        yield from map(json.loads, log)


def _judge_one(exchange: Exchange, rows: Rows, verdict: Verdict) -> None:
    texts = exchange.count
    verdict.ends["left" if exchange.left else str(exchange.status)] += texts
    verdict.duplicated += texts if exchange.surplus else 0
    if exchange.left:
        verdict.left += 1
        return
    if exchange.status is None or exchange.ended_s is None:
        verdict.lost += texts
        return
    verdict.statuses[exchange.status] += 1
    verdict.unexpected += 0 if exchange.echo == str(exchange.number) else texts
    took_s = exchange.ended_s - exchange.at_s - exchange.lag_s
    verdict.late += texts if took_s > exchange.timeout_s + GRACE_S else 0
    if exchange.status != 200:
        verdict.undocumented += 0 if exchange.status in REFUSALS else texts
        if exchange.status == 500:
            verdict.failed.append(exchange.texts)
        return
    verdict.waits_s.append(exchange.ended_s - exchange.at_s)
    verdict.lost += max(0, texts - len(exchange.rows))
    verdict.duplicated += max(0, len(exchange.rows) - texts)
    for text, row in zip(exchange.texts, exchange.rows, strict=False):
        owner = rows.owner(text, row)
        if owner == text:
            verdict.served += 1
        elif owner is None:
            verdict.corrupted += 1
        else:
            verdict.swapped += 1
