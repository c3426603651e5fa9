"""Reads the settings of CLIP and SigLIP: two encoders, one of texts and one of pictures, with a common space.

`config.json` has the settings of both, in `text_config` and `vision_config`. Each encoder is a stack of
pre-norm layers, and ends in a pooling of its own (`models.stages.OwnPooling`):

    CLIP, texts        causal; the token at the end of the text, projected
    CLIP, pictures     a class token before the patches, normalised and projected
    SigLIP, texts      the last token of a text that is padded to its full length, projected
    SigLIP, pictures   attention of one learned query to all patches, and a network after it

Source: transformers 5, `models/clip`, `models/siglip` and `models/siglip2`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    MOST_LAYERS,
    activation,
    epsilon,
    flag,
    head_size,
    read_fields,
    read_mapping,
    read_size,
    read_token_id,
    size,
)
from vecmill.models.encoder_config import EncoderConfig
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.batch import TokenSequence
from vecmill.values.messages import show
from vecmill.values.side_names import SideName

# transformers wrote this id until 2023. Its class then takes the token with the highest id.
OLD_END_TOKEN = 2

# Of a picture. Published encoders have at most 4096.
MOST_PATCHES = 2**16
_COLOURS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerConfig(EncoderConfig):
    """The settings that the encoders of texts and of pictures share, named as in transformers.

    `projection_size` is the width of the embeddings. `has_projection` tells whether a projection leads there.
    """

    hidden_size: int = size(512)
    intermediate_size: int = size(2048)
    num_hidden_layers: int = size(12, most=MOST_LAYERS)
    num_attention_heads: int = size(8)
    hidden_act: str = activation("quick_gelu")
    layer_norm_eps: float = epsilon(1e-5)
    projection_size: int
    has_projection: bool = True

    @property
    def head_dim(self) -> int:
        """The dimension of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @classmethod
    def _read(cls, config: Mapping[str, Any], **given: Any) -> Self:
        found = read_fields(cls, config, **given)
        head_size(found["hidden_size"], found["num_attention_heads"])
        return cls(**found)


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureTowerConfig(TowerConfig):
    """The settings of an encoder of pictures of `image_size` pixels square, in square patches.

    The value of a pixel is normalised as `value * scale + shift`, with a number for each of the three colours
    (`models.picture_settings`). The vocabulary is that of the values. `processor` is the class that prepares
    pictures in transformers, if the directory names none.
    """

    processor: ClassVar[str]
    exported_names: ClassVar = ("vision_model", "model")

    vocab_size: int = 256
    hidden_size: int = size(768)
    intermediate_size: int = size(3072)
    num_attention_heads: int = size(12)
    image_size: int = size(224)
    patch_size: int = size(32)
    scale: tuple[float, ...] = (1.0,) * _COLOURS
    shift: tuple[float, ...] = (0.0,) * _COLOURS

    @property
    def patches(self) -> int:
        """The number of patches of a picture."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def has_class_token(self) -> bool:
        """Whether a token that is no patch comes first."""
        return False

    @property
    def max_input_tokens(self) -> int:
        """The number of tokens of each picture."""
        return self.patches + self.has_class_token

    @property
    def picture_side(self) -> int:
        """The height and width of a picture in pixels."""
        return self.image_size

    @property
    def patch_values(self) -> int:
        """The numbers of each patch: by colour, row and column."""
        return _COLOURS * self.patch_size**2

    @classmethod
    def _read_pictures(cls, own: Mapping[str, Any], **given: Any) -> Self:
        """Read the settings of the encoder. Raises the same errors as `ClipTextConfig.read`."""
        if read_size(own, "num_channels", _COLOURS) != _COLOURS:
            raise UnsupportedModel(
                f"config.json: vision_config.num_channels {show(own['num_channels'])} is not supported; only "
                f"{_COLOURS} is."
            )
        for key in ("image_size", "patch_size"):
            if isinstance(own.get(key), list):
                raise UnsupportedModel(
                    f"config.json: vision_config.{key} {show(own[key])} is not supported; only one number "
                    "is, for square pictures and patches."
                )
        found = cls._read(own, **given)
        if not 1 <= found.patches <= MOST_PATCHES:
            raise CorruptModel(
                f"config.json: vision_config.image_size {found.image_size} has {found.patches} patches of "
                f"patch_size {found.patch_size}; it must have 1 to {MOST_PATCHES}."
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipPictureConfig(PictureTowerConfig):
    """The settings of CLIP's encoder of pictures."""

    graph: ClassVar = "towers_graph:ClipPicture"
    processor: ClassVar = "CLIPImageProcessor"
    exported_output: ClassVar = "image_embeds"

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `ClipTextConfig.read`."""
        own = _read_part(config, "vision")
        return cls._read_pictures(own, projection_size=read_size(config, "projection_dim", 512))

    @property
    def has_class_token(self) -> bool:
        """A class token comes first."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class SiglipPictureConfig(PictureTowerConfig):
    """The settings of SigLIP's encoder of pictures, whose embeddings are as wide as its hidden states."""

    graph: ClassVar = "towers_graph:SiglipPicture"
    processor: ClassVar = "SiglipImageProcessor"
    exported_output: ClassVar = "pooler_output"

    patch_size: int = size(16)
    hidden_act: str = activation("gelu_pytorch_tanh")
    layer_norm_eps: float = epsilon(1e-6)
    vision_use_head: bool = flag(True)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `ClipTextConfig.read`."""
        own = _find_part(config, "vision")
        width = read_size(own, "hidden_size", 768)
        found = cls._read_pictures(own, projection_size=width, has_projection=False)
        if not found.vision_use_head:
            raise UnsupportedModel(
                "config.json: vision_config.vision_use_head false is not supported: pictures have "
                "no embedding."
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTowerConfig(TowerConfig):
    """The settings of the encoder of texts. `max_position_embeddings` is the longest text in tokens.

    `pictures` is the class of the settings of the encoder of pictures. With `pads_texts` all texts are padded
    to the longest, and the padding is read.
    """

    pictures: ClassVar["type[ClipPictureConfig | SiglipPictureConfig]"]
    pads_texts: ClassVar[bool] = False
    exported_names: ClassVar = ("text_model", "model")

    features: ClassVar = {
        name: {"method": f"get_{name}_features", "method_output_name": "pooler_output"}
        for name in ("text", "image")
    }

    vocab_size: int = size(49_408)
    max_position_embeddings: int = size(77)

    @property
    def max_input_tokens(self) -> int:
        """The number of position embeddings."""
        return self.max_position_embeddings


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipTextConfig(TextTowerConfig):
    """The settings of CLIP's encoder of texts.

    The embedding is that of the first token `end_token_id`, or of the token with the highest id if it is
    `None`, as in models that transformers saved until 2023.
    """

    graph: ClassVar = "towers_graph:ClipText"
    pictures: ClassVar = ClipPictureConfig
    exported_output: ClassVar = "text_embeds"

    end_token_id: int | None

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of transformers.

        Raises `CorruptModel` for invalid values, `UnsupportedModel` for unsupported ones.
        """
        own = _read_part(config, "text")
        end = read_token_id(own, "eos_token_id", 49_407)
        return cls._read(
            own,
            projection_size=read_size(config, "projection_dim", 512),
            end_token_id=None if end == OLD_END_TOKEN else end,
        )

    @property
    def is_causal(self) -> bool:
        """Tokens attend to those before them alone."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class SiglipTextConfig(TextTowerConfig):
    """The settings of SigLIP's encoder of texts."""

    graph: ClassVar = "towers_graph:SiglipText"
    pictures: ClassVar = SiglipPictureConfig
    pads_texts: ClassVar = True
    exported_output: ClassVar = "pooler_output"

    vocab_size: int = size(32_000)
    hidden_size: int = size(768)
    intermediate_size: int = size(3072)
    num_attention_heads: int = size(12)
    max_position_embeddings: int = size(64)
    hidden_act: str = activation("gelu_pytorch_tanh")
    layer_norm_eps: float = epsilon(1e-6)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `ClipTextConfig.read`."""
        own = _find_part(config, "text")
        width = read_size(own, "hidden_size", 768)
        return cls._read(own, projection_size=read_size(own, "projection_size", width))


def cut_patches(pixels: npt.NDArray[np.uint8], encoder: PictureTowerConfig) -> TokenSequence:
    """Return the patches of a picture as its tokens: (patches, colours * size * size) uint8, row by row.

    `pixels` is (image_size, image_size, 3). Pixels beyond the last whole patch are not read. The token before
    the patches, if the encoder has one, has zeros, which are not read either.
    """
    size, count = encoder.patch_size, encoder.image_size // encoder.patch_size
    whole = pixels[: count * size, : count * size].reshape(count, size, count, size, _COLOURS)
    tokens = np.zeros((encoder.max_input_tokens, encoder.patch_values), np.uint8)
    first = encoder.max_input_tokens - encoder.patches
    tokens[first:].reshape(count, count, _COLOURS, size, size)[...] = whole.transpose(0, 2, 4, 1, 3)
    key = hashlib.sha256(tokens.tobytes()).digest()
    types = np.zeros(len(tokens), np.int64)
    ids = cast(IntArray, tokens)  # of another type, as `TokenSequence` says
    return TokenSequence(ids, types, 0, b"picture:" + key, side=SideName.PICTURES)


def join_patches(tokens: IntArray, encoder: PictureTowerConfig) -> FloatArray:
    """Return the normalised values of pictures from their tokens, of `cut_patches`, one after the other.

    (pictures, 3, image_size, image_size) float32. Pixels beyond the last whole patch are 0.
    """
    size, count = encoder.patch_size, encoder.image_size // encoder.patch_size
    pictures = tokens.reshape(-1, encoder.max_input_tokens, encoder.patch_values)
    patches = pictures[:, encoder.max_input_tokens - encoder.patches :]
    cut = patches.reshape(-1, count, count, _COLOURS, size, size).transpose(0, 3, 1, 4, 2, 5)
    values = np.zeros((len(pictures), _COLOURS, encoder.image_size, encoder.image_size), np.float32)
    scale, shift = (np.array(each, np.float32)[:, None, None] for each in (encoder.scale, encoder.shift))
    side = count * size
    values[:, :, :side, :side] = cut.reshape(-1, _COLOURS, side, side) * scale + shift
    return values


def _find_part(config: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """Return the settings of one encoder, "text" or "vision": an object, or all if it was saved alone."""
    is_alone = str(config.get("model_type")).endswith(f"_{part}_model")
    return config if is_alone else read_mapping(config, f"{part}_config")


def _read_part(config: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """Return the settings of one encoder of CLIP.

    Files of 2021 have them in `text_config_dict` or `vision_config_dict` too. These then count alone: what
    they lack has its default, whatever the other object says.
    """
    older = f"{part}_config_dict"
    return _find_part(config, part) if config.get(older) is None else read_mapping(config, older)


PICTURE_ENCODERS: Mapping[str, type[ClipPictureConfig | SiglipPictureConfig]] = {
    "clip": ClipPictureConfig,
    "clip_vision_model": ClipPictureConfig,
    "siglip": SiglipPictureConfig,
    "siglip_vision_model": SiglipPictureConfig,
}
"""The settings of encoders of pictures by `model_type`. Those with `_vision_model` were saved alone."""
