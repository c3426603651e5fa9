"""The measurement of DistilBERT, on a tiny one: what is asked, who answers, and what is made of it."""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench.distilbert import (
    EXACT,
    PIPELINE,
    PUBLISHED,
    Contestant,
    check_answers,
    compare,
    measure_in_turn,
    write_table,
)
from bench.distilbert_inputs import Answer, Inputs, make_inputs, make_texts, save_classifier

SEED = 3
LENGTHS = (8, 16)
TINY = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 32}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """A tiny model, and a few texts for it."""
    model = save_classifier(tmp_path_factory.mktemp("distilbert") / "model", seed=SEED, sizes=TINY)
    return make_inputs(model, {length: make_texts(SEED, length, 4) for length in LENGTHS})


def test_texts_differ_and_depend_on_their_seed_alone() -> None:
    texts = make_texts(SEED, 32, 16)
    assert len(set(texts)) == 16
    assert texts == make_texts(SEED, 32, 16)
    assert not set(texts) & set(make_texts(SEED + 1, 32, 16))


def test_a_text_of_another_length_is_refused(inputs: Inputs) -> None:
    with pytest.raises(AssertionError, match="a text of 8 tokens should have 16"):
        make_inputs(inputs.model, {16: inputs.texts[8]})


def test_the_model_tells_texts_apart(inputs: Inputs) -> None:
    scores = [answer.score for answer in inputs.answers.values()]
    assert max(scores) - min(scores) > 0.01


def test_another_label_or_score_is_noticed(inputs: Inputs) -> None:
    expected = dict(inputs.answers)
    assert check_answers(expected, expected) == 0
    text, answer = next(iter(expected.items()))
    for wrong in (replace(answer, label="another"), replace(answer, score=answer.score + 2e-4)):
        with pytest.raises(AssertionError, match="where the pipeline says"):
            check_answers({**expected, text: wrong}, expected)


@pytest.mark.linux
def test_contestants_take_turns_and_sleepers_are_watched() -> None:
    burning = [
        sys.executable,
        "-c",
        "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass",
    ]
    turns: list[str] = []

    def contestant(name: str, pid: int) -> Contestant:
        def measure(length: int) -> float:
            turns.append(f"{name} {length}")
            time.sleep(0.3)
            return float(length)

        return Contestant(name, pid, measure)

    with subprocess.Popen(burning) as burner:
        try:
            pair = [contestant("a", os.getpid()), contestant("b", burner.pid)]
            findings = measure_in_turn(pair, [8], rounds=2)
        finally:
            burner.kill()
    assert turns == ["a 8", "b 8", "a 8", "b 8"]
    assert findings.rates == {8: {"a": [8.0, 8.0], "b": [8.0, 8.0]}}
    assert findings.idle_share > 0.1


def test_the_table_has_the_medians_beside_what_was_published() -> None:
    rates = {
        8: {"onnx fp32": [30.0, 20.0, 70.0], PIPELINE: [10.0, 10.0, 10.0]},
        9: {"onnx fp32": [1.0], PIPELINE: [1.0]},
    }
    *_, eight, nine = write_table(rates, "onnx fp32").splitlines()
    assert eight == "| 8 | 10.0 (10.0-10.0) | 30.0 (20.0-70.0), 3.00x | 3.00 (2.00-7.00) | 5.06 | no |"
    assert nine.endswith("| 1.00 (1.00-1.00) | - | - |")
    assert "| yes |" in write_table({512: {"onnx fp32": [3.1], PIPELINE: [1.0]}}, "onnx fp32")


@pytest.mark.linux
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_server_and_pipeline_answer_alike_and_are_measured(inputs: Inputs, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vecmill"]
    findings = compare(tmp_path, inputs, plans=[EXACT], command=command, rounds=1, seconds=1)
    assert list(findings.rates) == list(LENGTHS)
    assert all(rate > 0 for found in findings.rates.values() for [rate] in found.values())
    assert write_table(findings.rates, "onnx fp32").count("\n") == 1 + len(LENGTHS)


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_server_that_disagrees_is_not_measured(inputs: Inputs, tmp_path: Path) -> None:
    wrong = {text: Answer("LABEL_0", 0.0) for text in inputs.answers}
    command = [sys.executable, "-m", "vecmill"]
    with pytest.raises(AssertionError, match="where the pipeline says"):
        compare(
            tmp_path,
            replace(inputs, answers=wrong),
            plans=[EXACT],
            command=command,
            rounds=1,
            seconds=1,
        )


def test_every_length_that_was_published_fits_the_model() -> None:
    assert [len(make_texts(SEED, length, 1)[0].split()) for length in PUBLISHED] == [
        length - 2 for length in PUBLISHED
    ]
