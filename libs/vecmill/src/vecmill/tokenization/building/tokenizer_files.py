"""All that a tokenizer is built from: the contents of its files, and the settings that are read elsewhere.

The files are read once, and building a tokenizer reads nothing else. So the digest of this value is the
identity of the tokenizer, whatever the rules of its class read.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from vecmill.models.config_fields import MOST_TOKENS
from vecmill.models.directory import (
    SETTINGS_LIMITS,
    FileLimits,
    check_object,
    find_file,
    parse_json,
    read_file,
)
from vecmill.models.space import digest_of
from vecmill.models.tokenizer_file import (
    ADDED_TOKENS,
    LARGEST_TOKENIZER,
    SPECIAL_TOKENS_MAP,
    tokenizer_limits,
)
from vecmill.models.weights import count_bytes
from vecmill.tokenization.building.class_names import find_class

if TYPE_CHECKING:
    from vecmill.models.description import ModelDescription

TOKENIZER_FILE = "tokenizer.json"
MERGES_FILE = "merges.txt"
DECODER = "added_tokens_decoder"
"""The key of tokenizer_config.json under which transformers lists all added tokens since version 4.34."""


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """The contents of the files by their names; `name` is that of the vocabulary or of tokenizer.json.

    `config` is the whole tokenizer_config.json, and `class_name` the class of transformers, "" if there is
    none. Without `has_class` the file is read without a class and without settings. `rows` is the number of
    rows in the model's table of tokens. With `lowercase` texts are lower-cased first. `markers` are prompts
    whose first word may be a token. `limits` are those of each large file. `folder` is for messages only.
    """

    folder: Path
    name: str
    contents: Mapping[str, bytes]
    class_name: str
    config: Mapping[str, Any]
    limits: FileLimits = LARGEST_TOKENIZER
    has_class: bool = True
    rows: int = MOST_TOKENS
    lowercase: bool = False
    markers: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, class_name: str, config: Mapping[str, Any], **others: Any) -> Self:
        """Read the file `path` and those beside it. `others` are the other fields. Raises `CorruptModel`."""
        found = cls(path.parent, path.name, {}, class_name, config, **others)
        contents = {path.name: read_file(path, found.limits.max_bytes)}
        for name, limits in found._list_files_beside():
            beside = find_file(path.parent, name)
            if beside is not None:
                contents[name] = read_file(beside, limits.max_bytes)
        return cls(path.parent, path.name, contents, class_name, config, **others)

    @classmethod
    def of(cls, description: "ModelDescription") -> Self:
        """Read the files of a model. Raises `CorruptModel`."""
        config, markers = description.tokenizer_config, description.multi_vector
        return cls.read(
            description.tokenizer_file,
            find_class(config, description.config),
            config,
            limits=find_limits(description),
            # StaticEmbedding reads the file without a tokenizer class, and so without the class's settings.
            has_class=description.special_tokens or bool(config),
            rows=description.vocab_size,
            lowercase=description.lowercase,
            markers=() if markers is None else markers.prefixes,
        )

    @property
    def path(self) -> Path:
        """The path of tokenizer.json or of the vocabulary, for messages."""
        return self.folder / self.name

    @property
    def content(self) -> bytes:
        """The content of tokenizer.json or of the vocabulary."""
        return self.contents[self.name]

    @property
    def lists_added_tokens(self) -> bool:
        """Whether tokenizer_config.json lists all added tokens, so that no other list counts."""
        return DECODER in self.config

    def read_object(self, name: str) -> dict[str, Any]:
        """Return the JSON object in the file `name`, empty if there is none. Raises `CorruptModel`."""
        content, limits = self.contents.get(name), SETTINGS_LIMITS
        if content is None:
            return {}
        if name == self.name:
            limits = self.limits
        return check_object(self.folder / name, parse_json(self.folder / name, content, limits))

    def digest(self) -> str:
        """Return the digest of every field but `folder`: equal digests, equal tokenizers."""
        return digest_of({field.name: _digestible(getattr(self, field.name)) for field in fields(self)})

    def _list_files_beside(self) -> Iterator[tuple[str, FileLimits]]:
        if self.name == "vocab.json":
            yield MERGES_FILE, self.limits
        if self.has_class and not self.lists_added_tokens:
            yield from ((name, SETTINGS_LIMITS) for name in (ADDED_TOKENS, SPECIAL_TOKENS_MAP))


def find_limits(description: "ModelDescription") -> FileLimits:
    """Return the limits of the tokenizer's large files."""
    # Each token has a row of weights, so a wrong vocab_size does not lift the limits.
    return tokenizer_limits(min(description.vocab_size, count_bytes(description.weights_files)))


def _digestible(value: object) -> object:
    """Return a value with the digests of contents in place of the contents. Paths have none."""
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, Mapping):
        return {key: _digestible(one) for key, one in value.items()}
    return value
