"""BAAI/bge-m3, by name and from a folder: PyTorch's weights alone, and files for two more outputs.

The dense output is the normalised hidden state of the first token. The others are compared with a plain
implementation in torch (`support.bge_m3`).
"""

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.numpy

from support.bge_m3 import (
    DEFECTS,
    HEADS,
    LONGEST,
    Outputs,
    Reference,
    assert_same_outputs,
    save_bge_m3,
    save_encoder,
    save_heads,
    score,
)
from support.exported_models import export_graph, without_weights
from support.fake_hub import Repository, point_client_at, run_fake_hub
from support.pytorch_files import FORMATS, save_arrays
from support.reference import load_reference
from support.scales import in_part
from support.texts import hard_texts, mixed_texts
from vecmill import EmbedOutputs, EmbedSparse, EmbedTokens, MillConfig, Rerank, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES
from vecmill.errors import InvalidRequest, RequestTooLarge, UnsupportedTask
from vecmill.models import Task, fingerprint_model, locate_model
from vecmill.models.stages import Normalize, Pooling, PoolingMode

NAME = "BAAI/bge-m3"
SEED = 11
TOLERANCE = 1e-4
TIGHT = 1e-5
WHOLE_TEXTS = [
    "",
    "the </s> of <unk> and <s> the <pad> end",
    "the the the",
    "the one " * 400,
    *mixed_texts(SEED, 9),
    *(text for text in hard_texts()[::7] if len(text) < 1_000),
]
TEXTS = [*mixed_texts(SEED, 6), *hard_texts()[::5], "a long text " * 700]
NEVER = ("onnx/model.onnx", "onnx/model.onnx_data", "imgs/bm25.jpg")


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with safetensors."""
    return save_encoder(tmp_path_factory.mktemp("bge") / "safe", seed=SEED)


def published_files(safe: Path, folder: Path, form: str = "zip") -> dict[str, bytes]:
    """The files of the repository: those of `safe` with PyTorch's weights, and what lies beside them."""
    tensors = safetensors.numpy.load_file(safe / "model.safetensors")
    weights = save_arrays(folder / "weights", tensors, form).read_bytes()
    others = dict.fromkeys(NEVER, b"never read")
    save_heads(folder, seed=SEED, form=form)
    others |= {name: (folder / name).read_bytes() for name in HEADS}
    kept = {
        str(path.relative_to(safe)): path.read_bytes()
        for path in safe.rglob("*")
        if path.is_file() and path.name != "model.safetensors"
    }
    return {**kept, **others, "pytorch_model.bin": weights, "README.md": b"# BGE-M3"}


@pytest.fixture
def hub(safe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    with run_fake_hub() as running:
        repository = Repository(published_files(safe, tmp_path), is_large=frozenset({"pytorch_model.bin"}))
        running.repositories[NAME] = repository
        point_client_at(running, tmp_path / "hub", monkeypatch)
        yield repository


def test_its_dense_row_is_that_of_the_reference(hub: Repository, safe: Path, tmp_path: Path) -> None:
    expected = load_reference(safe).float().encode(TEXTS, batch_size=1)
    with SyncMill(NAME, MillConfig(cache_dir=tmp_path / "prepared")) as mill:
        found = mill.embed(TEXTS)
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)
        assert mill.info.max_tokens == LONGEST
    with SyncMill(safe, MillConfig(cache_dir=tmp_path / "prepared-safe")) as mill:
        assert mill.embed(TEXTS).tobytes() == found.tobytes()
    (folder,) = (tmp_path / "hub").glob("models--BAAI--bge-m3/snapshots/*")
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == {
        name for name in hub.files if name not in (*NEVER, "README.md")
    }


def test_its_description_is_that_of_its_settings(hub: Repository) -> None:
    description = describe_model(locate_model(NAME))
    assert (description.name, description.task, description.max_tokens) == (NAME, Task.EMBED, LONGEST)
    assert description.stages == (Pooling((PoolingMode.CLS,)), Normalize())
    assert [path.name for path in description.weights_files] == ["pytorch_model.bin"]


