"""The entries of served models in the lists and descriptions of other servers' clients."""

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from vecmill.models import ModelDescription
from vecmill.models.space import ModelIdentity
from vecmill.models.stages import Pooling
from vecmill.operations.answer_spaces import list_output_spaces
from vecmill.values.task import Task
from vecmill_server.base import json_schema
from vecmill_server.catalog.catalog import ServedModel
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


def list_capabilities(tasks: Sequence[Task]) -> list[str]:
    """Return the operations that a model with these tasks supports, each once."""
    return list(dict.fromkeys(name for task in tasks for name in CAPABILITIES[task]))


def list_picture_capabilities(description: ModelDescription) -> list[str]:
    """Return what a model does with pictures, in Infinity's words."""
    return [] if description.pictures is None else ["image_embed"]


_OF_PICTURES = {**dict.fromkeys(("engine", "precision", "device"), str), "image_size": int, "tokens": int}
PICTURES = json_schema.an_object(
    tuple(_OF_PICTURES),
    _OF_PICTURES,
    description="How pictures are encoded, their side in pixels and the tokens of each. Of their accuracy "
    "nothing was measured. Absent if the model embeds none.",
)


def describe_pictures(model: ServedModel) -> dict[str, object]:
    """Return how the pictures of a model are encoded, if it embeds any: not always as its texts are."""
    info, tower = model.mill.picture_info, model.mill.description.pictures
    if info is None or tower is None:
        return {}
    how = {"engine": info.name, "precision": info.precision, "device": info.device}
    return {"pictures": {**how, "image_size": tower.settings.height, "tokens": tower.encoder.max_tokens}}


# Xinference's names of the kind of a model and of its ability.
_KINDS: Mapping[Task, tuple[str, str]] = MappingProxyType(
    {Task.EMBED: ("embedding", "embed"), Task.RERANK: ("rerank", "rerank")}
)

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
LISTED_ENTRY = json_schema.an_object(tuple(_LISTED), _LISTED)


def ollama_entry(model: ServedModel, modified: str) -> dict[str, object]:
    """Return the entry of `/api/tags`. The digest is that of the name: Ollama's command needs one."""
    architecture = "unknown" if model.task is None else model.mill.description.architecture
    name = _with_tag(model.name)
    return {
        "name": name,
        "model": name,
        "modified_at": modified,
        "size": 0,
        "digest": hashlib.sha256(name.encode()).hexdigest(),
        "details": describe_details(architecture),
    }


def _with_tag(name: str) -> str:
    """Return a name as Ollama's clients know it, with a tag after the last slash."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def running_entry(model: ServedModel, expires_at: str) -> dict[str, object]:
    """Return the entry of `/api/ps`. The size is the memory that counts for a model with a budget."""
    entry = ollama_entry(model, "")
    del entry["modified_at"]
    if model.resident is not None:
        entry["size"] = round(model.resident.held_mb * 1e6)
    return {**entry, "expires_at": expires_at, "size_vram": 0, "context_length": _max_tokens(model)}


def listed_entry(model: ServedModel, modified: str) -> dict[str, object]:
    """Return the entry of `models` in `/v1/models`: llama.cpp's, with the fields of Cohere."""
    task = model.task
    return {
        **ollama_entry(model, modified),
        **dict.fromkeys(("name", "model"), model.name),
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [],
        "capabilities": ["embedding" if task is Task.EMBED else str(task or "")],
        "parameters": "",
        "endpoints": list_capabilities(model.tasks or ()),
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
        "endpoints": list_capabilities(description.tasks),
    }


def describe_queries(model: ServedModel) -> dict[str, object]:
    """Return what differs for the queries of an asymmetric model, so that clients know that there is more."""
    info, router = model.mill.query_info, model.mill.description.router
    if info is None or router is None:
        return {}
    queries = {"engine": info.name, "precision": info.precision, "max_model_len": info.max_tokens}
    return {"queries": queries, "default_input_type": router.default}


def list_outputs(identity: ModelIdentity) -> dict[str, object]:
    """Return the spaces of further outputs, if there are any."""
    spaces = list_output_spaces(identity)
    return {"spaces": spaces} if spaces else {}


def _max_tokens(model: ServedModel) -> int:
    return 0 if model.task is None else model.mill.description.max_tokens


def describe_kind(description: ModelDescription) -> dict[str, object]:
    """Return the kind of a model in TEI's format, with its pooling or its labels."""
    if description.task in (Task.EMBED, Task.SPARSE, Task.MULTI_VECTOR):
        return {"embedding": {"pooling": _name_pooling(description)}}
    labels = description.head.labels if description.head is not None else ()
    by_name = {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }
    return {"reranker" if description.task is Task.RERANK else "classifier": by_name}


def _name_pooling(description: ModelDescription) -> str:
    """Return the name of the pooling; if there is none, `splade`, or `mean`, which is the most common."""
    modes = [stage.modes for stage in description.stages if isinstance(stage, Pooling)]
    if modes:
        return str(modes[0][0])
    return "splade" if description.task is Task.SPARSE else "mean"
