"""Attention in blocks computes what transformers' classes compute, at the borders of blocks and windows."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from support.families import TinyFamily, random_sequences, save_tiny_family
from support.graph_session import GraphSession
from vecmill.architectures.registry import find_graph_class, read_encoder
from vecmill.graphs import softmax_attention
from vecmill.graphs.batch_layout import RaggedLayout
from vecmill.graphs.ops import Ops
from vecmill.models.description import LONG_TEXT_TOKENS
from vecmill.models.weights import Weights
from vecmill.values.batch import Batch, TokenSequence

TOLERANCE = 1e-4
VOCABULARY = 60
POSITIONS = 2048
WINDOW = 100
JITTER = 0.15  # deep sums over long texts must not drown the differences that the test looks for
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": POSITIONS,
}
JINA: dict[str, Any] = {
    **SIZES,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "alibi",
    "feed_forward_type": "geglu",
}
GROUPED: dict[str, Any] = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
MIXED: dict[str, Any] = {"layer_types": ["sliding_attention", "full_attention"]}
CASES: Mapping[str, tuple[str, dict[str, Any]]] = MappingProxyType(
    {
        "modernbert": (
            "ModernBertModel",
            SIZES
            | MIXED
            | {"local_attention": WINDOW, "pad_token_id": 0}
            | dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 1),
        ),
        "xlm_roberta": ("XLMRobertaModel", SIZES | {"type_vocab_size": 1, "max_position_embeddings": 2100}),
        "nomic_bert": ("NomicBertModel", SIZES),
        "gte": ("GteModel", SIZES),
        "qwen3": ("Qwen3Model", GROUPED),
        "qwen3_bidirectional": ("Qwen3Model", GROUPED | {"is_causal": False}),
        "eurobert": ("EuroBertModel", GROUPED | {"pad_token_id": 0}),
        "jina_embeddings_v3": ("JinaEmbeddingsV3Model", SIZES),
        "mistral": ("MistralModel", GROUPED | {"sliding_window": WINDOW}),
        "mistral_wide_window": ("MistralModel", GROUPED | {"sliding_window": 700}),
        "gemma3": ("Gemma3TextModel", GROUPED | MIXED | {"sliding_window": WINDOW}),
        "gemma3_bidirectional": (
            "Gemma3TextModel",
            GROUPED | MIXED | {"sliding_window": WINDOW, "use_bidirectional_attention": True},
        ),
        "t5": (
            "T5EncoderModel",
            {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        ),
        "mpnet": ("MPNetModel", SIZES | {"max_position_embeddings": 2100}),
        "jina_bert": ("ReferenceJinaBertModel", JINA),
        "jina_bert_code": ("ReferenceJinaBertCodeModel", JINA | {"num_attention_heads": 2}),
        "deberta": (
            "DebertaV2Model",
            SIZES
            | {
                "position_buckets": 64,
                "max_relative_positions": -1,
                "relative_attention": True,
                "norm_rel_ebd": "layer_norm",
                "share_att_key": True,
                "pos_att_type": "p2c|c2p",
                "position_biased_input": False,
                "type_vocab_size": 0,
            },
        ),
    }
)
# One block takes up to 512 queries, or as many as the window has tokens.
LENGTHS = (LONG_TEXT_TOKENS, LONG_TEXT_TOKENS + 1, 600, 601, 1024, 1025)


def open_graph(tiny: TinyFamily, *, has_flash: bool = False) -> GraphSession:
    """A session of the graph with attention in blocks, whose rows are the hidden states of all tokens."""
    op = Ops(runtime_operators=("RotaryEmbedding", "MultiHeadAttention") if has_flash else ())
    encoder = read_encoder(tiny.config, "config.json")
    graph_class = find_graph_class(encoder)
    layout = RaggedLayout(op, has_long=True)
    hidden = graph_class(op, layout, encoder, Weights.open(tiny.weights_file)).encode()
    return GraphSession(op.model(hidden, "rows", ["rows", encoder.hidden_size]), tiny.weights_file.parent)


def reference_rows(tiny: TinyFamily, sequence: TokenSequence) -> Any:
    import torch

    with torch.no_grad():
        ids = torch.from_numpy(sequence.token_ids)[None]
        return tiny.reference(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].numpy()


def save_case(name: str, folder: Path) -> TinyFamily:
    class_name, settings = CASES[name]
    return save_tiny_family(folder, class_name, jitter=JITTER, **settings)


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("has_flash", [False, True], ids=["blocks", "flash"])
@pytest.mark.parametrize("name", CASES)
def test_hidden_states_of_long_texts_are_those_of_the_class(
    name: str, has_flash: bool, tmp_path: Path
) -> None:
    tiny = save_case(name, tmp_path)
    session = open_graph(tiny, has_flash=has_flash)
    for sequence in random_sequences(LENGTHS, vocab_size=VOCABULARY):
        found = session.run(Batch.of([sequence])).values
        difference = float(np.abs(found - reference_rows(tiny, sequence)).max())
        assert difference <= TOLERANCE, f"{len(sequence)} tokens are off by {difference:.2e}"


@pytest.mark.promise("bounded-memory", "reference-embeddings")
@pytest.mark.parametrize("name", ["modernbert", "qwen3", "mistral_wide_window", "t5", "jina_bert", "deberta"])
def test_small_blocks_give_the_same_hidden_states(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = save_case(name, tmp_path)
    sequences = random_sequences((513, 543, 544, 545, 777), vocab_size=VOCABULARY)
    expected = [open_graph(tiny).run(Batch.of([sequence])).values for sequence in sequences]
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
    assert np.array_equal(found, GraphSession(build_family(tiny), tmp_path).run(batch).values)
