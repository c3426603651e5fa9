"""Detects the type of the processor, its caches and its support for int8 and bf16 products.

proc/cpuinfo                                       x86: `model name`, `flags`; Arm: `CPU part`, `Features`
sys/devices/system/cpu/cpu0/cache/index2/size      1024K (with `level` and `type` beside it)
"""

import hashlib
import json
import platform
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from vecmill.hardware.arm_cores import name_core
from vecmill.hardware.system_calls import describe_processor, is_linux

# Instructions that add up four int8 products in 32 bits without overflow. On other processors ONNX Runtime
# adds pairs of products in 16 bits, which can overflow and give wrong embeddings.
_BYTE_PRODUCTS = frozenset({"avx512_vnni", "avx_vnni", "asimddp"})

# Instructions on which the speed of the engines depends, as the flags of /proc/cpuinfo name them.
_INSTRUCTION_SETS = (
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "avx_vnni",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
    "sve2",
)

# The keys of /proc/cpuinfo that distinguish types of processors.
_TYPE_KEYS = frozenset({"model name", "flags", "Features", "CPU implementer", "CPU part"})
_NAME_KEYS = frozenset({"model name", "Model", "Processor"})
_IMPLEMENTER, _PART, _BOARD = "CPU implementer", "CPU part", "Model"

_CACHE_TYPES = {"Data": "d", "Instruction": "i", "Unified": ""}


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache of the first processor: its name, such as L1d or L2, and its size."""

    name: str
    kilobytes: int


def multiplies_bytes(root: Path = Path("/")) -> bool:
    """Return whether this processor computes int8 products exactly and fast. `root` contains /proc."""
    if not is_linux():  # of the other systems, only Macs with Apple's processors are known
        return platform.machine() == "arm64"
    return not _BYTE_PRODUCTS.isdisjoint(_read_flags(root))


def instruction_sets(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the instructions of this processor that matter to the engines; empty if they are unknown."""
    flags = _read_flags(root)
    return tuple(name for name in _INSTRUCTION_SETS if name in flags)


def multiplies_bf16(root: Path = Path("/")) -> bool:
    """Return whether this is an Arm processor that multiplies bf16 matrices. `root` contains /proc."""
    return bool(_count_cores(_read_lines(root))) and "bf16" in _read_flags(root)


def processor_name(root: Path = Path("/")) -> str:
    """Return an identifier of this type of processor, on which packed weights depend."""
    traits: dict[str, dict[str, None]] = {}  # the values of a key, in order: cores of several types differ
    for key, value in _read_lines(root):
        if key in _TYPE_KEYS:
            traits.setdefault(key, {})[value] = None
    joined = {key: " + ".join(values) for key, values in traits.items()}
    described = json.dumps(joined or describe_processor(), sort_keys=True)
    return f"{platform.machine()}-{hashlib.sha256(described.encode()).hexdigest()[:8]}"


def processor_model(root: Path = Path("/")) -> str:
    """Return the manufacturer's name of this processor, else its instruction set.

    Arm processors have no name in the file: they are named by their cores, and by the board if it is there,
    as in "10 ARM Cortex-A725, 10 ARM Cortex-X925".
    """
    lines = _read_lines(root)
    cores = _count_cores(lines)
    if not cores:
        models = (value for key, value in lines if key in _NAME_KEYS)
        return next(models, describe_processor() or platform.machine())
    named = [name if len(cores) == 1 else f"{count} {name}" for name, count in cores.items()]
    board = next((f" ({value})" for key, value in lines if key == _BOARD), "")
    return ", ".join(named) + board


def read_caches(root: Path = Path("/")) -> tuple[Cache, ...]:
    """Return the caches of the first processor; none if the system does not tell. `root` contains /sys.

    On many arm64 systems glibc does not know them, and ONNX Runtime asks glibc (`second_cache_bytes`).
    """
    folders = sorted(root.glob("sys/devices/system/cpu/cpu0/cache/index[0-9]*"))
    return tuple(cache for cache in map(_read_cache, folders) if cache is not None)


def _read_cache(folder: Path) -> Cache | None:
    try:
        level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        return Cache(f"L{int(level)}{_CACHE_TYPES[kind]}", int(size.removesuffix("K")))
    except (OSError, ValueError, KeyError):
        return None


def _count_cores(lines: list[tuple[str, str]]) -> Counter[str]:
    """Return how many cores of each name an Arm processor has, in order; empty for other processors."""
    implementers = [value for key, value in lines if key == _IMPLEMENTER]
    parts = [value for key, value in lines if key == _PART]
    return Counter(name_core(*numbers) for numbers in zip(implementers, parts, strict=False))


def _read_flags(root: Path) -> frozenset[str]:
    flags = (value.split() for key, value in _read_lines(root) if key in ("flags", "Features"))
    return frozenset(next(flags, []))


def _read_lines(root: Path = Path("/")) -> list[tuple[str, str]]:
    """Return the keys and values of /proc/cpuinfo, in order; none if there is no such file."""
    try:
        lines = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]
