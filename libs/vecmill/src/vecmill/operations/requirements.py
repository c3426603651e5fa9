"""Refusal of requests that a model cannot answer."""

from collections.abc import Mapping
from types import MappingProxyType

from vecmill.errors import InvalidRequest, UnsupportedTask
from vecmill.models import ModelDescription, Task
from vecmill.values.engine_info import EngineInfo

_DOES: Mapping[Task, str] = MappingProxyType(
    {
        Task.EMBED: "embeds texts, and ranks documents by their embeddings",
        Task.RERANK: "ranks documents",
        Task.CLASSIFY: "classifies texts",
        Task.CLASSIFY_TOKENS: "classifies tokens",
        Task.SPARSE: "gives sparse embeddings, and ranks documents by them",
        Task.MULTI_VECTOR: "gives an embedding for each token, and ranks documents by them",
    }
)


def require_task(description: ModelDescription, *tasks: Task, asked: str) -> None:
    """Raise `UnsupportedTask` unless the task of the model is in `tasks`.

    `asked` follows "it cannot" in the message.
    """
    if description.task not in tasks:
        raise UnsupportedTask(
            f"The model {description.name} {_DOES[description.task]}; it cannot {asked}.", field="model"
        )


def require_unfinished(description: ModelDescription, info: EngineInfo, *, asked: str, field: str) -> None:
    """Raise `UnsupportedTask` if the engine returns only finished embeddings.

    `asked` follows "it cannot" in the message. `field` is the field of the request that asks for more.
    """
    if info.is_finished:
        raise UnsupportedTask(
            f"The exported graph of the model {description.name} returns only finished embeddings; it cannot "
            f"{asked}. Export the model again, with token_embeddings or last_hidden_state.",
            field=field,
        )


def require_dimensions(dimensions: int | None, description: ModelDescription) -> None:
    """Raise `InvalidRequest` unless embeddings of the model can be truncated to `dimensions`."""
    if dimensions is not None and not 1 <= dimensions <= description.dim:
        raise InvalidRequest(
            f"`dimensions` is {dimensions}; this model's embeddings can be truncated to 1 to "
            f"{description.dim} dimensions.",
            field="dimensions",
        )
