"""What transformers' PIL processors make of the files of pictures, recorded.

A file is handed to them as a base64 text, which is how they get the bytes of a file: they open it themselves,
as they do with a path or a URL.
"""

import base64
import hashlib
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from support.references import answer


def digest_pixels(pixels: npt.NDArray[np.uint8]) -> str:
    """Return a digest of the shape and of every pixel."""
    return hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).hexdigest()


def digest_processed(config: Mapping[str, Any], files: Mapping[str, bytes]) -> Mapping[str, str]:
    """Return the digest of what the processor of `config` makes of each file, before it rescales."""

    def compute() -> dict[str, str]:
        made = {}
        for name, data in files.items():
            pixels = _process(config, data, do_rescale=False, do_normalize=False)
            made[name] = digest_pixels(np.ascontiguousarray(pixels))
        return made

    found: Mapping[str, str] = answer(["pixels", dict(config), dict(files)], compute)
    return found


def normalise(config: Mapping[str, Any], data: bytes) -> npt.NDArray[np.float32]:
    """Return what the processor of `config` makes of a file, of shape (height, width, 3)."""
    found: npt.NDArray[np.float32] = answer(
        ["normalised", dict(config), data], lambda: np.ascontiguousarray(_process(config, data))
    )
    return found


def _process(config: Mapping[str, Any], data: bytes, **options: bool) -> npt.NDArray[Any]:
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    name = config.get("image_processor_type") or config["feature_extractor_type"]
    kind = SiglipImageProcessorPil if name.startswith("Siglip") else CLIPImageProcessorPil
    processor = kind.from_dict(dict(config))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of palettes with opacities
        made = processor(images=[base64.b64encode(data).decode()], **options)
    return np.moveaxis(made["pixel_values"][0], 0, 2)
