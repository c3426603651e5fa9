"""A digest of everything that determines the rows of a model."""

import hashlib
import json
from pathlib import Path

from vecmill.errors import CorruptModel
from vecmill.graphs import GRAPH_VERSION
from vecmill.models.description import ModelDescription

CHUNK_BYTES = 8 * 2**20


def fingerprint_model(description: ModelDescription) -> str:
    """Hash settings, tokenizer, weights and the version of our graphs: 32 hexadecimal digits.

    Reads the weights once, and checks them against `description.weights_sha256` on the way.
    Raises `CorruptModel` if they are not what was promised, or cannot be read.
    """
    digest = hashlib.sha256()
    for part in (
        _settings(description),
        hash_file(description.tokenizer_file),
        _hash_weights(description),
    ):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]


def hash_file(path: Path) -> str:
    """The SHA-256 of a file, in lower-case hex. Raises `CorruptModel` if it cannot be read."""
    digest = hashlib.sha256()
    # Large reads: with the small ones of `hashlib.file_digest` this takes three times as long.
    chunk = memoryview(bytearray(CHUNK_BYTES))
    try:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(chunk):
                digest.update(chunk[:count])
    except OSError as error:
        raise CorruptModel(f"{path} cannot be read: {error.strerror}.") from error
    return digest.hexdigest()


def _settings(description: ModelDescription) -> str:
    values = {
        "graph_version": GRAPH_VERSION,
        "task": description.task,
        "config": dict(description.config),
        "max_tokens": description.max_tokens,
        "stages": [repr(stage) for stage in description.stages],
        "head": repr(description.head),
        "lowercase": description.lowercase,
        "truncate_left": description.truncate_left,
    }
    return json.dumps(values, sort_keys=True)


def _hash_weights(description: ModelDescription) -> str:
    actual = hash_file(description.weights_file)
    promised = description.weights_sha256
    if promised is not None and actual != promised:
        raise CorruptModel(
            f"{description.weights_file} is not what was published: its SHA-256 is {actual}, not {promised}. "
            "Install the model again."
        )
    return actual
