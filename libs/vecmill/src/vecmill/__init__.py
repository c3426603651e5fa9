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
    from vecmill.batching.scheduler import Backlog as Backlog
    from vecmill.config import BatchConfig as BatchConfig
    from vecmill.config import InputConfig as InputConfig
    from vecmill.config import MillConfig as MillConfig
    from vecmill.config import OnLongInput as OnLongInput
    from vecmill.config import QueueConfig as QueueConfig
    from vecmill.errors import CorruptModel as CorruptModel
    from vecmill.errors import DeadlineExceeded as DeadlineExceeded
    from vecmill.errors import DeviceLost as DeviceLost
    from vecmill.errors import EngineError as EngineError
    from vecmill.errors import InferenceFailed as InferenceFailed
    from vecmill.errors import InputLimitExceeded as InputLimitExceeded
    from vecmill.errors import InputTooLong as InputTooLong
    from vecmill.errors import InvalidConfig as InvalidConfig
    from vecmill.errors import InvalidCorpus as InvalidCorpus
    from vecmill.errors import InvalidRequest as InvalidRequest
    from vecmill.errors import LaneLost as LaneLost
    from vecmill.errors import LoadFailed as LoadFailed
    from vecmill.errors import MissingExtra as MissingExtra
    from vecmill.errors import ModelNotFound as ModelNotFound
    from vecmill.errors import NonFiniteOutput as NonFiniteOutput
    from vecmill.errors import NotReady as NotReady
    from vecmill.errors import OverloadError as OverloadError
    from vecmill.errors import QueueFull as QueueFull
    from vecmill.errors import RequestError as RequestError
    from vecmill.errors import RequestTooLarge as RequestTooLarge
    from vecmill.errors import SelfCheckFailed as SelfCheckFailed
    from vecmill.errors import ServerFailed as ServerFailed
    from vecmill.errors import SetupError as SetupError
    from vecmill.errors import ShuttingDown as ShuttingDown
    from vecmill.errors import TokenizationFailed as TokenizationFailed
    from vecmill.errors import UnavailableError as UnavailableError
    from vecmill.errors import UnknownPrompt as UnknownPrompt
    from vecmill.errors import UnsupportedModel as UnsupportedModel
    from vecmill.errors import UnsupportedTask as UnsupportedTask
    from vecmill.errors import VecmillError as VecmillError
    from vecmill.evaluation.model_change import compare as compare
    from vecmill.evaluation.quality import evaluate as evaluate
    from vecmill.mill import Mill as Mill
    from vecmill.mill import MillState as MillState
    from vecmill.models.space import ModelIdentity as ModelIdentity
    from vecmill.operations.answer_spaces import AnswerSpace as AnswerSpace
    from vecmill.requests import HEAD_WEIGHTS as HEAD_WEIGHTS
    from vecmill.requests import LATE_TOKENS as LATE_TOKENS
    from vecmill.requests import Caller as Caller
    from vecmill.requests import Chunking as Chunking
    from vecmill.requests import Classify as Classify
    from vecmill.requests import ClassifyByLabels as ClassifyByLabels
    from vecmill.requests import ClassifyTokens as ClassifyTokens
    from vecmill.requests import Detokenize as Detokenize
    from vecmill.requests import Embed as Embed
    from vecmill.requests import EmbedOutputs as EmbedOutputs
    from vecmill.requests import EmbedPictures as EmbedPictures
    from vecmill.requests import EmbedSparse as EmbedSparse
    from vecmill.requests import EmbedTokens as EmbedTokens
    from vecmill.requests import Picture as Picture
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
    from vecmill.results import Result as Result
    from vecmill.results import ScoreTokensResult as ScoreTokensResult
    from vecmill.results import Timings as Timings
    from vecmill.results import TokenizeResult as TokenizeResult
    from vecmill.results import Truncated as Truncated
    from vecmill.stores.embedded_collections import embed_to_store as embed_to_store
    from vecmill.stores.store_writer import StoreSummary as StoreSummary
    from vecmill.sync import SyncMill as SyncMill
    from vecmill.values.embeddings import SparseEmbedding as SparseEmbedding
    from vecmill.values.engine_plan import EngineInfo as EngineInfo
    from vecmill.values.engine_plan import Precision as Precision
    from vecmill.values.output_kinds import OutputDtype as OutputDtype
    from vecmill.values.request_choices import ChunkingMode as ChunkingMode
    from vecmill.values.request_choices import Priority as Priority
    from vecmill.values.request_choices import Purpose as Purpose
    from vecmill.values.task import Task as Task
    from vecmill.vectors import quantize as quantize

__version__: str  # of the installed distribution; see `__getattr__`

# The names that each module defines. A new name also needs an import for type checkers, above.
_NAMES = {
    "vecmill.batching.scheduler": "Backlog",
    "vecmill.config": "BatchConfig InputConfig MillConfig OnLongInput QueueConfig",
    "vecmill.errors": "CorruptModel DeadlineExceeded DeviceLost EngineError InferenceFailed "
    "InputLimitExceeded InputTooLong InvalidConfig InvalidCorpus InvalidRequest LaneLost LoadFailed "
    "MissingExtra ModelNotFound NonFiniteOutput NotReady OverloadError QueueFull RequestError "
    "RequestTooLarge SelfCheckFailed ServerFailed SetupError ShuttingDown TokenizationFailed "
    "UnavailableError UnknownPrompt UnsupportedModel UnsupportedTask VecmillError",
    "vecmill.evaluation.model_change": "compare",
    "vecmill.evaluation.quality": "evaluate",
    "vecmill.mill": "Mill MillState",
    "vecmill.models.space": "ModelIdentity",
    "vecmill.operations.answer_spaces": "AnswerSpace",
    "vecmill.requests": "Caller Chunking Classify ClassifyByLabels ClassifyTokens Detokenize Embed "
    "EmbedOutputs EmbedPictures EmbedSparse EmbedTokens HEAD_WEIGHTS LATE_TOKENS Picture Request Rerank "
    "ScoreTokens TextOptions Tokenize Truncation",
    "vecmill.results": "Chunk ClassifyResult ClassifyTokensResult DetokenizeResult EmbedOutputsResult "
    "EmbedResult EmbedSparseResult EmbedTokensResult Entity RerankResult Result ScoreTokensResult Timings "
    "TokenizeResult Truncated",
    "vecmill.stores.embedded_collections": "embed_to_store",
    "vecmill.stores.store_writer": "StoreSummary",
    "vecmill.sync": "SyncMill",
    "vecmill.values.embeddings": "SparseEmbedding",
    "vecmill.values.engine_plan": "EngineInfo Precision",
    "vecmill.values.output_kinds": "OutputDtype",
    "vecmill.values.request_choices": "ChunkingMode Priority Purpose",
    "vecmill.values.task": "Task",
    "vecmill.vectors": "quantize",
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
