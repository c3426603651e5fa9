"""Random models of all families, on every engine that is installed, in every precision that it offers.

What a mill would answer is what the model's own library answers in fp32: exactly in fp32, nearly in 16 and
8 bits. Or the model is refused, with a sentence that says so.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.agreement import (
    CORES,
    CPU,
    TEXTS,
    Outcomes,
    compute,
    compute_all,
    installed_engines,
    installed_plans,
    offered,
)
from support.random_models import DRAWS, RandomModel
from vecmill.architectures.registry import ARCHITECTURES
from vecmill.engines import load_engine
from vecmill.hardware.processor import multiplies_bytes
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.values.task import Task

# Each family three times.
MODELS = 3 * len(DRAWS)
# Attention with distances of two kinds, convolutions, a decoder and a table, and rows, scores and weights of
# tokens. One after the other they go through the precisions of an engine: each has one model at least.
FEW = (
    ("deberta-v2", Task.EMBED),
    ("lfm2", Task.EMBED),
    ("bert", Task.RERANK),
    ("eurobert", Task.SPARSE),
    ("static", Task.EMBED),
    ("modernbert", Task.MULTI_VECTOR),  # which expands its queries
    ("jina_bert", Task.EMBED),
)
SLOW = ("torch-compile",)  # half a minute for each model


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    return Outcomes()


def test_the_draw_goes_through_all_families() -> None:
    models = [RandomModel.draw(seed) for seed in range(MODELS)]
    assert MODELS >= 50
    assert {model.family for model in models} == set(DRAWS)
    # tests/tasks/test_llm_rerankers.py and tests/parity have the models of the others on every engine, but
    # EmbeddingGemma 2 under its published name, which is a text model.
    of_pictures = {"clip", "siglip"}
    elsewhere = {"embedding_gemma2", "jina_embeddings_v5", "jina_embeddings_v5_encoder", "minicpm"}
    assert {model.architecture for model in models} == set(ARCHITECTURES) - elsewhere - of_pictures
    assert len({model.task for model in models}) >= 5
    assert RandomModel.draw(7) == models[7]


@pytest.mark.usefixtures("without_search")
@pytest.mark.parametrize(("place", "family", "task"), [(place, *one) for place, one in enumerate(FEW)])
def test_a_few_models_agree_on_every_engine_in_one_precision(
    place: int, family: str, task: Task, tmp_path: Path
) -> None:
    offers = {name: offered(name) for name in installed_engines() if name not in SLOW}
    plans = [EnginePlan(name, found[place % len(found)], CPU) for name, found in offers.items() if found]
    compute_all(RandomModel.find_seed(family, task), plans, tmp_path)


def draw_choosing_model() -> RandomModel:
    """A model whose tokens pass through 2 of 8 experts; rounding to 16 or 8 bits may choose others."""
    model = RandomModel.draw(sorted(DRAWS).index("nomic_bert_experts"))
    return replace(model, settings={**model.settings, "num_experts": 8, "moe_top_k": 2})


def test_chosen_experts_agree_on_every_engine(tmp_path: Path) -> None:
    description, reference = draw_choosing_model().save(tmp_path / "model", TEXTS)
    plans = [
        plan for plan in installed_plans() if plan.precision is Precision.FP32 and plan.engine not in SLOW
    ]
    outcomes = [compute(description, reference, plan, tmp_path / "prepared", 0) for plan in plans]
    assert len(outcomes) > 1
    assert all(outcome.holds and not outcome.refusal for outcome in outcomes), outcomes


@pytest.mark.skipif(not multiplies_bytes(), reason="this processor does not multiply bytes")
@pytest.mark.usefixtures("without_search")
@pytest.mark.parametrize("precision", [Precision.INT8, Precision.INT8_FAST, Precision.INT8_BLOCKS])
def test_experts_that_no_token_has_cost_int8_nothing(precision: Precision, tmp_path: Path) -> None:
    description, _ = draw_choosing_model().save(tmp_path / "model", TEXTS)
    engine = load_engine(description, EnginePlan("onnx", precision, CPU), cores=CORES, cache_dir=tmp_path)
    try:
        batches = [Batch.of([TokenSequence.of([token])]) for token in range(8)]
        found = [engine.run(batch, width=1).values for batch in batches]
    finally:
        engine.close()
    assert np.isfinite(found).all()
    assert np.ptp(found, axis=0).max() > 0.1


@pytest.mark.full
@pytest.mark.parametrize("seed", range(MODELS))
def test_a_random_model_agrees_on_every_engine_in_every_precision(
    seed: int, tmp_path: Path, outcomes: Outcomes
) -> None:
    model, found = compute_all(seed, installed_plans(), tmp_path)
    outcomes.models.append(model)
    outcomes.outcomes += found


@pytest.mark.full
def test_no_family_is_refused_everywhere(outcomes: Outcomes, capsys: pytest.CaptureFixture[str]) -> None:
    if len(outcomes.models) < MODELS:
        pytest.skip("asks for the outcomes of all models, each of which has to hold")
    with capsys.disabled():
        print("", *outcomes.table(), sep="\n")
    never = outcomes.families_never_served()
    # Tables of rows have no product that int8 could make smaller.
    assert [one for one in never if one[1] != "static"] == []
