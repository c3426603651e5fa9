"""The servers that the tests of a module share. They end with it: some of them compute without end."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from published_apis.servers import Servers


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack, tmp_path_factory.mktemp("servers"))
