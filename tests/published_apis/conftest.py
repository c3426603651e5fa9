"""The servers that the tests of a run share."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from published_apis.servers import Servers


@pytest.fixture(scope="package")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack, tmp_path_factory.mktemp("servers"))
