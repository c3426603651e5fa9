"""The side on which transformers pads, where the expansion of a query of fixed length stands.

Source: transformers 5.23, `TokenizersBackend.__init__` and the classes of `_LEFT`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vecmill.models.config_fields import File, read_choice, read_mapping
from vecmill.models.directory import FileLimits, find_file, read_file, read_object
from vecmill.tokenization.building.class_names import find_class

# Classes that pad on the left, if no file names a side.
_LEFT = frozenset(f"{name}Tokenizer" for name in ("CodeLlama", "Cohere", "Gemma", "Llama", "XLNet"))
_PADS = re.compile(rb'"padding"\s*:\s*\{')


def read_padding_side(settings: Mapping[str, Any], file: File) -> str | None:
    """Read the side in `settings`: "left" or "right". Raises `UnsupportedModel` for other values."""
    return read_choice(settings, "padding_side", ("left", "right"), file=file)


def read_json_side(directory: Path, name: str, limits: FileLimits) -> str | None:
    """Read the side in the tokenizer.json `name`, "left" or "right", or `None` if the file does not pad.

    Raises `CorruptModel` or `UnsupportedModel` for other values.
    """
    path = find_file(directory, name)
    # Few files pad, and some are large.
    if path is None or not _PADS.search(read_file(path, limits.max_bytes)):
        return None
    padding = read_mapping(read_object(directory, name, limits=limits) or {}, "padding", file=path)
    direction = read_choice(padding, "direction", ("Left", "Right"), file=f"{path}: padding")
    return None if direction is None else direction.lower()


def find_class_side(tokenizer_config: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the side of the class, "left" or "right", for files that name none."""
    return "left" if find_class(tokenizer_config, config) in _LEFT else "right"
