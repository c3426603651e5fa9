"""Tokenizers that several models share in memory.

A vocabulary of 250,000 pieces takes about as much memory as the table of its embeddings, and adapters over
one base have the same vocabulary.
"""

import threading
import weakref
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from vecmill.models.fingerprint import hash_file
from vecmill.tokenization.building.assembly import read_tokenizer
from vecmill.tokenization.building.class_names import find_class
from vecmill.values.json_text import encode_json

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
        library = read_tokenizer(description)
        truncates_left = str((library.truncation or {}).get("direction")).lower() == "left"
        library.no_truncation()
        return cls(library, truncates_left)


class SharedTokenizers:
    """The tokenizers of all models of a process. Each is kept as long as a model uses it.

    Safe for any number of threads. A tokenizer is read once, also if several models ask for it at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: weakref.WeakValueDictionary[Hashable, LoadedTokenizer] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        """Return how many tokenizers are in use."""
        return len(self._found)

    def read(self, description: "ModelDescription") -> LoadedTokenizer:
        """Return the tokenizer of a model, that of an earlier model if the two are equal.

        Raises the errors of `read_tokenizer`.
        """
        if description.tokenizer_file.name != "tokenizer.json":  # others are read from several files
            return LoadedTokenizer.read(description)
        key = _key(description)
        with self._lock:
            found = self._found.get(key)
            if found is None:
                found = self._found[key] = LoadedTokenizer.read(description)
            return found


def _key(description: "ModelDescription") -> Hashable:
    """Return all that `read_tokenizer` reads of a description."""
    markers = description.multi_vector
    return (
        hash_file(description.tokenizer_file),
        find_class(description.tokenizer_config, description.config),
        encode_json(dict(description.tokenizer_config)),
        description.vocab_size,
        description.special_tokens,
        description.lowercase,
        None if markers is None else markers.prefixes,
    )
