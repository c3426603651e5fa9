"""Killed at any moment, several times over, the same command finishes with each row once and right."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from support.corpora import fake_rows, numbered_rows, numbered_texts, read_column, read_rows, write_corpus
from support.forked_process import ForkedProcess, run_process
from support.http_server import serve_in_thread
from support.texts import mixed_texts
from vecmill import SyncMill
from vecmill.bulk.records import PART_TEXTS
from vecmill.commands.embed.parts import folder_of

SEED = 20_261_121
KILLS = 3
# Where the texts are embedded, their number, and how often the run over them is killed.
SCALES = [
    ("in process", 1_000, 2),
    ("by a server", 1_000, 1),
    *(pytest.param(where, 50_000, KILLS, marks=pytest.mark.full) for where in ("in process", "by a server")),
]


def run_killed(
    command: Sequence[str], output: Path, texts: int, dice: random.Random, kills: int = KILLS
) -> None:
    """Kill `kills` runs, each at a moment of its own, and let the next one finish."""
    parts = -(-texts // PART_TEXTS)
    for number in range(kills):
        lowest, highest = parts * number // (kills + 1), parts * (number + 1) // (kills + 1)
        process = ForkedProcess[bytes](command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        kill_at(process, output, parts=dice.randint(lowest, highest), delay_s=dice.uniform(0, 0.02))
        assert process.wait() == -signal.SIGKILL
        assert not output.exists()
    done = run_process(command, timeout_s=900)
    assert done.returncode == 0, done.stderr
    assert "in an earlier run" in done.stdout
    assert not folder_of(output).exists()


def kill_at(process: subprocess.Popen[bytes], output: Path, *, parts: int, delay_s: float) -> None:
    """Kill the process as soon as so many parts are there, and a moment later."""
    folder = folder_of(output)
    while len(list(folder.glob("part-*.npz"))) < parts or not folder.exists():
        assert process.poll() is None, "it ended by itself"
        time.sleep(0.001)
    try:
        process.wait(timeout=delay_s)
    except subprocess.TimeoutExpired:
        process.kill()


def command_of(corpus: Path, output: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "vecmill", "embed", str(corpus), "-o", str(output), *options]


@pytest.mark.parametrize(("where", "texts", "kills"), SCALES)
def test_each_row_is_there_once_and_right(where: str, texts: int, kills: int, tmp_path: Path) -> None:
    dice = random.Random(f"{SEED} {where} {texts}")
    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(texts))
    output = tmp_path / "vectors.parquet"
    if where == "in process":
        run_killed(command_of(corpus, output, "--engine", "fake"), output, texts, dice, kills)
    else:
        with serve_in_thread() as server:
            url = f"http://127.0.0.1:{server.port}"
            run_killed(command_of(corpus, output, "--server", url), output, texts, dice, kills)
    assert read_column(output, "id") == list(range(texts))
    assert np.array_equal(read_rows(output), fake_rows(numbered_texts(texts)))


def test_ctrl_c_says_how_far_the_run_is_and_how_to_go_on(tmp_path: Path) -> None:
    texts = 20_000
    corpus = write_corpus(tmp_path / "corpus.jsonl", numbered_rows(texts))
    output = tmp_path / "vectors.npy"
    command = command_of(corpus, output, "--engine", "fake")
    with ForkedProcess[str](command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while not list(folder_of(output).glob("part-*.npz")):
            assert process.poll() is None, "it ended by itself"
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    stopped = re.search(r"([\d,]+) of 20,000 texts \(\d+%\) are embedded\.", told)
    assert stopped is not None, told
    assert "The same command continues" in told
    assert 0 < int(stopped[1].replace(",", "")) < texts


@pytest.mark.full
def test_the_embedded_model_is_killed_over_many_texts(tmp_path: Path) -> None:
    texts = mixed_texts(SEED, 5_000)
    corpus = write_corpus(
        tmp_path / "corpus.parquet", [{"id": number, "text": text} for number, text in enumerate(texts)]
    )
    output = tmp_path / "vectors.parquet"
    run_killed(command_of(corpus, output), output, len(texts), random.Random(SEED))
    assert read_column(output, "id") == list(range(len(texts)))
    chosen = sorted(random.Random(SEED).sample(range(len(texts)), 1_000))
    with SyncMill() as mill:
        expected = mill.embed([texts[number] for number in chosen])
    np.testing.assert_allclose(read_rows(output)[chosen], expected, atol=1e-4)


def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    peaks = []
    for texts in (1_000, 4_000):
        corpus = write_corpus(tmp_path / f"{texts}.jsonl", numbered_rows(texts))
        process = subprocess.Popen(
            command_of(corpus, tmp_path / f"{texts}.npy", "--engine", "fake"), stdout=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        assert status == 0
        process.returncode = 0
        peaks.append(used.ru_maxrss)
    rows_kib = 3_000 * 384 * 4 // 1024
    assert peaks[1] - peaks[0] < rows_kib
