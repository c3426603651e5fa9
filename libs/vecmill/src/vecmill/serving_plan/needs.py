"""The memory and the start time that a model needs, by the rules of docs/choosing.md.

Memory has lines through the tables of that page, start times have lines above them. They were measured on
two cores.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SERVER_MB = 200.0  # of a server without its model
_BUFFERED_SHARE = 4 / 3  # requests and responses may take a quarter of the limit


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The memory in MB that a model takes after a while, and the limit that its first start fits in."""

    reserve_mb: float
    limit_mb: float


@dataclass(frozen=True, slots=True)
class LoadEstimate:
    """The estimated memory in MB: when loaded, and at the peak of the first and of later loads."""

    held_mb: float
    first_peak_mb: float
    later_peak_mb: float


# MB for each million parameters, when loaded and at the peak of the first load.
_PER_MILLION_MB: Mapping[tuple[str, str], tuple[float, float]] = {
    ("onnx", "fp32"): (4.0, 8.0),
    ("onnx", "int8-blocks"): (1.6, 3.0),
    ("openvino", "bf16"): (7.0, 12.5),
}


@dataclass(frozen=True, slots=True)
class StartTime:
    """The most seconds until a model is ready, at its first start and at later ones."""

    first_s: float
    later_s: float


def estimate_memory(parameters: float) -> Mapping[str, MemoryNeed]:
    """Return the memory of a model by engine and precision, for those that were measured."""
    millions = parameters / 1e6
    fp32 = MemoryNeed(SERVER_MB + 4 * millions, (SERVER_MB + 8 * millions) * _BUFFERED_SHARE)
    bf16 = MemoryNeed(SERVER_MB + 7 * millions, (450 + 12.5 * millions) * _BUFFERED_SHARE)
    blocks = MemoryNeed(SERVER_MB + 1.6 * millions, (400 + 3 * millions) * _BUFFERED_SHARE)
    return {"onnx fp32": fp32, "onnx int8-blocks": blocks, "openvino bf16": bf16}


# The memory of a loaded model beside its weights: tokenizer, graph and buffers.
_BESIDE_MB = 30.0
# The memory of a first load beside what depends on the weights.
_PREPARING_MB = 70.0


def estimate_load(parameters: float, engine: str, precision: str | None) -> LoadEstimate:
    """Return the memory of a model in a server that holds others too, without that of the server.

    The kinds of plans that were not measured count as fp32, which is more than most of them take.
    """
    millions = parameters / 1e6
    held, first = _PER_MILLION_MB.get((engine, precision or "fp32"), (4.0, 8.0))
    held_mb = _BESIDE_MB + held * millions
    later_peak_mb = _BESIDE_MB + (held if engine == "onnx" else first) * millions
    return LoadEstimate(held_mb, _PREPARING_MB + first * millions, later_peak_mb)


def estimate_start(fp32_bytes: float, *, is_converted: bool) -> StartTime:
    """Return the most that the onnx engine takes to start in fp32 with weights of `fp32_bytes`.

    With `is_converted` the weights are stored in 16 bits, which the first start converts.
    """
    gigabytes = fp32_bytes / 1e9
    return StartTime(1 + (8.0 if is_converted else 7.0) * gigabytes, 1.3 + 0.85 * gigabytes)
