"""Prepared files that are changed or removed while a server serves from them: no request notices."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

from support.plain_http import embed
from support.server import LiveServer, live_server
from support.texts import short_texts
from support.tiny_models import TinyBert, save_tiny_bert

TEXTS = short_texts(5, 30)


def truncate(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o600)
        os.truncate(path, 0)


def overwrite(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o600)
        path.write_bytes(b"\xff" * 10_000_000)


CHANGES: list[Callable[[Path], object]] = [truncate, overwrite, shutil.rmtree]


@pytest.mark.parametrize("model", ["tiny", pytest.param("embedded", marks=pytest.mark.full)])
def test_requests_are_answered_as_before(tmp_path: Path, model: str) -> None:
    arguments = [str(save_tiny_bert(tmp_path / "model", TinyBert()))] if model == "tiny" else []
    with live_server(tmp_path, arguments=arguments) as server:
        expected = embed(server.url, TEXTS)
        (folder,) = (tmp_path / "cache").iterdir()
        for change in CHANGES:
            change(folder)
            assert np.array_equal(embed(server.url, TEXTS), expected)
            assert_ready(server)
    with live_server(tmp_path, arguments=arguments) as server:
        assert np.abs(embed(server.url, TEXTS) - expected).max() <= 1e-6
    (folder,) = (tmp_path / "cache").iterdir()
    overwrite(folder)
    with live_server(tmp_path, arguments=arguments) as server:
        assert np.abs(embed(server.url, TEXTS) - expected).max() <= 1e-6
        assert "is prepared again" in server.log.read_text()


def assert_ready(server: LiveServer) -> None:
    with urlopen(f"{server.url}/readyz", timeout=10) as answer:
        assert answer.status == 200
