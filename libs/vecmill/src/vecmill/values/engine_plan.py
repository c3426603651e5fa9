"""Plans: the engine, precision, device and cores that compute a model; and what a loaded engine is and costs.

`vecmill optimize` measures plans and stores the best plan. Options can set a plan by hand.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from vecmill.values.output_kinds import OutputShape

DEFAULT_ENGINE = "onnx"
DEFAULT_BATCH_TOKENS = 512


class Precision(StrEnum):
    """The number format in which an engine multiplies. Embeddings are float32 in any case."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"  # loses next to no accuracy
    INT8_FAST = "int8-fast"  # faster, less accurate
    INT8_BLOCKS = "int8-blocks"  # the least memory, made in the time of an fp32 start


# The values of `Precision`, for those who write them as strings.
PrecisionName = Literal["fp32", "fp16", "bf16", "int8", "int8-fast", "int8-blocks"]


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


@dataclass(frozen=True, slots=True)
class CostModel:
    """The seconds that a call takes, measured in warm-up: `fixed_s + per_token_s * tokens`."""

    fixed_s: float
    per_token_s: float

    def seconds(self, tokens: int) -> float:
        """Return the expected seconds of one call over `tokens` tokens."""
        return self.fixed_s + self.per_token_s * tokens


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The properties of a loaded engine. Constant after loading.

    `dim` is the number of dimensions of an embedding, `max_tokens` the longest input. `lane_widths` lists the
    numbers of cores that one call may use, ascending. `parallel_calls` is the number of calls that may run at
    once, if it does not depend on the cores. `batch_tokens` is the best number of tokens for a call, if the
    engine or its plan sets one. `normalizes` tells whether the engine scales the embeddings of texts to unit
    length, and returns their former lengths too. With `is_finished` it runs an exported graph that has only
    finished outputs: it has neither embeddings before the normalisation nor hidden states. If it
    `shares_prefixes`, it computes the shared prefix of the texts of a call once.
    """

    name: str
    precision: str
    device: str
    dim: int
    max_tokens: int
    lane_widths: tuple[int, ...]
    output_shape: OutputShape = OutputShape.TEXT
    parallel_calls: int | None = None
    batch_tokens: int | None = None
    normalizes: bool = False
    is_finished: bool = False
    shares_prefixes: bool = False

    def lanes_on(self, cores: int) -> int:
        """Return the number of calls that may run at once on `cores` cores, at least 1."""
        calls = max(1, cores // self.lane_widths[0])
        return min(calls, self.parallel_calls or calls)
