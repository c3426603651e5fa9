"""The entries of a catalog that are loaded and dropped (`residency`): where each is, and who uses it."""

import asyncio
import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from vecmill.errors import VecmillError
from vecmill.serving_plan.needs import LoadEstimate
from vecmill_server.base.errors import ModelUnavailable
from vecmill_server.catalog.load_failures import explain_failure


class Loadable(Protocol):
    """What can be loaded into memory and dropped from it, again and again."""

    @property
    def name(self) -> str:
        """The name for messages."""

    @property
    def estimate(self) -> LoadEstimate:
        """The estimated memory."""

    async def load(self) -> None:
        """Load it. Raises `VecmillError`; then nothing is left in memory."""

    async def drop(self) -> None:
        """Drop it, and return its memory to the system."""


class ResidentPlace(StrEnum):
    """Where a resident is."""

    OUT = "out"
    LOADING = "loading"
    LOADED = "loaded"
    LEAVING = "leaving"  # it is being dropped


@dataclass(eq=False, slots=True)
class Resident:
    """One entry of the catalog: its place, who uses it, and who waits for it.

    `held_mb` is the memory that it takes when loaded: as estimated, or as measured if that is more. `waiting`
    has a future and a client for each request that waits. `expires_at` is when it is dropped if nobody uses
    it. `yields` is true if it takes no further leases until it was dropped, `is_dismissed` if it is dropped
    when the last of its leases is given back, unless another was taken meanwhile. `failure` is the error of
    the last load, and `retry_at` when the next may be tried.
    """

    content: Loadable
    held_mb: float
    place: ResidentPlace = ResidentPlace.OUT
    leases: int = 0
    waiting: dict["asyncio.Future[None]", str | None] = field(default_factory=dict)
    used_at: float = 0.0
    loaded_at: float = 0.0
    expires_at: float = -math.inf
    yields: bool = False
    is_dismissed: bool = False
    is_wanted: bool = False
    loads: int = 0
    failure: VecmillError | None = None
    failures: int = 0
    retry_at: float = -math.inf

    @property
    def takes_leases(self) -> bool:
        """True if a request can use it now."""
        return self.place is ResidentPlace.LOADED and not self.yields

    @property
    def is_idle(self) -> bool:
        """True if it is loaded and nobody uses it."""
        return self.place is ResidentPlace.LOADED and not self.leases

    @property
    def peak_mb(self) -> float:
        """The memory that the next load takes at its peak, in MB."""
        estimate = self.content.estimate
        return max(self.held_mb, estimate.later_peak_mb if self.loads else estimate.first_peak_mb)

    def explain(self, now: float) -> ModelUnavailable:
        """Return the error of requests for it after a load that failed."""
        assert self.failure is not None
        retry_s = self.retry_at - now
        return ModelUnavailable(
            f"The model `{self.content.name}` could not be loaded: {explain_failure(self.failure)}",
            retry_after_s=retry_s if math.isfinite(retry_s) else None,
        )
