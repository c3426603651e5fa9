"""Tensors of XLM-RoBERTa under the names of Jina's "flash" implementation.

The names are those of the conversion that comes with that implementation.
"""

import re
from collections.abc import Mapping

import numpy as np

from vecmill.values.aliases import FloatArray

_NAMES = (
    (r"embeddings\.LayerNorm", "emb_ln"),
    (r"encoder\.layer\.", "encoder.layers."),
    (r"attention\.output\.dense", "mixer.out_proj"),
    (r"attention\.output\.LayerNorm", "norm1"),
    (r"intermediate\.dense", "mlp.fc1"),
    (r"output\.dense", "mlp.fc2"),
    (r"output\.LayerNorm", "norm2"),
)
_QUERY = "attention.self.query."


def name_as_flash(tensors: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """The same tensors, with queries, keys and values joined."""
    found = {}
    for name, tensor in tensors.items():
        if _QUERY in name:
            keys, values = (name.replace("query", part) for part in ("key", "value"))
            joined = np.concatenate([tensor, tensors[keys], tensors[values]])
            found[_rename(name.replace(_QUERY, "mixer.Wqkv."))] = joined
        elif "attention.self." not in name:
            found[_rename(name)] = tensor
    return found


def _rename(name: str) -> str:
    for pattern, new in _NAMES:
        name = re.sub(pattern, new, name)
    return name
