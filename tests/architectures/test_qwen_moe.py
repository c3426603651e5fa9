"""Qwen3 with mixtures of experts, in both layouts of the experts' weights."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.families import TinyFamily, assert_agrees, build_family, random_sequences, save_tiny_family
from support.graph_session import GraphSession
from support.scales import in_part
from vecmill.architectures.registry import read_encoder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.heads import HeadKind
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence

VOCABULARY = 60
EXPERTS = 8
COMPANY = 1e-6  # of outputs with a standard deviation of about 1
SIZES: Mapping[str, Any] = MappingProxyType(
    {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "pad_token_id": 0,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "norm_topk_prob": True,
    }
)
VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "published": {},
        "shares_as_they_are": {"norm_topk_prob": False},
        "all_chosen": {"num_experts_per_tok": EXPERTS},
        "one": {"num_experts": 1, "num_experts_per_tok": 1},
        "none": {"num_experts": 0},
        "every_other_layer": {"decoder_sparse_step": 2},
        "dense_layers": {"mlp_only_layers": [0, 2]},
        "dense_alone": {"mlp_only_layers": [0, 1, 2]},
        "window": {"use_sliding_window": True, "sliding_window": 6},
        "window_not_used": {"sliding_window": 6},
        "biases": {"attention_bias": True},
        "both_ways": {"is_causal": False},
    }
)


def save_mixture(folder: Path, class_name: str = "Model", **settings: Any) -> TinyFamily:
    return save_tiny_family(folder, f"Qwen3Moe{class_name}", **{**SIZES, **settings})


def sequences() -> list[TokenSequence]:
    return random_sequences((1, 1, 2, 3, 8, 20, 41), vocab_size=VOCABULARY)


def fuse(tensors: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """The same weights, as transformers holds them: one tensor for all experts, gates before values."""
    fused = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
    for start in sorted({name.partition(".experts.")[0] for name in tensors if ".experts." in name}):

        def gather(part: str, start: str = start) -> FloatArray:
            return np.stack([tensors[f"{start}.experts.{one}.{part}.weight"] for one in range(EXPERTS)])

        both = np.concatenate([gather("gate_proj"), gather("up_proj")], axis=1)
        fused |= {f"{start}.experts.gate_up_proj": both, f"{start}.experts.down_proj": gather("down_proj")}
    return fused


def with_fused(tiny: TinyFamily) -> TinyFamily:
    tensors = fuse(safetensors.numpy.load_file(tiny.weights_file))
    path = tiny.weights_file.with_name("fused.safetensors")
    safetensors.numpy.save_file(tensors, path)
    return TinyFamily(tiny.reference, tiny.config, path)


def roll(suffix: str) -> Callable[[TinyFamily], TinyFamily]:
    return lambda tiny: tiny.with_tensor(suffix, lambda tensor: np.roll(tensor, 1, axis=0))


DEFECTS: Mapping[str, Callable[[TinyFamily], TinyFamily]] = MappingProxyType(
    {
        "fewer_chosen": lambda tiny: tiny.with_config(num_experts_per_tok=1),
        "more_chosen": lambda tiny: tiny.with_config(num_experts_per_tok=3),
        "shares_not_scaled": lambda tiny: tiny.with_config(norm_topk_prob=False),
        "other_experts": roll("mlp.gate.weight"),
        "other_gates": roll("experts.3.gate_proj.weight"),
        "other_values": roll("experts.3.up_proj.weight"),
        "other_outputs": roll("experts.3.down_proj.weight"),
        "other_activation": lambda tiny: tiny.with_config(hidden_act="gelu"),
        "causal_mask_dropped": lambda tiny: tiny.with_config(is_causal=False),
        "norm_of_another_dimension": roll("q_norm.weight"),
    }
)


@pytest.mark.parametrize("name", VARIANTS)
def test_hidden_states_are_those_of_the_class(name: str, tmp_path: Path) -> None:
    assert_agrees(save_mixture(tmp_path, **VARIANTS[name]), sequences())


@pytest.mark.parametrize("normalised", [True, False])
def test_experts_in_one_tensor_are_read(normalised: bool, tmp_path: Path) -> None:
    tiny = with_fused(save_mixture(tmp_path, norm_topk_prob=normalised, mlp_only_layers=[1]))
    assert_agrees(tiny, sequences())


@pytest.mark.parametrize("name", in_part(DEFECTS, "more_chosen", "shares_not_scaled", "other_gates"))
def test_planted_defects_are_found(name: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(DEFECTS[name](save_mixture(tmp_path)), sequences())


@pytest.mark.parametrize("suffix", ["experts.gate_up_proj", "experts.down_proj"])
def test_planted_defects_in_one_tensor_are_found(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(roll(suffix)(with_fused(save_mixture(tmp_path))), sequences())


@pytest.mark.parametrize(
    ("class_name", "head", "labels"),
    [
        ("ForSequenceClassification", HeadKind.SEQUENCE, 3),
        ("ForTokenClassification", HeadKind.TOKENS, 3),
        ("ForCausalLM", HeadKind.VOCABULARY, 0),
    ],
)
def test_heads_are_those_of_the_classes(class_name: str, head: HeadKind, labels: int, tmp_path: Path) -> None:
    settings = {"num_labels": labels} if labels else {}
    assert_agrees(save_mixture(tmp_path, class_name, **settings), sequences(), head, labels=labels)


@pytest.mark.promise("same-in-any-batch")
def test_a_text_is_the_same_alone_and_in_random_company(tmp_path: Path) -> None:
    session = GraphSession(build_family(save_mixture(tmp_path)))
    texts, others = sequences(), random_sequences(range(1, 30), vocab_size=VOCABULARY, seed=1)
    lengths = [len(text) for text in (*texts, *others)]
    together = session.run(Batch.of([*texts, *others])).values
    for text, found in zip(texts, np.split(together, np.cumsum(lengths)[:-1]), strict=False):
        assert np.abs(session.run(Batch.of([text])).values - found).max() <= COMPANY * found.std()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_experts": 4, "num_experts_per_tok": 5}, CorruptModel, "num_experts_per_tok 5 is more than"),
        ({"num_experts": 8, "num_local_experts": 4}, CorruptModel, "have different values"),
        ({"num_experts": 2**30}, CorruptModel, "num_experts must be a whole number of at most"),
        ({"num_experts": 512, "num_hidden_layers": 64}, UnsupportedModel, "are 32768 experts; at most 16384"),
        ({"num_experts": -1}, CorruptModel, "num_experts must be a whole number of at least 0"),
        ({"num_experts_per_tok": 0}, CorruptModel, "num_experts_per_tok must be"),
        ({"moe_intermediate_size": 0}, CorruptModel, "moe_intermediate_size must be"),
        ({"decoder_sparse_step": 0}, CorruptModel, "decoder_sparse_step must be"),
        ({"mlp_only_layers": 3}, CorruptModel, "mlp_only_layers must list"),
        ({"mlp_only_layers": ["one"]}, CorruptModel, "mlp_only_layers"),
        ({"mlp_only_layers": [0] * 1000}, CorruptModel, "mlp_only_layers must list"),
        ({"num_key_value_heads": 3}, CorruptModel, "not a multiple"),
        ({"layer_types": ["full_attention"] * 24}, UnsupportedModel, "layer_types"),
    ],
)
def test_settings_that_no_graph_has_are_refused(
    settings: Mapping[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read_encoder({"model_type": "qwen3_moe", **settings}, "config.json")


def test_files_without_the_weights_of_an_expert_are_refused(tmp_path: Path) -> None:
    tiny = save_mixture(tmp_path).with_names(lambda name: name.replace("experts.7.", "experts.8."))
    with pytest.raises(CorruptModel, match=r"no tensor 'layers\.0\.mlp\.experts\.7\.gate_proj\.weight'"):
        build_family(tiny)
