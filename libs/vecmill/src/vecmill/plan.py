"""How a model is to be computed: which engine, how precisely, on what, by how many cores a call.

`vecmill optimize` measures plans and writes down the best; a person may choose one by options.
"""

from dataclasses import dataclass
from enum import StrEnum

from vecmill.topology import Topology

DEFAULT_ENGINE = "onnx"
DEFAULT_BATCH_TOKENS = 512


class Precision(StrEnum):
    """What an engine multiplies. Rows are float32 whatever it is."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"  # made to lose next to nothing
    INT8_FAST = "int8-fast"  # made to be fast


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """What `load_engine` is told. `None` and `()` leave a choice to the engine.

    `device` is a device or an execution provider, such as `cpu`, `cuda:1` or `tensorrt`.
    `lane_widths` are the numbers of cores that one call may be given, ascending, the first of them 1 unless
    there is only one. `length_multiple` rounds up the shapes that an engine compiles for.
    `max_batch_tokens` is how many tokens one call should hold.
    """

    engine: str = DEFAULT_ENGINE
    precision: Precision | None = None
    device: str | None = None
    lane_widths: tuple[int, ...] = ()
    length_multiple: int | None = None
    max_batch_tokens: int | None = None

    def widths_within(self, cores: int) -> tuple[int, ...]:
        """The lane widths for `cores` cores of this machine: those planned, else one core and a wide call."""
        planned = tuple(width for width in self.lane_widths if width <= cores)
        return planned or tuple(sorted({1, Topology.read().widest_call(cores)}))
