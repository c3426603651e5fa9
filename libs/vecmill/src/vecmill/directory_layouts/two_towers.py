"""Reads models that embed texts and pictures in one space: CLIP and SigLIP.

    config.json                  the encoders of both (`architectures.towers`)
    processor_config.json        how pictures are resized and normalised, under the key image_processor,
    preprocessor_config.json     or in a file of its own, before transformers 5
    the files of the tokenizer, and of the weights of both encoders

In a directory of sentence-transformers the module is a Transformer, or a CLIPModel in older ones, and the
modules after it are for texts and pictures alike.

Source of the rules: sentence-transformers 6.2, `base/modules/transformer.py`; transformers 5.23,
`image_processing_base.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vecmill.architectures.towers import PictureTowerConfig, TextTowerConfig
from vecmill.directory_layouts.modules import Module, StageReader
from vecmill.directory_layouts.transformer_files import join
from vecmill.directory_layouts.transformer_folder import TransformerFolder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import read_mapping
from vecmill.models.description import ModelDescription, PaddingRule, PictureTower
from vecmill.models.directory import read_object
from vecmill.models.location import ModelLocation
from vecmill.models.picture_settings import PictureSettings, read_picture_settings
from vecmill.models.stages import OwnPooling, Truncate

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"


def has_pictures(folder: TransformerFolder) -> bool:
    """Return whether the model of a folder embeds pictures too."""
    return isinstance(folder.encoder, TextTowerConfig)


def describe_two_towers(
    location: ModelLocation, folder: TransformerFolder, modules: Sequence[Module] = ()
) -> ModelDescription:
    """Describe a model that embeds texts and pictures; `modules` come after the encoders.

    Raises `CorruptModel` or `UnsupportedModel`, which name the file.
    """
    encoder = folder.encoder
    assert isinstance(encoder, TextTowerConfig)
    reader = StageReader(location.directory, encoder.projection_size, pooled=True)
    stages = (OwnPooling(), *reader.read(modules))
    texts = replace(folder.describe(location), stages=stages, dim=reader.width)
    if encoder.pads_texts:
        token = folder.special_token("pad_token") or "</s>"
        texts = replace(texts, padding=PaddingRule(token, folder.pads_left))
    if texts.exported_graph is not None:
        raise UnsupportedModel(
            f"{texts.exported_graph}: an exported graph of a model of texts and pictures is not supported. "
            "Name the directory of its weights."
        )
    return replace(texts, pictures=_describe_pictures(folder, encoder, texts))


def truncate_pictures(description: ModelDescription) -> ModelDescription:
    """Return the description with embeddings of pictures as short as those of texts (`truncate_dim`)."""
    tower = description.pictures
    if tower is None or not isinstance(description.stages[-1], Truncate):
        return description
    pictures = replace(tower.encoder, stages=description.stages, dim=description.dim)
    return replace(description, pictures=replace(tower, encoder=pictures))


def _describe_pictures(
    folder: TransformerFolder, encoder: TextTowerConfig, texts: ModelDescription
) -> PictureTower:
    pictures = encoder.pictures.read(folder.config)
    if pictures.projection_size != encoder.projection_size:
        raise CorruptModel(
            f"{folder.path('config.json')}: texts have embeddings of {encoder.projection_size} dimensions, "
            f"and pictures of {pictures.projection_size}."
        )
    settings = _read_settings(folder, pictures)
    pictures = replace(pictures, scale=tuple(settings.scale.tolist()), shift=tuple(settings.shift.tolist()))
    described = replace(
        texts,
        encoder=pictures,
        max_tokens=pictures.max_input_tokens,
        vocab_size=pictures.vocab_size,
        prompts={},
        token_changes=None,
    )
    return PictureTower(described, settings)


def _read_settings(folder: TransformerFolder, encoder: PictureTowerConfig) -> PictureSettings:
    """Read how pictures are resized, which must be to the size that the encoder reads."""
    path, config = _find_settings(folder)
    return read_picture_settings(
        config, str(path), image_size=encoder.image_size, processor=encoder.processor
    )


def _find_settings(folder: TransformerFolder) -> tuple[Path, Mapping[str, Any]]:
    """Return the settings of pictures and their file. Those in the settings of the processor count first."""
    directory, place = folder.base.directory, folder.base.folder
    whole = read_object(directory, join(place, PROCESSOR)) or {}
    if whole.get("image_processor") is not None:
        path = directory / place / PROCESSOR
        return path, read_mapping(whole, "image_processor", file=path)
    path = directory / place / PREPROCESSOR
    found = read_object(directory, join(place, PREPROCESSOR))
    if found is None:
        raise CorruptModel(
            f"{path} is missing, which says how pictures are resized, and {PROCESSOR} does not say it "
            "either. Download the model again."
        )
    return path, found
