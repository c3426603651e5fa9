"""BAAI/bge-m3 by name, from a hub with its layout: PyTorch's weights alone, and files for its other outputs.

The model has three outputs. This is its dense one: the normalised hidden state of the first token.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from support.fake_hub import Repository, point_client_at, run_fake_hub
from support.published import NORMALIZE, WIDTH, Published, edit_json, pooling, save_published
from support.pytorch_files import FORMATS, save_with_torch
from support.reference import load_reference
from support.texts import hard_texts, mixed_texts
from vecmill import MillConfig, SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.models import Task, fingerprint_model, locate_model
from vecmill.models.stages import Normalize, Pooling, PoolingMode

NAME = "BAAI/bge-m3"
SEED = 11
LONGEST = 8_192
TOLERANCE = 1e-4
TEXTS = [*mixed_texts(SEED, 6), *hard_texts()[::5], "a long text " * 700]
NEVER = ("colbert_linear.pt", "sparse_linear.pt", "onnx/model.onnx", "onnx/model.onnx_data", "imgs/bm25.jpg")
MODEL = Published(
    "XLMRobertaModel",
    "XLMRobertaTokenizer",
    (pooling("cls"), NORMALIZE),
    {"max_position_embeddings": LONGEST + 2, "type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5},
    tokenizer_config={"model_max_length": LONGEST},
    sentence={"max_seq_length": LONGEST, "do_lower_case": False},
)


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with safetensors."""
    folder = save_published(tmp_path_factory.mktemp("bge") / "safe", MODEL, seed=SEED)
    edit_json(
        folder / "config_sentence_transformers.json",
        __version__={"sentence_transformers": "2.2.2", "transformers": "4.33.0", "pytorch": "2.1.2+cu121"},
    )
    return folder


def published_files(safe: Path, folder: Path, form: str = "zip") -> dict[str, bytes]:
    """The files of the repository: those of `safe` with PyTorch's weights, and what lies beside them."""
    tensors = safetensors.torch.load_file(safe / "model.safetensors")
    weights = save_with_torch(folder / "weights", tensors, form).read_bytes()
    linear = torch.nn.Linear(WIDTH, WIDTH).state_dict()
    others = {name: save_with_torch(folder / "linear", linear).read_bytes() for name in NEVER}
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


def test_every_engine_gives_the_rows_of_safetensors(safe: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    for name, content in published_files(safe, tmp_path).items():
        if not name.startswith("onnx/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    for engine in ("onnx", "openvino", "torch"):
        rows = []
        for directory in (safe, folder):
            config = MillConfig(engine=engine, cache_dir=tmp_path / "prepared")
            with SyncMill(directory, config) as mill:
                rows.append(mill.embed(TEXTS[:6]))
        assert rows[0].tobytes() == rows[1].tobytes(), engine
