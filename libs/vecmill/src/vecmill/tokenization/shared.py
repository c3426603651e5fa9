"""Tokenizers that several models share in memory.

A vocabulary of 250,000 pieces takes about as much memory as the table of its embeddings, and adapters over
one base have the same vocabulary.
"""

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from vecmill.tokenization.building.assembly import build_tokenizer
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles

if TYPE_CHECKING:
    from vecmill.models import ModelDescription


@dataclass(frozen=True, slots=True, weakref_slot=True)
class LoadedTokenizer:
    """A `tokenizers.Tokenizer` without padding and truncation, which nothing changes any more.

    `truncates_left` is the direction of truncation in its file.
    """

    library: Any
    truncates_left: bool

    @classmethod
    def read(cls, description: "ModelDescription") -> Self:
        """Read the tokenizer of a model. Raises the errors of `read_tokenizer`."""
        return cls.build(TokenizerFiles.of(description))

    @classmethod
    def build(cls, files: TokenizerFiles) -> Self:
        """Build the tokenizer of these files. Raises the errors of `read_tokenizer`."""
        library = build_tokenizer(files)
        truncates_left = str((library.truncation or {}).get("direction")).lower() == "left"
        library.no_truncation()
        return cls(library, truncates_left)


class SharedTokenizers:
    """The tokenizers of all models of a process. Each is kept as long as a model uses it.

    Safe for any number of threads. A tokenizer is read once, also if several models ask for it at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: weakref.WeakValueDictionary[str, LoadedTokenizer] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        """Return how many tokenizers are in use."""
        return len(self._found)

    def read(self, description: "ModelDescription") -> LoadedTokenizer:
        """Return the tokenizer of a model, that of an earlier model if the two are equal.

        Raises the errors of `read_tokenizer`.
        """
        files = TokenizerFiles.of(description)
        key = files.digest()
        with self._lock:
            found = self._found.get(key)
            if found is None:
                found = self._found[key] = LoadedTokenizer.build(files)
            return found
