"""The results of the comparison, their ratios, and their JSON document."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from bench.peers.loads import PeerLoad, list_loads
from bench.peers.models import MAX_TOKENS, MODEL
from bench.peers.roster import BASE

# The cosine of the worst text, below which the embeddings are those of something else. Precisions of 8 bits
# stay above it.
WRONG_BELOW = 0.95
# Above it the embeddings are those of fp32.
SAME_FROM = 0.9999


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """One load on one peer. Without figures `reason` says why.

    `requests` is the number of requests, or calls, and `encoding` is that of the embeddings in responses.
    """

    texts_per_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    generator: str | None = None
    reason: str | None = None
    requests: int | None = None
    encoding: str | None = None

    def figure(self, load: PeerLoad) -> float | None:
        """Return the figure that the table has for the load."""
        return self.p50_ms if load.is_latency else self.texts_per_s


@dataclass(frozen=True, slots=True)
class PeerRound:
    """The figures of one peer in one round, by the name of the load. Memory is PSS."""

    ready_s: float | None = None
    memory_mb: float | None = None
    loads: Mapping[str, LoadFigures] = field(default_factory=dict)


@dataclass(slots=True)
class PeerResult:
    """One peer: its versions, its accuracy, and its rounds; `reason` says why there are none.

    `cosine_min` and `cosine_mean` compare the embeddings with those of sentence-transformers in fp32.
    """

    name: str
    transport: str
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    reason: str | None = None
    cosine_min: float | None = None
    cosine_mean: float | None = None
    rounds: list[PeerRound] = field(default_factory=list)

    @property
    def is_measured(self) -> bool:
        """Whether at least one load has a figure."""
        return any(figures.texts_per_s for each in self.rounds for figures in each.loads.values())

    @property
    def is_wrong(self) -> bool:
        """Whether the embeddings are not those of the model."""
        return self.cosine_min is not None and self.cosine_min < WRONG_BELOW

    def values(self, load: PeerLoad) -> list[float]:
        """Return the figures of a load, of the rounds that have one."""
        found = (self.in_round(number, load) for number in range(len(self.rounds)))
        return [value for value in found if value is not None]

    def in_round(self, number: int, load: PeerLoad) -> float | None:
        """Return the figure of a load in a round, `None` if there is none."""
        if number >= len(self.rounds) or load.name not in self.rounds[number].loads:
            return None
        return self.rounds[number].loads[load.name].figure(load)

    def reasons(self) -> list[str]:
        """Return why loads have no figure, each reason once."""
        found = (
            f"{name}: {figures.reason}"
            for each in self.rounds
            for name, figures in each.loads.items()
            if figures.reason is not None
        )
        return list(dict.fromkeys(found))

    @property
    def memory_mb(self) -> float | None:
        """The median of the rounds."""
        found = [each.memory_mb for each in self.rounds if each.memory_mb is not None]
        return median(found) if found else None

    @property
    def ready_s(self) -> list[float]:
        """The time of the first start and the median of the later ones, if there are any.

        The first start may prepare weights that the later ones find in a cache.
        """
        found = [each.ready_s for each in self.rounds if each.ready_s is not None]
        return [*found[:1], median(found[1:])] if len(found) > 1 else found

    @property
    def encodings(self) -> list[str]:
        """The encodings of the embeddings in the responses, each once."""
        found = (figures.encoding for each in self.rounds for figures in each.loads.values())
        return list(dict.fromkeys(encoding for encoding in found if encoding is not None))

    def least_requests(self, load: PeerLoad) -> int | None:
        """Return the smallest number of requests of a load in a round, `None` if it is not known."""
        found = [each.loads[load.name].requests for each in self.rounds if load.name in each.loads]
        return min((count for count in found if count is not None), default=None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of all peers, the settings of the run, and the machine."""

    finished_at: str
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    peers: Sequence[PeerResult]

    @property
    def model(self) -> str:
        """The name of the measured model."""
        return str(self.settings.get("model", MODEL))

    @property
    def loads(self) -> tuple[PeerLoad, ...]:
        """The loads, which depend on the tokens that the model reads."""
        return list_loads(self.settings.get("tokens", MAX_TOKENS))

    def base(self) -> PeerResult | None:
        """Return the result that the ratios divide by, `None` if it was not measured."""
        return next((peer for peer in self.peers if peer.name == BASE and peer.is_measured), None)

    def save(self, path: Path) -> None:
        """Write the results as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")

    @classmethod
    def read(cls, path: Path) -> "Comparison":
        """Read results that `save` wrote."""
        document = json.loads(path.read_text("utf-8"))
        peers = [_read_peer(entry) for entry in document.pop("peers")]
        return cls(peers=peers, **document)


def _read_peer(entry: dict[str, Any]) -> PeerResult:
    rounds = [
        PeerRound(
            each["ready_s"],
            each["memory_mb"],
            {name: LoadFigures(**figures) for name, figures in each["loads"].items()},
        )
        for each in entry.pop("rounds")
    ]
    return PeerResult(**entry, rounds=rounds)


def speed_ratios(peer: PeerResult, base: PeerResult, load: PeerLoad) -> list[float]:
    """Return how many times as fast as `base` a peer was in each round, also for latencies."""
    found = []
    for number in range(min(len(peer.rounds), len(base.rounds))):
        value, other = peer.in_round(number, load), base.in_round(number, load)
        if value and other:
            found.append(other / value if load.is_latency else value / other)
    return found


def mean_ratio(peer: PeerResult, base: PeerResult, loads: Sequence[PeerLoad]) -> tuple[float, int] | None:
    """Return the geometric mean of the median ratios over all loads that both have, and their number.

    Returns `None` if both have no load.
    """
    medians = [median(found) for load in loads if (found := speed_ratios(peer, base, load))]
    return (geometric_mean(medians), len(medians)) if medians else None
