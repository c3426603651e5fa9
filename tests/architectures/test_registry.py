"""What an architecture is stands in its class, and nowhere else."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support.source_tree import Module, modules
from vecmill.architectures.registry import (
    ARCHITECTURES,
    configured_architectures,
    find_architecture,
    find_graph_class,
    has_foreign_code,
    read_encoder,
    refuse_without_graph,
)
from vecmill.graphs.encoder import EncoderGraph

TASK_ADAPTERS = {"jina_embeddings_v5", "jina_embeddings_v5_encoder"}
FLASH = {"jina_embeddings_v3", "xlm-roberta-flash"}
SHIFTED = {"camembert", "data2vec-text", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl"}
DECODERS_WITH_CODE = {
    "bidirectional_pplx_qwen3",
    "gemma",
    "lfm2",
    "llama",
    "llama_bidirec",
    "ministral3_bidirec",
    "mistral",
    "qwen2",
    "qwen3",
}
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
    # Of the model_type minicpm, one class alone has a graph.
    named = {"architectures": ["LayerWiseMiniCPMForCausalLM"]} if model_type == "minicpm" else {}
    encoder = read_encoder({"model_type": model_type, **named}, "config.json")
    assert isinstance(encoder, settings)
    assert issubclass(find_graph_class(encoder), EncoderGraph)


@pytest.mark.parametrize("model_type", [None, 1, ["bert"], "", "Bert", "unheard_of"])
def test_anything_else_is_no_architecture(model_type: object) -> None:
    assert find_architecture(model_type) is None


@pytest.mark.parametrize(
    ("fact", "names"),
    [
        ("replaces_code", {"gte", "new", "nomic_bert", *FLASH}),
        ("replaced_classes", {"eurobert", "jina_bert", "minicpm", *TASK_ADAPTERS, *DECODERS_WITH_CODE}),
        ("shifts_positions", {*SHIFTED, "mpnet", "xlm-roberta-flash"}),
        ("masks_every_layer", {"deberta-v2"}),
        ("averages_keyless", {"gemma2", "t5gemma"}),
        ("judges_pairs", {"qwen3"}),
        ("reads_more", {"embedding_gemma2"}),
    ],
)
def test_the_facts_are_those_of_the_published_models(fact: str, names: set[str]) -> None:
    assert {name for name, found in configured_architectures().items() if getattr(found, fact)} == names


@pytest.mark.parametrize("model_type", [None, 1, ["bert"], {"x": {"y": []}}])
@pytest.mark.parametrize(
    "more", [{}, {"architectures": ["BertModel"]}, {"auto_map": {"AutoModel": "own.Model"}}]
)
def test_a_model_type_that_is_no_text_is_read_like_an_unknown_one(model_type: object, more: Any) -> None:
    config = {"model_type": model_type, **more}
    refuse_without_graph(config, "config.json")
    assert has_foreign_code(config) is ("auto_map" in more)


JINA = {"model_type": "bert", "position_embedding_type": "alibi"}
V5 = "JinaEmbeddingsV5"
CODE = "jinaai/jina-bert-implementation--modeling_bert"


@pytest.mark.parametrize(
    ("config", "is_foreign"),
    [
        ({"model_type": "bert"}, False),
        ({"model_type": "bert", "auto_map": {}}, False),
        ({"model_type": "bert", "auto_map": {"AutoModel": f"{CODE}.JinaBertModel"}}, True),
        ({"model_type": "unheard_of", "auto_map": {"AutoModel": "own.Model"}}, True),
        ({"model_type": "nomic_bert", "auto_map": {"AutoModel": "own.Model"}}, False),
        (JINA, False),
        ({"model_type": "jina_embeddings_v5", "auto_map": {"AutoModel": f"a.{V5}Model"}}, False),
        ({"model_type": "jina_embeddings_v5", "auto_map": {"AutoModel": f"a.{V5}Other"}}, True),
        (
            {**JINA, "auto_map": {"AutoModel": f"{CODE}.JinaBertModel", "AutoConfig": "a.JinaBertConfig"}},
            False,
        ),
        ({**JINA, "auto_map": {"AutoModel": f"{CODE}.JinaBertModel", "AutoConfig": "a.OwnConfig"}}, True),
        ({**JINA, "auto_map": {"AutoModel": "JinaBert.Model"}}, True),
        ({**JINA, "auto_map": {"AutoModel": None}}, True),
        ({**JINA, "auto_map": f"{CODE}.JinaBertModel"}, True),
        ({**JINA, "auto_map": 1}, True),
    ],
)
def test_code_is_foreign_unless_a_graph_replaces_its_classes(
    config: dict[str, object], is_foreign: bool
) -> None:
    assert has_foreign_code(config) is is_foreign


def test_settings_are_read_without_an_onnx_library() -> None:
    program = (
        "import sys; from vecmill.architectures.registry import configured_architectures as found; found();"
        "print([name for name in ('onnx', 'onnx_ir', 'torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
