"""Whether a model does what it is asked."""

from collections.abc import Mapping
from types import MappingProxyType

from vecmill.errors import UnsupportedTask
from vecmill.models import ModelDescription, Task

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
    """Raise `UnsupportedTask` unless the model does one of `tasks`; `asked` completes "it cannot"."""
    if description.task not in tasks:
        raise UnsupportedTask(
            f"The model {description.name} {_DOES[description.task]}; it cannot {asked}.", field="model"
        )
