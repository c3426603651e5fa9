"""vecmill turns text into vectors, scores and labels. See `Mill`, and `SyncMill` for notebooks.

A name is imported when it is first asked for, so that commands and programs wait only for what they use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

try:
    import fcntl as _fcntl  # noqa: F401  what every Unix has
except ModuleNotFoundError as error:
    raise ImportError("vecmill does not run on Windows. Run it under WSL, the Linux of Windows.") from error

if TYPE_CHECKING:
    from vecmill.config import BatchConfig, InputConfig, MillConfig, QueueConfig
    from vecmill.errors import VecmillError
    from vecmill.mill import Mill, MillState
    from vecmill.requests import (
        Chunking,
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
    from vecmill.values.embeddings import SparseEmbedding
    from vecmill.values.output_kinds import OutputDtype
    from vecmill.values.request_choices import ChunkingMode, Priority, Purpose

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

# Where each name is defined. A new name also needs an import for type checkers, above.
_MODULES = {
    "BatchConfig": "vecmill.config",
    "Chunk": "vecmill.results",
    "Chunking": "vecmill.requests",
    "ChunkingMode": "vecmill.values.request_choices",
    "Classify": "vecmill.requests",
    "ClassifyResult": "vecmill.results",
    "ClassifyTokens": "vecmill.requests",
    "ClassifyTokensResult": "vecmill.results",
    "Detokenize": "vecmill.requests",
    "DetokenizeResult": "vecmill.results",
    "Embed": "vecmill.requests",
    "EmbedOutputs": "vecmill.requests",
    "EmbedOutputsResult": "vecmill.results",
    "EmbedResult": "vecmill.results",
    "EmbedSparse": "vecmill.requests",
    "EmbedSparseResult": "vecmill.results",
    "EmbedTokens": "vecmill.requests",
    "EmbedTokensResult": "vecmill.results",
    "Entity": "vecmill.results",
    "InputConfig": "vecmill.config",
    "Mill": "vecmill.mill",
    "MillConfig": "vecmill.config",
    "MillState": "vecmill.mill",
    "OutputDtype": "vecmill.values.output_kinds",
    "Priority": "vecmill.values.request_choices",
    "Purpose": "vecmill.values.request_choices",
    "QueueConfig": "vecmill.config",
    "Request": "vecmill.requests",
    "Rerank": "vecmill.requests",
    "RerankResult": "vecmill.results",
    "ScoreTokens": "vecmill.requests",
    "ScoreTokensResult": "vecmill.results",
    "SparseEmbedding": "vecmill.values.embeddings",
    "SyncMill": "vecmill.sync",
    "TextOptions": "vecmill.requests",
    "Tokenize": "vecmill.requests",
    "TokenizeResult": "vecmill.results",
    "Truncation": "vecmill.requests",
    "VecmillError": "vecmill.errors",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, "__version__"})


# Type checkers see the imports above, and refuse other names.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            found = getattr(import_module(_MODULES[name]), name)
        elif name == "__version__":
            from importlib.metadata import version

            found = version("vecmill")
        elif f"{__name__}.{name}" in _MODULES.values():
            return import_module(f"{__name__}.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found
