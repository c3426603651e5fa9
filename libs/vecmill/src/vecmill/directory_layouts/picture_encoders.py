"""Reads the encoder of pictures of CLIP or SigLIP, in the directory of its texts or in one of its own.

    config.json                  the encoders of both, or that of pictures alone (`clip_vision_model`)
    processor_config.json        how pictures are resized and normalised, under the key image_processor,
    preprocessor_config.json     or in a file of its own, before transformers 5
    the files of the weights of both encoders, or of that of pictures, or an exported graph

Source of the rules: transformers 5.23, `image_processing_base.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vecmill.architectures.registry import has_foreign_code
from vecmill.architectures.towers import PICTURE_ENCODERS, PictureTowerConfig
from vecmill.directory_layouts.modules import MODULES_FILE, StageReader, name_kinds, read_modules
from vecmill.directory_layouts.transformer_files import find_weights, join, refuse_quantized_weights
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.adapters import Adapter
from vecmill.models.config_fields import read_mapping
from vecmill.models.description import ModelDescription, PictureTower
from vecmill.models.directory import read_object, require_object
from vecmill.models.exported import find_exported_files, with_weights
from vecmill.models.location import ModelLocation
from vecmill.models.picture_settings import read_picture_settings
from vecmill.models.stages import Normalize, OwnPooling, Stage
from vecmill.values.messages import show
from vecmill.values.task import Task

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
# CLIPModel is the name of Transformer for CLIP before release 5.4 of sentence-transformers.
_ENCODERS = ("Transformer", "CLIPModel")


@dataclass(frozen=True, slots=True)
class EncoderFolder:
    """The folder of config.json and weights, relative to `directory`."""

    directory: Path
    folder: str

    def path(self, name: str) -> Path:
        """Return the path of the file `name`."""
        return self.directory / self.folder / name


def describe_encoder(
    place: EncoderFolder, encoder: PictureTowerConfig, weights: tuple[Path, ...], texts: ModelDescription
) -> PictureTower:
    """Describe an encoder of pictures beside the encoder `texts`, with the stages of the texts.

    Raises `CorruptModel` or `UnsupportedModel`, which name the file.
    """
    where, config = _find_settings(place)
    settings = read_picture_settings(
        config, where, image_size=encoder.image_size, processor=encoder.processor
    )
    encoder = replace(encoder, scale=tuple(settings.scale.tolist()), shift=tuple(settings.shift.tolist()))
    described = replace(
        texts,
        encoder=encoder,
        max_tokens=encoder.max_input_tokens,
        vocab_size=encoder.vocab_size,
        weights_files=weights,
        prompts={},
        token_changes=None,
    )
    return PictureTower(described, settings)


def add_pictures(texts: ModelDescription, location: ModelLocation) -> ModelDescription:
    """Return the description of a model of texts with the encoder of pictures at `location`.

    Its embeddings are normalised if those of the texts are. Raises `CorruptModel`, and `UnsupportedModel` if
    there is no such encoder, or if its embeddings cannot be compared with those of the texts.
    """
    if texts.task is not Task.EMBED:
        raise UnsupportedModel(
            f"{texts.directory} is a model for {texts.task}; only one that embeds texts can have pictures "
            "beside it."
        )
    place, stages, dim = _read_modules(location)
    encoder, config = _read_encoder(place)
    stages, dim = (OwnPooling(), *stages), dim or encoder.projection_size
    if dim != texts.dim:
        raise UnsupportedModel(
            f"{texts.directory} has embeddings of {texts.dim} dimensions, and {location.directory} those of "
            f"pictures of {dim}, which cannot be compared."
        )
    alone = replace(
        texts,
        directory=location.directory,
        architecture=str(config["model_type"]),
        config=config,
        stages=(*stages, Normalize()) if texts.normalize else stages,
        weights_sha256=None,
        token_heads=None,
        router=None,
        pictures=None,
        padding=None,
        adapter=None,
        base=None,
        task_adapters={},
        default_prompt_name=None,
    )
    return replace(
        texts, pictures=describe_encoder(place, encoder, _find_weights(place, encoder, location), alone)
    )


def _read_modules(location: ModelLocation) -> tuple[EncoderFolder, tuple[Stage, ...], int | None]:
    """Return the folder of the encoder, the stages after it but for `Normalize`, and their width, if any."""
    directory = location.directory
    modules = read_modules(directory)
    if modules is None:
        return EncoderFolder(directory, ""), (), None
    if modules[0].kind not in _ENCODERS:
        raise UnsupportedModel(
            f"{directory / MODULES_FILE} lists {name_kinds(modules)}; a model of pictures begins with "
            "Transformer or CLIPModel."
        )
    place = EncoderFolder(directory, modules[0].folder)
    encoder, _ = _read_encoder(place)
    reader = StageReader(
        directory, encoder.projection_size, pooled=True, width_by="projection_dim or hidden_size"
    )
    stages = tuple(stage for stage in reader.read(modules[1:]) if not isinstance(stage, Normalize))
    return place, stages, reader.width


def _read_encoder(place: EncoderFolder) -> tuple[PictureTowerConfig, Mapping[str, Any]]:
    """Read the settings of the encoder, and the whole of `config.json`."""
    path, config = (
        place.path("config.json"),
        require_object(place.directory, join(place.folder, "config.json")),
    )
    found = PICTURE_ENCODERS.get(str(config.get("model_type")))
    if found is None:
        supported = ", ".join(PICTURE_ENCODERS)
        raise UnsupportedModel(
            f"{path}: model_type {show(config.get('model_type'))} has no encoder of pictures that vecmill "
            f"computes; these have one: {supported}."
        )
    if has_foreign_code(config):
        raise UnsupportedModel(
            f"{path}: auto_map names {show(config['auto_map'])}: code of a model is not run for pictures."
        )
    if Adapter.find(place.directory, place.folder) is not None:
        raise UnsupportedModel(
            f"{path}: an adapter of an encoder of pictures is not supported. Merge it first."
        )
    refuse_quantized_weights(path, config)
    return found.read(config), config


def _find_weights(
    place: EncoderFolder, encoder: PictureTowerConfig, location: ModelLocation
) -> tuple[Path, ...]:
    if location.graph is not None:
        return with_weights(place.directory, location.graph)
    exported = find_exported_files(place.directory, place.folder, encoder.exported_names)
    return exported or find_weights(place.directory, place.folder)


def _find_settings(place: EncoderFolder) -> tuple[str, Mapping[str, Any]]:
    """Return the settings of pictures and their place for messages. Those of the processor count first."""
    whole = read_object(place.directory, join(place.folder, PROCESSOR)) or {}
    if whole.get("image_processor") is not None:
        path = place.path(PROCESSOR)
        return f"{path}: image_processor", read_mapping(whole, "image_processor", file=path)
    path = place.path(PREPROCESSOR)
    found = read_object(place.directory, join(place.folder, PREPROCESSOR))
    if found is None:
        raise CorruptModel(
            f"{path} is missing, which says how pictures are resized, and {PROCESSOR} does not say it "
            "either. Download the model again."
        )
    return str(path), found
