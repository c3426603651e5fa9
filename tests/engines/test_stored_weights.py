"""A stored model computes what its graph computes, at the widths that people use.

How ONNX Runtime packs, folds and stores weights depends on their sizes, so tiny models prove nothing here:
these are as wide as published ones, with two layers and few words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from support.families import build_family, random_sequences, save_tiny_family
from support.graph_session import GraphSession
from vecmill.engines.onnx.preparation import store_optimized
from vecmill.engines.onnx.sessions import open_prepared, session_options
from vecmill.engines.prepared import MODEL_FILE, BuiltGraph, PreparedModel
from vecmill.engines.providers import ON_CPU
from vecmill.graphs.external_data import ALIGNMENT_BYTES, stored_offsets
from vecmill.graphs.finish import write_graph
from vecmill.models.heads import HeadKind
from vecmill.values.batch import Batch

VOCABULARY = 999
LENGTHS = (1, 2, 7, 30, 200, 31)
DEBERTA = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "relative_attention": True,
    "max_relative_positions": -1,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "type_vocab_size": 0,
}
GROUPED = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "intermediate_size": 3072,
}
GEMMA = {
    "hidden_size": 768,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "intermediate_size": 1152,
    "layer_types": ["sliding_attention", "full_attention"],
}
T5 = {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_heads": 12, "feed_forward_proj": "gated-gelu"}


@dataclass(frozen=True, slots=True)
class Wide:
    """A class of transformers, its settings but for layers and words, and the head with its labels."""

    class_name: str
    settings: Mapping[str, Any]
    head: HeadKind | None = None
    labels: int = 0


WIDE = {
    "deberta": Wide(
        "DebertaV2ForSequenceClassification", {**DEBERTA, "share_att_key": True}, HeadKind.SEQUENCE, 1
    ),
    "deberta, projections of its own": Wide("DebertaV2Model", {**DEBERTA, "share_att_key": False}),
    "deberta with a vocabulary": Wide("DebertaV2ForMaskedLM", DEBERTA, HeadKind.VOCABULARY),
    "bert": Wide("BertForSequenceClassification", {}, HeadKind.SEQUENCE, 1),
    "bert of 312": Wide(
        "BertForTokenClassification",
        {"hidden_size": 312, "intermediate_size": 1200, "num_attention_heads": 12},
        HeadKind.TOKENS,
        9,
    ),
    "mpnet": Wide("MPNetForSequenceClassification", {}, HeadKind.SEQUENCE, 3),
    "modernbert": Wide("ModernBertForSequenceClassification", {}, HeadKind.SEQUENCE, 1),
    "t5": Wide("T5ForTokenClassification", T5, HeadKind.TOKENS, 9),
    "qwen3": Wide("Qwen3ForSequenceClassification", GROUPED, HeadKind.SEQUENCE, 1),
    "gemma3": Wide("Gemma3TextForSequenceClassification", GEMMA, HeadKind.SEQUENCE, 1),
}
QUICK = ("deberta with a vocabulary", "bert of 312")


def marked(name: str) -> Any:
    return pytest.param(name, marks=() if name in QUICK else pytest.mark.full)


@pytest.mark.parametrize("name", [marked(name) for name in WIDE])
def test_stored_weights_give_the_rows_of_the_graph(name: str, tmp_path: Path) -> None:
    wide = WIDE[name]
    few = {"vocab_size": VOCABULARY, "num_hidden_layers": 2, "pad_token_id": 0}
    if wide.labels:
        few["num_labels"] = wide.labels
    tiny = save_tiny_family(tmp_path / "model", wide.class_name, **few, **wide.settings)
    model = build_family(tiny, wide.head, labels=wide.labels)
    batch = Batch.of(random_sequences(LENGTHS, vocab_size=VOCABULARY))
    write_graph(model, tmp_path / "plain.onnx")
    store_optimized(BuiltGraph(tmp_path / "plain.onnx"), tmp_path)
    stored = onnx.load(tmp_path / MODEL_FILE, load_external_data=False)
    # Before anything runs from them: what lies badly ends the process, and all tests with it.
    assert all(offset % ALIGNMENT_BYTES == 0 for offset in stored_offsets(stored))
    expected = GraphSession(model).run(batch).values
    assert np.isfinite(expected).all()
    prepared = PreparedModel(tmp_path)
    sessions = [open_prepared(prepared, ON_CPU, session_options(threads)) for threads in (1, 2)]
    for session in sessions:
        feed = {found.name: getattr(batch, found.name) for found in session.get_inputs()}
        difference = np.abs(session.run(None, feed)[0] - expected).max()
        assert difference <= 1e-5 * np.abs(expected).max()
