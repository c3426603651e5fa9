"""Encodes the queries and documents of multi-vector models, which differ in prompt and length.

Source of the rules: sentence-transformers 6.2 (`MultiVectorEncoder`, `MultiVectorMask`, and
`Transformer.preprocess` for the expansion of queries).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vecmill.models import ModelDescription
from vecmill.models.heads import MultiVector, QueryExpansion
from vecmill.requests import DEFAULT_TEXT_OPTIONS, Purpose, TextOptions, Truncation
from vecmill.tokenization.pieces import Slices
from vecmill.tokenization.prompts import NO_PROMPT, Prompt, find_prompt
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence
from vecmill.values.embeddings import Embedding
from vecmill.vectors import dense


def encode_side_in_slices(
    description: ModelDescription,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    side: Purpose,
    options: TextOptions = DEFAULT_TEXT_OPTIONS,
    prompt: Prompt | None = None,
) -> Slices[list[TokenSequence]]:
    """Encode `texts` as queries or documents in slices, after `prompt`, by default that of `side_prompt`."""
    settings = description.multi_vector or MultiVector()
    if prompt is None:
        prompt = side_prompt(description, side, options)
    own_limit = settings.query_tokens if side is Purpose.QUERY else settings.document_tokens
    truncation = options.truncation.within(own_limit)
    if side is not Purpose.QUERY or settings.expansion is None:
        return tokenizer.encode_in_slices(
            texts, prompt=prompt.text, adapter=prompt.adapter, truncation=truncation
        )
    return encode_expanded_in_slices(
        tokenizer, texts, settings.expansion, prompt=prompt, truncation=truncation
    )


def encode_expanded_in_slices(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    expansion: QueryExpansion,
    *,
    prompt: Prompt,
    truncation: Truncation,
) -> Slices[list[TokenSequence]]:
    """Encode texts, and pad each sequence to the expansion's length with its token."""
    token_id = tokenizer.library.token_to_id(expansion.token)
    plain_ones = yield from tokenizer.encode_in_slices(
        texts, prompt=prompt.text, adapter=prompt.adapter, truncation=truncation
    )
    expanded = []
    for plain in plain_ones:
        missing = max(0, expansion.length - len(plain))
        before, after = (missing, 0) if expansion.stands_first else (0, missing)
        expanded.append(
            TokenSequence.of(
                [*[token_id] * before, *plain.token_ids.tolist(), *[token_id] * after],
                [*[0] * before, *plain.token_type_ids.tolist(), *[0] * after],
                prompt_length=plain.prompt_length,
                unseen=0 if expansion.attend else missing,
                cuts=plain.cuts,
            )
        )
    return expanded


def side_prompt(description: ModelDescription, side: Purpose, options: TextOptions) -> Prompt:
    """Return the prompt of queries or documents. Raises the same errors as `find_prompt`."""
    return find_prompt(description.prompts, NO_PROMPT, replace(options, purpose=side))


def keep_tokens(
    description: ModelDescription,
    tokenizer: Tokenizer,
    sequence: TokenSequence,
    embedding: Embedding,
    side: Purpose,
) -> FloatArray:
    """Return the embeddings of a text's tokens, without the tokens that the model skips on this side."""
    kept = kept_tokens(description, tokenizer, sequence, side)
    found = dense(embedding)
    return found if kept.all() else found[kept]


def kept_tokens(
    description: ModelDescription, tokenizer: Tokenizer, sequence: TokenSequence, side: Purpose
) -> npt.NDArray[np.bool_]:
    """Return for each token whether the model keeps its embedding on this side: (tokens,) bool."""
    skipped = skipped_ids(description, tokenizer, side)
    if not skipped:
        return np.ones(len(sequence), np.bool_)
    return np.isin(sequence.token_ids, skipped, invert=True)


def skipped_ids(description: ModelDescription, tokenizer: Tokenizer, side: Purpose) -> tuple[int, ...]:
    """Return the ids of the tokens whose embeddings the model does not keep on this side."""
    settings = description.multi_vector or MultiVector()
    if side not in settings.skipped_in:
        return ()
    found = [tokenizer.library.token_to_id(word) for word in settings.skipped]
    return tuple(token_id for token_id in found if token_id is not None)
