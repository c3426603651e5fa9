"""A server with a model of texts and one of texts and pictures, and pictures as clients send them."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from support.drawn_pictures import draw_picture, write_picture
from support.http_server import PATIENCE_S, QUIET, build_service, run_in_thread
from support.tiny_models import save_tiny_bert
from support.two_towers import save_clip
from vecmill import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill.values.aliases import FloatArray

FILES = tuple(write_picture(draw_picture("RGB", 40, 30 + seed, seed), "PNG") for seed in range(3))
TEXT = "the cat and a dog"
CLIP, TEXTS_ALONE = "clip", "texts-alone"


def to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def to_uri(data: bytes) -> str:
    return f"data:image/png;base64,{to_base64(data)}"


URIS = tuple(map(to_uri, FILES))


@contextmanager
def serve_pictures(folder: Path) -> Iterator[tuple[httpx.Client, Path]]:
    """A client of a server that has the model of texts first, and the directory of the other model."""
    clip = save_clip(folder / CLIP)
    models = [
        (describe_model(locate_model(each)), None) for each in (save_tiny_bert(folder / TEXTS_ALONE), clip)
    ]
    service = build_service(QUIET, models, config=MillConfig(cache_dir=folder / "cache", cores=1))
    with (
        run_in_thread(service) as (port, _),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
    ):
        yield client, clip


def near(found: Any, expected: FloatArray) -> bool:
    """Whether numbers of an answer are those of the library."""
    return bool(np.abs(np.array(found, np.float32) - expected).max() < 1e-4)


def rows(answer: Any) -> list[Any]:
    """The embeddings in OpenAI's answer."""
    return [each["embedding"] for each in answer["data"]]
