"""What a client sent and what came back, and what is wrong with it.

Checked offline, after the storm, against rows that are known exactly: a row identifies its text.
"""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

# Every way in which a request may end, other than with its rows.
REFUSALS = frozenset({429, 500, 503, 504})


@dataclass(slots=True)
class Exchange:
    """One request. `status` is `None` while there is no whole answer; `left` if we hung up ourselves."""

    texts: Sequence[str]
    left: bool = False
    status: int | None = None
    rows: Sequence[str] = ()  # base64, as they came
    surplus: int = 0  # bytes that came after the answer, unasked


@dataclass(slots=True)
class Verdict:
    """Texts that came out wrong, by kind, and how the others ended."""

    lost: int = 0  # no answer, or a 200 without their row
    duplicated: int = 0  # more rows, or more answers, than texts
    swapped: int = 0  # somebody else's row
    corrupted: int = 0  # nobody's row
    undocumented: int = 0  # a status that no request should get
    served: int = 0  # their own row
    ends: Counter[str] = field(default_factory=Counter)

    @property
    def is_clean(self) -> bool:
        """Whether nothing at all came out wrong."""
        return not (self.lost or self.duplicated or self.swapped or self.corrupted or self.undocumented)


def encode_row(row: np.ndarray) -> str:
    """A row as the server writes it."""
    return base64.b64encode(np.ascontiguousarray(row, "<f4").tobytes()).decode()


def judge(exchanges: Iterable[Exchange], row_of: Mapping[str, str]) -> Verdict:
    """Compare what came back with `row_of`: text -> encoded row, one to one."""
    owners = set(row_of.values())
    assert len(owners) == len(row_of), "two texts priority a row: the check would be blind to a swap"
    verdict = Verdict()
    for exchange in exchanges:
        _judge_one(exchange, row_of, owners, verdict)
    return verdict


def _judge_one(exchange: Exchange, row_of: Mapping[str, str], owners: set[str], verdict: Verdict) -> None:
    texts = len(exchange.texts)
    verdict.ends["left" if exchange.left else str(exchange.status)] += texts
    if exchange.surplus:
        verdict.duplicated += texts
    if exchange.left:
        return
    if exchange.status is None:
        verdict.lost += texts
        return
    if exchange.status != 200:
        verdict.undocumented += 0 if exchange.status in REFUSALS else texts
        return
    verdict.lost += max(0, texts - len(exchange.rows))
    verdict.duplicated += max(0, len(exchange.rows) - texts)
    for text, row in zip(exchange.texts, exchange.rows, strict=False):
        if row == row_of[text]:
            verdict.served += 1
        elif row in owners:
            verdict.swapped += 1
        else:
            verdict.corrupted += 1
