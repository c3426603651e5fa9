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
    from vecmill.batching.scheduler import Backlog
    from vecmill.config import BatchConfig, InputConfig, MillConfig, OnLongInput, QueueConfig
    from vecmill.errors import (
        CorruptModel,
        DeadlineExceeded,
        DeviceLost,
        EngineError,
        InferenceFailed,
        InputTooLong,
        InvalidConfig,
        InvalidCorpus,
        InvalidRequest,
        LaneLost,
        LoadFailed,
        MissingExtra,
        ModelNotFound,
        NonFiniteOutput,
        NotReady,
        OverloadError,
        QueueFull,
        RequestError,
        RequestTooLarge,
        SelfCheckFailed,
        ServerFailed,
        SetupError,
        ShuttingDown,
        TokenizationFailed,
        UnavailableError,
        UnknownPrompt,
        UnsupportedModel,
        UnsupportedTask,
        VecmillError,
    )
    from vecmill.mill import Mill, MillState
    from vecmill.models.space import ModelIdentity
    from vecmill.operations.answer_spaces import AnswerSpace
    from vecmill.requests import (
        HEAD_WEIGHTS,
        LATE_TOKENS,
        Caller,
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
        Result,
        ScoreTokensResult,
        Timings,
        TokenizeResult,
        Truncated,
    )
    from vecmill.sync import SyncMill
    from vecmill.values.embeddings import SparseEmbedding
    from vecmill.values.engine_plan import EngineInfo, Precision
    from vecmill.values.output_kinds import OutputDtype
    from vecmill.values.request_choices import ChunkingMode, Priority, Purpose
    from vecmill.values.task import Task
    from vecmill.vectors import quantize

__all__ = [
    "AnswerSpace",
    "Backlog",
    "BatchConfig",
    "Caller",
    "Chunk",
    "Chunking",
    "ChunkingMode",
    "Classify",
    "ClassifyResult",
    "ClassifyTokens",
    "ClassifyTokensResult",
    "CorruptModel",
    "DeadlineExceeded",
    "Detokenize",
    "DetokenizeResult",
    "DeviceLost",
    "Embed",
    "EmbedOutputs",
    "EmbedOutputsResult",
    "EmbedResult",
    "EmbedSparse",
    "EmbedSparseResult",
    "EmbedTokens",
    "EmbedTokensResult",
    "EngineError",
    "EngineInfo",
    "Entity",
    "HEAD_WEIGHTS",
    "InferenceFailed",
    "InputConfig",
    "InputTooLong",
    "InvalidConfig",
    "InvalidCorpus",
    "InvalidRequest",
    "LATE_TOKENS",
    "LaneLost",
    "LoadFailed",
    "Mill",
    "MillConfig",
    "MillState",
    "MissingExtra",
    "ModelIdentity",
    "ModelNotFound",
    "NonFiniteOutput",
    "NotReady",
    "OnLongInput",
    "OutputDtype",
    "OverloadError",
    "Precision",
    "Priority",
    "Purpose",
    "QueueConfig",
    "QueueFull",
    "Request",
    "RequestError",
    "RequestTooLarge",
    "Rerank",
    "RerankResult",
    "Result",
    "ScoreTokens",
    "ScoreTokensResult",
    "SelfCheckFailed",
    "ServerFailed",
    "SetupError",
    "ShuttingDown",
    "SparseEmbedding",
    "SyncMill",
    "Task",
    "TextOptions",
    "Timings",
    "TokenizationFailed",
    "Tokenize",
    "TokenizeResult",
    "Truncated",
    "Truncation",
    "UnavailableError",
    "UnknownPrompt",
    "UnsupportedModel",
    "UnsupportedTask",
    "VecmillError",
    "quantize",
]

__version__: str  # of the installed distribution; see `__getattr__`

