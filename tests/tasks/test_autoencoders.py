"""Sparse embeddings of an autoencoder (CSR) are those of SparseEncoder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.agreement import installed_engines
from support.published import edit_json
from support.pytorch_files import save_arrays
from support.reference import load_reference
from support.task_models import SIDES, save_autoencoder, save_task_model
from tasks.conftest import TEXTS, Open
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.graphs.ops import Ops
from vecmill.graphs.stages import _keep_largest
from vecmill.models import locate_model
from vecmill.requests import EmbedSparse, TextOptions
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import Batch
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.values.task import Task

TOLERANCE = 1e-4
OTHERS = ("openvino", "torch")
FOLDER = "2_SparseAutoEncoder"
SETTINGS: dict[str, dict[str, Any]] = {
    "few": {"hidden_dim": 64, "k": 4},
    "half": {"hidden_dim": 64, "k": 32},
    "all": {"hidden_dim": 40, "k": 40},
    "one": {"hidden_dim": 100, "k": 1},
    "normalized": {"hidden_dim": 64, "k": 8, "normalize": True},
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_task_model(tmp_path_factory.mktemp("models") / "encoder", "BertModel")


def expected_rows(oracle: Any, **options: Any) -> Any:
    """Each text alone."""
    rows = [oracle.encode([text], convert_to_sparse_tensor=False, **options)[0].numpy() for text in TEXTS]
    return np.stack(rows)


def dense_rows(embeddings: Any, width: int) -> Any:
    found = np.zeros((len(embeddings), width), np.float32)
    for row, embedding in zip(found, embeddings, strict=True):
        assert (np.diff(embedding.columns) > 0).all()
        row[embedding.columns] = embedding.values
    return found


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("name", SETTINGS)
def test_sparse_rows_are_those_of_the_reference(
    name: str, encoder: Path, tmp_path: Path, open_mill: Open
) -> None:
    oracle = save_autoencoder(tmp_path / "model", encoder, **SETTINGS[name])
    description = describe_model(locate_model(tmp_path / "model"))
    width, kept = SETTINGS[name]["hidden_dim"], SETTINGS[name]["k"]
    assert (description.task, description.dim) == (Task.SPARSE, width)
    mill = open_mill(tmp_path / "model")
    expected = expected_rows(oracle)
    together = dense_rows(mill.run(EmbedSparse(tuple(TEXTS))).embeddings, width)
    np.testing.assert_allclose(together, expected, atol=TOLERANCE)
    alone = [mill.run(EmbedSparse((text,))).embeddings[0] for text in TEXTS[:5]]
    np.testing.assert_allclose(dense_rows(alone, width), expected[:5], atol=TOLERANCE)
    assert 0 < (expected > 0).sum(axis=1).max() <= kept


def test_a_limit_of_the_model_takes_precedence(encoder: Path, tmp_path: Path, open_mill: Open) -> None:
    save_autoencoder(tmp_path / "model", encoder, hidden_dim=64, k=8)
    edit_json(tmp_path / "model/config_sentence_transformers.json", max_active_dims=3)
    oracle = load_reference(tmp_path / "model", "SparseEncoder")
    found = open_mill(tmp_path / "model").run(EmbedSparse(tuple(TEXTS))).embeddings
    np.testing.assert_allclose(dense_rows(found, 64), expected_rows(oracle), atol=TOLERANCE)
    assert max(len(embedding.columns) for embedding in found) == 3


def test_prompts_and_the_dot_product_are_those_of_the_reference(
    encoder: Path, tmp_path: Path, open_mill: Open
) -> None:
    oracle = save_autoencoder(tmp_path / "model", encoder, hidden_dim=64, k=16)
    mill = open_mill(tmp_path / "model")
    asked = EmbedSparse(tuple(TEXTS), options=TextOptions(prompt_name="query"))
    expected = expected_rows(oracle, prompt=SIDES["query"])
    np.testing.assert_allclose(dense_rows(mill.run(asked).embeddings, 64), expected, atol=TOLERANCE)
    query = "which of the names is it"
    scores = oracle.similarity(oracle.encode_query([query]), oracle.encode_document(TEXTS))[0].numpy()
    found = mill.rerank(query, TEXTS).scores
    np.testing.assert_allclose(found, scores, atol=TOLERANCE * np.abs(scores).max())


def test_the_matrix_of_pytorch_files_is_that_of_the_decoder(
    encoder: Path, tmp_path: Path, open_mill: Open
) -> None:
    """Such a file has the matrix under two names; sentence-transformers reads the decoder's last."""
    save_autoencoder(tmp_path / "model", encoder, hidden_dim=64, k=8)
    folder = tmp_path / "model" / FOLDER
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    other = np.zeros_like(tensors["decoder.linear.weight"])
    save_arrays(folder / "pytorch_model.bin", {**tensors, "encoder.weight": other})
    oracle = load_reference(tmp_path / "model", "SparseEncoder")
    found = open_mill(tmp_path / "model").run(EmbedSparse(tuple(TEXTS))).embeddings
    np.testing.assert_allclose(dense_rows(found, 64), expected_rows(oracle), atol=TOLERANCE)


