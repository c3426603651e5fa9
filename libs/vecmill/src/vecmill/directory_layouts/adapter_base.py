"""Finds the base of a LoRA adapter, and checks that the two fit.

    adapter_config.json alone          the base is described, its modules and prompts included, unless the
                                       adapter has a head; a tokenizer beside it replaces that of the base
    in the folder of a Transformer     config.json and weights are the base's, the rest its own
    beside config.json and weights     the folder is its own base

A base must not have an adapter itself. Source of the rules: sentence-transformers 6.2,
`base/modules/transformer.py`; transformers 5.23, `models/auto/auto_factory.py`.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vecmill.architectures.registry import has_foreign_code
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.adapters import ADAPTER_CONFIG, Adapter
from vecmill.models.description import ModelDescription
from vecmill.models.directory import find_file, read_json, read_object
from vecmill.models.encoder_config import TransformersConfig
from vecmill.models.heads import HeadKind
from vecmill.models.location import ModelLocation, locate_stored_model
from vecmill.models.merged_weights import list_added, touches_embeddings

_SHARED_HEADS = (HeadKind.VOCABULARY, HeadKind.YES_NO)
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder of a model: `folder`, relative to `directory`."""

    directory: Path
    folder: str


def holds_whole_model(directory: Path, folder: str = "") -> bool:
    """Return whether a folder has config.json and weights, so that an adapter in it is for this model."""
    return find_file(directory, str(PurePosixPath(folder, "config.json"))) is not None and any(
        find_file(directory, str(PurePosixPath(folder, name))) is not None for name in _WEIGHTS
    )


def locate_base(adapter: Adapter) -> ModelLocation:
    """Find the model that the adapter names as its base.

    Raises `ModelNotFound` if it is not stored here, `CorruptModel` if there is no name, `UnsupportedModel` if
    the base has an adapter itself.
    """
    if not adapter.base:
        raise CorruptModel(f"{adapter.config_file}: base_model_name_or_path must name the base.")
    location = locate_stored_model(adapter.base, adapter.revision, adapter.config_file)
    folder = find_transformer_folder(location.directory)
    for name in (ADAPTER_CONFIG, str(PurePosixPath(folder, ADAPTER_CONFIG))):
        if find_file(location.directory, name) is not None:
            raise UnsupportedModel(
                f"{adapter.config_file}: the base, {location.directory}, has an adapter itself, which is not "
                "supported. Merge that adapter into its weights with `merge_and_unload` of the peft package."
            )
    if has_foreign_code(read_object(location.directory, str(PurePosixPath(folder, "config.json"))) or {}):
        raise UnsupportedModel(
            f"{adapter.config_file}: the base, {location.directory}, needs its own code, which is not run "
            "for an adapter."
        )
    return location


def find_transformer_base(adapter: Adapter) -> ModelFolder:
    """Return the folder of config.json and weights of the base. Raises the same errors as `locate_base`."""
    location = locate_base(adapter)
    return ModelFolder(location.directory, find_transformer_folder(location.directory))


def find_transformer_folder(directory: Path) -> str:
    """Return the folder of the first module, which is the directory itself without modules."""
    modules = read_json(directory, "modules.json")
    first = modules[0] if isinstance(modules, list) and modules else None
    path = first.get("path") if isinstance(first, dict) else None
    return path if isinstance(path, str) else ""


def check_adapter(description: ModelDescription) -> None:
    """Raise `UnsupportedModel` or `CorruptModel` if the adapter cannot be merged into its base."""
    adapter = description.adapter
    if adapter is None:
        return
    if isinstance(description.encoder, TransformersConfig) or description.exported_graph is not None:
        raise UnsupportedModel(
            f"{adapter.config_file}: the base in {description.weights_files[0].parent} is not supported. An "
            "adapter needs weights, and a model_type of which vecmill has a graph."
        )
    _check_added(description, adapter)
    is_shared = description.head is not None and description.head.kind in _SHARED_HEADS
    if is_shared and touches_embeddings(adapter):
        raise UnsupportedModel(
            f"{adapter.weights_file}: an adapter of the embeddings is not supported with a language model's "
            "head, which may share their weights."
        )


def _check_added(description: ModelDescription, adapter: Adapter) -> None:
    """Raise `UnsupportedModel` if the adapter has whole tensors that the base lacks and no head reads."""
    rename = description.encoder.rename_tensor
    for name in list_added(adapter, *description.weights_files, rename=rename):
        is_unread = description.head is None and name.partition(".")[0] == "lm_head"
        if adapter.class_end is None and not is_unread:
            raise UnsupportedModel(
                f"{adapter.weights_file} has the tensor {name!r}, which the base does not have. Its head is "
                f"known if task_type in {adapter.config_file.name} is SEQ_CLS or TOKEN_CLS."
            )
