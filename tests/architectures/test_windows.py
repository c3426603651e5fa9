"""What a token gets from layers with sliding windows depends on its own text alone, whatever it is beside.

Every hidden state that leaves the graph is compared, of texts of which all tokens are attended to, and of
queries whose last tokens are not. Some of these are farther from the last token that is attended to than the
window reaches. They attend to nothing, and the class computes 0 for them.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from support.families import TinyFamily, save_tiny_family
from support.graph_session import open_graph
from support.rows_check import TOLERANCE, batch_plans
from support.scales import in_part, in_turns
from support.window_families import EAGER, FAMILIES, WINDOW
from vecmill.architectures.registry import find_graph_class, read_encoder
from vecmill.graphs.batch_layout import IndexedLayout, LayoutOptions, RaggedLayout
from vecmill.graphs.ops import Ops
from vecmill.graphs.shared_layout import SharedLayout
from vecmill.models.description import LONG_TEXT_TOKENS
from vecmill.models.weights import Weights
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.positions import BatchShape, Positions, index_batch

VOCABULARY = 60
EXPANDED = 32
MOST_UNSEEN = EXPANDED - 1
JITTER = 0.2
NAMES = [*FAMILIES, *EAGER]
BOTH_WAYS = ("modernbert", "mistral_both_ways", "qwen2_both_ways", "gemma3_both_ways")
# Prefixes are shared where tokens attend to earlier ones alone.
LAYOUTS = [
    (name, layout)
    for name in NAMES
    for layout in (RaggedLayout, IndexedLayout, *([] if name in BOTH_WAYS else [SharedLayout]))
]
ROUNDED = {"positions": 16, "texts": 4, "longest": 8}  # as for a runtime that compiles for each shape


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """A session of the graph of a tiny model, whose rows are the hidden states of all tokens."""

    session: Any
    inputs: tuple[str, ...]
    is_shared: bool

    @classmethod
    def of(cls, tiny: TinyFamily, layout_class: Any, **layout: Any) -> "HiddenStates":
        op = Ops(runtime_operators=layout.pop("runtime_operators", ()))
        encoder = read_encoder(tiny.config, "config.json")
        built = layout_class(op, LayoutOptions(**layout))
        graph = find_graph_class(encoder)(op, built, encoder, Weights.open(tiny.weights_file))
        session = open_graph(op.model(graph.encode(), "rows", ["rows", encoder.output_size]))
        names = tuple(value.name for value in session.get_inputs())
        return cls(session, names, layout_class is SharedLayout)

    def compute(self, sequences: Sequence[TokenSequence]) -> list[FloatArray]:
        """The hidden states of each text, (tokens, width)."""
        batch = Batch.of(sequences)
        positions = Positions.of(batch, shares_prefixes=self.is_shared)
        if "offsets" in self.inputs:
            feed: Mapping[str, Any] = {name: getattr(batch, name) for name in self.inputs}
        else:
            feed = index_batch(
                batch, positions, BatchShape.of(batch, positions).rounded(**ROUNDED), self.inputs
            )
        (rows,) = self.session.run(None, dict(feed))
        return np.split(rows[positions.of_tokens], batch.offsets[1:-1])


def draw_texts(seed: int, count: int, *, expanded: bool) -> list[TokenSequence]:
    """Texts of up to 40 tokens; with `expanded` every other one is a query, whose expansion is unseen."""
    chance = random.Random(seed)
    texts = []
    for number in range(count):
        seen = chance.choice((1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, chance.randint(1, 40)))
        unseen = max(0, EXPANDED - seen) if expanded and number % 2 else 0
        ids = [chance.randrange(1, VOCABULARY) for _ in range(seen)] + [7] * unseen
        texts.append(TokenSequence.of(ids, unseen=unseen))
    return texts


def compute_alone(tiny: TinyFamily, texts: Sequence[TokenSequence]) -> list[FloatArray]:
    """The hidden states of each text, as the class computes them without padding: (tokens, width)."""
    rows: list[FloatArray] = tiny.reference.ask(
        ["unseen", *([text.token_ids, text.unseen] for text in texts)],
        lambda model: [_compute_alone(model, text) for text in texts],
    )
    return rows


def _compute_alone(model: Any, sequence: TokenSequence) -> FloatArray:
    import torch

    ids = torch.from_numpy(sequence.token_ids)[None]
    seen = torch.ones_like(ids)
    seen[:, len(sequence) - sequence.unseen :] = 0
    with torch.no_grad():
        hidden: FloatArray = model(input_ids=ids, attention_mask=seen).last_hidden_state[0].numpy()
    return hidden


def save_family(name: str, folder: Path) -> TinyFamily:
    class_name, settings = {**FAMILIES, **EAGER}[name]
    tiny = save_tiny_family(folder, class_name, jitter=JITTER, **settings, vocab_size=VOCABULARY)
    return replace(tiny, reference=tiny.reference.part("sdpa", use_default)) if name in FAMILIES else tiny


def use_default(model: Any) -> Any:
    model.set_attn_implementation("sdpa")
    return model


def check(tiny: TinyFamily, states: HiddenStates, texts: list[TokenSequence], seed: int) -> None:
    expected = compute_alone(tiny, texts)
    alone = [states.compute([text])[0] for text in texts]
    assert all(np.abs(found - its).max() <= TOLERANCE for found, its in zip(alone, expected, strict=True))
    plans = batch_plans([len(text) for text in texts], seed)
    for plan in (plans["random"], plans["sorted"]):
        for members in plan:
            for index, found in zip(members, states.compute([texts[it] for it in members]), strict=True):
                text = f"text {index} of {len(texts[index])} tokens, {texts[index].unseen} unseen"
                assert np.abs(found - expected[index]).max() <= TOLERANCE, text
                assert np.abs(found - alone[index]).max() <= TOLERANCE / 10, text


@pytest.mark.promise("reference-embeddings", "same-in-any-batch")
@pytest.mark.parametrize(("name", "layout"), in_turns(FAMILIES, [RaggedLayout, IndexedLayout]))
def test_unseen_tokens_beyond_a_window_get_the_class_s_states(name: str, layout: Any, tmp_path: Path) -> None:
    tiny, seed = save_family(name, tmp_path), NAMES.index(name)
    texts = draw_texts(seed, 12, expanded=True)
    check(tiny, HiddenStates.of(tiny, layout, most_unseen=MOST_UNSEEN), texts, seed)


@pytest.mark.promise("reference-embeddings", "same-in-any-batch")
@pytest.mark.parametrize(("name", "layout"), in_part(LAYOUTS, *LAYOUTS[::2]))
def test_texts_longer_than_a_window_get_the_class_s_states(name: str, layout: Any, tmp_path: Path) -> None:
    tiny, seed = save_family(name, tmp_path), NAMES.index(name)
    texts = draw_texts(seed, 8, expanded=False)
    shared = [
        TokenSequence.of([*texts[-1].token_ids[:12].tolist(), *text.token_ids.tolist()]) for text in texts
    ]
    assert read_encoder(tiny.config, "config.json").is_causal is (name not in BOTH_WAYS)
    check(tiny, HiddenStates.of(tiny, layout), [*texts, *shared], seed)


@pytest.mark.promise("reference-embeddings", "same-in-any-batch")
@pytest.mark.parametrize("has_flash", [False, True], ids=["blocks", "flash"])
@pytest.mark.parametrize("name", ["modernbert", "mistral", "gemma3_both_ways"])
def test_long_expansions_in_blocks_get_the_class_s_states(name: str, has_flash: bool, tmp_path: Path) -> None:
    tiny = save_family(name, tmp_path)
    runtime_operators = ("RotaryEmbedding", "MultiHeadAttention") if has_flash else ()
    states = HiddenStates.of(
        tiny,
        RaggedLayout,
        most_unseen=2 * LONG_TEXT_TOKENS,
        has_long=True,
        runtime_operators=runtime_operators,
    )
    chance = random.Random(0)
    for seen in (1, 12, 300, LONG_TEXT_TOKENS + 40):
        length = LONG_TEXT_TOKENS + 100
        ids = [chance.randrange(1, VOCABULARY) for _ in range(length)]
        text = TokenSequence.of(ids, unseen=length - seen)
        (found,), (expected,) = states.compute([text]), compute_alone(tiny, [text])
        assert np.abs(found - expected).max() <= TOLERANCE, f"{seen} tokens are attended to"


@pytest.mark.parametrize("most_unseen", [None, 0, WINDOW])
def test_a_graph_without_such_tokens_is_as_it_was(most_unseen: int | None, tmp_path: Path) -> None:
    encoder = read_encoder(save_family("modernbert", tmp_path).config, "config.json")

    def count_nodes(unseen: int | None) -> int:
        op = Ops()
        layout = RaggedLayout(op, LayoutOptions(most_unseen=unseen))
        weights = Weights.open(tmp_path / "model.safetensors")
        hidden = find_graph_class(encoder)(op, layout, encoder, weights).encode()
        model: ir.Model = op.model(hidden, "rows", ["rows", encoder.output_size])
        return sum(1 for _ in model.graph)

    assert count_nodes(most_unseen) < count_nodes(WINDOW + 1)
    # The mask of the padding and the key bias are of `seen_lengths` instead of `lengths`: one comparison.
    assert count_nodes(most_unseen) - count_nodes(None) == (0 if most_unseen is None else 2)
