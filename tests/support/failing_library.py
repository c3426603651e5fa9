"""Libraries that raise for some texts what is no `Exception`, as the panics of libraries in Rust are."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from vecmill.engines.fake import FakeEngine
from vecmill.tokenization import shared
from vecmill.tokenization.building.assembly import build_tokenizer
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Embeddings

POISON = "poison"


class LibraryPanic(BaseException):
    """What a library in Rust raises when it panics is such a class too."""


class FailingLibrary:
    """A `tokenizers.Tokenizer` that raises for a text with `poison`, and for the token id `poison_id`."""

    def __init__(
        self,
        library: Any,
        error: type[BaseException] = LibraryPanic,
        *,
        poison: str = POISON,
        poison_id: int | None = None,
    ) -> None:
        self._library = library
        self._error = error
        self._poison = poison
        self._poison_id = poison_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def encode(self, text: str, *others: Any, **options: Any) -> Any:
        """Encode one text."""
        self._check([text])
        return self._library.encode(text, *others, **options)

    def encode_batch(self, texts: Sequence[str], **options: Any) -> Any:
        """Encode several texts."""
        self._check(texts)
        return self._library.encode_batch(texts, **options)

    def encode_batch_fast(self, texts: Sequence[str], **options: Any) -> Any:
        """Encode several texts without places."""
        self._check(texts)
        return self._library.encode_batch_fast(texts, **options)

    def decode_batch(self, lists: Sequence[Sequence[int]], **options: Any) -> Any:
        """Return the texts of lists of token ids."""
        if any(self._poison_id in ids for ids in lists):
            raise self._error("called `Option::unwrap()` on a `None` value")
        return self._library.decode_batch(lists, **options)

    def _check(self, texts: Sequence[str]) -> None:
        if any(self._poison in text for text in texts):
            raise self._error("called `Option::unwrap()` on a `None` value")


@contextmanager
def library_panics(poison_id: int | None = None) -> Iterator[None]:
    """Let the libraries of all tokenizers that are read inside the context be failing ones."""

    def build(files: TokenizerFiles) -> FailingLibrary:
        return FailingLibrary(build_tokenizer(files), poison_id=poison_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "build_tokenizer", build)
        yield


class PanickingEngine(FakeEngine):
    """An engine whose runtime panics in calls with a text of the token `poison_id`."""

    def __init__(self, poison_id: int, *, dim: int) -> None:
        super().__init__(dim=dim)
        self._poison_id = poison_id

    def run(self, batch: Batch, *, width: int) -> Embeddings:
        """Return the hash of each text, or panic."""
        rows = super().run(batch, width=width)
        if self._poison_id in batch.token_ids:
            raise LibraryPanic("called `Option::unwrap()` on a `None` value")
        return rows
