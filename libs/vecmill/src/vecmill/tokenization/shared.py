"""Tokenizers that several models share in memory.

A vocabulary of 250,000 pieces takes about as much memory as the table of its embeddings, and adapters over
one base have the same vocabulary.
"""

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from vecmill.errors import CorruptModel
from vecmill.tokenization.building.assembly import build_tokenizer
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles
from vecmill.tokenization.table_rows import find_highest_id
from vecmill.values.messages import show

if TYPE_CHECKING:
    from vecmill.models import ModelDescription


@dataclass(frozen=True, slots=True, weakref_slot=True)
class LoadedTokenizer:
    """A `tokenizers.Tokenizer` without padding and truncation, which nothing changes any more.

    `truncates_left` is the direction of truncation in its file. `highest_id` is the highest id of its tokens.
    """

    library: Any
    truncates_left: bool
    highest_id: int

    @classmethod
    def read(cls, description: "ModelDescription") -> Self:
        """Read the tokenizer of a model. Raises the errors of `read_tokenizer`."""
        return cls.build(TokenizerFiles.of(description))

    @classmethod
    def build(cls, files: TokenizerFiles) -> Self:
        """Build the tokenizer of these files.

        Raises the errors of `read_tokenizer`, `CorruptModel` also if an id is far above the others.
        """
        library = build_tokenizer(files)
        highest = find_highest_id(library)
        if highest > files.limits.max_values:
            # The library takes memory for each id below the highest when it writes the vocabulary.
            raise CorruptModel(
                f"{files.path}: the id of the token {show(library.id_to_token(highest))} is {highest}, above "
                f"{files.limits.max_values}, the limit for a model of this size. Download the model again."
            )
        truncates_left = str((library.truncation or {}).get("direction")).lower() == "left"
        library.no_truncation()
        return cls(library, truncates_left, highest)


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