# Where each name is defined. A new name also needs an import for type checkers, above.
_MODULES = {
    "AnswerSpace": "vecmill.operations.answer_spaces",
    "Backlog": "vecmill.batching.scheduler",
    "BatchConfig": "vecmill.config",
    "Caller": "vecmill.requests",
    "Chunk": "vecmill.results",
    "Chunking": "vecmill.requests",
    "ChunkingMode": "vecmill.values.request_choices",
    "Classify": "vecmill.requests",
    "ClassifyResult": "vecmill.results",
    "ClassifyTokens": "vecmill.requests",
    "ClassifyTokensResult": "vecmill.results",
    "CorruptModel": "vecmill.errors",
    "DeadlineExceeded": "vecmill.errors",
    "Detokenize": "vecmill.requests",
    "DetokenizeResult": "vecmill.results",
    "DeviceLost": "vecmill.errors",
    "Embed": "vecmill.requests",
    "EmbedOutputs": "vecmill.requests",
    "EmbedOutputsResult": "vecmill.results",
    "EmbedResult": "vecmill.results",
    "EmbedSparse": "vecmill.requests",
    "EmbedSparseResult": "vecmill.results",
    "EmbedTokens": "vecmill.requests",
    "EmbedTokensResult": "vecmill.results",
    "EngineError": "vecmill.errors",
    "EngineInfo": "vecmill.values.engine_plan",
    "Entity": "vecmill.results",
    "HEAD_WEIGHTS": "vecmill.requests",
    "InferenceFailed": "vecmill.errors",
    "InputConfig": "vecmill.config",
    "InputTooLong": "vecmill.errors",
    "InvalidConfig": "vecmill.errors",
    "InvalidCorpus": "vecmill.errors",
    "InvalidRequest": "vecmill.errors",
    "LATE_TOKENS": "vecmill.requests",
    "LaneLost": "vecmill.errors",
    "LoadFailed": "vecmill.errors",
    "Mill": "vecmill.mill",
    "MillConfig": "vecmill.config",
    "MillState": "vecmill.mill",
    "MissingExtra": "vecmill.errors",
    "ModelIdentity": "vecmill.models.space",
    "ModelNotFound": "vecmill.errors",
    "NonFiniteOutput": "vecmill.errors",
    "NotReady": "vecmill.errors",
    "OnLongInput": "vecmill.config",
    "OutputDtype": "vecmill.values.output_kinds",
    "OverloadError": "vecmill.errors",
    "Precision": "vecmill.values.engine_plan",
    "Priority": "vecmill.values.request_choices",
    "Purpose": "vecmill.values.request_choices",
    "QueueConfig": "vecmill.config",
    "QueueFull": "vecmill.errors",
    "Request": "vecmill.requests",
    "RequestError": "vecmill.errors",
    "RequestTooLarge": "vecmill.errors",
    "Rerank": "vecmill.requests",
    "RerankResult": "vecmill.results",
    "Result": "vecmill.results",
    "ScoreTokens": "vecmill.requests",
    "ScoreTokensResult": "vecmill.results",
    "SelfCheckFailed": "vecmill.errors",
    "ServerFailed": "vecmill.errors",
    "SetupError": "vecmill.errors",
    "ShuttingDown": "vecmill.errors",
    "SparseEmbedding": "vecmill.values.embeddings",
    "SyncMill": "vecmill.sync",
    "Task": "vecmill.values.task",
    "TextOptions": "vecmill.requests",
    "Timings": "vecmill.results",
    "TokenizationFailed": "vecmill.errors",
    "Tokenize": "vecmill.requests",
    "TokenizeResult": "vecmill.results",
    "Truncated": "vecmill.results",
    "Truncation": "vecmill.requests",
    "UnavailableError": "vecmill.errors",
    "UnknownPrompt": "vecmill.errors",
    "UnsupportedModel": "vecmill.errors",
    "UnsupportedTask": "vecmill.errors",
    "VecmillError": "vecmill.errors",
    "quantize": "vecmill.vectors",
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
