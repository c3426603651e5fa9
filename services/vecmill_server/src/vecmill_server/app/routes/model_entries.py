"""Entries for models in the lists of Ollama, llama.cpp's server, Cohere and Xinference."""

from collections.abc import Mapping
from types import MappingProxyType

from vecmill.models import ModelDescription
from vecmill.values.task import Task
from vecmill_server.base.catalog import ServedModel
from vecmill_server.base.json_schema import an_object
from vecmill_server.dialects.ollama import DETAILS, describe_details

# The operations that a model supports, by the names of Infinity's routes.
CAPABILITIES: Mapping[Task, tuple[str, ...]] = MappingProxyType(
    {
        Task.EMBED: ("embed", "rerank"),
        Task.RERANK: ("rerank",),
        Task.CLASSIFY: ("classify",),
        Task.CLASSIFY_TOKENS: ("classify_tokens",),
        Task.SPARSE: ("embed_sparse", "rerank"),
        Task.MULTI_VECTOR: ("embed_all", "rerank"),
    }
)
# Xinference's names of the kind of a model and of its ability.
_KINDS: Mapping[Task, tuple[str, str]] = MappingProxyType(
    {Task.EMBED: ("embedding", "embed"), Task.RERANK: ("rerank", "rerank")}
)
# Models stay loaded; Ollama's clients read a time.
_NEVER = "9999-12-31T23:59:59+00:00"

OLLAMA_ENTRY = {
    **dict.fromkeys(("name", "model", "modified_at", "digest"), str),
    "size": int,
    "details": DETAILS,
}
RUNNING_ENTRY = {
    **dict.fromkeys(("name", "model", "digest", "expires_at"), str),
    **dict.fromkeys(("size", "size_vram", "context_length"), int),
    "details": DETAILS,
}
_LISTED = {
    **OLLAMA_ENTRY,
    **dict.fromkeys(("type", "description", "parameters"), str),
    **{name: [str] for name in ("tags", "capabilities", "endpoints", "default_endpoints")},
    "finetuned": bool,
    "context_length": int,
}
LISTED_ENTRY = an_object(tuple(_LISTED), _LISTED)


def ollama_entry(model: ServedModel, modified: str) -> dict[str, object]:
    """Return the entry of `/api/tags`."""
    architecture = "unknown" if model.task is None else model.mill.description.architecture
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": modified,
        "size": 0,
        "digest": "",
        "details": describe_details(architecture),
    }


def running_entry(model: ServedModel) -> dict[str, object]:
    """Return the entry of `/api/ps`."""
    entry = ollama_entry(model, "")
    del entry["modified_at"]
    return {**entry, "expires_at": _NEVER, "size_vram": 0, "context_length": _max_tokens(model)}


def listed_entry(model: ServedModel, modified: str) -> dict[str, object]:
    """Return the entry of `models` in `/v1/models`: llama.cpp's, with the fields of Cohere."""
    task = model.task
    return {
        **ollama_entry(model, modified),
        "type": "model",
        "description": "",
        "tags": [],
        "capabilities": ["embedding" if task is Task.EMBED else str(task or "")],
        "parameters": "",
        "endpoints": [] if task is None else list(CAPABILITIES[task]),
        "default_endpoints": [],
        "finetuned": False,
        "context_length": _max_tokens(model),
    }


def xinference_fields(description: ModelDescription) -> dict[str, object]:
    """Return the fields by which clients of Xinference and Cohere choose a model."""
    kind, ability = _KINDS.get(description.task, (str(description.task),) * 2)
    return {
        "model_type": kind,
        "model_ability": [ability],
        "dimensions": description.dim,
        "max_tokens": description.max_tokens,
        "context_length": description.max_tokens,
        "endpoints": list(CAPABILITIES[description.task]),
    }


def _max_tokens(model: ServedModel) -> int:
    return 0 if model.task is None else model.mill.description.max_tokens
