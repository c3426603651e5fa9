"""Detects the type of the processor and its support for int8 products."""

import hashlib
import json
import platform
from pathlib import Path

# Instructions that add up four int8 products in 32 bits without overflow. On other processors ONNX Runtime
# adds pairs of products in 16 bits, which can overflow and give wrong embeddings.
_BYTE_PRODUCTS = frozenset({"avx512_vnni", "avx_vnni", "asimddp"})

# The keys of /proc/cpuinfo that distinguish types of processors.
_TYPE_KEYS = frozenset({"model name", "flags", "Features", "CPU implementer", "CPU part"})
_NAME_KEYS = frozenset({"model name", "Model", "Processor"})


def multiplies_bytes(root: Path = Path("/")) -> bool:
    """Return whether this processor computes int8 products exactly and fast. `root` contains /proc."""
    if platform.system() == "Darwin":
        return platform.machine() == "arm64"
    flags = (value.split() for key, value in _read_lines(root) if key in ("flags", "Features"))
    return not _BYTE_PRODUCTS.isdisjoint(next(flags, []))


def processor_name() -> str:
    """Return an identifier of this type of processor, on which packed weights depend."""
    traits: dict[str, str] = {}
    for key, value in _read_lines():
        if key in _TYPE_KEYS:
            traits.setdefault(key, value)
    described = json.dumps(traits or platform.processor(), sort_keys=True)
    return f"{platform.machine()}-{hashlib.sha256(described.encode()).hexdigest()[:8]}"


def processor_model() -> str:
    """Return the manufacturer's name of this processor, else its instruction set."""
    models = (value for key, value in _read_lines() if key in _NAME_KEYS)
    return next(models, platform.processor() or platform.machine())


def _read_lines(root: Path = Path("/")) -> list[tuple[str, str]]:
    """Return the keys and values of /proc/cpuinfo, in order; none if there is no such file."""
    try:
        lines = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]
