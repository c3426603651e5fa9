"""vecmill turns text into vectors and scores. See `Mill`, and `SyncMill` for notebooks."""

from vecmill.config import BatchConfig, InputConfig, MillConfig, QueueConfig
from vecmill.errors import VecmillError
from vecmill.mill import Mill, MillState
from vecmill.sync import SyncMill
from vecmill.types import EmbedRequest, EmbedResult, RerankResult

__all__ = [
    "BatchConfig",
    "EmbedRequest",
    "EmbedResult",
    "InputConfig",
    "Mill",
    "MillConfig",
    "MillState",
    "QueueConfig",
    "RerankResult",
    "SyncMill",
    "VecmillError",
]
