"""The page docs/benchmarks/quality.md, from the figures of `make quality`."""

from collections.abc import Mapping
from typing import Any

NAMES = {
    "minilm": "all-MiniLM-L6-v2",
    "mpnet": "all-mpnet-base-v2",
    "e5": "multilingual-e5-small, dequantised from 4 bits",
}


def write_page(document: Mapping[str, Any]) -> str:
    """Return the page."""
    return "placeholder"
