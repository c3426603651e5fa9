"""The inputs of the measurements of classifiers, on a tiny one: texts of exact lengths, and known answers."""

from dataclasses import replace

import pytest

from bench.classifier_inputs import Inputs, make_inputs, make_texts, save_classifier
from bench.published.articles import GRID_LENGTHS
from bench.published.servers import check_answers

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


def test_every_length_that_was_published_fits_the_model() -> None:
    found = [len(make_texts(SEED, length, 1)[0].split()) for length in GRID_LENGTHS]
    assert found == [length - 2 for length in GRID_LENGTHS]
