"""The counters of texts and tokens by API key, for operators who bill or limit the use.

The label `key` has the name of the key's owner, never the key. Keys of `--api-key` have no name, so `key` is
empty. Work counts when it is complete: an answer is written, or the result of a batch line is stored. Refused
and failed requests, and requests that no engine computes, such as `/tokenize`, do not count. A text that
shares the computation of an identical text counts in full, like `usage` in the response.

There may be many thousand owners. Therefore the counts are in a dictionary, which is copied in one step, and
become metrics only when a page is written.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client.metrics_core import Metric

from vecmill_server.telemetry.metrics import definitions


class KeyModel(NamedTuple):
    """The owner of a key, and a model."""

    owner: str
    model: str


class Use(NamedTuple):
    """What an owner has used of a model since `began_at`, in Unix seconds."""

    texts: int
    tokens: int
    began_at: float


class KeyUse:
    """The texts and tokens of each owner and model. Used on the event loop only."""

    def __init__(self, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._used: dict[KeyModel, Use] = {}

    def add(self, owner: str, model: str, texts: int, tokens: int) -> None:
        """Count complete work of the owner of a key."""
        key = KeyModel(owner, model)
        used = self._used.get(key) or Use(0, 0, self._wall_clock())
        self._used[key] = Use(used.texts + texts, used.tokens + tokens, used.began_at)

    def copy(self) -> Mapping[KeyModel, Use]:
        """Return all counts as they are now."""
        return self._used.copy()


def key_families(used: Mapping[KeyModel, Use]) -> Iterable[Metric]:
    """Return the metrics of these counts."""
    texts, tokens = definitions.KEY_TEXTS.family(), definitions.KEY_TOKENS.family()
    for key, use in used.items():
        texts.add_metric(key, use.texts, use.began_at)
        tokens.add_metric(key, use.tokens, use.began_at)
    return texts, tokens
