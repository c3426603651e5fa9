"""Reads models that embed texts and pictures in one space: CLIP and SigLIP.

    config.json                  the encoders of both (`architectures.towers`)
    the settings of pictures     `picture_encoders`
    the files of the tokenizer, and of the weights of both encoders, or an exported graph of each

In a directory of sentence-transformers the module is a Transformer, or a CLIPModel in older ones, and the
modules after it are for texts and pictures alike. An encoder of texts that was saved alone is a model of
texts; pictures may be in another directory (`ModelLocation.pictures`).

Source of the rules: sentence-transformers 6.2, `base/modules/transformer.py`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vecmill.architectures.towers import TextTowerConfig
from vecmill.directory_layouts.modules import Module, StageReader
from vecmill.directory_layouts.picture_encoders import EncoderFolder, describe_encoder
from vecmill.directory_layouts.transformer_folder import TransformerFolder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.description import ModelDescription, PaddingRule
from vecmill.models.exported import find_exported_files, name_both_graphs, with_weights
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Normalize, OwnPooling, Stage, Truncate


def has_pictures(folder: TransformerFolder) -> bool:
    """Return whether the encoder of a folder is that of the texts of a model that embeds pictures too."""
    return isinstance(folder.encoder, TextTowerConfig)


def describe_two_towers(
    location: ModelLocation, folder: TransformerFolder, modules: Sequence[Module] = ()
) -> ModelDescription:
    """Describe a model that embeds texts and pictures; `modules` come after the encoders.

    Raises `CorruptModel` or `UnsupportedModel`, which name the file.
    """
    encoder = folder.encoder
    assert isinstance(encoder, TextTowerConfig)
    graphs = None if location.graph is None else name_both_graphs(location.graph)
    if graphs is not None:
        _require_graphs(location.directory, graphs)
        location = replace(location, graph=graphs[0])
    reader = StageReader(
        location.directory, encoder.projection_size, pooled=True, width_by="projection_dim or hidden_size"
    )
    stages = (OwnPooling(), *reader.read(modules))
    texts = replace(folder.describe(location), stages=stages, dim=reader.width)
    if encoder.pads_texts:
        token = folder.special_token("pad_token") or "</s>"
        texts = replace(texts, padding=PaddingRule(token, folder.pads_left))
    is_alone = str(folder.config.get("model_type")).endswith("_text_model")
    if is_alone or location.pictures is not None:
        return texts
    pictures = encoder.pictures.read(folder.config)
    if pictures.projection_size != encoder.projection_size:
        raise CorruptModel(
            f"{folder.path('config.json')}: by text_config texts have embeddings of "
            f"{encoder.projection_size} dimensions, and by vision_config pictures of "
            f"{pictures.projection_size}."
        )
    weights = texts.weights_files
    if texts.exported_graph is not None and name_both_graphs(texts.exported_graph.name) is None:
        # One graph of both, which normalises.
        texts = replace(texts, stages=_normalized(texts.stages))
    elif texts.exported_graph is not None:
        weights = _find_picture_graph(folder, texts.exported_graph, graphs)
    place = EncoderFolder(folder.base.directory, folder.base.folder)
    return replace(texts, pictures=describe_encoder(place, pictures, weights, texts))


def truncate_pictures(description: ModelDescription) -> ModelDescription:
    """Return the description with embeddings of pictures as short as those of texts (`truncate_dim`)."""
    tower = description.pictures
    if tower is None or not isinstance(description.stages[-1], Truncate):
        return description
    pictures = replace(tower.encoder, stages=description.stages, dim=description.dim)
    return replace(description, pictures=replace(tower, encoder=pictures))


def _require_graphs(directory: Path, graphs: tuple[str, str]) -> None:
    for graph, other in (graphs, reversed(graphs)):
        if not (directory / graph).is_file():
            raise CorruptModel(
                f"{directory / graph} is missing, the graph beside {Path(other).name}. Download the model "
                "again."
            )


def _find_picture_graph(
    folder: TransformerFolder, of_texts: Path, named: tuple[str, str] | None
) -> tuple[Path, ...]:
    """Return the exported graph of pictures and its weights: the one that was named, or the preferred one."""
    if named is not None:
        return with_weights(folder.directory, named[1])
    found = find_exported_files(folder.base.directory, folder.base.folder, ("vision_model",))
    if not found:
        raise UnsupportedModel(
            f"{of_texts}: there is no vision_model.onnx beside it. If the graph of pictures is in a "
            "directory of its own, serve text=DIRECTORY,image=DIRECTORY."
        )
    return found


def _normalized(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    return stages if isinstance(stages[-1], Normalize) else (*stages, Normalize())
