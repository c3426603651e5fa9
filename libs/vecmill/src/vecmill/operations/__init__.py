"""The operations of a model, one module for each request class.

Each operation takes a `LoadedModel`, a request of `vecmill.requests` and its caller, checks that the model
supports the request, and makes the result from the engine's output for each token sequence.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from vecmill.operations.classify import classify, classify_tokens, score_tokens
from vecmill.operations.classify_by_labels import classify_by_labels
from vecmill.operations.embed import embed, embed_outputs, embed_sparse, embed_tokens
from vecmill.operations.embed_pictures import embed_pictures
from vecmill.operations.loaded_model import LoadedModel
from vecmill.operations.rerank import rerank
from vecmill.operations.tokenize import detokenize, tokenize
from vecmill.requests import (
    Caller,
    Classify,
    ClassifyByLabels,
    ClassifyTokens,
    Detokenize,
    Embed,
    EmbedOutputs,
    EmbedPictures,
    EmbedSparse,
    EmbedTokens,
    Request,
    Rerank,
    ScoreTokens,
    Tokenize,
)

# Answers a request on behalf of its caller. Raises the same errors as `Mill.run`.
Operation = Callable[[LoadedModel, Any, Caller], Awaitable[Any]]

# A new operation is a class in `vecmill.requests`, a module here and a line of this table.
OPERATIONS: Mapping[type[Request[Any]], Operation] = {
    Embed: embed,
    Rerank: rerank,
    Classify: classify,
    ClassifyByLabels: classify_by_labels,
    ClassifyTokens: classify_tokens,
    ScoreTokens: score_tokens,
    EmbedSparse: embed_sparse,
    EmbedTokens: embed_tokens,
    EmbedOutputs: embed_outputs,
    EmbedPictures: embed_pictures,
    Tokenize: tokenize,
    Detokenize: detokenize,
}
