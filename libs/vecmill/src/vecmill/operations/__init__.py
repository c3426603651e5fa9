"""The operations of a model, one module for each request class.

Each operation takes the `Admission` of a model and a request of `vecmill.requests`, checks that the model
supports the request, and makes the result from the engine's output for each token sequence.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

from vecmill.operations.admission import Admission
from vecmill.operations.classify import classify, classify_tokens, score_tokens
from vecmill.operations.embed import embed, embed_outputs, embed_sparse, embed_tokens
from vecmill.operations.rerank import rerank
from vecmill.operations.tokenize import detokenize, tokenize
from vecmill.requests import (
    Classify,
    ClassifyTokens,
    Detokenize,
    Embed,
    EmbedOutputs,
    EmbedSparse,
    EmbedTokens,
    Request,
    Rerank,
    ScoreTokens,
    Tokenize,
)
from vecmill.results import Result

R = TypeVar("R")

# A new operation is a class in `vecmill.requests`, a module here and a line of this table.
OPERATIONS: Mapping[type[Request[Any]], Callable[[Admission, Any], Awaitable[Any]]] = {
    Embed: embed,
    Rerank: rerank,
    Classify: classify,
    ClassifyTokens: classify_tokens,
    ScoreTokens: score_tokens,
    EmbedSparse: embed_sparse,
    EmbedTokens: embed_tokens,
    EmbedOutputs: embed_outputs,
    Tokenize: tokenize,
    Detokenize: detokenize,
}


async def answer(admission: Admission, request: Request[R]) -> R:
    """Answer a request of any class. Raises the same errors as `Mill.run`."""
    request = admission.decide_truncation(request)
    result: Result = await OPERATIONS[type(request)](admission, request)
    if result.truncated_count:
        admission.report_truncated(result.truncated_count)
    return cast(R, result)
