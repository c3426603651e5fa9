"""What is computed for a text depends on nothing but the text, of every family and every kind of output.

Each text is computed alone, and in batches of texts of other lengths, queries with expansions among them.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.agreement import CORES, installed_engines
from support.random_models import DRAWS, RandomModel
from support.texts import hard_texts, mixed_texts
from vecmill.engines import load_engine
from vecmill.engines.base import Engine
from vecmill.models import Task
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import CombinedEmbedding, Embedding, Output, SparseEmbedding
from vecmill.values.engine_plan import EnginePlan
from vecmill.vectors import dense
from vecmill.verification.model_outputs import ModelProcessor, make_check_inputs

TEXTS = ("x", *mixed_texts(11, 14), *hard_texts()[::6], "one of them " * 60)
SAME = 5e-6  # of the largest number of a text: random weights make more of what is rounded than trained ones
ROUNDS = 2

# With a window, with a window in both directions, with biases of distances of each kind, with positions that
# depend on ids, and a table.
FEW = (
    ("modernbert", Task.MULTI_VECTOR),
    ("modernbert", Task.EMBED),
    ("mistral", Task.EMBED),
    ("gemma3_text", Task.EMBED),
    ("deberta-v2", Task.CLASSIFY_TOKENS),
    ("t5", Task.EMBED),
    ("jina_bert", Task.RERANK),
    ("mpnet", Task.SPARSE),
    ("xlm-roberta", Task.CLASSIFY),
    ("static", Task.EMBED),
)
ALL = tuple((family, task) for family in DRAWS for task in (Task.EMBED, *DRAWS[family].tasks))


def draw_model(family: str, task: Task) -> RandomModel:
    """A model that does the task; a multi-vector model expands its queries, and no token attends to that."""
    families = sorted(DRAWS)
    for number in range(1, 100):
        seed = number * len(families) + families.index(family)
        model = replace(RandomModel.draw(seed), task=task)
        expansion = model.expansion
        if task is not Task.MULTI_VECTOR or (expansion is not None and not expansion["attend"]):
            return model
    raise AssertionError("no seed draws such a model")


def asked_outputs(task: Task) -> tuple[tuple[Output, ...], ...]:
    """What calls may ask for: an embedding model also gives its hidden states."""
    usual = (Output.USUAL,)
    return (
        (usual, (Output.HIDDEN_STATES,), (*usual, Output.HIDDEN_STATES)) if task is Task.EMBED else (usual,)
    )


def numbers_of(output: Embedding, width: int) -> Iterator[FloatArray]:
    """All numbers that were computed for a text, (rows, width) each."""
    if isinstance(output, CombinedEmbedding):
        for part in (output.usual, *output.others.values()):
            yield from numbers_of(part, width)
    elif isinstance(output, SparseEmbedding):
        values = np.zeros((1, width), np.float32)
        values[0, output.columns] = output.values
        yield values
    else:
        yield dense(output)


def check_company(engine: Engine, sequences: list[TokenSequence], width: int, chance: random.Random) -> None:
    def compute(members: list[int]) -> list[list[FloatArray]]:
        batch = Batch.of([sequences[member] for member in members])
        return [list(numbers_of(output, width)) for output in engine.run(batch, width=1).split()]

    alone = [compute([index])[0] for index in range(len(sequences))]
    for _ in range(ROUNDS):
        waiting = chance.sample(range(len(sequences)), len(sequences))
        while waiting:
            size = chance.randint(2, 9)
            members, waiting = waiting[:size], waiting[size:]
            for member, found in zip(members, compute(members), strict=True):
                for rows, expected in zip(found, alone[member], strict=True):
                    assert rows.shape == expected.shape
                    difference, scale = np.abs(rows - expected).max(), max(1.0, np.abs(expected).max())
                    about = f"text {member}, {len(sequences[member])} tokens, among {members}"
                    assert difference <= SAME * scale, about  # false for NaN too


def check_model(family: str, task: Task, engines: list[str], folder: Path) -> None:
    model = draw_model(family, task)
    description, _ = model.save(folder / "model", TEXTS[:2])
    processor = ModelProcessor.load(description)
    sequences = [processor.tokenize(item) for item in make_check_inputs(description, TEXTS)]
    assert any(sequence.unseen for sequence in sequences) is (task is Task.MULTI_VECTOR)
    for name in engines:
        engine = load_engine(description, EnginePlan(name), cores=CORES, cache_dir=folder / "prepared")
        try:
            for outputs in asked_outputs(task):
                asking = [sequence.asking(*outputs) for sequence in sequences]
                check_company(engine, asking, description.encoder.vocab_size, random.Random(model.seed))
        finally:
            engine.close()


@pytest.mark.promise("same-in-any-batch")
@pytest.mark.parametrize(("family", "task"), FEW)
def test_a_text_alone_is_a_text_in_company(family: str, task: Task, tmp_path: Path) -> None:
    engines = [name for name in installed_engines() if name in ("onnx", "openvino", "torch")]
    check_model(family, task, engines if task is Task.MULTI_VECTOR else ["onnx"], tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(("family", "task"), ALL)
def test_texts_of_every_family_alone_are_those_in_company(family: str, task: Task, tmp_path: Path) -> None:
    check_model(family, task, ["onnx"], tmp_path)
