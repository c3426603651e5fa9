"""vecmill turns text into vectors, scores and labels. See `Mill`, and `SyncMill` for notebooks."""

from vecmill.config import BatchConfig, InputConfig, MillConfig, QueueConfig
from vecmill.errors import VecmillError
from vecmill.mill import Mill, MillState
from vecmill.requests import (
    Chunking,
    ChunkingMode,
    Classify,
    ClassifyTokens,
    Detokenize,
    Embed,
    EmbedOutputs,
    EmbedSparse,
    EmbedTokens,
    Priority,
    Purpose,
    Request,
    Rerank,
    ScoreTokens,
    TextOptions,
    Tokenize,
    Truncation,
)
from vecmill.results import (
    Chunk,
    ClassifyResult,
    ClassifyTokensResult,
    DetokenizeResult,
    EmbedOutputsResult,
    EmbedResult,
    EmbedSparseResult,
    EmbedTokensResult,
    Entity,
    RerankResult,
    ScoreTokensResult,
    TokenizeResult,
)
from vecmill.sync import SyncMill
from vecmill.values.embeddings import OutputDtype, SparseEmbedding

__all__ = [
    "BatchConfig",
    "Chunk",
    "Chunking",
    "ChunkingMode",
    "Classify",
    "ClassifyResult",
    "ClassifyTokens",
    "ClassifyTokensResult",
    "Detokenize",
    "DetokenizeResult",
    "Embed",
    "EmbedOutputs",
    "EmbedOutputsResult",
    "EmbedResult",
    "EmbedSparse",
    "EmbedSparseResult",
    "EmbedTokens",
    "EmbedTokensResult",
    "Entity",
    "InputConfig",
    "Mill",
    "MillConfig",
    "MillState",
    "OutputDtype",
    "Priority",
    "Purpose",
    "QueueConfig",
    "Request",
    "Rerank",
    "RerankResult",
    "ScoreTokens",
    "ScoreTokensResult",
    "SparseEmbedding",
    "SyncMill",
    "TextOptions",
    "Tokenize",
    "TokenizeResult",
    "Truncation",
    "VecmillError",
]

__version__: str  # of the installed distribution; see `__getattr__`


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("vecmill")
