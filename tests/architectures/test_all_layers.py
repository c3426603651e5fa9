"""The hidden states of all layers, of the families that give them, are those of transformers' classes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.families import TinyFamily, random_sequences, save_tiny_family
from support.graph_session import GraphSession
from vecmill.architectures.registry import configured_architectures, find_graph_class, read_encoder
from vecmill.graphs.batch_layout import RaggedLayout
from vecmill.graphs.ops import GraphOutput, Ops
from vecmill.models.weights import Weights
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence

TOLERANCE = 1e-4
VOCABULARY = 60
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
}
# By `model_type`.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "albert": ("AlbertModel", {**SIZES, "embedding_size": 16, "num_hidden_groups": 2, "inner_group_num": 2}),
    "bert": ("BertModel", SIZES),
    "camembert": ("CamembertModel", SIZES),
    "data2vec-text": ("Data2VecTextModel", SIZES),
    "distilbert": (
        "DistilBertModel",
        {"vocab_size": VOCABULARY, "dim": 32, "hidden_dim": 48, "n_layers": 3, "n_heads": 4},
    ),
    "electra": ("ElectraModel", {**SIZES, "embedding_size": 16}),
    "ernie": ("ErnieModel", SIZES),
    "megatron-bert": ("MegatronBertModel", SIZES),
    "mpnet": ("MPNetModel", SIZES),
    "rembert": ("RemBertModel", {**SIZES, "input_embedding_size": 16}),
    "roberta": ("RobertaModel", SIZES),
    "roberta-prelayernorm": ("RobertaPreLayerNormModel", SIZES),
    "xlm-roberta": ("XLMRobertaModel", SIZES),
    "xlm-roberta-xl": ("XLMRobertaXLModel", {**SIZES, "type_vocab_size": 1}),
}


def test_every_family_that_gives_its_layers_is_compared() -> None:
    settings = {name: found for name, found in configured_architectures().items() if name != "minicpm"}
    giving = {name for name in settings if read_encoder({"model_type": name}, "config.json").given_layers}
    assert giving == {*FAMILIES}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_hidden_states_of_all_layers_are_those_of_the_class(model_type: str, tmp_path: Path) -> None:
    class_name, settings = FAMILIES[model_type]
    tiny = save_tiny_family(tmp_path, class_name, **settings)
    sequences = random_sequences((1, 5, 9, 30), vocab_size=VOCABULARY)
    ours = compute_layers(tiny, sequences)
    theirs = [np.concatenate(rows) for rows in zip(*reference_layers(tiny, sequences), strict=True)]
    assert len(ours) == len(theirs) >= 4
    for number, (found, expected) in enumerate(zip(ours, theirs, strict=True)):
        assert np.abs(found - expected).max() <= TOLERANCE, f"hidden state {number}"


def compute_layers(tiny: TinyFamily, sequences: list[TokenSequence]) -> list[Any]:
    op = Ops()
    encoder = read_encoder(tiny.config, "config.json")
    graph = find_graph_class(encoder)(op, RaggedLayout(op), encoder, Weights.open(tiny.weights_file))
    graph.encode()
    assert encoder.given_layers == len(graph.layers) - 1
    outputs = [
        GraphOutput(op.Identity(x), f"layer_{number}", ("n", encoder.hidden_size))
        for number, x in enumerate(graph.layers)
    ]
    found = GraphSession(op.finish(*outputs)).outputs(Batch.of(sequences))
    return [found[output.name] for output in outputs]


def reference_layers(tiny: TinyFamily, sequences: list[TokenSequence]) -> list[list[FloatArray]]:
    layers: list[list[FloatArray]] = tiny.reference.ask(
        ["layers", *(sequence.token_ids for sequence in sequences)],
        lambda model: [compute_reference_layers(model, sequence) for sequence in sequences],
    )
    return layers


def compute_reference_layers(model: Any, sequence: TokenSequence) -> list[Any]:
    import torch

    ids = torch.from_numpy(sequence.token_ids)[None]
    with torch.no_grad():
        output = model(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
    return [state[0].numpy() for state in output.hidden_states]
