"""The commands on arm64: two runs embed a file, a small model is optimised, the machine is described."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from click.testing import CliRunner, Result

from arm64.references import CORES, Answers, Reference
from vecmill.bulk.records import PART_TEXTS
from vecmill.commands.embed.parts import folder_of
from vecmill.commands.main import main
from vecmill.commands.optimize.progress import DONE, TOO_NOISY

# Several parts are computed at once: enough that the first is stored long before the last.
PARTS = 24
ENDS_S = 600.0


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def stop_after_a_part(command: Sequence[str], output: Path) -> None:
    """Interrupt the command when it has finished a part of its output."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while not any(folder_of(output).glob("part-*.npz")):
        assert process.poll() is None, "it ended by itself"
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=ENDS_S)
    assert process.returncode == 130
    assert not output.exists()


def test_an_interrupted_file_is_continued_with_each_row_once(bert: Reference, tmp_path: Path) -> None:
    texts, wanted = bert.texts, bert.answers.embeddings
    count = PARTS * PART_TEXTS
    corpus, output = tmp_path / "corpus.jsonl", tmp_path / "vectors.npy"
    lines = ({"id": number, "text": texts[number % len(texts)] or " "} for number in range(count))
    corpus.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    options = ["--model", str(bert.model), "--cores", str(CORES), "--cache-dir", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "vecmill", "embed", str(corpus), "-o", str(output), *options]
    stop_after_a_part(command, output)
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "in an earlier run" in done.stdout
    rows = np.load(output)
    assert len(rows) == count
    np.testing.assert_allclose(rows, wanted[np.arange(count) % len(texts)], atol=1e-4)


def test_optimize_measures_and_its_directory_is_served(bert: Reference, tmp_path: Path) -> None:
    output, cache = tmp_path / "optimised", tmp_path / "cache"
    limits = ["--time-limit-s", "90", "--engine", "onnx"]
    files = ["-o", str(output), "--cache-dir", str(cache)]
    found = run("optimize", str(bert.model), *files, *limits)
    assert found.exit_code in (DONE, TOO_NOISY), found.output
    assert "ARM Neoverse-N1" in (output / "report.md").read_text(encoding="utf-8")
    answers = Answers.compute(output, bert.texts, cache)
    similarity = np.sum(answers.embeddings * bert.answers.embeddings, axis=1)
    lengths = np.linalg.norm(answers.embeddings, axis=1) * np.linalg.norm(bert.answers.embeddings, axis=1)
    assert (similarity / lengths).min() >= 0.99


def test_the_doctor_names_the_processor(tmp_path: Path) -> None:
    report = run("doctor", "--cache-dir", str(tmp_path)).output
    assert "ARM Neoverse-N1" in report
    assert "asimd, asimddp" in report
