"""Where the examples of the pages find prepared models."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def user_caches(kept_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The caches of a user, in which vecmill's is that of all tests of the run."""
    folder = tmp_path_factory.mktemp("caches")
    kept_models.mkdir(exist_ok=True)
    (folder / "vecmill").symlink_to(kept_models)
    return folder
