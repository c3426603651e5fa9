"""Texts, pairs and tokens get the labels and scores of transformers' pipelines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.families import quiet_library
from support.references import answer, digest_directory
from support.task_models import save_again, save_task_model
from tasks.conftest import PAIRS, TEXTS, Open
from vecmill import Entity
from vecmill.requests import ClassifyTokens, ScoreTokens
from vecmill.values.aliases import FloatArray

TOLERANCE = 1e-4
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC", "I-X-Y"]


def ask_pipeline(task: str, folder: Path, inputs: Sequence[Any], **settings: Any) -> list[Any]:
    """What a pipeline of transformers answers to each input."""

    def ask() -> list[Any]:
        pipeline = load_pipeline(task, folder, **settings)
        options = {"truncation": True} if task == "text-classification" else {}
        return [pipeline([item], **options)[0] for item in inputs]

    found: list[Any] = answer([digest_directory(folder), task, list(inputs), settings], ask)
    return found


def load_pipeline(task: str, folder: Path, **settings: Any) -> Any:
    with quiet_library():
        import transformers

        return transformers.pipeline(task, model=str(folder), device="cpu", **settings)


@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification", None])
def test_scores_of_all_labels_are_those_of_the_pipeline(
    tmp_path: Path, open_mill: Open, problem: str | None
) -> None:
    labels = ["a", "b", "c"]
    folder = save_task_model(
        tmp_path / "classifier",
        "BertForSequenceClassification",
        id2label=dict(enumerate(labels)),
        label2id={label: index for index, label in enumerate(labels)},
        problem_type=problem,
    )
    mill = open_mill(folder)
    # The pipeline takes a pair whose second text is empty for a single text; CrossEncoder, and we, do not.
    pairs = [pair for pair in PAIRS if pair[1]]
    for inputs, theirs in (
        (TEXTS, TEXTS),
        (pairs, [{"text": first, "text_pair": second} for first, second in pairs]),
    ):
        found = mill.classify(inputs)
        for index, expected in enumerate(ask_pipeline("text-classification", folder, theirs, top_k=None)):
            ranked = found.ranked(index)
            assert [label for label, _ in ranked] == [entry["label"] for entry in expected]
            np.testing.assert_allclose(
                [score for _, score in ranked], [entry["score"] for entry in expected], atol=TOLERANCE
            )
    sums = mill.classify(TEXTS).scores.sum(axis=1)
    assert np.allclose(sums, 1, atol=1e-5) == (problem != "multi_label_classification")
    assert np.abs(mill.classify(TEXTS, raw_scores=True).scores.sum(axis=1) - 1).max() > 0.1


def test_a_cross_encoder_of_several_labels_keeps_its_prompt(tmp_path: Path, open_mill: Open) -> None:
    folder = save_task_model(tmp_path / "plain", "BertForSequenceClassification", num_labels=3)
    options = {"prompts": {"ask": "in which of the "}, "default_prompt_name": "ask"}
    oracle = save_again(tmp_path / "saved", folder, "CrossEncoder", **options)
    expected = oracle.predict(PAIRS)
    # Labels are scored as a pipeline does, logits are those of the reference.
    found = open_mill(tmp_path / "saved").classify(PAIRS, raw_scores=True).scores
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert np.abs(expected - oracle.predict(PAIRS, prompt="")).max() > 1e-2


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_task_model(
        tmp_path_factory.mktemp("models") / "tagger",
        "BertForTokenClassification",
        seed=6,  # gives most labels to some token
        id2label=dict(enumerate(LABELS)),
        label2id={label: index for index, label in enumerate(LABELS)},
    )


@pytest.mark.parametrize("strategy", ["none", "simple"])
def test_entities_are_those_of_the_pipeline(tagger: Path, open_mill: Open, strategy: str) -> None:
    texts = [*TEXTS, "Ünïcode café, 東京 and the 🦊", "  the   name\tof\n\nthe rose "]
    answers = ask_pipeline(
        "token-classification", tagger, [text for text in texts if text], aggregation_strategy=strategy
    )
    answered = iter(answers)
    found = open_mill(tagger).run(ClassifyTokens(tuple(texts), strategy == "simple")).entities
    kinds = set()
    for text, ours in zip(texts, found, strict=True):
        expected = next(answered) if text else []
        assert [_as_pipeline(entity, strategy) for entity in ours] == [
            {name: value for name, value in entry.items() if name != "score"} for entry in expected
        ]
        np.testing.assert_allclose(
            [entity.score for entity in ours], [entry["score"] for entry in expected], atol=TOLERANCE
        )
        kinds |= {entity.label for entity in ours}
    assert len(kinds) >= 3


def _as_pipeline(entity: Entity, strategy: str) -> dict[str, Any]:
    common = {"word": entity.word, "start": entity.start, "end": entity.end}
    if strategy == "none":
        return {"entity": entity.label, "index": entity.index, **common}
    return {"entity_group": entity.label, **common}


def score_tokens(folder: Path, texts: Sequence[str]) -> list[FloatArray]:
    """The shares of all labels for each token of each text."""
    pipeline = load_pipeline("token-classification", folder)
    read = [pipeline.tokenizer(text, return_tensors="pt", truncation=True) for text in texts]
    return [pipeline.model(**one).logits[0].detach().softmax(-1).numpy() for one in read]


def test_scores_of_tokens_are_those_of_the_model(tagger: Path, open_mill: Open) -> None:
    texts = tuple(text for text in TEXTS if text)
    mill = open_mill(tagger)
    everything = answer([digest_directory(tagger), "scores", texts], lambda: score_tokens(tagger, texts))
    logits, found = mill.run(ScoreTokens(texts, raw_scores=True)), mill.run(ScoreTokens(texts))
    assert list(found.labels) == LABELS
    for expected, raw, scores in zip(everything, logits.scores, found.scores, strict=True):
        np.testing.assert_allclose(scores, expected, atol=TOLERANCE)
        np.testing.assert_array_equal(raw.argmax(axis=1), expected.argmax(axis=1))
    assert found.token_count == sum(map(len, found.scores))
