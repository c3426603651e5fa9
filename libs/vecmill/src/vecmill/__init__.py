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
    from vecmill.config import BatchConfig as BatchConfig
    from vecmill.config import InputConfig as InputConfig
    from vecmill.config import MillConfig as MillConfig
    from vecmill.config import QueueConfig as QueueConfig
    from vecmill.errors import VecmillError as VecmillError
    from vecmill.mill import Mill as Mill
    from vecmill.mill import MillState as MillState
    from vecmill.requests import Chunking as Chunking
    from vecmill.requests import Classify as Classify
    from vecmill.requests import ClassifyTokens as ClassifyTokens
    from vecmill.requests import Detokenize as Detokenize
    from vecmill.requests import Embed as Embed
    from vecmill.requests import EmbedOutputs as EmbedOutputs
    from vecmill.requests import EmbedSparse as EmbedSparse
    from vecmill.requests import EmbedTokens as EmbedTokens
    from vecmill.requests import Request as Request
    from vecmill.requests import Rerank as Rerank
    from vecmill.requests import ScoreTokens as ScoreTokens
    from vecmill.requests import TextOptions as TextOptions
    from vecmill.requests import Tokenize as Tokenize
    from vecmill.requests import Truncation as Truncation
    from vecmill.results import Chunk as Chunk
    from vecmill.results import ClassifyResult as ClassifyResult
    from vecmill.results import ClassifyTokensResult as ClassifyTokensResult
    from vecmill.results import DetokenizeResult as DetokenizeResult
    from vecmill.results import EmbedOutputsResult as EmbedOutputsResult
    from vecmill.results import EmbedResult as EmbedResult
    from vecmill.results import EmbedSparseResult as EmbedSparseResult
    from vecmill.results import EmbedTokensResult as EmbedTokensResult
    from vecmill.results import Entity as Entity
    from vecmill.results import RerankResult as RerankResult
    from vecmill.results import ScoreTokensResult as ScoreTokensResult
    from vecmill.results import TokenizeResult as TokenizeResult
    from vecmill.sync import SyncMill as SyncMill
    from vecmill.values.embeddings import SparseEmbedding as SparseEmbedding
    from vecmill.values.output_kinds import OutputDtype as OutputDtype
    from vecmill.values.request_choices import ChunkingMode as ChunkingMode
    from vecmill.values.request_choices import Priority as Priority
    from vecmill.values.request_choices import Purpose as Purpose

__version__: str  # of the installed distribution; see `__getattr__`

# The names that each module defines. A new name also needs an import for type checkers, above.
_NAMES = {
    "vecmill.config": "BatchConfig InputConfig MillConfig QueueConfig",
    "vecmill.errors": "VecmillError",
    "vecmill.mill": "Mill MillState",
    "vecmill.requests": "Chunking Classify ClassifyTokens Detokenize Embed EmbedOutputs EmbedSparse "
    "EmbedTokens Request Rerank ScoreTokens TextOptions Tokenize Truncation",
    "vecmill.results": "Chunk ClassifyResult ClassifyTokensResult DetokenizeResult EmbedOutputsResult "
    "EmbedResult EmbedSparseResult EmbedTokensResult Entity RerankResult ScoreTokensResult TokenizeResult",
    "vecmill.sync": "SyncMill",
    "vecmill.values.embeddings": "SparseEmbedding",
    "vecmill.values.output_kinds": "OutputDtype",
    "vecmill.values.request_choices": "ChunkingMode Priority Purpose",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)


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
