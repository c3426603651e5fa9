"""The graphs of the census fit the weights: the names and shapes of the tensors of transformers' classes.

The classes are made without memory for their tensors, at the sizes of the settings.
"""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.census import CensusModel, foresee, read_census
from support.references import answer
from support.shrunk_models import is_comparable
from vecmill.serving_plan.outcome import OutcomeKind

MODELS = {model.name: model for model in read_census()}
# Keys of config.json that change no tensor.
_APART = (
    "_name_or_path",
    "dtype",
    "torch_dtype",
    "use_cache",
    "gradient_checkpointing",
    "classifier_dropout",
)
FEW = ("BAAI/bge-small-en-v1.5", "google/embeddinggemma-300m", "sentence-transformers/gtr-t5-base")


def distinct(models: Mapping[str, CensusModel]) -> list[str]:
    """The names of comparable models, one for each config.json, whatever names and types it has besides."""
    found: dict[str, str] = {}
    for name, model in models.items():
        if is_comparable(model):
            config = {key: value for key, value in model.files["config.json"].items() if key not in _APART}
            found.setdefault(json.dumps(config, sort_keys=True), name)
    return [*dict.fromkeys([*found.values(), *FEW])]


def mark_all_but(few: tuple[str, ...], names: list[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in few else pytest.mark.full) for name in names]


def make_without_memory(config: Mapping[str, Any], class_name: str) -> Any:
    """A model of a class of transformers with settings, whose tensors have shapes and no values."""
    import torch
    import transformers

    settings = {key: value for key, value in config.items() if key not in ("auto_map", "model_type")}
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")  # theirs to heed
        made = transformers.AutoConfig.for_model(config["model_type"], **settings)
        return getattr(transformers, class_name)(made)


def list_shapes(config: Mapping[str, Any]) -> dict[str, list[int]]:

    def read() -> dict[str, list[int]]:
        model = make_without_memory(config, config["architectures"][0])
        return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}

    shapes: dict[str, list[int]] = answer(["shapes", config], read)
    return shapes


def count_parameters(model: CensusModel) -> int:
    """Parameters of the class without a language model's own head, and of the Dense modules."""
    config = model.files["config.json"]
    name = config["architectures"][0].replace("ForCausalLM", "Model")

    def read() -> int:
        counted = make_without_memory(config, name)
        return sum({id(tensor): tensor.numel() for tensor in counted.parameters()}.values())

    count = answer(["parameters", name, config], read)
    for place in (entry["path"] for entry in model.files.get("modules.json", [])):
        module = model.files.get(f"{place}/config.json", {})
        if "out_features" in module:
            inputs = module["in_features"] + module.get("bias", True)
            count += inputs * module["out_features"]
    return int(count)


@pytest.mark.parametrize("name", mark_all_but(FEW, distinct(MODELS)))
def test_a_graph_fits_the_tensors_of_the_class(tmp_path: Path, name: str) -> None:
    model = MODELS[name]
    found = foresee(tmp_path, model, list_shapes(model.files["config.json"]))
    assert (found.kind, found.reason, found.unchecked) == (OutcomeKind.GRAPH, None, ())


def test_a_graph_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    model = MODELS[FEW[0]]
    config = {**model.files["config.json"], "intermediate_size": 1_000}
    found = foresee(tmp_path, model, list_shapes(config))
    assert found.kind == OutcomeKind.REFUSED
    assert "intermediate_size" in (found.reason or "")


@pytest.mark.parametrize(
    "name", mark_all_but(FEW, [name for name, model in MODELS.items() if model.parameters is not None])
)
def test_the_settings_have_as_many_parameters_as_a_list_states(name: str) -> None:
    assert count_parameters(MODELS[name]) == MODELS[name].parameters
