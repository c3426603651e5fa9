"""`vecmill ray embed` as a user runs it, on a cluster of one node that the command starts itself."""

import json
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from on_ray.two_nodes import RAY
from support.corpora import numbered_rows, read_rows, write_corpus
from support.source_tree import ROOT

ROWS = 60

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        shutil.which(RAY / "vecmill") is None, reason="needs .venv/ray, which `make test-all` makes"
    ),
]


def environment() -> dict[str, str]:
    """The variables of a program that starts Ray here, with workers as important as other processes."""
    sources = ("libs/vecmill/src", "services/vecmill_server/src", "services/vecmill_ray/src")
    kept = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in sources),
        "RAY_AUTH_MODE": "disabled",
        "RAY_worker_niceness": "0",
    }


def run(*line: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(RAY / "vecmill"), *map(str, line)],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )


def embed(source: str | Path, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run("ray", "embed", source, "-o", output, "--cores", "1", "--actors", "1", *options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of texts, and the rows of a single process for both."""
    folder = tmp_path_factory.mktemp("one_node")
    rows = numbered_rows(ROWS)
    write_corpus(folder / "all.jsonl", rows)
    assert run("embed", folder / "all.jsonl", "-o", folder / "expected.npy").returncode == 0
    (folder / "in").mkdir()
    write_corpus(folder / "in/a.parquet", rows[: ROWS // 3])
    write_corpus(folder / "in/b.parquet", rows[ROWS // 3 :])
    return folder


def require_rows(folder: Path, output: Path) -> None:
    table = parquet.read_table(output)
    assert table["id"].to_pylist() == list(range(ROWS))
    found = np.asarray(table["embedding"].combine_chunks().flatten()).reshape(ROWS, -1)
    assert np.abs(found - read_rows(folder / "expected.npy")).max() < 1e-6


def test_a_folder_is_embedded_once_and_in_order(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    first = embed(folder / "in", output, "--block-rows", "16")
    assert first.returncode == 0, first.stderr
    assert f"{output}: {ROWS} embeddings of 384 dimensions." in first.stdout
    require_rows(folder, output)
    assert (output / "_SUCCESS").exists()

    lost = sorted(output.glob("part-*"))[1]
    lost.unlink()
    again = embed(folder / "in", output, "--block-rows", "16")
    assert again.returncode == 0, again.stderr
    assert "4 texts were embedded" in again.stdout
    require_rows(folder, output)

    other = embed(folder / "in", output, "--block-rows", "16", "--dimensions", "64")
    assert other.returncode == 2
    assert "made with another number of dimensions" in other.stderr
    assert (
        "--engine onnx, not openvino"
        in embed(folder / "in", output, "--block-rows", "16", "--engine", "openvino").stderr
    )


def test_rejected_rows_are_in_a_file(tmp_path: Path) -> None:
    file, output = tmp_path / "texts.jsonl", tmp_path / "out"
    file.write_text('{"id": 1, "text": "cats"}\n{"id": 2}\n{"id": 3, "text": "dogs"}\n', "utf-8")
    refused = embed(file, output)
    assert refused.returncode == 2
    assert f"{file}: line 2 has no text" in refused.stderr
    done = embed(file, output, "--skip-invalid")
    assert done.returncode == 0, done.stderr
    assert "2 embeddings of 384 dimensions, 1 left out (_rejected.jsonl)" in done.stdout
    rejected = [json.loads(line) for line in (output / "_rejected.jsonl").read_text("utf-8").splitlines()]
    assert rejected == [{"file": str(file), "line": 2, "reason": "has no text"}]
    assert parquet.read_table(output)["id"].to_pylist() == [1, 3]


def test_a_query_to_a_database_is_embedded(folder: Path, tmp_path: Path) -> None:
    file, output = tmp_path / "texts.db", tmp_path / "out"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT, secret TEXT)")
        rows = [(row["id"], row["text"], "x") for row in numbered_rows(ROWS)]
        database.executemany("INSERT INTO texts VALUES (?, ?, ?)", rows)
    database.close()
    options = ("--query", "SELECT id, text FROM texts", "--key-column", "id", "--block-rows", "16")
    done = embed(f"sqlite:///{file}", output, *options)
    assert done.returncode == 0, done.stderr
    assert len(list(output.glob("part-*"))) == 4
    require_rows(folder, output)
    missing = embed(f"sqlite:///{file}", tmp_path / "other")
    assert "A database needs --query and --key-column." in missing.stderr


REPORTS = """
from ray._common.usage.usage_lib import usage_stats_enabled
from vecmill_ray.bulk.cluster import connect, disconnect
connect()
print("reports:", usage_stats_enabled())
disconnect()
"""


def test_a_ray_that_vecmill_starts_reports_nothing() -> None:
    done = subprocess.run(
        [str(RAY / "python"), "-c", REPORTS], capture_output=True, text=True, env=environment(), check=True
    )
    assert "reports: False" in done.stdout
