"""What all tests share: one live server, and how randomness is handled."""

import gc
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from support.server import LiveServer, live_server

# A failure prints the line that repeats it; how long an example takes is not a promise that
# a shared machine can keep.
hypothesis.settings.register_profile("vecmill", deadline=None, print_blob=True)
hypothesis.settings.load_profile("vecmill")


def pytest_collection_finish() -> None:
    """What is loaded by now, torch above all, stays to the end: nothing to look through for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache and the log of the live server."""
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="session")
def server(server_folder: Path) -> Iterator[LiveServer]:
    """The embedded model, served by `vecmill serve` in a process of its own."""
    with live_server(server_folder, arguments=("--batch-dir", str(server_folder / "batches"))) as running:
        yield running
