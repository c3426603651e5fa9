"""Requests that a dialect composes from requests of the library, and what they are composed of."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeVar

from vecmill.mill import Mill
from vecmill.requests import Caller, Picture, Request
from vecmill.results import NO_TIME, CountsTruncated, Timings, Truncated

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class CompositeResult(CountsTruncated):
    """What a composite request found: `value`, with the counts and times that every result has.

    `cached_count` of its inputs were found in the embedding cache.
    """

    value: Any
    token_count: int = 0
    truncated: tuple[Truncated, ...] = ()
    timings: Timings = NO_TIME
    cached_count: int = 0


class CompositeRequest(Request[R], ABC):
    """A request that a dialect composes from other requests, depending on the model."""

    __slots__ = ()

    @property
    def sizes(self) -> list[int]:
        """The sizes of the inputs; by default there are none."""
        return []

    @property
    def parts(self) -> tuple[Request[Any], ...]:
        """The requests whose results are in the answer, as far as they embed; by default there are none."""
        return ()

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures of the parts."""
        return tuple(picture for part in self.parts for picture in part.pictures)

    @abstractmethod
    async def run(self, mill: Mill, caller: Caller) -> R:
        """Return the result of `mill`, on behalf of `caller`. Raises the same errors as `Mill.run`."""
