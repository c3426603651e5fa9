"""The settings of pictures are those that transformers reads in the same file, or the model is refused."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from support.drawn_pictures import draw_picture, write_picture
from support.picture_processors import normalise
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.picture_settings import PictureSettings, read_picture_settings
from vecmill.pictures.picture_limits import PictureLimits
from vecmill.pictures.reading import read_picture

SIDE = 8
CLIP: Mapping[str, Any] = {"image_processor_type": "CLIPImageProcessor"}
# As published in 2021, in 2023, by transformers' fast processors, and for SigLIP.
OLD = {
    "crop_size": SIDE,
    "do_center_crop": True,
    "do_normalize": True,
    "do_resize": True,
    "feature_extractor_type": "CLIPFeatureExtractor",
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "resample": 3,
    "size": SIDE,
}
NEW = {
    **OLD,
    "crop_size": {"height": SIDE, "width": SIDE},
    "do_convert_rgb": True,
    "do_rescale": True,
    "image_processor_type": "CLIPImageProcessor",
    "rescale_factor": 0.00392156862745098,
    "size": {"shortest_edge": SIDE},
}
FAST = {
    **NEW,
    "data_format": "channels_first",
    "device": None,
    "disable_grouping": None,
    "do_pad": None,
    "image_processor_type": "CLIPImageProcessorFast",
    "input_data_format": None,
    "pad_size": None,
    "processor_class": "CLIPProcessor",
    "return_tensors": None,
}
SIGLIP = {
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_processor_type": "SiglipImageProcessor",
    "image_std": [0.5, 0.5, 0.5],
    "processor_class": "SiglipProcessor",
    "resample": 2,
    "rescale_factor": 0.00392156862745098,
    "size": {"height": SIDE, "width": SIDE},
}
VARIANTS = {
    "old": OLD,
    "new": NEW,
    "fast": FAST,
    "siglip": SIGLIP,
    "absent keys": {**CLIP, "size": SIDE, "crop_size": [SIDE, SIDE]},
    "absent keys of siglip": {"image_processor_type": "SiglipImageProcessor", "size": [SIDE, SIDE]},
    "square by default": {**NEW, "size": 12, "default_to_square": True},
    "resized and cropped": {**NEW, "size": {"height": 12, "width": 10}, "resample": 1},
    "cropped alone": {**NEW, "do_resize": False},
    "without rescaling": {**NEW, "do_rescale": False},
    "without normalising": {**NEW, "do_normalize": False},
    "a factor of its own": {**NEW, "rescale_factor": 1 / 128},
    "one number for all colours": {**NEW, "image_mean": 0.25, "image_std": 2},
}  # fmt: skip


def read(
    config: Mapping[str, Any], side: int = SIDE, processor: str = "CLIPImageProcessor"
) -> PictureSettings:
    return read_picture_settings(config, "preprocessor_config.json", image_size=side, processor=processor)


@pytest.mark.parametrize("name", VARIANTS)
def test_settings_mean_what_transformers_does_with_them(name: str) -> None:
    config = VARIANTS[name]
    data = write_picture(draw_picture("RGB", 20, 33), "PNG")
    settings = read(config)
    pixels = read_picture(data, settings.geometry, PictureLimits())
    assert pixels.shape == (settings.height, settings.width, 3) == (SIDE, SIDE, 3)
    assert settings.scale.dtype == settings.shift.dtype == np.float64
    np.testing.assert_allclose(
        pixels * settings.scale + settings.shift, normalise(config, data), rtol=1e-6, atol=1e-6
    )


def test_the_published_defaults_are_those_of_the_classes() -> None:
    assert read(CLIP, 224) == read({**NEW, "size": 224, "crop_size": 224, "rescale_factor": 1 / 255}, 224)
    assert read({"feature_extractor_type": None, "processor_class": "CLIPProcessor"}, 224) == read(CLIP, 224)
    siglip = read({"image_processor_type": "SiglipImageProcessorFast"}, 224)
    assert read({}, 224, "SiglipImageProcessor") == siglip != read({}, 224)
    assert siglip.geometry.resized == (224, 224)
    assert siglip.geometry.crop is None


def test_the_description_has_what_decides_pixels_and_nothing_else() -> None:
    described = read(OLD).describe()
    assert described == read(FAST).describe()
    assert described["resized"] == SIDE
    assert described["crop"] == [SIDE, SIDE]
    assert described["scale"] == pytest.approx([0.0145984, 0.0150078, 0.0142201], abs=1e-7)
    for changed in ({"resample": 2}, {"size": 9}, {"image_std": [0.3] * 3}, {"image_mean": [0.1] * 3}):
        assert read({**OLD, **changed}).describe() != described
    # A crop to the size that pictures have anyway changes nothing, nor does a filter that is not used.
    cropped = {**SIGLIP, "do_center_crop": True, "crop_size": SIDE}
    assert read(cropped).describe() == read(SIGLIP).describe()
    alone = VARIANTS["cropped alone"]
    assert read({**alone, "resample": 0}).describe() == read(alone).describe()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_processor_type": "Siglip2ImageProcessor"}, "NaFlex model"),
        ({"image_processor_type": "Siglip2ImageProcessorFast", "max_num_patches": 256}, "NaFlex model"),
        ({"max_num_patches": 256}, "NaFlex model"),
        ({"image_processor_type": "ViTImageProcessor"}, "image_processor_type 'ViTImageProcessor' is not"),
        ({"do_pad": True}, "do_pad True is not supported"),
        ({"auto_map": {"AutoImageProcessor": "own.Processor"}}, "auto_map {'AutoImageProcessor"),
        ({"use_square_size": True}, "use_square_size True is not supported"),
        ({"do_center_crop": False}, "without do_center_crop, size must have height and width"),
        ({"size": {"shortest_edge": 8, "longest_edge": 16}}, "size ['longest_edge', 'shortest_edge'] is not"),
        ({"size": {"longest_edge": 8}}, "size ['longest_edge'] is not supported"),
        ({"crop_size": {"shortest_edge": 8}}, "crop_size ['shortest_edge'] is not supported"),
        ({"crop_size": 9}, "size and crop_size make pictures of 9 x 9 pixels; the model reads 8 x 8"),
        ({"crop_size": {"height": 8, "width": 9}}, "make pictures of 8 x 9 pixels"),
    ],
)
def test_other_processors_and_steps_are_refused(change: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModel) as refused:
        read({**NEW, **change})
    assert refused.value.message.startswith("preprocessor_config.json: ")
    assert message in refused.value.message


@pytest.mark.parametrize(
    "change",
    [
        {"size": 0},
        {"size": "224"},
        {"size": True},
        {"size": 10**6},
        {"size": [8, 8, 8]},
        {"size": {"shortest_edge": None, "height": 8, "width": -8}},
        {"crop_size": {"height": 8, "width": 8.5}},
        {"resample": 6},
        {"resample": "bicubic"},
        {"do_resize": "yes"},
        {"do_normalize": 2},
        {"rescale_factor": 0},
        {"rescale_factor": float("nan")},
        {"image_mean": [0.5, 0.5]},
        {"image_mean": [0.5, 0.5, float("inf")]},
        {"image_mean": "0.5"},
        {"image_std": [0.5, 0.5, 0]},
        {"image_std": [0.5, 0.5, None]},
        {"image_std": [0.5, 0.5, float("nan")]},
        {"image_processor_type": 7},
    ],
    ids=str,
)
def test_invalid_values_are_refused_by_file_and_key(change: Mapping[str, Any]) -> None:
    with pytest.raises(CorruptModel) as refused:
        read({**NEW, **change})
    assert refused.value.message.startswith(f"preprocessor_config.json: {next(iter(change))}")
