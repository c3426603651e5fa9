"""The last layer computes the tokens that are read of it, and gives the same for them as among all tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from architectures.long_families import CASES, VOCABULARY
from support.families import TinyFamily, random_sequences, save_tiny_family
from support.graph_session import GraphSession
from support.scales import in_turns
from vecmill.architectures.registry import find_graph_class, read_encoder
from vecmill.graphs.batch_layout import LayoutOptions, RaggedLayout
from vecmill.graphs.ops import GraphOutput, Ops
from vecmill.models.weights import Weights
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Output

TOLERANCE = 1e-5
JITTER = 0.15
# Of weights whose sums are not far from the tolerance by themselves.
SEEDS = {"embedding_gemma2": 4}
OPERATORS = ("RotaryEmbedding", "MultiHeadAttention")
BATCHES = ((1,), (2, 9, 1, 30), (530,))  # tokens of the texts; longer ones are alone
ALL_TOKENS = (
    "t5",
    "umt5",
    "mpnet",
    "jina_bert",
    "jina_bert_code",
    "deberta",
    "jina_embeddings_v3",
)

READING = [name for name in CASES if name not in ALL_TOKENS]


def open_graph(tiny: TinyFamily, slot: str, operators: Sequence[str]) -> GraphSession:
    """A session whose `rows` are the tokens of the texts in the first or last slot."""
    op = Ops(runtime_operators=operators)
    encoder = read_encoder(tiny.config, "config.json")
    layout = RaggedLayout(op, LayoutOptions(has_long=True))
    graph = find_graph_class(encoder)(op, layout, encoder, Weights.open(tiny.weights_file).tied(encoder.ties))
    slots = graph.first_slots() if slot == "first" else op.Sub(layout.lengths, op.constant([1]))
    wants_all = op.Greater(op.input("wants_tokens", []), op.constant(0))
    layout.last_tokens = layout.choose_last(slots, wants_all)
    hidden = graph.encode()
    rows = layout.read_at(hidden, lambda: slots)
    width = encoder.hidden_size
    model = op.finish(
        GraphOutput(rows, "rows", ("texts", width)), GraphOutput(hidden, "hidden_states", ("n", width))
    )
    return GraphSession(model)


def reference_rows(tiny: TinyFamily, sequences: Sequence[TokenSequence]) -> list[FloatArray]:
    """In float64: the rounding of another computation in float32 differs by processor."""
    rows: list[FloatArray] = tiny.reference.ask(
        ["float64", *(sequence.token_ids for sequence in sequences)],
        lambda model: [compute_rows(model.double(), sequence) for sequence in sequences],
    )
    return rows


def compute_rows(model: Any, sequence: TokenSequence) -> Any:
    import torch

    with torch.no_grad():
        ids = torch.from_numpy(sequence.token_ids)[None]
        return model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].float().numpy()


def farthest(found: FloatArray, expected: FloatArray) -> float:
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max())


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize(("name", "slot", "operators"), in_turns(READING, ("first", "last"), ((), OPERATORS)))
def test_tokens_that_are_read_are_those_of_the_class(
    name: str, slot: str, operators: Sequence[str], tmp_path: Path
) -> None:
    class_name, settings = CASES[name]
    tiny = save_tiny_family(tmp_path, class_name, seed=SEEDS.get(name, 0), jitter=JITTER, **settings)
    session = open_graph(tiny, slot, operators)
    for lengths in BATCHES:
        sequences = random_sequences(lengths, vocab_size=VOCABULARY)
        expected = reference_rows(tiny, sequences)
        read = np.stack([rows[0 if slot == "first" else -1] for rows in expected])
        few = session.outputs(Batch.of(sequences))
        assert len(few["hidden_states"]) == len(lengths)
        assert farthest(few["rows"], read) <= TOLERANCE
        asking = [sequence.asking(Output.USUAL, Output.HIDDEN_STATES) for sequence in sequences]
        every = session.outputs(Batch.of(asking))
        assert farthest(every["rows"], read) <= TOLERANCE
        assert farthest(every["hidden_states"], np.concatenate(expected)) <= TOLERANCE


@pytest.mark.parametrize("name", ALL_TOKENS)
def test_other_families_say_that_they_compute_all_tokens(name: str, tmp_path: Path) -> None:
    class_name, settings = CASES[name]
    tiny = save_tiny_family(tmp_path, class_name, jitter=JITTER, **settings)
    assert not find_graph_class(read_encoder(tiny.config, "config.json")).computes_last_tokens
