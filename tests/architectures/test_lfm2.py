"""LFM2: short convolutions between layers with attention, which begin anew in each text."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from support.families import TinyFamily, assert_agrees, build_family, random_sequences, save_tiny_family
from support.graph_session import GraphSession
from support.scales import in_part
from vecmill.architectures.lfm2 import Lfm2Config
from vecmill.architectures.registry import has_foreign_code, read_encoder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.graphs.batch_layout import Neighbours
from vecmill.models.heads import HeadKind
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence

VOCABULARY = 60
COMPANY = 1e-6  # of outputs with a standard deviation of about 1
SIZES: Mapping[str, Any] = MappingProxyType(
    {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
        "block_multiple_of": 8,
        "layer_types": ["conv", "full_attention", "conv", "conv"],
    }
)
VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "published": {},
        "biases": {"conv_bias": True},
        "one_tap": {"conv_L_cache": 1},
        "four_taps": {"conv_L_cache": 4, "conv_bias": True},
        "more_taps_than_tokens": {"conv_L_cache": 9},
        "by_numbers": {"layer_types": None, "full_attn_idxs": [0, 3]},
        "attention_alone": {"layer_types": None},
        "attention_last": {"layer_types": ["conv", "conv", "full_attention", "full_attention"]},
        "width_as_it_is": {"block_auto_adjust_ff_dim": False},
        "wider": {"block_ffn_dim_multiplier": 1.3},
        "scaled_positions": {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0}},
        "attention_both_ways": {"is_causal": False},
    }
)
BOTH_WAYS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {name: VARIANTS[name] for name in ("published", "biases", "four_taps", "more_taps_than_tokens")}
)
CODE: Mapping[str, Any] = MappingProxyType(
    {
        "architectures": ["Lfm2BidirectionalModel"],
        "auto_map": {"AutoModel": "modeling_lfm2_bidirectional.Lfm2BidirectionalModel"},
    }
)


def save(folder: Path, class_name: str = "Lfm2Model", **settings: Any) -> TinyFamily:
    return save_tiny_family(folder, class_name, **{**SIZES, **settings})


def save_both_ways(folder: Path, **settings: Any) -> TinyFamily:
    tiny = save(folder, "ReferenceLfm2BidirectionalModel", **settings)
    kept = {key: value for key, value in tiny.config.items() if key != "is_causal"}
    return TinyFamily(tiny.reference, {**kept, **CODE}, tiny.weights_file)


def sequences() -> list[TokenSequence]:
    """Shorter and longer than the kernels."""
    return random_sequences((1, 1, 2, 3, 4, 9, 20, 41), vocab_size=VOCABULARY)


def shift_taps(kernel: FloatArray) -> FloatArray:
    return np.roll(kernel, 1, axis=2)


DEFECTS: Mapping[str, Callable[[TinyFamily], TinyFamily]] = MappingProxyType(
    {
        "taps_shifted": lambda tiny: tiny.with_tensor("conv.conv.weight", shift_taps),
        "kernels_reversed": lambda tiny: tiny.with_tensor("conv.conv.weight", lambda x: x[:, :, ::-1]),
        "gates_exchanged": lambda tiny: tiny.with_tensor(
            "conv.in_proj.weight", lambda x: np.roll(x, 32, axis=0)
        ),
        "no_biases": lambda tiny: tiny.with_config(conv_bias=False),
        "no_bias_of_the_kernel": lambda tiny: tiny.with_tensor("conv.conv.bias", np.zeros_like),
        "causal_mask_dropped": lambda tiny: tiny.with_config(is_causal=False),
        "looks_ahead": lambda tiny: tiny.with_config(**CODE),
        "other_epsilon": lambda tiny: tiny.with_config(norm_eps=0.01),
        "other_norm_of_heads": lambda tiny: tiny.with_tensor("q_layernorm.weight", lambda x: np.roll(x, 1)),
        "other_theta": lambda tiny: tiny.with_config(rope_parameters={"rope_theta": 500.0}),
    }
)


@pytest.mark.parametrize("name", VARIANTS)
def test_hidden_states_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    assert_agrees(save(tmp_path, **VARIANTS[name]), sequences())


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_hidden_states_of_the_published_code_are_those_of_the_formulas(name: str, tmp_path: Path) -> None:
    assert_agrees(save_both_ways(tmp_path, **BOTH_WAYS[name]), sequences())


@pytest.mark.parametrize("name", in_part(DEFECTS, "taps_shifted", "no_bias_of_the_kernel", "looks_ahead"))
def test_planted_defects_are_found(name: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(DEFECTS[name](save(tmp_path, conv_bias=True)), sequences())


@pytest.mark.parametrize("both_ways", [False, True], ids=["causal", "both_ways"])
def test_a_convolution_over_the_border_of_a_text_is_found(
    both_ways: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_across(self: Neighbours, op: Any, x: Any) -> Any:
        return op.Gather(x, self.positions)

    tiny = save_both_ways(tmp_path) if both_ways else save(tmp_path)
    monkeypatch.setattr(Neighbours, "read", read_across)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(tiny, sequences())


def test_the_language_model_predicts_as_the_class(tmp_path: Path) -> None:
    assert_agrees(save(tmp_path, "Lfm2ForCausalLM"), sequences(), HeadKind.VOCABULARY)


@pytest.mark.promise("same-in-any-batch")
@pytest.mark.parametrize("both_ways", [False, True], ids=["causal", "both_ways"])
def test_a_text_is_the_same_alone_and_in_random_company(both_ways: bool, tmp_path: Path) -> None:
    tiny = save_both_ways(tmp_path) if both_ways else save(tmp_path)
    session = GraphSession(build_family(tiny))
    texts, others = sequences(), random_sequences(range(1, 30), vocab_size=VOCABULARY, seed=1)
    for together in ([*texts, *others], [*others, *texts][::-1]):
        lengths = [len(text) for text in together]
        rows = np.split(session.run(Batch.of(together)).values, np.cumsum(lengths)[:-1])
        for text, found in zip(together, rows, strict=True):
            alone = session.run(Batch.of([text])).values
            assert np.abs(alone - found).max() <= COMPANY * found.std()


@pytest.mark.parametrize("both_ways", [False, True], ids=["causal", "both_ways"])
def test_nan_stays_in_its_text(both_ways: bool, tmp_path: Path) -> None:
    def break_token(table: FloatArray) -> FloatArray:
        return np.where(np.arange(VOCABULARY)[:, None] == 7, np.float32(np.nan), table)

    tiny = save_both_ways(tmp_path) if both_ways else save(tmp_path)
    whole = [TokenSequence.of([1, 2, 3, 4]), TokenSequence.of([5, 6])]
    batch = [whole[0], TokenSequence.of([7, 3, 7]), whole[1]]
    found = tiny.with_tensor("embed_tokens.weight", break_token).compute(batch)
    rows = np.split(found, np.cumsum([len(text) for text in batch])[:-1])
    assert np.isnan(rows[1]).all()
    for text, its in zip(whole, (rows[0], rows[2]), strict=True):
        assert np.abs(tiny.compute([text]) - its).max() <= COMPANY * its.std()


def test_only_the_published_code_looks_ahead() -> None:
    config = {"model_type": "lfm2", **SIZES}
    assert read_encoder(config, "config.json").is_causal
    assert not read_encoder({**config, "is_causal": False}, "config.json").is_causal
    assert not read_encoder({**config, **CODE}, "config.json").is_causal
    assert not has_foreign_code({**config, **CODE})
    assert has_foreign_code({**config, "auto_map": {"AutoModel": "modeling_lfm2.OwnModel"}})


def test_older_keys_are_read(tmp_path: Path) -> None:
    older = {
        "model_type": "lfm2",
        "block_ff_dim": 6656,
        "full_attn_idxs": [2, 5],
        "num_hidden_layers": 6,
        "tie_embedding": False,
        "intermediate_size": 12_288,
        "theta": 1_000_000.0,
    }
    newer = {
        "model_type": "lfm2",
        "intermediate_size": 6656,
        "layer_types": ["conv", "conv", "full_attention", "conv", "conv", "full_attention"],
        "num_hidden_layers": 6,
        "tie_word_embeddings": False,
    }
    assert read_encoder(older, "config.json") == read_encoder(newer, "config.json")
    assert read_encoder(older, "config.json").intermediate_size == 4608  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"conv_L_cache": 0}, CorruptModel, "conv_L_cache must be"),
        ({"conv_L_cache": 2**20}, CorruptModel, "conv_L_cache must be a whole number of at most"),
        ({"conv_bias": "yes"}, CorruptModel, "conv_bias must be"),
        ({"block_multiple_of": 0}, CorruptModel, "block_multiple_of must be"),
        ({"block_ffn_dim_multiplier": 1e29}, CorruptModel, "width of the gated units must be"),
        ({"block_ffn_dim_multiplier": 1e-29}, CorruptModel, "width of the gated units must be"),
        ({"block_ffn_dim_multiplier": "1"}, CorruptModel, "block_ffn_dim_multiplier must be"),
        ({"full_attn_idxs": 3}, CorruptModel, "full_attn_idxs must list"),
        ({"full_attn_idxs": ["a"]}, CorruptModel, "full_attn_idxs"),
        ({"layer_types": ["conv"]}, CorruptModel, "layer_types must name one type for each of the 32"),
        ({"layer_types": ["mamba"] * 32}, UnsupportedModel, "layer_types with 'mamba'"),
        ({"layer_types": ["sliding_attention"] * 32}, CorruptModel, "there is no sliding_window"),
        ({"layer_types": [["conv"]] * 32}, UnsupportedModel, "layer_types"),
        ({"num_key_value_heads": 3}, CorruptModel, "not a multiple"),
        ({"num_attention_heads": 3}, CorruptModel, "not a multiple"),
        ({**CODE, "is_causal": True}, UnsupportedModel, "is_causal True is not supported"),
    ],
)
def test_settings_that_no_graph_has_are_refused(
    settings: Mapping[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_encoder({"model_type": "lfm2", **settings}, "config.json")


def test_a_kernel_of_another_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptModel, match=r"conv\.conv\.weight' has shape \[32, 1, 3\]"):
        build_family(save(tmp_path).with_config(conv_L_cache=4))


def test_a_kernel_is_split_into_taps() -> None:
    assert Lfm2Config.read({"model_type": "lfm2"}).convolutions.distances == (-2, -1, 0)
    centred = Lfm2Config.read({"model_type": "lfm2", **CODE})
    assert centred.convolutions.distances == (-1, 0, 1)
