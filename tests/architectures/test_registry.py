"""What an architecture is stands in its class, and nowhere else."""

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support.source_tree import Module, modules
from vecmill.architectures.registry import (
    ARCHITECTURES,
    configured_architectures,
    find_architecture,
    find_graph_class,
    read_encoder,
)
from vecmill.graphs.encoder import EncoderGraph

SHIFTED = {"camembert", "data2vec-text", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl"}
READ = sorted(configured_architectures())


def comparisons(module: Module) -> Iterator[str]:
    """Comparisons with the name of an architecture, outside of their room."""
    if module.within("vecmill.architectures") or not module.within("vecmill"):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Compare):
            names = {str(one.value) for one in ast.walk(node) if isinstance(one, ast.Constant)}
            for name in sorted(names & {*ARCHITECTURES}):
                yield f"{module.name}:{node.lineno} compares with {name!r}"


def test_no_other_room_asks_for_an_architecture_by_its_name() -> None:
    assert [found for module in modules() for found in comparisons(module)] == []


@pytest.mark.parametrize("text", ["a == 'static'", "model_type in ('gte', 'new')", "'t5' != kind"])
def test_a_room_that_asks_by_name_is_found(text: str) -> None:
    assert [*comparisons(Module.parse("vecmill.engines.planted", text))]


def test_only_a_table_of_vectors_has_no_config() -> None:
    assert {*ARCHITECTURES} - {*READ} == {"static"}
    assert find_architecture("static") is None


@pytest.mark.parametrize("model_type", READ)
def test_every_class_names_its_graph(model_type: str) -> None:
    settings = find_architecture(model_type)
    assert settings is not None
    encoder = read_encoder({"model_type": model_type}, "config.json")
    assert isinstance(encoder, settings)
    assert issubclass(find_graph_class(encoder), EncoderGraph)


@pytest.mark.parametrize("model_type", [None, 1, ["bert"], "", "Bert", "unheard_of"])
def test_anything_else_is_no_architecture(model_type: object) -> None:
    assert find_architecture(model_type) is None


@pytest.mark.parametrize(
    ("fact", "names"),
    [
        ("replaces_code", {"gte", "new", "nomic_bert"}),
        ("shifts_positions", {*SHIFTED, "mpnet"}),
        ("masks_every_layer", {"deberta-v2"}),
        ("judges_pairs", {"qwen3"}),
    ],
)
def test_the_facts_are_those_of_the_published_models(fact: str, names: set[str]) -> None:
    assert {name for name, found in configured_architectures().items() if getattr(found, fact)} == names


def test_settings_are_read_without_an_onnx_library() -> None:
    program = (
        "import sys; from vecmill.architectures.registry import configured_architectures as found; found();"
        "print([name for name in ('onnx', 'onnx_ir', 'torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
