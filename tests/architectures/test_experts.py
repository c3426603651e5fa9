"""NomicBERT with experts: each token passes through its own experts, whoever shares its batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from support.families import TinyFamily, assert_agrees, build_family, random_sequences, save_tiny_family
from support.graph_session import GraphSession
from support.scales import in_part
from vecmill.architectures import rotary_bert_graph
from vecmill.graphs.experts import Chosen, choose_experts
from vecmill.graphs.ops import Ops
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence

VOCABULARY = 60
EXPERTS = 8
COMPANY = 1e-6  # of outputs with a standard deviation of about 1
SIZES: Mapping[str, Any] = MappingProxyType(
    {
        "vocab_size": VOCABULARY,
        "type_vocab_size": 1,
        "n_embd": 32,
        "n_inner": 48,
        "n_layer": 4,
        "n_head": 4,
        "n_positions": 2048,
        "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu",
        "qkv_proj_bias": True,
        "mlp_fc1_bias": True,
        "mlp_fc2_bias": True,
        "rotary_emb_base": 10_000,
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
        "num_experts": EXPERTS,
        "num_shared_experts": 0,
        "moe_top_k": 2,
        "moe_every_n_layers": 2,
        "moe_normalize_expert_weights": False,
        "expert_choice_router": False,
        "ffn_div": 1,
    }
)
SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "published": {},
        "one_of_three": {"num_experts": 3, "moe_top_k": 1},
        "all": {"num_experts": 4, "moe_top_k": 4},
        "one": {"num_experts": 1, "moe_top_k": 1},
        "every_third_layer": {"moe_every_n_layers": 3},
        "without_biases": {"qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False},
        "without_experts": {"num_experts": 0, "moe_every_n_layers": 0},
        "two_token_types": {"type_vocab_size": 2},
    }
)


def save_mixture(folder: Path, **settings: Any) -> TinyFamily:
    return save_tiny_family(folder, "ReferenceNomicMixtureModel", **{**SIZES, **settings})


def sequences(token_types: int = 1) -> list[TokenSequence]:
    lengths = (1, 1, 2, 3, 8, 20, 41)
    return random_sequences(lengths, vocab_size=VOCABULARY, token_types=token_types, often=[0, 1])


def next_expert(matrix: FloatArray) -> FloatArray:
    """The rows of each expert, given to the next."""
    return np.roll(matrix, len(matrix) // EXPERTS, axis=0)


def turn_experts(matrix: FloatArray) -> FloatArray:
    """The rows of each expert, as if they were stored by columns."""
    return np.concatenate([part.reshape(part.shape[::-1]).T for part in np.split(matrix, EXPERTS)])


DEFECTS: Mapping[str, Callable[[TinyFamily], TinyFamily]] = MappingProxyType(
    {
        "fewer_chosen": lambda tiny: tiny.with_config(moe_top_k=1),
        "more_chosen": lambda tiny: tiny.with_config(moe_top_k=3),
        "other_experts": lambda tiny: tiny.with_tensor("router.layer.weight", next_expert),
        "first_matrices_exchanged": lambda tiny: tiny.with_tensor("mlp.w1", next_expert),
        "second_matrices_exchanged": lambda tiny: tiny.with_tensor("mlp.w2", next_expert),
        "second_matrices_turned": lambda tiny: tiny.with_tensor("mlp.w2", turn_experts),
        "no_shared_bias": lambda tiny: tiny.with_tensor("experts.bias", np.zeros_like),
        "no_bias_of_attention": lambda tiny: tiny.with_config(qkv_proj_bias=False),
        "no_first_bias": lambda tiny: tiny.with_config(mlp_fc1_bias=False),
        "no_second_bias": lambda tiny: tiny.with_config(mlp_fc2_bias=False),
        "other_positions": lambda tiny: tiny.with_config(rotary_emb_base=5000),
        "other_epsilon": lambda tiny: tiny.with_config(layer_norm_epsilon=0.01),
    }
)


@pytest.mark.parametrize("name", SETTINGS)
def test_hidden_states_are_those_of_the_formulas(name: str, tmp_path: Path) -> None:
    settings = SETTINGS[name]
    assert_agrees(save_mixture(tmp_path, **settings), sequences(settings.get("type_vocab_size", 1)))


@pytest.mark.parametrize("name", in_part(DEFECTS, "fewer_chosen", "no_second_bias", "other_epsilon"))
def test_planted_defects_are_found(name: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(DEFECTS[name](save_mixture(tmp_path)), sequences())


def test_shares_that_add_up_to_one_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scale_shares(op: Ops, shares: ir.Value, count: int, experts: int) -> list[Chosen]:
        chosen = choose_experts(op, shares, count, experts)
        total = op.Add(chosen[0].share, chosen[1].share)
        return [replace(one, share=op.Div(one.share, total)) for one in chosen]

    tiny = save_mixture(tmp_path)
    monkeypatch.setattr(rotary_bert_graph, "choose_experts", scale_shares)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny, sequences())


@pytest.mark.promise("same-in-any-batch")
def test_a_text_is_the_same_alone_and_in_random_company(tmp_path: Path) -> None:
    session = GraphSession(build_family(save_mixture(tmp_path)))
    texts, others = sequences(), random_sequences(range(1, 30), vocab_size=VOCABULARY, seed=1)
    together = split_texts(session.run(Batch.of([*texts, *others])).values, [*texts, *others])
    for text, found in zip(texts, together, strict=False):
        assert np.abs(session.run(Batch.of([text])).values - found).max() <= COMPANY * found.std()


def test_nan_stays_in_its_text(tmp_path: Path) -> None:
    """The router of a broken token chooses, but no other token passes through its rows."""

    def break_token(table: FloatArray) -> FloatArray:
        return np.where(np.arange(VOCABULARY)[:, None] == 7, np.float32(np.nan), table)

    tiny = save_mixture(tmp_path)
    whole = [TokenSequence.of([1, 2, 3, 4]), TokenSequence.of([5, 6])]
    broken = TokenSequence.of([3, 7, 4])
    session = GraphSession(build_family(tiny.with_tensor("word_embeddings.weight", break_token)))
    found = split_texts(
        session.run(Batch.of([whole[0], broken, whole[1]])).values, [whole[0], broken, whole[1]]
    )
    assert np.isnan(found[1]).all()
    for text, rows in zip(whole, (found[0], found[2]), strict=True):
        assert np.abs(tiny.compute([text]) - rows).max() <= COMPANY * rows.std()


def split_texts(rows: FloatArray, texts: Sequence[TokenSequence]) -> list[FloatArray]:
    return np.split(rows, np.cumsum([len(text) for text in texts])[:-1])
