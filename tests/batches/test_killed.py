"""A server that is killed in the middle of a batch, again and again, loses no line and repeats none."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest

from support.batches import create_batch, ended, request_line, retrieve, rows_of
from support.forked_process import ForkedProcess
from support.http_server import wait_until
from vecmill.directory_layouts import describe_model
from vecmill.engines.fake import hash_row
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray

TESTS = Path(__file__).parents[1]
# Lines that are refused, among the others.
BAD_EVERY = 37


Running = tuple[subprocess.Popen[str], httpx.Client]


@dataclass(frozen=True, slots=True)
class Size:
    """How many texts, how often killed, how slow an engine, and how long to wait for all of them."""

    texts: int
    kills: int
    pause_s: float
    patience_s: float


SMALL = Size(800, 2, 0.04, 60.0)
FULL = Size(50_000, 3, 0.004, 600.0)


@contextmanager
def slow_server(folder: Path, pause_s: float) -> Iterator[Running]:
    """A server of its own process, killed when the block ends unless it has ended."""
    process = ForkedProcess[str](
        [sys.executable, str(TESTS / "batches/slow_server.py"), str(folder), str(pause_s)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"},
    )
    assert process.stdout is not None
    try:
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None, "the server did not start"
        with httpx.Client(base_url=found.group(), timeout=30.0) as client:
            yield process, client
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def done(client: httpx.Client, batch_id: str) -> int:
    counts = retrieve(client, batch_id)["request_counts"]
    return int(counts["completed"] + counts["failed"])


def kill_at(server: Running, batch_id: str, line: int, delay_s: float, patience_s: float) -> int:
    """Kill the server when so many lines are done, and a moment later; say how many it had told of."""
    process, client = server
    wait_until(lambda: done(client, batch_id) >= line, patience_s=patience_s)
    time.sleep(delay_s)  # so that it is hit while it does whatever it does, not right after it was asked
    told = retrieve(client, batch_id)
    assert told["status"] == "in_progress", "the batch was too quick to be killed in its middle"
    process.send_signal(signal.SIGKILL)
    process.wait()
    return int(told["request_counts"]["completed"] + told["request_counts"]["failed"])


def expected_rows(texts: list[str]) -> list[FloatArray]:
    tokenizer = Tokenizer.load(describe_model(locate_model()))
    return [hash_row(sequence.token_ids, 384) for sequence in tokenizer.encode(texts)]


@pytest.mark.promise("batches-survive")
@pytest.mark.parametrize("size", [SMALL, pytest.param(FULL, marks=pytest.mark.full)], ids=["small", "full"])
@pytest.mark.parametrize("seed", [20261121])
def test_each_line_is_answered_once_with_its_own_row(tmp_path: Path, size: Size, seed: int) -> None:
    dice = random.Random(seed)
    texts = [f"text {number} of many" for number in range(size.texts)]
    bad = set(range(5, size.texts, BAD_EVERY))
    lines = [
        request_line(f"line-{number}", {"input": 7} if number in bad else {"input": text})
        for number, text in enumerate(texts)
    ]
    moments = sorted(dice.sample(range(size.texts // 20, size.texts * 6 // 10), size.kills))
    told, batch_id = 0, None
    for moment in moments:
        with slow_server(tmp_path, size.pause_s) as (process, client):
            batch_id = batch_id or create_batch(client, lines)
            assert done(client, batch_id) >= told, "what was told has been forgotten"
            line, delay_s = max(moment, told + 1), dice.random() * 0.2
            told = kill_at((process, client), batch_id, line, delay_s, size.patience_s)
    with slow_server(tmp_path, size.pause_s) as (_, client):
        assert batch_id is not None
        batch = ended(client, batch_id, patience_s=size.patience_s)
        assert batch["status"] == "completed"
        good = size.texts - len(bad)
        counts = {"total": size.texts, "completed": good, "failed": len(bad)}
        assert batch["request_counts"] == counts
        output = client.get(f"/v1/files/{batch['output_file_id']}/content").content
        errors = client.get(f"/v1/files/{batch['error_file_id']}/content").content
    failed = [json.loads(line)["custom_id"] for line in errors.splitlines()]
    assert failed == [f"line-{number}" for number in sorted(bad)]
    answered = [number for number in range(size.texts) if number not in bad]
    answers = output.splitlines()
    assert len(answers) == len(answered)
    rows = expected_rows([texts[number] for number in answered])
    for number, line, row in zip(answered, map(json.loads, answers), rows, strict=True):
        assert line["custom_id"] == f"line-{number}"
        np.testing.assert_array_equal(rows_of(line)[0], row)
    kept = {path.name for path in (tmp_path / "files").iterdir()}
    assert kept == {batch["input_file_id"], batch["output_file_id"], batch["error_file_id"]}
