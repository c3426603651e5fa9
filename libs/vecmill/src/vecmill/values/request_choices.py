"""What the callers of requests choose from: purposes, priorities and what becomes of chunks.

Without numpy, so that command lines name them quickly.
"""

from enum import StrEnum
from typing import Literal


class Purpose(StrEnum):
    """The use of an embedding: many models embed queries and documents differently."""

    QUERY = "query"
    DOCUMENT = "document"
    CLASSIFICATION = "classification"
    CLUSTERING = "clustering"
    SIMILARITY = "similarity"


# The values of `Purpose`, for those who write them as strings.
PurposeName = Literal["query", "document", "classification", "clustering", "similarity"]


class Priority(StrEnum):
    """How urgent a request is, the most urgent first. Priorities share the engine by weight.

    BACKGROUND requests are for work that no person waits for. They never get more than their share of the
    engine, however long they wait, and have no deadline unless the request sets `timeout_s`.
    """

    INTERACTIVE = "interactive"
    BULK = "bulk"
    BACKGROUND = "background"


# The values of `Priority`, for those who write them as strings.
PriorityName = Literal["interactive", "bulk", "background"]


class ChunkingMode(StrEnum):
    """What becomes of the chunks of a text."""

    POOLED = "pooled"  # one embedding of the text: the mean of those of its chunks, weighted by their tokens
    CHUNKS = "chunks"  # an embedding of each chunk, which is computed alone
    LATE = "late"  # an embedding of each chunk: the mean of its tokens, computed within the whole text


# The values of `ChunkingMode`, for those who write them as strings.
ChunkingModeName = Literal["pooled", "chunks", "late"]
