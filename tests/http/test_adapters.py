"""Several LoRA adapters over one base in one server: each is a model of its own, and one may be broken."""

import json
from pathlib import Path

import httpx
import numpy as np
import pytest
import safetensors.numpy

from support.http_server import QUIET, run_in_thread
from support.lora_adapters import Lora, write_config
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.config import MillConfig
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles
from vecmill.tokenization.shared import LoadedTokenizer
from vecmill_server.catalog.model_choice import ModelChoice
from vecmill_server.process.loading import load_models
from vecmill_server.service.service import create_service

MODULE = "base_model.model.encoder.layer.0.attention.self.value"
RANK, WIDTH = 3, 32


def save_adapter(folder: Path, base: Path, seed: int, scale: float) -> Path:
    random = np.random.default_rng(seed)
    folder.mkdir()
    tensors = {
        f"{MODULE}.lora_A.weight": scale * random.standard_normal((RANK, WIDTH)),
        f"{MODULE}.lora_B.weight": random.standard_normal((WIDTH, RANK)),
    }
    safetensors.numpy.save_file(
        {name: tensor.astype(np.float32) for name, tensor in tensors.items()},
        folder / "adapter_model.safetensors",
    )
    config = write_config(Lora(("value",), rank=RANK), str(base))
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def test_each_adapter_of_a_base_answers_under_its_own_name(tmp_path: Path) -> None:
    base = save_tiny_bert(tmp_path / "base", TinyBert())
    folders = [
        base,
        save_adapter(tmp_path / "nothing", base, 1, 0),
        save_adapter(tmp_path / "first", base, 1, 1),
        save_adapter(tmp_path / "second", base, 2, 1),
        save_adapter(tmp_path / "broken", tmp_path / "broken", 3, 1),
    ]
    choices = [ModelChoice(str(folder)) for folder in folders]
    service = create_service(choices, QUIET, MillConfig(cores=1, cache_dir=tmp_path / "cache"))
    with (
        run_in_thread(service) as (port, _),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client,
    ):
        ready = client.get("/readyz").json()
        rows = {}
        for folder in folders[:-1]:
            body = {"input": "a text", "model": folder.name}
            answer = client.post("/v1/embeddings", json=body).json()
            assert answer["model"] == folder.name
            rows[folder.name] = np.array(answer["data"][0]["embedding"])
    states = {model["name"]: model["state"] for model in ready["models"]}
    assert states == {**dict.fromkeys(rows, "ready"), "broken": "failed"}
    np.testing.assert_allclose(rows["nothing"], rows["base"], atol=1e-6)
    for one, other in (("first", "base"), ("second", "base"), ("first", "second")):
        assert np.abs(rows[one] - rows[other]).max() > 0.01


async def test_adapters_of_a_base_read_its_tokenizer_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vocabulary of 250,000 pieces takes 285 MiB."""
    read: list[str] = []
    real = LoadedTokenizer.build

    def note(files: TokenizerFiles) -> LoadedTokenizer:
        read.append(files.name)
        return real(files)

    monkeypatch.setattr(LoadedTokenizer, "build", note)
    base = save_tiny_bert(tmp_path / "base", TinyBert())
    folders = [base, save_adapter(tmp_path / "one", base, 1, 1), save_adapter(tmp_path / "two", base, 2, 1)]
    choices = [ModelChoice(str(folder)) for folder in folders]
    service = create_service(choices, QUIET, MillConfig(cores=1, cache_dir=tmp_path / "cache"))
    await load_models(service)
    for model in service.catalog:
        await model.mill.close()
    assert len(read) == 1
