"""Weights of more than 2 GiB, more than one ONNX message holds, are built, stored, opened and read."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.families import random_sequences
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.engines.prepared import WEIGHTS_FILE
from vecmill.models import locate_model
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan

WIDTH = 1_536
WORDS = 360_000
TABLE = "embeddings.word_embeddings.weight"
CONFIG = {"hidden_size": WIDTH, "num_hidden_layers": 1, "intermediate_size": 64}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """One that is gone at once: pytest would keep gigabytes."""
    with tempfile.TemporaryDirectory(dir=tmp_path) as scratch:
        yield Path(scratch)


def put_rows_in_front(directory: Path, words: int) -> int:
    """Let the table of words have `words` rows, new ones of zeros in front; return how many those are.

    The file is written with a hole: safetensors itself would hold all of it in memory.
    """
    path = directory / "model.safetensors"
    stored = path.read_bytes()
    start = 8 + int.from_bytes(stored[:8], "little")
    header, body = json.loads(stored[8:start]), stored[start:]
    begin, end = header[TABLE]["data_offsets"]
    added = words - header[TABLE]["shape"][0]
    added_bytes = added * WIDTH * np.dtype(np.float32).itemsize
    header[TABLE]["shape"][0] = words
    for name, entry in header.items():
        if name == TABLE:
            entry["data_offsets"] = [begin, end + added_bytes]
        elif name != "__metadata__" and entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [offset + added_bytes for offset in entry["data_offsets"]]
    written = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(written).to_bytes(8, "little") + written + body[:begin])
        file.seek(added_bytes, 1)
        file.write(body[begin:])
    config = json.loads((directory / "config.json").read_text("utf-8"))
    (directory / "config.json").write_text(json.dumps(config | {"vocab_size": words}), encoding="utf-8")
    return int(added)


def compute(directory: Path, cache_dir: Path, sequences: list[TokenSequence]) -> FloatArray:
    """The rows by every width."""
    description = describe_model(locate_model(directory))
    engine = OnnxEngine.load(description, EnginePlan(), cores=2, cache_dir=cache_dir)
    batch = Batch.of(sequences)
    rows = [engine.run(batch, width=width).values for width in engine.info.lane_widths]
    engine.close()
    return np.stack(rows)


@pytest.mark.full
def test_a_table_of_gigabytes_gives_the_rows_of_a_small_one(folder: Path) -> None:
    directory = save_tiny_bert(folder / "model", TinyBert(config=CONFIG))
    words = describe_model(locate_model(directory)).vocab_size
    sequences = random_sequences((1, 2, 9, 40), vocab_size=words)
    expected = compute(directory, folder / "small", sequences)
    added = put_rows_in_front(directory, WORDS)
    shifted = [TokenSequence.of((one.token_ids + added).tolist()) for one in sequences]
    cache_dir = folder / "large"
    first = compute(directory, cache_dir, shifted)
    [weights] = cache_dir.glob(f"*/{WEIGHTS_FILE}")
    assert weights.stat().st_size > 2**31
    prepared = weights.stat().st_mtime_ns
    later = compute(directory, cache_dir, shifted)
    assert weights.stat().st_mtime_ns == prepared
    assert np.array_equal(first, expected)
    assert np.array_equal(later, expected)