def test_the_fingerprint_is_that_of_the_weights(safe: Path, tmp_path: Path) -> None:
    found = []
    for form in FORMATS:
        folder = tmp_path / form
        for name, content in published_files(safe, tmp_path, form).items():
            if not name.startswith("onnx/"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
        found.append(fingerprint_model(describe_model(locate_model(folder))))
        assert found[-1] == fingerprint_model(describe_model(locate_model(folder)))
        content = (folder / "pytorch_model.bin").read_bytes()
        (folder / "pytorch_model.bin").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        found.append(fingerprint_model(describe_model(locate_model(folder))))
    assert len(set(found)) == 2 * len(FORMATS)


@pytest.mark.parametrize("engine", in_part(("onnx", "openvino", "torch"), "torch"))
def test_every_engine_gives_the_rows_of_safetensors(engine: str, safe: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    for name, content in published_files(safe, tmp_path).items():
        if not name.startswith("onnx/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    rows = []
    for directory in (safe, folder):
        with SyncMill(directory, MillConfig(engine=engine, cache_dir=tmp_path / "prepared")) as mill:
            rows.append(mill.embed(TEXTS[:6]))
    assert rows[0].tobytes() == rows[1].tobytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with safetensors and both heads."""
    return save_bge_m3(tmp_path_factory.mktemp("whole") / "bge", seed=SEED)


@pytest.fixture(scope="module")
def expected(whole: Path) -> list[Outputs]:
    return Reference(whole, SEED + 1).compute(WHOLE_TEXTS)


@pytest.fixture(scope="module")
def mill(whole: Path, kept_models: Path) -> Iterator[SyncMill]:
    """The whole model on the default engine."""
    with SyncMill(whole, MillConfig(cache_dir=kept_models)) as mill:
        yield mill


SLOW = ("torch-compile",)  # compiles for half a minute


def compute(mill: SyncMill, texts: Sequence[str]) -> list[Outputs]:
    """The outputs of one mill, by a request for each of them."""
    dense = mill.embed(texts)
    sparse = mill.run(EmbedSparse(tuple(texts))).embeddings
    vectors = mill.run(EmbedTokens(tuple(texts))).embeddings
    weights = [dict(zip(each.columns.tolist(), each.values.tolist(), strict=True)) for each in sparse]
    return [Outputs(*parts) for parts in zip(dense, weights, vectors, strict=True)]


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(name, marks=[pytest.mark.full] if name in SLOW else [])
        for name, entry in sorted(ENGINES.items())
        if entry.is_installed and name != "fake"
    ],
)
def test_all_outputs_are_those_of_the_reference(
    whole: Path, expected: list[Outputs], kept_models: Path, engine: str
) -> None:
    with SyncMill(whole, MillConfig(engine=engine, cache_dir=kept_models)) as mill:
        together = compute(mill, WHOLE_TEXTS)
        assert_same_outputs(together, expected, TIGHT)
        alone = [compute(mill, [text])[0] for text in WHOLE_TEXTS[::4]]
        assert_same_outputs(alone, expected[::4], TIGHT)
    for each in together:
        assert list(each.weights) == sorted(each.weights)
        assert min(each.weights.values(), default=1) > 0


def test_one_request_has_all_outputs(mill: SyncMill, expected: list[Outputs]) -> None:
    found = mill.run(EmbedOutputs(tuple(WHOLE_TEXTS)))
    assert found.dense is not None
    assert found.sparse is not None
    assert found.vectors is not None
    weights = [dict(zip(each.columns.tolist(), each.values.tolist(), strict=True)) for each in found.sparse]
    together = [Outputs(*parts) for parts in zip(found.dense, weights, found.vectors, strict=True)]
    assert_same_outputs(together, expected, TIGHT)
    some = mill.run(EmbedOutputs(("a text",), dense=False, vectors=False))
    assert (some.dense, some.vectors) == (None, None)
    with pytest.raises(InvalidRequest, match="asks for no output"):
        mill.run(EmbedOutputs(("a text",), dense=False, sparse=False, vectors=False))


@pytest.mark.parametrize(
    "weights", [None, (1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.0, 3.0, 0.0), (0.0, 0.5, 2.0)]
)
def test_documents_are_ranked_by_the_weighted_scores(
    mill: SyncMill, expected: list[Outputs], weights: tuple[float, float, float] | None
) -> None:
    texts, asked = tuple(WHOLE_TEXTS), weights or (0.4, 0.2, 0.4)
    spreads = []
    for place in (1, 2, 4):
        found = mill.run(Rerank((texts[place],), texts, weights=weights)).scores
        scores = [score(expected[place], each, asked) for each in expected]
        np.testing.assert_allclose(found, scores, atol=TOLERANCE)
        spreads.append(np.ptp(scores))
    assert max(spreads) > 100 * TOLERANCE
    pairs = mill.run(Rerank(texts[::-1], texts, weights=weights)).scores
    scores = [score(*pair, asked) for pair in zip(expected[::-1], expected, strict=True)]
    np.testing.assert_allclose(pairs, scores, atol=TOLERANCE)


@pytest.mark.parametrize("weights", [(0.0, 0.0, 0.0), (1.0, -1.0, 1.0), (float("inf"), 1.0, 1.0)])
def test_weights_that_are_no_shares_are_refused(mill: SyncMill, weights: tuple[float, float, float]) -> None:
    with pytest.raises(InvalidRequest, match="`weights` must be three numbers"):
        mill.run(Rerank(("a",), ("b",), weights=weights))


def test_too_many_vectors_are_refused(mill: SyncMill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        importlib.import_module("vecmill.operations.rerank_methods"), "MOST_VECTOR_NUMBERS", 32 * 20
    )
    mill.run(Rerank(("a",), ("b",)))
    with pytest.raises(RequestTooLarge, match="more than 20 tokens"):
        mill.run(Rerank(("a",), ("b " * 30,)))
    mill.run(Rerank(("a",), ("b " * 30,), weights=(0.5, 0.5, 0.0)))


def test_models_without_heads_refuse_what_needs_them(safe: Path, kept_models: Path) -> None:
    with SyncMill(safe, MillConfig(cache_dir=kept_models)) as mill:
        with pytest.raises(UnsupportedTask, match="it cannot give an embedding for each token"):
            mill.run(EmbedOutputs(("a",)))
        alone = mill.run(EmbedOutputs(("a",), sparse=False, vectors=False))
        assert alone.dense is not None
        np.testing.assert_array_equal(alone.dense, mill.embed(["a"]))
        with pytest.raises(UnsupportedTask, match="which needs the heads of BGE-M3"):
            mill.run(Rerank(("a",), ("b",), weights=(1.0, 1.0, 1.0)))


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_comparison_finds(whole: Path, expected: list[Outputs], defect: str) -> None:
    with pytest.raises(AssertionError):
        assert_same_outputs(Reference(whole, SEED + 1, defect).compute(WHOLE_TEXTS), expected, TOLERANCE)


def test_a_folder_of_an_earlier_release_is_served_without_the_hub(
    hub: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no heads, which are downloaded as soon as the hub can be asked."""
    folder = locate_model(NAME).directory
    assert describe_model(locate_model(NAME)).token_heads is not None
    for name in HEADS:
        (folder / name).unlink()
    with monkeypatch.context() as offline:
        offline.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        assert describe_model(locate_model(NAME)).token_heads is None
    assert describe_model(locate_model(NAME)).token_heads is not None


def pool_first(output: Any, _mask: Any) -> dict[str, Any]:
    """The outputs of the publisher's graph: rows of tokens, and the finished embedding."""
    import torch

    tokens = output.last_hidden_state
    first = torch.nn.functional.normalize(tokens[:, 0], dim=-1)
    return {"token_embeddings": tokens, "sentence_embedding": first}


@pytest.fixture(scope="module")
def exported(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = without_weights(whole, tmp_path_factory.mktemp("exported") / "bge")
    names = ("input_ids", "attention_mask")
    export_graph(whole, directory / "model.onnx", "XLMRobertaModel", inputs=names, finish=pool_first)
    return directory


def test_an_exported_graph_has_all_outputs(
    exported: Path, expected: list[Outputs], kept_models: Path
) -> None:
    with SyncMill(exported, MillConfig(cache_dir=kept_models)) as mill:
        assert_same_outputs(compute(mill, WHOLE_TEXTS), expected, TIGHT)


def test_a_finished_graph_gives_its_embedding_alone(
    exported: Path, expected: list[Outputs], tmp_path: Path
) -> None:
    directory = without_weights(exported, tmp_path / "finished")
    graph = onnx.load(directory / "model.onnx")
    del graph.graph.output[0]
    onnx.save(graph, directory / "model.onnx")
    with SyncMill(directory, MillConfig(cache_dir=tmp_path / "cache")) as mill:
        with pytest.raises(UnsupportedTask, match="it cannot give sparse or multi-vector embeddings"):
            mill.run(EmbedSparse(("a",)))
        with pytest.raises(UnsupportedTask, match="it cannot weight several scores"):
            mill.run(Rerank(("a",), ("b",), weights=(1.0, 1.0, 1.0)))
        found = mill.run(Rerank((WHOLE_TEXTS[1],), tuple(WHOLE_TEXTS))).scores
        dense = [expected[1].dense @ each.dense for each in expected]
        np.testing.assert_allclose(found, dense, atol=TOLERANCE)
