"""Tables of tokens in every type that sentence-transformers and model2vec write, as they read them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import tokenizers

from vecmill import MillConfig, SyncMill
from vecmill.architectures.static import StaticConfig, read_table
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, SetupError, UnsupportedModel
from vecmill.models import locate_model
from vecmill.models.weights import Weights
from vecmill.requests import Embed

WORDS = ("[UNK]", "the", "name", "of", "a", "rose")
ROWS, WIDTH = len(WORDS), 4
RANDOM = np.random.default_rng(7)
TABLE = RANDOM.standard_normal((ROWS, WIDTH)).astype(np.float32)
WEIGHTS = RANDOM.random(ROWS)
SMALL = np.round(TABLE * 40).astype(np.int8)
TURNED = np.arange(ROWS)[::-1]

READ: dict[str, dict[str, Any]] = {
    "table of sentence-transformers": {"embedding.weight": TABLE},
    "table": {"embeddings": TABLE},
    **{
        f"{kind} weighted": {"embeddings": SMALL.astype(kind), "weights": WEIGHTS}
        for kind in ("int8", "int16", "int64")
    },
    "uint8 weighted": {"embeddings": np.abs(SMALL).astype(np.uint8), "weights": WEIGHTS.astype(np.float16)},
    "weights of whole numbers": {"embeddings": TABLE, "weights": np.arange(ROWS, dtype=np.int8)},
    **{
        f"mapping {kind}": {"embeddings": TABLE, "mapping": TURNED.astype(kind)}
        for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
    },
    "mapping from the end": {"embeddings": TABLE[:3], "mapping": np.arange(ROWS) % 3 - 3},
    "few rows": {
        "embeddings": SMALL[:2],
        "mapping": np.arange(ROWS, dtype=np.uint16) % 2,
        "weights": WEIGHTS,
    },
}
REFUSED: dict[str, tuple[dict[str, Any], type[SetupError], str]] = {
    "whole numbers": ({"embedding.weight": SMALL}, UnsupportedModel, "'embedding.weight' holds I8"),
    "flags": ({"embeddings": SMALL > 0}, UnsupportedModel, "'embeddings' holds BOOL"),
    "fractions": ({"embeddings": TABLE, "mapping": WEIGHTS}, UnsupportedModel, "'mapping' holds F64"),
    "few weights": ({"embeddings": TABLE, "weights": WEIGHTS[:3]}, CorruptModel, "'weights' has shape"),
    "no axis": ({"embeddings": TABLE[0]}, CorruptModel, "must have 2 axes"),
}


def save(folder: Path, tensors: dict[str, Any]) -> Path:
    folder.mkdir()
    library = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    library.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    library.save(str(folder / "tokenizer.json"))
    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    safetensors.numpy.save_file(whole, folder / "model.safetensors")
    kind = "sentence_transformers.models.StaticEmbedding"
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": kind}]))
    return folder


@pytest.mark.parametrize("name", READ)
def test_tables_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = save(tmp_path / "model", READ[name])
    expected = SentenceTransformer(str(folder), device="cpu")[0].embedding.weight.detach().numpy()
    weights = Weights.open(folder / "model.safetensors")
    config = StaticConfig.of(weights)
    found = read_table(weights)
    assert found.dtype == np.float32
    assert found.shape == (config.vocab_size, config.hidden_size) == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-6, rtol=1e-6)


def test_whole_numbers_without_weights_are_those_of_model2vec(tmp_path: Path) -> None:
    """sentence-transformers refuses them; model2vec takes the mean of the numbers as they are."""
    folder = save(tmp_path / "model", {"embeddings": SMALL})
    with SyncMill(str(folder), config=MillConfig(cache_dir=tmp_path / "cache")) as mill:
        found = mill.embed(["the rose", "a name of"])
    expected = [SMALL[[1, 5]].mean(axis=0), SMALL[[4, 2, 3]].mean(axis=0)]
    np.testing.assert_allclose(found, np.array(expected), atol=1e-4)


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_that_cannot_be_read_is_refused_before_it_is_loaded(name: str, tmp_path: Path) -> None:
    tensors, error, message = REFUSED[name]
    folder = save(tmp_path / "model", tensors)
    with pytest.raises(error, match=message):
        describe_model(locate_model(folder))


@pytest.mark.parametrize("mapping", [np.arange(ROWS) + 1, np.arange(ROWS) - ROWS - 1], ids=["above", "below"])
def test_a_mapping_to_no_row_is_corrupt(mapping: Any, tmp_path: Path) -> None:
    folder = save(tmp_path / "model", {"embeddings": TABLE, "mapping": mapping})
    with pytest.raises(CorruptModel, match=f"'mapping' names rows from .*'embeddings' has {ROWS}"):
        read_table(Weights.open(folder / "model.safetensors"))


def test_a_text_without_tokens_counts_none(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", {"embedding.weight": TABLE})
    with SyncMill(str(folder), config=MillConfig(cache_dir=tmp_path / "cache")) as mill:
        result = mill.run(Embed(("", "the rose", "  ")))
        assert result.token_counts == (0, 2, 0)
        assert mill.rerank("the rose", ["", "a"]).token_count == 3
    assert not result.embeddings[[0, 2]].any()
