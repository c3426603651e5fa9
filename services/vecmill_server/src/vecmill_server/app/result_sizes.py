"""The sizes of results, which decide whether a response is written on the event loop."""

from vecmill.results import (
    ClassifyResult,
    EmbedResult,
    EmbedSparseResult,
    EmbedTokensResult,
    Result,
    ScoreTokensResult,
)

# Writing so many numbers as JSON takes about a millisecond.
LARGE_RESULT_VALUES = 16_384


def is_large_result(result: Result) -> bool:
    """Return whether writing `result` as JSON would block the event loop for other requests."""
    return max(_count_values(result), result.token_count) > LARGE_RESULT_VALUES


def _count_values(result: Result) -> int:
    match result:
        case EmbedResult():
            return result.embeddings.size
        case ClassifyResult():
            return result.scores.size
        case EmbedTokensResult():
            return sum(each.size for each in result.embeddings)
        case ScoreTokensResult():
            return sum(each.size for each in result.scores)
        case EmbedSparseResult():
            return sum(len(each.columns) for each in result.embeddings)
    return 0
