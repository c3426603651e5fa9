"""Reads what a model directory says about its pictures: `preprocessor_config.json` in its published variants.

    image_processor_type    the class; feature_extractor_type in older files
    do_resize, size         the length of the shorter side, a number or shortest_edge; or height and width
    resample                the number of Pillow's filter
    do_center_crop, crop_size
    do_rescale, rescale_factor, do_normalize, image_mean, image_std

transformers 5 writes the same object as `image_processor` of `processor_config.json`. Nothing is passed over
that could change pixels: an unknown key is refused, unless it is null or false.

Source of the rules: transformers 5.23, `image_processing_utils.py`, and in `models` the modules
`clip/image_processing_pil_clip.py` and `siglip/image_processing_pil_siglip.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    Settings,
    check_number,
    check_whole_number,
    read_flag,
    read_size,
    read_text,
)
from vecmill.pictures.geometry import PictureGeometry
from vecmill.values.messages import not_supported, show, show_name

Channels = tuple[float, float, float]
"""A value for red, green and blue."""

Sides = tuple[int, int] | int
"""A height and a width, or one length, in pixels."""

_MOST_SIDE = 4096  # above published models, which read up to 1024 pixels a side
_MOST_FILTER = 5  # Pillow numbers its filters from 0
_BICUBIC = 3


@dataclass(frozen=True, slots=True)
class PictureSettings:
    """The steps from a picture to what the first layer of a model reads.

    A value of a pixel, from 0 to 255, is multiplied by `rescale_factor`; then `mean` is subtracted, and the
    rest divided by `std`. Steps that a model leaves out have the values that change nothing.
    """

    geometry: PictureGeometry
    rescale_factor: float
    mean: Channels
    std: Channels

    @property
    def height(self) -> int:
        """The height of every picture in the end, in pixels."""
        return self.geometry.size[0]

    @property
    def width(self) -> int:
        """The width of every picture in the end, in pixels."""
        return self.geometry.size[1]

    @property
    def scale(self) -> NDArray[np.float64]:
        """The factor of each channel, of shape (3,): a normalised value is pixel * scale + shift."""
        return self.rescale_factor / np.asarray(self.std, dtype=np.float64)

    @property
    def shift(self) -> NDArray[np.float64]:
        """The summand of each channel, of shape (3,)."""
        return -np.asarray(self.mean, dtype=np.float64) / np.asarray(self.std, dtype=np.float64)

    def describe(self) -> dict[str, object]:
        """Return all that decides what a model reads of a picture, as values of JSON.

        Settings that have the same effect on every picture have the same description.
        """
        resized, crop = self.geometry.resized, self.geometry.crop
        return {
            "resized": list(resized) if isinstance(resized, tuple) else resized,
            "resample": None if resized is None else self.geometry.resample,
            "crop": None if crop is None else list(crop),
            "scale": self.scale.tolist(),
            "shift": (self.shift + 0.0).tolist(),  # without negative zeros
        }


@dataclass(frozen=True, slots=True)
class _Processor:
    """A class of transformers: its values for absent keys."""

    size: Sides
    crops: bool
    mean: Channels
    std: Channels


_CLIP = _Processor(224, True, (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
_SIGLIP = _Processor((224, 224), False, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_CROP_SIDE = 224

# By the name of the class without what says how it computes.
_PROCESSORS = {
    "CLIPImageProcessor": _CLIP,
    "ChineseCLIPImageProcessor": _CLIP,
    "SiglipImageProcessor": _SIGLIP,
}
_NAFLEX = "Siglip2ImageProcessor"

_READ = (
    "image_processor_type",
    "feature_extractor_type",
    "processor_class",
    "do_resize",
    "size",
    "default_to_square",
    "resample",
    "do_center_crop",
    "crop_size",
    "do_rescale",
    "rescale_factor",
    "do_normalize",
    "image_mean",
    "image_std",
)
# These do not change pixels: where and how processors compute, and what they return. Files always become RGB,
# whatever do_convert_rgb says, as transformers loads them.
_WITHOUT_EFFECT = (
    "_valid_processor_keys",
    "data_format",
    "device",
    "disable_grouping",
    "do_convert_rgb",
    "image_seq_length",
    "input_data_format",
    "return_tensors",
    "transformers_version",
)


def read_picture_settings(
    config: Mapping[str, Any], path: str, *, image_size: int, processor: str
) -> PictureSettings:
    """Read the object of a `preprocessor_config.json`. `path` is its place in error messages.

    `image_size` is the side of the pictures that the model reads, of its `config.json`. `processor` is the
    class of files that name none, by the kind of the model. Raises `CorruptModel` for invalid values, and
    `UnsupportedModel` for other processors and steps, and for pictures of another size.
    """
    known = _find_processor(config, path, processor)
    _refuse_others(config, path)
    geometry = _read_geometry(config, path, known)
    if geometry.size != (image_size, image_size):
        made = " x ".join(map(str, geometry.size))
        raise UnsupportedModel(
            f"{path}: size and crop_size make pictures of {made} pixels; the model reads {image_size} x "
            f"{image_size}, by image_size of config.json or of its vision_config."
        )
    factor, mean, std = 1.0, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if read_flag(config, "do_rescale", default=True, file=path):
        factor = check_number(_get(config, "rescale_factor", 1 / 255), f"{path}: rescale_factor")
    if read_flag(config, "do_normalize", default=True, file=path):
        mean = _read_channels(config, "image_mean", known.mean, path)
        std = _read_channels(config, "image_std", known.std, path)
        for value in std:
            check_number(value, f"{path}: image_std")
    return PictureSettings(geometry, factor, mean, std)


def _find_processor(config: Settings, path: str, default: str) -> _Processor:
    key = "image_processor_type" if config.get("image_processor_type") else "feature_extractor_type"
    name = read_text(config, key, default, file=path) or default
    plain = name.replace("FeatureExtractor", "ImageProcessor").removesuffix("Fast").removesuffix("Pil")
    if plain == _NAFLEX or config.get("max_num_patches") is not None:
        raise UnsupportedModel(
            f"{path}: {key} {show_name(name)} prepares pictures for a NaFlex model, whose number of patches "
            "differs by picture, which is not supported. Use a model of fixed resolution, such as "
            "google/siglip2-base-patch16-224."
        )
    if plain not in _PROCESSORS:
        raise UnsupportedModel(not_supported(f"{path}: {key}", name, _PROCESSORS))
    return _PROCESSORS[plain]


def _refuse_others(config: Settings, path: str) -> None:
    for key, value in config.items():
        if key not in _READ and key not in _WITHOUT_EFFECT and value is not None and value is not False:
            raise UnsupportedModel(
                f"{path}: {show_name(key)} {show(value)} is not supported; remove it if it does not change "
                "pixels."
            )


def _read_geometry(config: Settings, path: str, processor: _Processor) -> PictureGeometry:
    resized = crop = None
    if read_flag(config, "do_resize", default=True, file=path):
        resized = _read_sides(config, "size", processor.size, path)
        if read_flag(config, "default_to_square", default=False, file=path) and config.get("size") == resized:
            resized = _square(resized)
    if read_flag(config, "do_center_crop", default=processor.crops, file=path):
        crop = _square(_read_sides(config, "crop_size", _CROP_SIDE, path))
    if crop is None and not isinstance(resized, tuple):
        raise UnsupportedModel(
            f"{path}: without do_center_crop, size must have height and width: pictures of several sizes are "
            "not supported."
        )
    resample = read_size(config, "resample", _BICUBIC, least=0, most=_MOST_FILTER, file=path)
    return PictureGeometry(resized, resample, None if crop == resized else crop)


def _square(side: Sides) -> tuple[int, int]:
    return side if isinstance(side, tuple) else (side, side)


def _read_sides(config: Settings, key: str, default: Sides, path: str) -> Sides:
    value = _get(config, key, default)
    name = f"{path}: {key}"
    if isinstance(value, Mapping):
        sides = {side: length for side, length in value.items() if length is not None}
        if set(sides) == {"shortest_edge"} and key == "size":
            value = sides["shortest_edge"]
        elif set(sides) == {"height", "width"}:
            value = (sides["height"], sides["width"])
        else:
            supported = ("height and width", "shortest_edge of size")
            raise UnsupportedModel(not_supported(name, sorted(sides), supported))
    if isinstance(value, list | tuple) and len(value) == 2:
        return _check_side(value[0], name), _check_side(value[1], name)
    return _check_side(value, name)


def _check_side(value: object, name: str) -> int:
    return check_whole_number(value, name, 1, _MOST_SIDE)


def _read_channels(config: Settings, key: str, default: Channels, path: str) -> Channels:
    """Read a number for each channel. One number alone holds for all."""
    value = _get(config, key, default)
    values = tuple(value) if isinstance(value, list | tuple) else (value,) * 3
    if len(values) != 3 or not all(_is_number(one) for one in values):
        raise CorruptModel(f"{path}: {key} must be three numbers, for red, green and blue.")
    red, green, blue = map(float, values)
    return red, green, blue


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e6


def _get(config: Settings, key: str, default: Any) -> Any:
    value = config.get(key)
    return default if value is None else value
