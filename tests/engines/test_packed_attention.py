"""Attention over texts side by side gives the outputs of attention with padding, for every family."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from support import own_code_models  # noqa: F401  # its classes, which the library finds by their types
from support.random_models import DRAWS, RandomModel
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.engines.torch.program import make_program
from vecmill.engines.torch.replica import IndexedProgram, ShapeRounding
from vecmill.graphs.batch_layout import IndexedLayout
from vecmill.graphs.ops import PACKED_OPERATOR
from vecmill.graphs.steps import Steps, list_steps
from vecmill.models import ModelDescription, locate_model
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.positions import BatchShape

TOLERANCE = 2e-5
CPU = torch.device("cpu")
FAMILIES = sorted(DRAWS)
# With a window, causal, causal with grouped heads, with biases of distances, and plain.
QUICK = [each for each in ("bert", "gemma3_text", "modernbert", "mpnet", "qwen3") if each in FAMILIES]
LENGTHS = (1, 40, 7, 23, 2, 64)


def steps_of(description: ModelDescription, *, is_packed: bool) -> Steps:
    operators = (PACKED_OPERATOR,) if is_packed else ()
    return list_steps(build_graph(description, IndexedLayout, runtime_operators=operators))


class SpareRounding(ShapeRounding):
    """Shapes with positions and texts that belong to nothing."""

    def round(self, shape: BatchShape) -> BatchShape:
        return replace(shape, positions=shape.positions + 5, texts=shape.texts + 3, rows=shape.rows + 3)


def program_of(description: ModelDescription, steps: Steps, rounding: ShapeRounding) -> IndexedProgram:
    program = make_program(steps, dtype=torch.float32, device=CPU)
    return IndexedProgram(
        lambda tensors: program(*tensors),
        tuple(steps.inputs),
        CPU,
        output_shape=description.output_shape,
        token_count=description.token_count,
        shares_prefixes=False,
        rounding=rounding,
    )


def draw_batch(description: ModelDescription, seed: int) -> Batch:
    chance = random.Random(seed)
    ids = range(5, min(description.token_count, 60))
    lengths = [min(length, description.max_tokens) for length in LENGTHS]
    return Batch.of([TokenSequence.of(chance.choices(ids, k=length)) for length in lengths])


@pytest.mark.parametrize(
    "family", [pytest.param(each, marks=[] if each in QUICK else pytest.mark.full) for each in FAMILIES]
)
def test_outputs_are_those_of_padded_attention(family: str, tmp_path: Path) -> None:
    seed = FAMILIES.index(family)
    model = RandomModel.draw(seed)
    model.write(tmp_path)
    model.respell(tmp_path)
    description = describe_model(locate_model(tmp_path))
    padded, packed = (steps_of(description, is_packed=is_packed) for is_packed in (False, True))
    batch = draw_batch(description, seed)
    with torch.inference_mode():
        expected = program_of(description, padded, ShapeRounding())(batch)
        found = program_of(description, packed, SpareRounding())(batch)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=TOLERANCE)


@pytest.mark.parametrize(
    "family", [each for each in QUICK if each != "mpnet"]
)  # which has biases of distances
def test_no_layer_computes_attention_by_other_operators(family: str, tmp_path: Path) -> None:
    RandomModel.draw(FAMILIES.index(family)).write(tmp_path)
    description = describe_model(locate_model(tmp_path))
    operators = [step.operator for step in steps_of(description, is_packed=True).steps]
    assert PACKED_OPERATOR in operators
    assert "Softmax" not in operators
