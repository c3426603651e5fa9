"""Qwen2 and Qwen3: causal, grouped queries, rotary positions; their heads, and chosen tokens alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.families import TinyFamily, assert_agrees, random_sequences, reference_rows, save_tiny_family
from support.graph_session import GraphSession
from support.scales import in_part
from vecmill.architectures.decoder_graph import Decoder
from vecmill.architectures.registry import read_encoder
from vecmill.graphs.batch_layout import RaggedLayout
from vecmill.graphs.ops import Ops
from vecmill.models.heads import HeadKind
from vecmill.models.weights import Weights
from vecmill.values.batch import Batch, TokenSequence

VOCABULARY = 60
PADDING = 0
WINDOW = 5
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
QWEN3: dict[str, Any] = {**SIZES, "head_dim": 16}
SLIDING: dict[str, Any] = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("Qwen3Model", QWEN3),
    "qwen3_biases": ("Qwen3Model", {**QWEN3, "attention_bias": True}),
    "qwen3_both_directions": ("Qwen3Model", {**QWEN3, "is_causal": False}),
    "qwen3_window": ("Qwen3Model", {**QWEN3, **SLIDING}),
    "qwen3_window_both_directions": ("Qwen3Model", {**QWEN3, **SLIDING, "is_causal": False}),
    "qwen3_window_not_used": ("Qwen3Model", {**QWEN3, **SLIDING, "use_sliding_window": False}),
    "qwen3_one_key_head": ("Qwen3Model", {**QWEN3, "num_key_value_heads": 1}),
    "qwen3_own_key_heads": ("Qwen3Model", {**QWEN3, "num_key_value_heads": 4}),
    "qwen3_linear_scaling": (
        "Qwen3Model",
        {**QWEN3, "rope_scaling": {"rope_type": "linear", "factor": 2.5, "rope_theta": 5000.0}},
    ),
    "qwen2": ("Qwen2Model", SIZES),
    "qwen2_window": ("Qwen2Model", {**SIZES, **SLIDING}),
    "qwen2_both_directions": ("Qwen2Model", {**SIZES, "is_causal": False}),
}

DEFECTS: dict[str, Any] = {
    "causal_mask_dropped": lambda tiny: tiny.with_config(is_causal=False),
    "window_dropped": lambda tiny: tiny.with_config(use_sliding_window=False, layer_types=None),
    "window_too_wide": lambda tiny: tiny.with_config(sliding_window=WINDOW + 1),
    "window_too_narrow": lambda tiny: tiny.with_config(sliding_window=WINDOW - 1),
    "window_from_another_layer": lambda tiny: tiny.with_config(max_window_layers=2, layer_types=None),
    "positions_stretched": lambda tiny: tiny.with_config(
        rope_parameters={"rope_type": "linear", "factor": 1.1}
    ),
    "other_theta": lambda tiny: tiny.with_config(rope_parameters={"rope_theta": 20_000.0}),
    "other_activation": lambda tiny: tiny.with_config(hidden_act="gelu"),
    "other_epsilon": lambda tiny: tiny.with_config(rms_norm_eps=0.01),
    "key_heads_swapped": lambda tiny: tiny.with_tensor("k_proj.weight", lambda x: np.roll(x, 16, axis=0)),
    "query_norm_dropped": lambda tiny: tiny.with_tensor("q_norm.weight", np.ones_like),
    "key_norm_dropped": lambda tiny: tiny.with_tensor("k_norm.weight", np.ones_like),
    "gate_of_another_sign": lambda tiny: tiny.with_tensor("gate_proj.weight", np.negative),
}


def sequences() -> list[TokenSequence]:
    """Shorter and longer than the window, some with padding tokens, also at their ends."""
    chosen = random_sequences((1, 2, 4, 5, 6, 7, 19, 40), vocab_size=VOCABULARY, often=[PADDING])
    padded = [TokenSequence.of([7, 3, 9, PADDING, PADDING]), TokenSequence.of([PADDING] * 3)]
    return [*chosen, *padded]


@pytest.mark.parametrize("name", VARIANTS)
def test_hidden_states_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    class_name, settings = VARIANTS[name]
    assert_agrees(save_tiny_family(tmp_path, class_name, **settings), sequences())


@pytest.mark.parametrize("name", in_part(DEFECTS, "window_from_another_layer", "key_norm_dropped"))
def test_planted_defects_are_found(name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "Qwen3Model", **QWEN3, **SLIDING)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(DEFECTS[name](tiny), sequences())


@pytest.mark.parametrize("class_name", ["Qwen3ForSequenceClassification", "Qwen2ForSequenceClassification"])
def test_texts_are_classified_at_their_last_token_that_is_no_padding(class_name: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, class_name, **QWEN3, num_labels=3, pad_token_id=PADDING)
    assert_agrees(tiny, sequences(), HeadKind.SEQUENCE, labels=3)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny.with_config(pad_token_id=None), sequences(), HeadKind.SEQUENCE, labels=3)


def test_texts_are_classified_without_a_padding_token(tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "Qwen3ForSequenceClassification", **QWEN3, num_labels=2)
    assert_agrees(tiny, sequences(), HeadKind.SEQUENCE, labels=2)


def test_tokens_are_classified(tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "Qwen3ForTokenClassification", **QWEN3, num_labels=5)
    assert_agrees(tiny, sequences(), HeadKind.TOKENS, labels=5)


@pytest.mark.parametrize("tied", [True, False])
def test_the_language_model_predicts_as_the_class(tied: bool, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "Qwen3ForCausalLM", **QWEN3, tie_word_embeddings=tied)
    assert_agrees(tiny, sequences(), HeadKind.VOCABULARY)


def chosen_logits(tiny: TinyFamily, token_ids: tuple[int, ...]) -> tuple[GraphSession, set[str]]:
    """A session that gives the logits of `token_ids` after each text, and the tensors that it needs."""
    op = Ops()
    layout = RaggedLayout(op)
    config = read_encoder(tiny.config, "config.json")
    weights = Weights.open(tiny.weights_file).tied(config.ties)
    family = Decoder(op, layout, config, weights)  # type: ignore[arg-type]
    last = layout.token_at(family.encode(), op.Sub(layout.lengths, op.constant([1])))
    model = op.model(family.predict_chosen(last, token_ids), "rows", ["texts", len(token_ids)])
    return GraphSession(model), set(model.graph.initializers)


@pytest.mark.parametrize("tied", [True, False])
def test_chosen_tokens_alone_are_predicted_for_yes_and_no(tied: bool, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "Qwen3ForCausalLM", **QWEN3, tie_word_embeddings=tied)
    token_ids = (41, 3)
    session, tensors = chosen_logits(tiny, token_ids)
    assert "lm_head.weight" not in tensors
    found = session.run(Batch.of(sequences())).values
    expected = [rows[-1, list(token_ids)] for rows in reference_rows(tiny.reference, sequences())]
    np.testing.assert_allclose(found, np.stack(expected), atol=1e-4, rtol=0)
