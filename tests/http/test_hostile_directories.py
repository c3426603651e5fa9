"""A server of a good model and of hostile directories: the good one answers, `/readyz` names the others."""

import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.forked_process import run_process
from support.http_server import QUIET, run_in_thread
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.config import MillConfig
from vecmill_server.catalog.model_choice import ModelChoice
from vecmill_server.service.service import create_service

Spoil = Callable[[Path], None]

HUGE_BYTES = 10 * 2**30


def edit(name: str, **values: Any) -> Spoil:
    def change(directory: Path) -> None:
        path = directory / name
        document = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**document, **values}))

    return change


def panic(directory: Path) -> None:
    """The library that reads it panics, which is no `Exception` of Python."""
    document = json.loads((directory / "tokenizer.json").read_text())
    document["post_processor"]["single"][0] = {"SpecialToken": {"id": "[NONE]", "type_id": 0}}
    (directory / "tokenizer.json").write_text(json.dumps(document))
    edit("tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")(directory)


def multiply(directory: Path) -> None:
    """Four stages, each of which makes a thousand characters of one."""
    stage = {"type": "Replace", "pattern": {"Regex": "."}, "content": "x" * 1_000}
    normalizer = {"type": "Sequence", "normalizers": [stage] * 4}
    edit("tokenizer.json", normalizer=normalizer)(directory)


def replace_by_fifo(directory: Path) -> None:
    (directory / "config.json").unlink()
    os.mkfifo(directory / "config.json")


def enlarge(directory: Path) -> None:
    os.truncate(directory / "tokenizer.json", HUGE_BYTES)


def write_no_manifest(directory: Path) -> None:
    (directory / "vecmill.json").write_text("{")


# The directory, and what the log says of it.
HOSTILE: dict[str, tuple[Spoil, str]] = {
    "activation": (edit("config.json", hidden_act=["x"]), "config.json: hidden_act ['x']"),
    "labels": (
        edit("config.json", num_labels=10**12, architectures=["BertForSequenceClassification"]),
        "num_labels must be a whole number of at most",
    ),
    "layers": (edit("config.json", num_hidden_layers=10**12), "num_hidden_layers must be"),
    "large": (enlarge, "tokenizer.json is larger"),
    "panic": (panic, "tokenizer.json could not be loaded (PanicException"),
    "growth": (multiply, "tokenizer.json: the normalizer may make a text 1000 times as long"),
    "fifo": (replace_by_fifo, "config.json is not a regular file"),
    "manifest": (
        edit("vecmill.json", schema=1, model="manifest", plan=[]),
        "vecmill.json: model_fingerprint must be",
    ),
    "no_manifest": (write_no_manifest, "vecmill.json cannot"),
}
# Those of a plain directory, whose class tells the task.
PLAIN = ("labels",)


def save_all(folder: Path) -> list[ModelChoice]:
    save_tiny_bert(folder / "good", TinyBert())
    for name, (spoil, _) in HOSTILE.items():
        directory = save_tiny_bert(folder / name, TinyBert(seed=1))
        if name in PLAIN:
            (directory / "modules.json").unlink()
            (directory / "1_Pooling/config.json").unlink()
        spoil(directory)
    return [ModelChoice(str(folder / name)) for name in (*HOSTILE, "good")]


@pytest.mark.promise("model-directories")
def test_hostile_directories_are_named_and_the_good_one_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        service = create_service(save_all(tmp_path), QUIET, MillConfig(cores=1, cache_dir=tmp_path / "cache"))
        with (
            run_in_thread(service) as (port, _),
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client,
        ):
            ready = client.get("/readyz")
            answer = client.post("/v1/embeddings", json={"input": "a text", "model": "good"})
            refused = client.post("/v1/embeddings", json={"input": "a text", "model": "activation"})
    states = {model["name"]: model["state"] for model in ready.json()["models"]}
    assert (ready.status_code, answer.status_code, refused.status_code) == (200, 200, 503)
    assert states == {"good": "ready", **dict.fromkeys(HOSTILE, "failed")}
    logged = [record.getMessage() for record in caplog.records]
    for name, (_, words) in HOSTILE.items():
        said = [line for line in logged if f"the model {name} " in line]
        assert [words in line and line.isprintable() for line in said] == [True], (name, logged)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.promise("model-directories")
@pytest.mark.parametrize("command", ["describe", "check", "embed", "optimize", "serve"])
def test_commands_refuse_a_hostile_directory_with_a_sentence(tmp_path: Path, command: str) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    edit("config.json", hidden_act=["x"])(directory)
    (tmp_path / "texts.jsonl").write_text('{"text": "a text"}\n')
    arguments = {
        "embed": (str(tmp_path / "texts.jsonl"), "--model", str(directory), "-o", str(tmp_path / "out.npy")),
        "optimize": (str(directory), "-o", str(tmp_path / "optimized")),
    }.get(command, (str(directory),))
    line = [sys.executable, "-m", "vecmill", command, *arguments]
    done = run_process(line, env=os.environ | {"VECMILL_CACHE_DIR": str(tmp_path / "cache")})
    assert done.returncode not in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    assert "config.json: hidden_act ['x'] is not supported" in done.stderr
