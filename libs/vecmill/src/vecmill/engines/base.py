"""The seam between the batcher and whatever computes rows.

An engine gets a ragged `Batch` and gives finished `Rows`; padding, shape buckets and pooling are
its own business. It knows nothing of queues or HTTP. `run` is called from several threads at
once, each with a lane of its own; what an engine raises is turned into `vecmill.errors` here,
never above.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vecmill.errors import InvalidConfig
from vecmill.plan import EnginePlan, Precision
from vecmill.types import Batch, CostModel, EngineInfo, Rows

if TYPE_CHECKING:
    from vecmill.models import ModelDescription


class Engine(Protocol):
    """Computes rows for texts. All engines pass `tests/contract/`."""

    @property
    def info(self) -> EngineInfo:
        """What this engine is and can do. Constant after construction."""
        ...

    def warm_up(self) -> CostModel:
        """Run whatever makes the first real call as fast as the later ones; measure the cost."""
        ...

    def run(self, batch: Batch, *, width: int) -> Rows:
        """Compute the rows of `batch` on `width` cores, one of `info.lane_widths`.

        The row of a text depends on that text alone. Raises `EngineError` for any failure.
        """
        ...

    def close(self) -> None:
        """Give back memory and threads. Calling it twice is fine; running afterwards is not."""
        ...


@dataclass(frozen=True, slots=True)
class Survey:
    """What an engine finds on this machine: the precisions of each device, the best device first.

    `length_multiples` are what an engine may round lengths up to, the likeliest to be best first; empty for
    one that does not round.
    """

    devices: Mapping[str, tuple[Precision, ...]]
    length_multiples: tuple[int, ...] = ()


class EngineClass(Protocol):
    """What the table of engines names."""

    def load(
        self, description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path
    ) -> Engine:
        """Build the engine for a model as `plan` says, to run calls on up to `cores` cores.

        Raises `InvalidConfig` for a plan that it cannot follow, and other `SetupError`s.
        """
        ...

    def survey(self) -> Survey:
        """What could be used here. Quick; loads no model."""
        ...


def choose_precision(plan: EnginePlan, offered: tuple[Precision, ...]) -> Precision:
    """The precision that is planned, or the first offered. Raises `InvalidConfig` if it is not offered."""
    if plan.precision is None:
        return offered[0]
    if plan.precision not in offered:
        raise InvalidConfig(
            f"The {plan.engine} engine computes in {', '.join(offered)} here, not in {plan.precision}."
        )
    return plan.precision
