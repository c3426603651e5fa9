"""The fingerprint of a model: a digest of everything that determines its outputs."""

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

from vecmill.errors import CorruptModel
from vecmill.models.corrections import list_corrections
from vecmill.models.description import ModelDescription
from vecmill.models.digests import recall_digest
from vecmill.models.stages import StoredStage
from vecmill.values.json_text import encode_json
from vecmill.values.task import Task

CHUNK_BYTES = 8 * 2**20

# Increment when a change in `graphs` or `architectures` can change an embedding: then vectors on disk and
# plans are no longer valid.
GRAPH_VERSION = 4
# Increment when such a change only concerns a graph's inputs or its files: prepared graphs are built again.
INPUTS_VERSION = 6


def fingerprint_model(description: ModelDescription, cache_dir: Path | None = None) -> str:
    """Hash settings, tokenizer, weights and `GRAPH_VERSION`: 32 hexadecimal digits.

    Reads the weights once, or not at all if `cache_dir` has their digests (`models.digests`). Raises
    `CorruptModel` if they cannot be read or their SHA-256 is not `description.weights_sha256`.
    """
    digest = hashlib.sha256()
    for part in (
        _settings(description),
        hash_file(description.tokenizer_file),
        _hash_weights(description, cache_dir),
        *(hash_file(path) for path in stage_files(description)),
        *_hash_adapter(description),
    ):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]


def prepared_name(description: ModelDescription, cache_dir: Path | None = None) -> str:
    """Return the first part of the name of each prepared folder of a model, with `INPUTS_VERSION`.

    `cache_dir` is that of `fingerprint_model`.

    The graphs of embedding models have a suffix: older graphs normalise, and have no output for each token.
    Those with more heads have the digest of the heads, which change no dense embedding and so are no part of
    the fingerprint.
    """
    name = f"{fingerprint_model(description, cache_dir)}-{INPUTS_VERSION}"
    name += "-tokens" if description.task is Task.EMBED else ""
    if description.token_heads is None:
        return name
    hashes = " ".join(hash_file(path) for path in description.token_heads.files)
    return f"{name}-heads-{hashlib.sha256(hashes.encode()).hexdigest()[:16]}"


def hash_file(path: Path, cache_dir: Path | None = None) -> str:
    """Return the SHA-256 of a file in lower-case hex, from `cache_dir` if it is kept there.

    Raises `CorruptModel` if the file cannot be read.
    """
    try:
        found = path.stat()
        return _hash_content(path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, cache_dir)
    except OSError as error:
        raise CorruptModel(f"{path} cannot be read: {error.strerror}.") from error


# Loading a model needs the hash of a file several times: for its serving plan and its prepared graphs.
@functools.lru_cache(maxsize=64)
def _hash_content(path: Path, _size: int, _modified_ns: int, _changed_ns: int, cache_dir: Path | None) -> str:
    if cache_dir is None:
        return _read_hash(path)
    return recall_digest(path, cache_dir, functools.partial(_read_hash, path))


def _read_hash(path: Path) -> str:
    digest = hashlib.sha256()
    for chunk in read_chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def read_chunks(path: Path) -> Iterator[memoryview]:
    """Yield the content of a file in chunks; each chunk overwrites the last. Raises `CorruptModel`."""
    # Large reads: the small reads of `hashlib.file_digest` take three times as long.
    chunk = memoryview(bytearray(CHUNK_BYTES))
    try:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(chunk):
                yield chunk[:count]
    except OSError as error:
        raise CorruptModel(f"{path} cannot be read: {error.strerror}.") from error


def list_weights(description: ModelDescription) -> list[Path]:
    """Return all files of weights that a fingerprint or the name of a prepared folder reads."""
    heads = () if description.token_heads is None else description.token_heads.files
    adapter = () if description.adapter is None else (description.adapter.weights_file,)
    return [*description.weights_files, *stage_files(description), *heads, *adapter]


def stage_files(description: ModelDescription) -> list[Path]:
    """Return the weights files of the stages, in the order of the stages."""
    return [stage.file for stage in description.stages if isinstance(stage, StoredStage)]


def _settings(description: ModelDescription) -> str:
    values = {
        "graph_version": GRAPH_VERSION,
        "task": description.task,
        "config": dict(description.config),
        "tokenizer_config": dict(description.tokenizer_config),
        "max_tokens": description.max_tokens,
        "stages": [repr(stage) for stage in description.stages],
        "head": repr(description.head),
        "lowercase": description.lowercase,
        "truncate_left": description.truncate_left,
        "special_tokens": description.special_tokens,
        "pair_template": repr(description.pair_template),
        "chat_template": repr(description.chat_template),
        "multi_vector": repr(description.multi_vector),
    }
    if description.list_template is not None:  # not for other models, whose fingerprints would change
        values["list_template"] = repr(description.list_template)
    if description.task_adapters:  # likewise
        adapters = description.task_adapters.items()
        values["task_adapters"] = {task: adapter.describe_scaling() for task, adapter in adapters}
    if description.token_changes is not None:  # likewise
        values["token_changes"] = description.token_changes
    if description.encoder.patch_values is not None:  # likewise; the encoder of texts has the same files
        values["encoder"] = repr(description.encoder)
    if description.padding is not None:  # likewise
        values["padding"] = repr(description.padding)
    corrections = list_corrections(description)
    if corrections:  # likewise
        values["corrections"] = corrections
    return encode_json(values)


def _hash_adapter(description: ModelDescription) -> tuple[str, ...]:
    adapter = description.adapter
    return () if adapter is None else (adapter.describe_scaling(), hash_file(adapter.weights_file))


def _hash_weights(description: ModelDescription, cache_dir: Path | None) -> str:
    expected = description.weights_sha256
    actual = " ".join(hash_file(path, cache_dir) for path in description.weights_files)
    if expected is not None and actual != expected:
        raise CorruptModel(
            f"{description.weights_files[0]} is not what was published: its SHA-256 is {actual}, "
            f"not {expected}. Install the model again."
        )
    return actual
