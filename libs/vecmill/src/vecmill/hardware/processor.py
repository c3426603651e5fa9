"""Detects the type of the processor and its support for int8 products."""

import hashlib
import json
import platform
from pathlib import Path

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


def multiplies_bytes(root: Path = Path("/")) -> bool:
    """Return whether this processor computes int8 products exactly and fast. `root` contains /proc."""
    if not is_linux():  # of the other systems, only Macs with Apple's processors are known
        return platform.machine() == "arm64"
    return not _BYTE_PRODUCTS.isdisjoint(_read_flags(root))


def instruction_sets(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the instructions of this processor that matter to the engines; empty if they are unknown."""
    flags = _read_flags(root)
    return tuple(name for name in _INSTRUCTION_SETS if name in flags)


def processor_name() -> str:
    """Return an identifier of this type of processor, on which packed weights depend."""
    traits: dict[str, str] = {}
    for key, value in _read_lines():
        if key in _TYPE_KEYS:
            traits.setdefault(key, value)
    described = json.dumps(traits or describe_processor(), sort_keys=True)
    return f"{platform.machine()}-{hashlib.sha256(described.encode()).hexdigest()[:8]}"


def processor_model() -> str:
    """Return the manufacturer's name of this processor, else its instruction set."""
    models = (value for key, value in _read_lines() if key in _NAME_KEYS)
    return next(models, describe_processor() or platform.machine())


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
