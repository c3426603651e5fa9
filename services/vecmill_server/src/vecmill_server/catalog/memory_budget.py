"""The memory that the residents of a catalog share, and which of them make room for a load."""

from collections.abc import Callable, Sequence

from vecmill_server.catalog.residents import Resident, ResidentPlace

MEBIBYTE = 1024 * 1024
# The share of the memory budget that counts; the rest is for the requests that the models answer.
MODELS_SHARE = 0.95


class MemoryBudget:
    """A budget of memory for the whole process, of which `base_mb` is not for residents.

    `measure_mb` returns the memory that the process takes.
    """

    def __init__(
        self,
        budget_mb: float,
        base_mb: float,
        measure_mb: Callable[[], float],
        residents: Sequence[Resident],
    ) -> None:
        """`residents` are those of a `Residency`, which adds further ones."""
        self.budget_mb = budget_mb
        self.measure_mb = measure_mb
        self._base_mb = base_mb
        self._residents = residents

    @property
    def room_mb(self) -> float:
        """The memory of all residents together, at most, in MB."""
        return self.budget_mb - self._base_mb

    @property
    def held_mb(self) -> float:
        """The memory that counts as taken, the rest of the process included, in MB."""
        return self._base_mb + sum(
            each.held_mb for each in self._residents if each.place is not ResidentPlace.OUT
        )

    def measure_base(self) -> None:
        """Count what the process takes now, before it loads anything, as not for residents."""
        self._base_mb = max(self._base_mb, self.measure_mb())

    def missing_mb(self, resident: Resident) -> float:
        """Return the memory that the load of a resident lacks, in MB."""
        taken_mb = self.held_mb
        if any(each.place is not ResidentPlace.OUT for each in self._residents):
            taken_mb = max(taken_mb, self.measure_mb())
        # A peak that is larger than the whole room can only be had with nothing else loaded.
        return taken_mb + min(resident.peak_mb, self.room_mb) - self.budget_mb

    def choose_dropped(self, resident: Resident) -> list[Resident] | None:
        """Return the residents to drop for a load; `None` if there is not enough that may be dropped now."""
        missing_mb = self.missing_mb(resident)
        if missing_mb <= 0:
            return []
        if any(each.place is ResidentPlace.LEAVING for each in self._residents):
            return None  # its memory is not free yet
        idle = sorted((each for each in self._residents if each.is_idle), key=lambda each: each.used_at)
        chosen = []
        for each in idle:
            chosen.append(each)
            missing_mb -= each.held_mb
            if missing_mb <= 0:
                return chosen
        # With all of them dropped, what the process takes beside the residents does not count.
        loaded = sum(each.place is not ResidentPlace.OUT for each in self._residents)
        return chosen if chosen and len(chosen) == loaded else None
