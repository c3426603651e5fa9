"""Loads of a mill: streams of requests, which a real process and the simulated one get alike.

All lengths and times are drawn from a seed.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# Draws the tokens of each text of one request.
DrawLengths = Callable[[random.Random], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests of one kind.

    Each of `clients` sends its next request when it has the answer to the last one. Without clients, `rate`
    requests a second arrive at random times (a Poisson process), whatever waits.
    """

    name: str
    draw: DrawLengths
    clients: int = 0
    rate: float = 0.0

    def requests(self, seed: int, client: int = 0) -> Iterator[tuple[int, ...]]:
        """Yield the tokens of the texts of each request of a client."""
        dice = random.Random(f"{seed} {self.name} {client}")
        while True:
            yield self.draw(dice)

    def arrivals(self, seed: int) -> Iterator[float]:
        """Yield the times of the requests of a stream without clients, in seconds from the start."""
        dice = random.Random(f"{seed} {self.name} arrivals")
        return itertools.accumulate(dice.expovariate(self.rate) for _ in itertools.count())


@dataclass(frozen=True, slots=True)
class Load:
    """Streams of requests at the same time."""

    name: str
    streams: tuple[Stream, ...]


def uniform(texts: int, least: int, most: int) -> DrawLengths:
    """Return requests of so many texts, whose lengths lie between two numbers of tokens."""
    return lambda dice: tuple(dice.randint(least, most) for _ in range(texts))


def log_normal(texts: int, *, median: int = 40, spread: float = 0.9, most: int = 400) -> DrawLengths:
    """Return requests of so many texts, most of them short and some long."""

    def draw(dice: random.Random) -> tuple[int, ...]:
        lengths = (dice.lognormvariate(math.log(median), spread) for _ in range(texts))
        return tuple(min(max(round(length), 3), most) for length in lengths)

    return draw


QUERIES = uniform(1, 8, 28)
MIXED = log_normal(1)
PASSAGES = uniform(16, 64, 256)


def closed(name: str, draw: DrawLengths, clients: int) -> Load:
    """Return a load of clients that send one request after the other."""
    return Load(name, (Stream(name, draw, clients=clients),))


def arriving(name: str, draw: DrawLengths, rate: float) -> Load:
    """Return a load of requests that arrive at random times."""
    return Load(name, (Stream(name, draw, rate=rate),))
