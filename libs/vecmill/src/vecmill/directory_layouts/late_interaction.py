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
from vecmill.models.config_fields import check_whole_number
from vecmill.models.description import ModelDescription
from vecmill.models.heads import QueryExpansion

_EXPANSION_KEYS = frozenset({"strategy", "attend", "token", "length"})
_STRATEGIES = ("fixed", "min")


def add_late_interaction(
    description: ModelDescription, folder: TransformerFolder, settings: Mapping[str, Any]
) -> ModelDescription:
    """Return `description` with the longest query and document, and the expansion of queries.

    `settings` are `query_length`, `document_length` and `query_expansion` of sentence-transformers'
    Transformer. Raises `CorruptModel` for invalid values.
    """
    path = folder.path("sentence_bert_config.json")
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
                f"{path}: query_expansion.length is above the encoder's limit of {bound} tokens."
            )
    return replace(
        description,
        max_tokens=max(description.max_tokens, query, document),
        multi_vector=replace(
            description.multi_vector, query_tokens=query, document_tokens=document, expansion=expansion
        ),
    )


def _read_length(path: Path, key: str, settings: Mapping[str, Any], default: int) -> int:
    value = settings.get(key)
    return default if value is None else check_whole_number(value, f"{path}: {key}")


def _read_expansion(path: Path, folder: TransformerFolder, settings: Any) -> QueryExpansion | None:
    if settings is None:
        return None
    if not isinstance(settings, dict) or not set(settings) <= _EXPANSION_KEYS:
        raise CorruptModel(
            f"{path}: query_expansion has other keys than {', '.join(sorted(_EXPANSION_KEYS))}."
        )
    if settings.get("strategy") not in _STRATEGIES:
        raise CorruptModel(f"{path}: query_expansion.strategy must be {' or '.join(_STRATEGIES)}.")
    length = check_whole_number(settings.get("length"), f"{path}: query_expansion.length")
    token = settings.get("token") or folder.special_token("mask_token") or folder.special_token("eos_token")
    if token is None:
        raise CorruptModel(
            f"{path}: query_expansion names no token, and tokenizer_config.json has no mask_token to "
            "use instead."
        )
    return QueryExpansion(
        length, token, attend=bool(settings.get("attend", False)), fixed=settings["strategy"] == "fixed"
    )
