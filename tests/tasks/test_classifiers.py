"""Texts, pairs and tokens get the labels and scores of transformers' pipelines."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.task_models import save_task_model
from tasks.conftest import PAIRS, TEXTS, Open
from vecmill import Entity
from vecmill.requests import ClassifyTokens, ScoreTokens

TOLERANCE = 1e-4
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC", "I-X-Y"]


def load_pipeline(task: str, folder: Path, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        transformers.logging.set_verbosity_error()
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
    pipeline = load_pipeline("text-classification", folder, top_k=None)
    # The pipeline takes a pair whose second text is empty for a single text; CrossEncoder, and we, do not.
    pairs = [pair for pair in PAIRS if pair[1]]
    for inputs, theirs in (
        (TEXTS, TEXTS),
        (pairs, [{"text": first, "text_pair": second} for first, second in pairs]),
    ):
        found = mill.classify(inputs)
        for index, item in enumerate(theirs):
            (expected,) = [pipeline([item], truncation=True)[0]]
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import CrossEncoder

        oracle = CrossEncoder(
            str(folder), device="cpu", prompts={"ask": "in which of the "}, default_prompt_name="ask"
        )
        oracle.save_pretrained(str(tmp_path / "saved"))
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
        seed=1,  # gives most labels to some token
        id2label=dict(enumerate(LABELS)),
        label2id={label: index for index, label in enumerate(LABELS)},
    )


@pytest.mark.parametrize("strategy", ["none", "simple"])
def test_entities_are_those_of_the_pipeline(tagger: Path, open_mill: Open, strategy: str) -> None:
    texts = [*TEXTS, "Ünïcode café, 東京 and the 🦊", "  the   name\tof\n\nthe rose "]
    pipeline = load_pipeline("token-classification", tagger, aggregation_strategy=strategy)
    found = open_mill(tagger).run(ClassifyTokens(tuple(texts), strategy == "simple")).entities
    kinds = set()
    for text, ours in zip(texts, found, strict=True):
        expected = pipeline(text) if text else []
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


def test_scores_of_tokens_are_those_of_the_model(tagger: Path, open_mill: Open) -> None:
    texts = tuple(text for text in TEXTS if text)
    pipeline, mill = load_pipeline("token-classification", tagger), open_mill(tagger)
    logits, found = mill.run(ScoreTokens(texts, raw_scores=True)), mill.run(ScoreTokens(texts))
    assert list(found.labels) == LABELS
    for text, raw, scores in zip(texts, logits.scores, found.scores, strict=True):
        read = pipeline.tokenizer(text, return_tensors="pt", truncation=True)
        expected = pipeline.model(**read).logits[0].detach().softmax(-1).numpy()
        np.testing.assert_allclose(scores, expected, atol=TOLERANCE)
        np.testing.assert_array_equal(raw.argmax(axis=1), expected.argmax(axis=1))
    assert found.token_count == sum(map(len, found.scores))
