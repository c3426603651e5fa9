"""The interface between the batcher and the engines.

An engine takes a ragged `Batch` and returns finished `Embeddings`. Padding, shape buckets and pooling are
internal to the engine. The engine does not know queues or HTTP. Several threads call `run` at once, each in
its own lane. The engine translates all exceptions of its runtime into `vecmill.errors`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vecmill.errors import InvalidConfig
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Embeddings
from vecmill.values.engine_info import CostModel, EngineInfo
from vecmill.values.engine_plan import EnginePlan, Precision

if TYPE_CHECKING:
    from vecmill.models import ModelDescription


class Engine(Protocol):
    """A loaded model that computes embeddings or scores. All engines pass `tests/contract/`."""

    @property
    def info(self) -> EngineInfo:
        """The name, precision, device and limits of the engine. Constant after construction."""
        ...

    def warm_up(self) -> CostModel:
        """Run calls of several sizes, so that the first request is fast, and return the cost of calls."""
        ...

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """Compute the embeddings of `batch` on `width` cores. `width` must be in `info.lane_widths`.

        The embedding of a text depends on that text alone. Raises `EngineError` for any failure.
        """
        ...

    def renew(self) -> None:
        """Make new sessions for the calls that begin from now on, since a hung call may block the old ones.

        A call that has begun keeps its session, which is released when the call returns. Several lanes may
        call `run` meanwhile. Raises any error of the engine if it cannot make new sessions.
        """
        ...

    def close(self) -> None:
        """Release memory and threads. `close` may be called twice; `run` must not be called afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class EngineCapabilities:
    """The precisions that an engine offers on each device of this machine, the best device first.

    `length_multiples` are the multiples, in tokens, that the engine can round text lengths up to, the most
    promising first. It is empty for engines that do not round.
    """

    devices: Mapping[str, tuple[Precision, ...]]
    length_multiples: tuple[int, ...] = ()


class EngineClass(Protocol):
    """The interface of the classes in the table of engines."""

    def load(
        self, description: "ModelDescription", plan: EnginePlan, *, cores: int, cache_dir: Path
    ) -> Engine:
        """Load the model into an engine with the settings of `plan`, for calls on up to `cores` cores.

        Raises `InvalidConfig` for a plan that the engine does not support, and any other `SetupError`.
        """
        ...

    def find_capabilities(self) -> EngineCapabilities:
        """Return the devices and precisions of this machine. Quick; loads no model."""
        ...


def choose_precision(plan: EnginePlan, offered: tuple[Precision, ...]) -> Precision:
    """Return the planned precision, or the first precision of `offered` if none is planned.

    Raises `InvalidConfig` if the planned precision is not offered.
    """
    if plan.precision is None:
        return offered[0]
    if plan.precision not in offered:
        raise InvalidConfig(
            f"The {plan.engine} engine does not compute in {plan.precision} on this machine. It offers "
            f"{', '.join(offered)}."
        )
    return Precision(plan.precision)  # callers compare by identity, and a plan may have a plain string
