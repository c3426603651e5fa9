"""What this processor can do, as far as engines care."""

import platform
from pathlib import Path

# Products of four bytes at a time, added up in 32 bits without overflow. Elsewhere ONNX Runtime adds
# pairs of products in 16 bits, which can overflow and then gives wrong rows.
_BYTE_PRODUCTS = frozenset({"avx512_vnni", "avx_vnni", "asimddp"})


def multiplies_bytes(root: Path = Path("/")) -> bool:
    """Whether int8 products are exact and quick here. `root` is where /proc is."""
    if platform.system() == "Darwin":
        return platform.machine() == "arm64"
    try:
        lines = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = (line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features")))
    return not _BYTE_PRODUCTS.isdisjoint(next(flags, []))
