"""Published models, by the settings that public sources have of them, become what the census says of them.

The settings are those of the publishers, but the vocabularies are small and the weights are missing, so what
is foreseen is what settings and tokenizer classes decide. With `full`, small models of the same settings are
served and compared with the libraries (`test_census_models.py`).
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pages.census_page import PAGE, written_page
from support.census import BASES, CensusModel, foresee, read_census, read_lists
from vecmill.serving_plan.outcome import OutcomeKind

MODELS = {model.name: model for model in read_census()}
LEAST_MODELS, LEAST_GRAPHS = 100, 90
SURPRISES = ("could not be loaded", "the log has the details", "Traceback", "\n")


def kind_of(model: CensusModel) -> tuple[object, ...]:
    """What decides how a model is read: its classes, its files and its tokenizer, and what becomes of it."""
    config = model.files["config.json"]
    classes = config.get("model_type"), *config.get("architectures", ())
    return classes, frozenset(model.files), model.tokenizer, model.outcome


# The first model of each kind.
SOME = {kind_of(model): name for name, model in reversed(MODELS.items())}.values()


def find_faults(model: CensusModel, folder: Path) -> list[str]:
    """Return what is wrong with the outcome of a model."""
    found = foresee(folder, model)
    faults = []
    if (found.kind, found.reason) != (model.outcome, model.reason):
        faults.append(f"{model.name} is {found.kind}: {found.reason}. The census says {model.outcome}.")
    reason = found.reason or ""
    if found.kind == OutcomeKind.REFUSED and not reason.endswith("."):
        faults.append(f"{model.name} is refused without a sentence: {reason}")
    if any(surprise in reason for surprise in SURPRISES):
        faults.append(f"{model.name} fails by surprise: {reason}")
    return faults


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name not in SOME)) for name in MODELS]
)
def test_a_published_model_becomes_what_the_census_says(tmp_path: Path, name: str) -> None:
    assert find_faults(MODELS[name], tmp_path) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_act", "nonsense"), ("position_embedding_type", "relative_key"), ("hidden_size", "384")],
)
def test_a_setting_that_is_not_supported_changes_the_outcome(tmp_path: Path, key: str, value: str) -> None:
    model = MODELS["BAAI/bge-small-en-v1.5"]
    files = {**model.files, "config.json": {**model.files["config.json"], key: value}}
    (fault,) = find_faults(replace(model, files=files), tmp_path)
    assert "is refused: " in fault
    assert f"config.json: {key}" in fault


def test_a_failure_that_nobody_foresaw_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("no one expected this")

    monkeypatch.setattr("vecmill.serving_plan.outcome.Tokenizer.load", fail)
    faults = find_faults(MODELS["BAAI/bge-small-en-v1.5"], tmp_path)
    assert any("fails by surprise" in fault for fault in faults)


def test_the_census_is_large_enough() -> None:
    counted = [model for model in MODELS.values() if model.is_counted]
    assert len(counted) >= LEAST_MODELS
    assert Counter(model.outcome for model in counted)[OutcomeKind.GRAPH] >= LEAST_GRAPHS


@pytest.mark.parametrize("name", MODELS)
def test_each_fact_has_a_source_and_each_model_a_list(name: str) -> None:
    model = MODELS[name]
    assert model.path.name == f"{name.replace('/', '--')}.json"
    assert model.path.read_text("utf-8") == model.to_text(), "run `make census`"
    assert model.basis in BASES
    assert set(model.lists) <= set(read_lists())
    if model.basis != "memory":
        assert model.sources
    for source in model.sources:
        kind, _, place = source["place"].partition(" ")
        assert kind in ("package", "repository")
        assert place
        assert source["facts"]
        # A package has its version in its place, a repository a commit.
        assert "commit" in source if kind == "repository" else place[-1].isdigit()


def test_the_page_is_written_from_the_census() -> None:
    assert PAGE.read_text("utf-8") == written_page(), "run `make census`"
