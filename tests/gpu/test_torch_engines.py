"""The torch engines on a GPU that torch finds: `make gpu`.

Every family agrees with its own library on the CPU, a full memory halves the batch, a lost device is
reported, and a server answers many clients at once.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from support.agreement import Outcomes, compute_all, offered
from support.random_models import DRAWS
from support.server import live_server
from support.texts import mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import MillConfig, SyncMill
from vecmill.config import BatchConfig
from vecmill.values.aliases import FloatArray
from vecmill.values.engine_plan import EnginePlan

GPU = "cuda"
TOLERANCE = 1e-4
CLIENTS = 32
# Wider than a tiny model, so that the memory of a call is more than the allocator's smallest piece.
WIDE = TinyBert(config={"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048})
TEXTS = mixed_texts(7, 2_000)
START_S = 120.0

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch finds"),
]


def embed(directory: Path, cache: Path, texts: list[str], **settings: Any) -> FloatArray:
    with SyncMill(directory, MillConfig(cache_dir=cache, **settings)) as mill:
        return mill.embed(texts)


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    return Outcomes()


@pytest.mark.parametrize("seed", range(len(DRAWS)), ids=sorted(DRAWS))
def test_every_family_agrees_with_its_library_in_every_precision(
    seed: int, tmp_path: Path, outcomes: Outcomes
) -> None:
    plans = [EnginePlan("torch", precision, GPU) for precision in offered("torch", GPU)]
    model, found = compute_all(seed, plans, tmp_path)
    outcomes.models.append(model)
    outcomes.outcomes += found


def test_none_is_refused(outcomes: Outcomes, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print("", *outcomes.table(), sep="\n")
    assert [one for one in outcomes.outcomes if one.refusal] == []


def test_a_compiled_program_agrees_with_the_processor(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model", WIDE)
    expected = embed(directory, tmp_path / "cache", TEXTS[:64], engine="torch", device="cpu")
    for _ in range(2):  # compiled, and read from the cache
        found = embed(directory, tmp_path / "cache", TEXTS[:64], engine="torch-compile", device=GPU)
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)


def test_what_does_not_fit_into_the_memory_is_computed_in_smaller_calls(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model", WIDE)
    settings: dict[str, Any] = {"engine": "torch", "device": GPU}
    large = BatchConfig(max_batch_tokens=65_536)
    expected = embed(directory, tmp_path / "cache", TEXTS, **settings)
    with SyncMill(directory, MillConfig(cache_dir=tmp_path / "cache", batch=large, **settings)) as mill:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        weights = torch.cuda.memory_allocated()
        np.testing.assert_allclose(mill.embed(TEXTS), expected, atol=TOLERANCE)
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((weights + (peak - weights) / 3) / total)
        try:
            np.testing.assert_allclose(mill.embed(TEXTS), expected, atol=TOLERANCE)
            assert torch.cuda.memory_stats()["num_ooms"] > 0
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)


LOST = "The worker that computed this text is lost. Try again."
LOSE_THE_DEVICE = """
import os, sys, torch
from pathlib import Path
from vecmill import MillConfig, SyncMill
from vecmill.errors import LaneLost
mill = SyncMill(sys.argv[1], MillConfig(cache_dir=Path(sys.argv[2]), engine="torch", device="cuda"))
mill.embed(["a text"])
try:
    torch.zeros(2, device="cuda")[torch.tensor([5], device="cuda")].cpu()  # an assertion on the device
except RuntimeError:
    print("broken", flush=True)
try:
    mill.embed(["a text"])
except LaneLost as error:
    print(error.message, flush=True)
os._exit(0)
"""


def test_a_device_that_is_lost_is_told(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model")
    command = [sys.executable, "-c", LOSE_THE_DEVICE, str(directory), str(tmp_path / "cache")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert told.stdout.splitlines() == [
        "broken",
        "The worker that computed this text is lost. Try again.",
    ], told
    assert "cuda:0 no longer responds" in told.stderr


def test_a_server_answers_many_clients_at_once_and_measures_the_gpu(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model", WIDE)
    texts = TEXTS[: 8 * CLIENTS]
    expected = embed(directory, tmp_path / "cache", texts, engine="torch", device="cpu")
    arguments = [str(directory), "--engine", "torch", "--device", GPU]
    with live_server(tmp_path, arguments=arguments, timeout_s=START_S) as server:
        with httpx.Client(base_url=server.url, timeout=60) as client, ThreadPoolExecutor(CLIENTS) as clients:

            def ask(text: str) -> list[float]:
                answer = client.post("/v1/embeddings", json={"input": text})
                assert answer.status_code == 200, answer.text
                row: list[float] = answer.json()["data"][0]["embedding"]
                return row

            found = np.array(list(clients.map(ask, texts)), np.float32)
            metrics = client.get("/metrics").text
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)
        used = [line for line in metrics.splitlines() if line.startswith("vecmill_gpu_memory_used_bytes{")]
        assert float(used[0].split()[-1]) > 1e8
    assert server.process.returncode == 0, server.log.read_text()
