"""Prepared files that are changed or removed while a server serves from them: no later request notices.

A file that is truncated during a call ends the process, so the server is idle at each change.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

from support.http_server import wait_until
from support.plain_http import embed
from support.server import LiveServer, live_server
from support.texts import short_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import MillConfig, SyncMill
from vecmill.values.aliases import FloatArray

TEXTS = short_texts(5, 30)
SAMPLES_S = 120.0  # in which an idle server has embedded its sample texts


def truncate(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o600)
        os.truncate(path, 0)


def overwrite(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o600)
        path.write_bytes(b"\xff" * 10_000_000)


CHANGES: list[Callable[[Path], object]] = [truncate, overwrite, shutil.rmtree]


@pytest.mark.parametrize("is_tiny", [True, pytest.param(False, marks=pytest.mark.full)])
def test_requests_are_answered_as_before(
    tmp_path: Path, is_tiny: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = save_tiny_bert(tmp_path / "model", TinyBert()) if is_tiny else None
    with live_server(tmp_path, arguments=[] if model is None else [str(model)]) as server:
        expected = embed(server.url, TEXTS)
        wait_until(lambda: any(tmp_path.glob("cache/samples/*")), patience_s=SAMPLES_S)
        folder = prepared_folder(tmp_path)
        for change in CHANGES:
            change(folder)
            assert np.array_equal(embed(server.url, TEXTS), expected)
            assert_ready(server)
    assert np.abs(embed_after_a_start(model, tmp_path) - expected).max() <= 1e-6
    assert not caplog.records
    overwrite(prepared_folder(tmp_path))
    assert np.abs(embed_after_a_start(model, tmp_path) - expected).max() <= 1e-6
    assert "is prepared again" in caplog.text


def embed_after_a_start(model: Path | None, place: Path) -> FloatArray:
    with SyncMill(model, MillConfig(cache_dir=place / "cache")) as mill:
        found: FloatArray = mill.embed(TEXTS)
        return found


def prepared_folder(place: Path) -> Path:
    """The only folder of prepared files in the cache of a server."""
    others = ("samples", "digests", "models")
    (folder,) = (path for path in (place / "cache").iterdir() if path.name not in others)
    return folder


def assert_ready(server: LiveServer) -> None:
    with urlopen(f"{server.url}/readyz", timeout=10) as answer:
        assert answer.status == 200
