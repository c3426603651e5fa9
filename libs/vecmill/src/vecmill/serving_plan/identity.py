"""Identifies the space of a model from its description and files, and keeps the result for later starts.

The parts, by the names that `vecmill describe --space` prints:

    tensors        the values of the tensors that the graph uses, or an exported graph
    adapter        the matrices of a LoRA adapter, and their scaling
    tokenizer      all that turns texts into token ids, but truncation
    architecture   the settings of the encoder, such as the number of heads
    head           the head of a task model, and the templates that join queries and documents
    pooling        the modes of pooling
    modules        all stages after the encoder in their order, with the values of their tensors
    normalisation  whether vectors have unit length
    prompts        the table of all prompts, and the name of the default
    output         the shape, the dimensions and the type of numbers of a vector
    queries        the space of the queries of an asymmetric model
    code           the modules of a model that runs its own code
    corrections    why the vectors differ from those of an earlier version (`models.corrections`)

The result is kept in the cache under a digest of the description and of the size, the times and the inode of
every file that was read, so that a later start reads none of them. Files that were changed moments ago are
not trusted to tell of the next change (`models.digests`).
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vecmill.engines import ENGINES
from vecmill.models import ModelDescription
from vecmill.models.corrections import list_corrections
from vecmill.models.digests import FOLDER, SETTLED_S, keep_document
from vecmill.models.fingerprint import GRAPH_VERSION
from vecmill.models.space import SPACE_PREFIX, ModelSpace, SpacePart, digest_of, to_canonical
from vecmill.serving_plan.outcome import list_weights
from vecmill.serving_plan.space_settings import LoadTokenizer, list_settings, read_library
from vecmill.values.engine_plan import EngineInfo
from vecmill.values.json_text import decode_json

_TOKENIZER_SUFFIXES = frozenset({".jinja", ".json", ".model", ".tiktoken", ".txt"})
_MOST_THREADS = 4


def identify_space(
    description: ModelDescription,
    cache_dir: Path | None = None,
    *,
    load_tokenizer: LoadTokenizer = read_library,
    cores: int = 1,
    clock: Callable[[], float] = time.time,
) -> ModelSpace:
    """Return the space of a model, from `cache_dir` if it is kept there. Blocks: reads all weights once.

    `clock` returns the seconds since 1970. Raises the errors of a start for files that are broken.
    """
    threads = min(cores, _MOST_THREADS)
    if cache_dir is None:
        return _identify(description, load_tokenizer, threads)
    folder, began_s = cache_dir / FOLDER, clock()
    name, changed_s = _name(description)
    found = _recall(folder / name)
    if found is not None:
        return found
    space = _identify(description, load_tokenizer, threads)
    if changed_s < began_s - SETTLED_S and _name(description)[0] == name:
        with contextlib.suppress(OSError):
            keep_document(folder / name, space.to_json())
    return space


def identify_settings(description: ModelDescription, load_tokenizer: LoadTokenizer) -> ModelSpace:
    """Return the space of a model on an engine that reads no weights, from all other parts."""
    return ModelSpace.of(tuple(list_settings(description, load_tokenizer(description))))


def describe_computation(
    info: EngineInfo, query_info: EngineInfo | None = None, *, keeps_end: bool
) -> dict[str, str | int]:
    """Return what `exact` digests beside the space: how a loaded model is computed.

    With `keeps_end` the beginning of a text that is too long is cut off.
    """
    found: dict[str, str | int] = {
        **_describe_engine(info),
        "graph version": GRAPH_VERSION,
        "cut": "the beginning" if keeps_end else "the end",
    }
    if query_info is not None:
        found |= {f"{key} of queries": value for key, value in _describe_engine(query_info).items()}
    return found


def reads_weights(engine: str) -> bool:
    """Return whether an engine computes its outputs from the model's weights."""
    return ENGINES[engine].reads_weights if engine in ENGINES else True


def _describe_engine(info: EngineInfo) -> dict[str, str | int]:
    return {
        "engine": info.name,
        "precision": info.precision,
        "device": info.device.partition(":")[0],
        "longest input": info.max_tokens,
    }


def _identify(description: ModelDescription, load_tokenizer: LoadTokenizer, threads: int) -> ModelSpace:
    from vecmill.serving_plan.space_tensors import digest_heads, list_tensor_parts

    parts = [*list_tensor_parts(description, threads)]
    parts += list_settings(description, load_tokenizer(description))
    router = description.router
    if router is not None:
        query = _identify(router.query, read_library, threads)
        about = "looked up in a table" if router.query.is_table else "an encoder"
        parts.append(SpacePart.of("queries", [query.digest, router.default], about))
    if description.pictures is not None:
        tower = description.pictures
        encoder = ModelSpace.of(tuple(list_tensor_parts(tower.encoder, threads)))
        values = [encoder.digest, to_canonical(tower.encoder.encoder), tower.settings.describe()]
        parts.append(SpacePart.of("pictures", values, f"{tower.settings.width} x {tower.settings.height}"))
    return ModelSpace.of(tuple(parts), tuple(digest_heads(description, threads)))


def _name(description: ModelDescription) -> tuple[str, float]:
    """Return the name of the kept file, and when a file that is read was last changed, in seconds since 1970.

    The name is a digest of all that is read: the settings, and the states of the files.
    """
    import tokenizers

    versions = SPACE_PREFIX, GRAPH_VERSION, tokenizers.__version__
    states, changed_ns = [], 0
    for path in _list_files(description):
        with contextlib.suppress(OSError):
            found = path.stat()
            times = found.st_mtime_ns, found.st_ctime_ns
            states.append([str(path), found.st_dev, found.st_ino, found.st_size, *times])
            changed_ns = max(changed_ns, *times)
    corrections = (name for side in description.sides for name in list_corrections(side))
    read = [*versions, description, states, *corrections]
    return f"space-{digest_of(read)}.json", changed_ns / 1e9


def _list_files(description: ModelDescription) -> Iterator[Path]:
    """Yield every file that may be read to identify a model."""
    yield from sorted(set(list_weights(description)))
    for side in description.text_sides:
        beside = side.tokenizer_file.parent.glob("*")
        yield from sorted(path for path in beside if path.suffix in _TOKENIZER_SUFFIXES)
    if description.adapter is not None:
        yield from (description.adapter.config_file, description.adapter.weights_file)
    if description.runs_code:
        yield from sorted(description.directory.glob("*.py"))


def _recall(kept: Path) -> ModelSpace | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        document: Any = decode_json(kept.read_bytes())
        return ModelSpace.from_json(document)
    return None
