"""Attention in blocks computes what transformers' classes compute, at the borders of blocks and windows."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from architectures.long_families import CASES, VOCABULARY, WINDOW
from support.families import TinyFamily, random_sequences, save_tiny_family
from support.graph_session import GraphSession
from support.scales import in_part, in_turns
from vecmill.architectures.registry import find_graph_class, read_encoder
from vecmill.graphs import softmax_attention
from vecmill.graphs.batch_layout import LayoutOptions, RaggedLayout
from vecmill.graphs.ops import Ops
from vecmill.models.description import LONG_TEXT_TOKENS
from vecmill.models.weights import Weights
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.batch import Batch, TokenSequence

TOLERANCE = 1e-4
JITTER = 0.15  # deep sums over long texts must not drown the differences that the test looks for
# One block takes up to 512 queries, or as many as the window has tokens.
LENGTHS = (LONG_TEXT_TOKENS + 1, 1025)
ALL_LENGTHS = (LONG_TEXT_TOKENS, LONG_TEXT_TOKENS + 1, 600, 601, 1024, 1025)
# What is recorded of a long text: the tokens around the borders of blocks and windows, and some between.
BORDER, SOME = 2, 48


Places = Callable[[int], IntArray]


def open_graph(tiny: TinyFamily, *, has_flash: bool = False) -> GraphSession:
    """A session of the graph with attention in blocks, whose rows are the hidden states of all tokens."""
    op = Ops(runtime_operators=("RotaryEmbedding", "MultiHeadAttention") if has_flash else ())
    encoder = read_encoder(tiny.config, "config.json")
    graph_class = find_graph_class(encoder)
    layout = RaggedLayout(op, LayoutOptions(has_long=True))
    hidden = graph_class(op, layout, encoder, Weights.open(tiny.weights_file).tied(encoder.ties)).encode()
    return GraphSession(op.model(hidden, "rows", ["rows", encoder.hidden_size]))


def compared_tokens(length: int) -> IntArray:
    """The places of the tokens that are recorded."""
    borders = [0, length, *range(0, length, WINDOW), *range(0, length, LONG_TEXT_TOKENS)]
    near = [place for border in borders for place in range(border - BORDER, border + BORDER + 1)]
    some = np.random.default_rng(length).integers(0, length, SOME)
    return np.unique([place for place in (*near, *some) if 0 <= place < length])


def reference_rows(tiny: TinyFamily, sequence: TokenSequence, places: IntArray) -> FloatArray:
    rows: FloatArray = tiny.reference.ask(
        ["long", sequence.token_ids, places], lambda model: compute_rows(model, sequence)[places]
    )
    return rows


def compute_rows(model: Any, sequence: TokenSequence) -> FloatArray:
    import torch

    with torch.no_grad():
        ids = torch.from_numpy(sequence.token_ids)[None]
        rows: FloatArray = (
            model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].numpy()
        )
    return rows


def save_case(name: str, folder: Path) -> TinyFamily:
    class_name, settings = CASES[name]
    return save_tiny_family(folder, class_name, jitter=JITTER, **settings)


def check_long_texts(tiny: TinyFamily, lengths: Sequence[int], *, has_flash: bool, places: Places) -> None:
    session = open_graph(tiny, has_flash=has_flash)
    for sequence in random_sequences(lengths, vocab_size=VOCABULARY):
        compared = places(len(sequence))
        found = session.run(Batch.of([sequence])).values[compared]
        difference = float(np.abs(found - reference_rows(tiny, sequence, compared)).max())
        assert difference <= TOLERANCE, f"{len(sequence)} tokens are off by {difference:.2e}"


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize(("name", "has_flash"), in_turns(CASES, [False, True]))
def test_hidden_states_of_long_texts_are_those_of_the_class(
    name: str, has_flash: bool, tmp_path: Path
) -> None:
    check_long_texts(save_case(name, tmp_path), LENGTHS, has_flash=has_flash, places=compared_tokens)


@pytest.mark.full
@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("has_flash", [False, True], ids=["blocks", "flash"])
@pytest.mark.parametrize("name", CASES)
def test_all_hidden_states_of_texts_of_more_lengths_are_those_of_the_class(
    name: str, has_flash: bool, tmp_path: Path
) -> None:
    check_long_texts(save_case(name, tmp_path), ALL_LENGTHS, has_flash=has_flash, places=np.arange)


@pytest.mark.promise("bounded-memory", "reference-embeddings")
@pytest.mark.parametrize(
    "name",
    in_part(
        ("modernbert", "qwen3", "mistral_wide_window", "t5", "jina_bert", "deberta"),
        *("modernbert", "mistral_wide_window", "t5", "deberta"),
    ),
)
def test_small_blocks_give_the_same_hidden_states(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = save_case(name, tmp_path)
    sequences = random_sequences((513, 543, 544, 545, 777), vocab_size=VOCABULARY)
    session = open_graph(tiny)
    expected = [session.run(Batch.of([sequence])).values for sequence in sequences]
    monkeypatch.setattr(softmax_attention, "SCORE_BYTES", 2**19)
    session = open_graph(tiny)
    for sequence, rows in zip(sequences, expected, strict=True):
        assert np.abs(session.run(Batch.of([sequence])).values - rows).max() <= TOLERANCE / 10


@pytest.mark.parametrize("name", ["modernbert", "qwen3"])
def test_short_texts_are_computed_as_without_blocks(name: str, tmp_path: Path) -> None:
    from support.families import build_family

    tiny = save_case(name, tmp_path)
    batch = Batch.of(random_sequences((1, 7, 130, LONG_TEXT_TOKENS), vocab_size=VOCABULARY))
    found = open_graph(tiny).run(batch).values
    assert np.array_equal(found, GraphSession(build_family(tiny)).run(batch).values)
