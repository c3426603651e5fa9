"""The seam between the batcher and whatever computes rows.

An engine gets a ragged `Batch` and gives finished `Rows`; padding, shape buckets and pooling are
its own business. It knows nothing of queues or HTTP. `run` is called from several threads at
once, each with a lane of its own; what an engine raises is turned into `vecmill.errors` here,
never above.
"""

from typing import Protocol

from vecmill.types import Batch, CostModel, EngineInfo, Rows


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
