"""The fixtures of the tests that need helm."""

import pytest

from chart.rendering import ENVIRONMENT, NPM


@pytest.fixture(scope="session")
def chart_tools() -> None:
    """Skip the test if `make chart` has not installed its tools."""
    if not (ENVIRONMENT / "ready").exists() or not (NPM / "node_modules/ready").exists():
        pytest.skip("helm and the schemas are not installed: run `make chart`")


@pytest.fixture(scope="session")
def helm() -> None:
    """Skip the test if `make chart` has not installed helm."""
    if not (ENVIRONMENT / "ready").exists():
        pytest.skip("helm is not installed: run `make chart`")
