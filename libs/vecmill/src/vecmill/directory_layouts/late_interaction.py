"""Reads the lengths of a multi-vector model's queries and documents, and the expansion of queries.

Source of the rules: sentence-transformers 6.2, `base/modules/transformer.py` (`preprocess`,
`_normalize_query_expansion`).
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vecmill.directory_layouts.transformer_folder import TransformerFolder
from vecmill.errors import CorruptModel
from vecmill.models.config_fields import (
    MOST_TOKENS,
    check_whole_number,
    read_flag,
    read_size,
    read_text,
)
from vecmill.models.description import ModelDescription
from vecmill.models.heads import QueryExpansion

_EXPANSION_KEYS = frozenset({"strategy", "attend", "token", "length"})
# Every query is padded to the length, so it costs memory in every request.
MOST_EXPANSION = 2**16

_STRATEGIES = ("fixed", "min")


def add_late_interaction(
    description: ModelDescription,
    folder: TransformerFolder,
    settings: Mapping[str, Any],
    path: Path,
) -> ModelDescription:
    """Return `description` with the longest query and document, and the expansion of queries.

    `settings` are `query_length`, `document_length` and `query_expansion` of sentence-transformers'
    Transformer, read from `path`. Raises `CorruptModel` for invalid values.
    """
    assert description.multi_vector is not None
    bound = folder.encoder.max_input_tokens
    query = _read_length(path, "query_length", settings, description.max_tokens)
    document = _read_length(path, "document_length", settings, description.max_tokens)
    expansion = _read_expansion(path, folder, settings.get("query_expansion"))
    if expansion is not None:
        query = expansion.length if expansion.fixed else max(query, expansion.length)
    if bound is not None:
        query, document = min(query, bound), min(document, bound)
        if expansion is not None and expansion.length > bound:
            raise CorruptModel(
                f"{path}: query_expansion.length is above the encoder's limit of {bound} tokens, "
                "which max_position_embeddings sets."
            )
    return replace(
        description,
        max_tokens=max(description.max_tokens, query, document),
        multi_vector=replace(
            description.multi_vector, query_tokens=query, document_tokens=document, expansion=expansion
        ),
    )


def _read_length(path: Path, key: str, settings: Mapping[str, Any], default: int) -> int:
    return read_size(settings, key, default, most=MOST_TOKENS, file=path)


def _read_expansion(path: Path, folder: TransformerFolder, settings: Any) -> QueryExpansion | None:
    if settings is None:
        return None
    if not isinstance(settings, dict) or not set(settings) <= _EXPANSION_KEYS:
        raise CorruptModel(
            f"{path}: query_expansion has other keys than {', '.join(sorted(_EXPANSION_KEYS))}."
        )
    if settings.get("strategy") not in _STRATEGIES:
        raise CorruptModel(f"{path}: query_expansion.strategy must be {' or '.join(_STRATEGIES)}.")
    name = f"{path}: query_expansion"
    length = check_whole_number(settings.get("length"), f"{name}.length", most=MOST_EXPANSION)
    token = (
        read_text(settings, "token", file=name)
        or folder.special_token("mask_token")
        or folder.special_token("eos_token")
    )
    if token is None:
        raise CorruptModel(
            f"{path}: query_expansion names no token, and tokenizer_config.json has no mask_token to "
            "use instead."
        )
    return QueryExpansion(
        length,
        token,
        attend=read_flag(settings, "attend", default=False, file=name),
        fixed=settings["strategy"] == "fixed",
    )
