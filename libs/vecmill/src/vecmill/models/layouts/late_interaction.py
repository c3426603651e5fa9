"""What a multi-vector model's encoder says of queries and documents: lengths and expansion.

Source of the rules: sentence-transformers 6.2, `base/modules/transformer.py` (`preprocess`,
`_normalize_query_expansion`).
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vecmill.errors import CorruptModel
from vecmill.models.description import ModelDescription
from vecmill.models.heads import QueryExpansion
from vecmill.models.layouts.transformer_folder import TransformerFolder

_EXPANSION_KEYS = frozenset({"strategy", "attend", "token", "length"})
_STRATEGIES = ("fixed", "min")


def add_sides(
    description: ModelDescription, folder: TransformerFolder, written: Mapping[str, Any]
) -> ModelDescription:
    """`description` with the longest query and document, and the expansion of queries.

    `written` has `query_length`, `document_length` and `query_expansion` as the reference's Transformer
    takes them. Raises `CorruptModel` for values that cannot be.
    """
    where = folder.path("sentence_bert_config.json")
    assert description.multi_vector is not None
    bound = folder.encoder.max_input_tokens
    query = _read_length(where, "query_length", written, description.max_tokens)
    document = _read_length(where, "document_length", written, description.max_tokens)
    expansion = _read_expansion(where, folder, written.get("query_expansion"))
    if expansion is not None:
        query = expansion.length if expansion.fixed else max(query, expansion.length)
    if bound is not None:
        query, document = min(query, bound), min(document, bound)
        if expansion is not None and expansion.length > bound:
            raise CorruptModel(
                f"{where}: query_expansion fills up to more tokens than the encoder reads, {bound}."
            )
    return replace(
        description,
        max_tokens=max(description.max_tokens, query, document),
        multi_vector=replace(
            description.multi_vector, query_tokens=query, document_tokens=document, expansion=expansion
        ),
    )


def _read_length(where: Path, key: str, written: Mapping[str, Any], default: int) -> int:
    value = written.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CorruptModel(f"{where}: {key} must be a whole number of at least 1.")
    return value


def _read_expansion(where: Path, folder: TransformerFolder, written: Any) -> QueryExpansion | None:
    if written is None:
        return None
    if not isinstance(written, dict) or not set(written) <= _EXPANSION_KEYS:
        raise CorruptModel(
            f"{where}: query_expansion has other keys than {', '.join(sorted(_EXPANSION_KEYS))}."
        )
    if written.get("strategy") not in _STRATEGIES:
        raise CorruptModel(f"{where}: query_expansion.strategy must be {' or '.join(_STRATEGIES)}.")
    length = written.get("length")
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise CorruptModel(f"{where}: query_expansion.length must be a whole number of at least 1.")
    token = written.get("token") or folder.special_token("mask_token") or folder.special_token("eos_token")
    if token is None:
        raise CorruptModel(
            f"{where}: query_expansion names no token, and tokenizer_config.json has no mask_token to "
            "take instead."
        )
    return QueryExpansion(
        length, token, attend=bool(written.get("attend", False)), fixed=written["strategy"] == "fixed"
    )
