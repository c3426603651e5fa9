"""vecmill turns text into vectors, scores and labels. See `Mill`, and `SyncMill` for notebooks."""

from vecmill.config import BatchConfig, InputConfig, MillConfig, QueueConfig
from vecmill.errors import VecmillError
from vecmill.mill import Mill, MillState
from vecmill.reading import Purpose, Reading, Truncation
from vecmill.sync import SyncMill
from vecmill.types import (
    ClassifyResult,
    ClassifyTokensResult,
    EmbedRequest,
    EmbedResult,
    Entity,
    MultiVectorResult,
    RerankResult,
    SparseResult,
    SparseRow,
)

__all__ = [
    "BatchConfig",
    "ClassifyResult",
    "ClassifyTokensResult",
    "EmbedRequest",
    "EmbedResult",
    "Entity",
    "InputConfig",
    "Mill",
    "MillConfig",
    "MillState",
    "MultiVectorResult",
    "Purpose",
    "QueueConfig",
    "Reading",
    "RerankResult",
    "SparseResult",
    "SparseRow",
    "SyncMill",
    "Truncation",
    "VecmillError",
]
