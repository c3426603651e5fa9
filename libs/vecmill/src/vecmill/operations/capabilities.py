"""What a model can do: checks of a request against the description of its model and engine."""

from collections.abc import Mapping

from vecmill.errors import InvalidRequest, UnsupportedTask
from vecmill.models import ModelDescription, Task
from vecmill.values.embeddings import OutputDtype
from vecmill.values.engine_plan import EngineInfo

_DOES: Mapping[Task, str] = {
    Task.EMBED: "embeds texts, and ranks documents by their embeddings",
    Task.RERANK: "ranks documents",
    Task.CLASSIFY: "classifies texts",
    Task.CLASSIFY_TOKENS: "classifies tokens",
    Task.SPARSE: "gives sparse embeddings, and ranks documents by them",
    Task.MULTI_VECTOR: "gives an embedding for each token, and ranks documents by them",
}

_HEADS_DO = "gives dense, sparse and multi-vector embeddings, and ranks documents by them"


def require_task(description: ModelDescription, *tasks: Task, asked: str) -> None:
    """Raise `UnsupportedTask` unless the model has one of `tasks`.

    `asked` follows "it cannot" in the message.
    """
    if set(tasks).isdisjoint(description.tasks):
        does = _DOES[description.task] if description.token_heads is None else _HEADS_DO
        raise UnsupportedTask(f"The model {description.name} {does}; it cannot {asked}.", field="model")


def require_heads(description: ModelDescription, *, asked: str) -> None:
    """Raise `UnsupportedTask` unless the model has token heads.

    `asked` follows "it cannot" in the message.
    """
    if description.token_heads is None:
        raise UnsupportedTask(
            f"The model {description.name} {_DOES[description.task]}; it cannot {asked}, which needs the "
            "heads of BGE-M3.",
            field="model",
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


PACKED = frozenset(dtype for dtype in OutputDtype if dtype.needs_bytes)
"""The types of bits, which are packed to bytes."""


def require_whole_bytes(dimensions: int | None, description: ModelDescription) -> None:
    """Raise `InvalidRequest` if bits of so many dimensions do not fill whole bytes."""
    numbers = dimensions or description.dim
    if numbers % 8:
        raise InvalidRequest(
            f"Embeddings of {numbers} dimensions do not fill whole bytes of bits. Ask for another type, or "
            "for `dimensions` that are a multiple of 8.",
            field="dimensions",
        )


def require_dimensions(dimensions: int | None, description: ModelDescription) -> None:
    """Raise `InvalidRequest` unless embeddings of the model can be truncated to `dimensions`."""
    if dimensions is not None and not 1 <= dimensions <= description.dim:
        raise InvalidRequest(
            f"`dimensions` is {dimensions}; this model's embeddings can be truncated to 1 to "
            f"{description.dim} dimensions.",
            field="dimensions",
        )
