"""What the tests of tokenizers share: nothing that one of them changes."""

from collections.abc import Iterator

import pytest

from vecmill.tokenization import shared
from vecmill.tokenization.building.assembly import build_tokenizer


@pytest.fixture(scope="package", autouse=True)
def not_shared_among_tests() -> Iterator[None]:
    """Build each tokenizer anew, in another way than the one whose outcome all other tests share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "build_tokenizer", lambda files: build_tokenizer(files))
        yield
