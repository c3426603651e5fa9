"""A tokenizers library that raises for some texts, as its panics do: not an `Exception`."""

from collections.abc import Sequence
from typing import Any

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