def test_of_equal_numbers_the_first_are_kept() -> None:
    import onnx_ir
    import onnxruntime

    op = Ops()
    rows = op.input("x", ["n", 5], onnx_ir.DataType.FLOAT)
    content = onnx_ir.to_proto(op.model(_keep_largest(op, rows, 2), "rows", ["n", 5])).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    x = np.array([[1, 3, 3, 2, 3], [-1, -2, 0, 5, -3], [2, 2, 2, 2, 2]], np.float32)
    (found,) = session.run(None, {"x": x})
    assert found.tolist() == [[0, 3, 3, 0, 0], [0, 0, 0, 5, 0], [2, 2, 0, 0, 0]]


@pytest.mark.parametrize("name", [name for name in OTHERS if name in installed_engines()])
def test_other_engines_give_the_same_rows(name: str, encoder: Path, tmp_path: Path) -> None:
    oracle = save_autoencoder(tmp_path / "model", encoder, hidden_dim=64, k=8, normalize=True)
    description = describe_model(locate_model(tmp_path / "model"))
    engine = load_engine(description, EnginePlan(name, Precision.FP32), cores=1, cache_dir=tmp_path / "cache")
    try:
        found = engine.run(Batch.of(Tokenizer.load(description).encode(TEXTS)), width=1).split()
        np.testing.assert_allclose(dense_rows(found, 64), expected_rows(oracle), atol=TOLERANCE)
    finally:
        engine.close()


def test_what_is_not_a_number_stays_so_and_stays_with_its_text(encoder: Path, tmp_path: Path) -> None:
    save_autoencoder(tmp_path / "model", encoder, hidden_dim=64, k=8)
    description = describe_model(locate_model(tmp_path / "model"))
    sequences = Tokenizer.load(description).encode(["the only one so long", "of the is", "which one"])
    path = tmp_path / "model/model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    tensors["embeddings.position_embeddings.weight"][len(sequences[0]) - 1] = np.nan
    safetensors.numpy.save_file(tensors, path, {"format": "pt"})
    engine = load_engine(description, EnginePlan(), cores=1, cache_dir=tmp_path / "cache")
    try:
        assert isinstance(engine, OnnxEngine)
        for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
            finite = engine.run(Batch.of([sequences[index] for index in order]), width=1).are_finite()
            assert finite.tolist() == [index != 0 for index in order]
    finally:
        engine.close()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "more_than_there_are": ({"k": 65}, "k is 65, but by hidden_dim the embeddings have 64 dimensions"),
    "none": ({"k": 0}, "k must be a whole number of at least 1"),
    "no_number": ({"k": "many"}, "k must be a whole number"),
    "huge": ({"k": 2**40}, "k must be a whole number of at most"),
    "other_inputs": ({"input_dim": 31}, "by input_dim the module reads 31 dimensions, but its input has 32"),
    "no_inputs": ({"input_dim": None}, "input_dim must be a whole number of at least 1"),
    "no_width": ({"hidden_dim": -3}, "hidden_dim must be a whole number"),
    "another_width": ({"hidden_dim": 63}, r"tensor 'decoder.linear.weight' has shape \[64, 32\]"),
    "no_flag": ({"normalize": "yes"}, "normalize must be true or false"),
}


@pytest.mark.parametrize("name", WRONG)
def test_absurd_settings_are_refused(name: str, encoder: Path, tmp_path: Path, open_mill: Open) -> None:
    settings, words = WRONG[name]
    save_autoencoder(tmp_path / "model", encoder, hidden_dim=64, k=8)
    # The library writes `k` here too.
    path = tmp_path / "model/config_sentence_transformers.json"
    written = json.loads(path.read_text())
    assert written.pop("max_active_dims") == 8
    path.write_text(json.dumps(written))
    edit_json(tmp_path / f"model/{FOLDER}/config.json", **settings)
    with pytest.raises(CorruptModel, match=words):
        open_mill(tmp_path / "model")


@pytest.mark.parametrize(("limit", "words"), [(0, "at least 1"), (65, "is 65, but"), (2.5, "whole number")])
def test_absurd_limits_are_refused(limit: object, words: str, encoder: Path, tmp_path: Path) -> None:
    save_autoencoder(tmp_path / "model", encoder, hidden_dim=64, k=8)
    edit_json(tmp_path / "model/config_sentence_transformers.json", max_active_dims=limit)
    with pytest.raises(CorruptModel, match=f"max_active_dims .*{words}"):
        describe_model(locate_model(tmp_path / "model"))


def test_missing_tensors_are_named(encoder: Path, tmp_path: Path, open_mill: Open) -> None:
    save_autoencoder(tmp_path / "model", encoder, hidden_dim=64, k=8)
    path = tmp_path / "model" / FOLDER / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    del tensors["latent_bias"]
    safetensors.numpy.save_file(tensors, path)
    with pytest.raises(CorruptModel, match="no tensor 'latent_bias'"):
        open_mill(tmp_path / "model")


def test_an_autoencoder_elsewhere_is_refused(encoder: Path, tmp_path: Path) -> None:
    save_autoencoder(tmp_path / "model", encoder, hidden_dim=64, k=8)
    path = tmp_path / "model/modules.json"
    entries = json.loads(path.read_text())
    path.write_text(json.dumps([entries[0], entries[2], entries[1]]))
    with pytest.raises(UnsupportedModel, match="or Transformer, Pooling and SparseAutoEncoder"):
        describe_model(locate_model(tmp_path / "model"))
    path.write_text(json.dumps(entries))
    edit_json(tmp_path / "model/config_sentence_transformers.json", model_type="SentenceTransformer")
    with pytest.raises(UnsupportedModel, match="module SparseAutoEncoder is not supported in this position"):
        describe_model(locate_model(tmp_path / "model"))
