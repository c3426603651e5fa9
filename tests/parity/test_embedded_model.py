"""The embedded model gives the rows of sentence-transformers, and the check of it can fail."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from support.graph_session import GraphSession
from support.rows_check import PLANS, assert_same_rows
from support.scales import in_part
from support.texts import hard_texts, long_texts, mixed_texts, short_texts
from vecmill.architectures.build import build_graph
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.models import ModelDescription, Normalize, Pooling, PoolingMode
from vecmill.tokenization.tokenizer import Tokenizer

SEED = 20261121


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize(
    ("width", "plans", "longest"),
    [
        (1, ("random",), 256),
        (1, PLANS, 64),
        (2, ("random",), 64),
        pytest.param(2, ("random",), 256, marks=pytest.mark.full),
    ],
)
def test_rows_are_those_of_the_reference(
    width: int, plans: tuple[str, ...], longest: int, engine: OnnxEngine, tokenizer: Tokenizer, reference: Any
) -> None:
    texts = [*hard_texts(), *mixed_texts(SEED, 12), *long_texts(SEED, 2)]
    sequences = tokenizer.encode(texts)
    kept = [index for index, sequence in enumerate(sequences) if len(sequence) <= longest]
    assert_same_rows(
        lambda batch: engine.run(batch, width=width),
        [sequences[index] for index in kept],
        reference.encode(texts, normalize_embeddings=True)[kept],
        seed=SEED,
        plans=plans,
    )


@pytest.mark.promise("reference-embeddings")
@pytest.mark.full
def test_rows_are_those_of_the_reference_over_a_thousand_texts(
    engine: OnnxEngine, tokenizer: Tokenizer, reference: Any
) -> None:
    texts = [*hard_texts(), *mixed_texts(SEED, 1_000), *short_texts(SEED, 200), *long_texts(SEED, 20)]
    expected = reference.encode(texts, normalize_embeddings=True)
    sequences = tokenizer.encode(texts)
    largest = assert_same_rows(lambda batch: engine.run(batch, width=1), sequences, expected, seed=SEED)
    print(f"largest difference over {len(texts)} texts, each in three batches: {largest:.1e}")


def drop_mask(model: ir.Model) -> None:
    (mask,) = [node for node in model.graph if node.op_type == "Where"]
    mask.replace_input_with(2, mask.inputs[1])


def shift_positions(model: ir.Model) -> None:
    lookup = _lookup(model, "position")
    one = ir.Value(name="one", const_value=ir.tensor(np.array(1), name="one"))
    model.graph.register_initializer(one)
    shifted = ir.Node("", "Add", [lookup.inputs[1], one])
    model.graph.insert_before(lookup, shifted)
    lookup.replace_input_with(1, shifted.outputs[0])


def approximate_gelu(model: ir.Model) -> None:
    for node in model.graph:
        if node.op_type == "Gelu":
            node.attributes.add(ir.AttrString("approximate", "tanh"))


def swap_token_types(model: ir.Model) -> None:
    table = _lookup(model, "token_type").inputs[0]
    assert table is not None
    assert table.const_value is not None
    table.const_value = ir.tensor(np.ascontiguousarray(table.const_value.numpy()[::-1]), name=table.name)


def _lookup(model: ir.Model, kind: str) -> ir.Node:
    name = f"embeddings.{kind}_embeddings.weight"
    return next(
        node for node in model.graph if node.inputs and node.inputs[0] and node.inputs[0].name == name
    )


def nothing(model: ir.Model) -> None:
    """The control: the graph as it is."""


# What is planted into the graph, and what is misread of the description.
DEFECTS: dict[str, tuple[Callable[[ir.Model], None], dict[str, Any]]] = {
    "no_mask": (drop_mask, {}),
    "other_positions": (shift_positions, {}),
    "approximate_gelu": (approximate_gelu, {}),
    "other_token_types": (swap_token_types, {}),
    "cls_pooling": (nothing, {"stages": (Pooling((PoolingMode.CLS,)), Normalize())}),
    "no_normalization": (nothing, {"stages": (Pooling((PoolingMode.MEAN,)),)}),
}


def check_planted(description: ModelDescription, plant: Callable[[ir.Model], None], reference: Any) -> None:
    texts = [*short_texts(SEED, 12), *hard_texts()[:6]]
    model = build_graph(description)
    plant(model)
    session = GraphSession(model, normalizes=description.normalizes_output)
    expected = reference.encode(texts, normalize_embeddings=True)
    assert_same_rows(session.run, Tokenizer.load(description).encode(texts), expected, seed=SEED)


def test_the_sound_graph_passes(description: ModelDescription, reference: Any) -> None:
    check_planted(description, nothing, reference)


@pytest.mark.parametrize("name", in_part(DEFECTS, "approximate_gelu", "cls_pooling"))
def test_a_defect_is_noticed(name: str, description: ModelDescription, reference: Any) -> None:
    plant, misread = DEFECTS[name]
    with pytest.raises(AssertionError, match="is off by"):
        check_planted(dataclasses.replace(description, **misread), plant, reference)
