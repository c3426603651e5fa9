"""Plans: the engine, precision, device and cores that compute a model.

`vecmill optimize` measures plans and stores the best plan. Options can set a plan by hand.
"""

from dataclasses import dataclass
from enum import StrEnum

DEFAULT_ENGINE = "onnx"
DEFAULT_BATCH_TOKENS = 512


class Precision(StrEnum):
    """The number format in which an engine multiplies. Embeddings are float32 in any case."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"  # loses next to no accuracy
    INT8_FAST = "int8-fast"  # faster, less accurate


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """The way in which an engine computes a model. `None` and `()` leave a choice to the engine.

    `device` is a device or an execution provider, such as `cpu`, `cuda:1` or `tensorrt`. `lane_widths` are
    the numbers of cores that one call may use, ascending. The first is 1 unless there is only one number.
    Engines that compile for shapes round text lengths up to a multiple of `length_multiple`.
    `max_batch_tokens` is the number of tokens that one call should hold.
    """

    engine: str = DEFAULT_ENGINE
    precision: Precision | None = None
    device: str | None = None
    lane_widths: tuple[int, ...] = ()
    length_multiple: int | None = None
    max_batch_tokens: int | None = None
