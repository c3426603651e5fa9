"""What `config.json` asks for and is not built is refused by name, and limits are what positions allow."""

from collections.abc import Mapping
from typing import Any

import pytest

from vecmill.architectures.registry import find_architecture, read_encoder
from vecmill.errors import CorruptModel, UnsupportedModel

REFUSED: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "bert: positions by keys": ("bert", {"position_embedding_type": "relative_key"}, "relative_key"),
    "bert: decoder": ("bert", {"is_decoder": True}, "is_decoder True"),
    "bert: activation": ("bert", {"hidden_act": "mish"}, "hidden_act 'mish'"),
    "roberta: positions by keys": ("roberta", {"position_embedding_type": "relative_key"}, "relative_key"),
    "xlm-roberta: decoder": ("xlm-roberta", {"is_decoder": True}, "is_decoder True"),
    "distilbert: activation": ("distilbert", {"activation": "mish"}, "activation 'mish'"),
    "electra: decoder": ("electra", {"is_decoder": True}, "is_decoder True"),
    "albert: positions by keys": ("albert", {"position_embedding_type": "relative_key"}, "relative_key"),
    "mpnet: few buckets": (
        "mpnet",
        {"relative_attention_num_buckets": 16},
        "relative_attention_num_buckets 16",
    ),
    "deberta: other parts": ("deberta-v2", {"pos_att_type": "c2p|p2p"}, "'c2p|p2p'"),
    "deberta: other parts, listed": ("deberta-v2", {"pos_att_type": ["p2p"]}, "p2p"),
    "deberta: other norm": ("deberta-v2", {"norm_rel_ebd": "batch_norm"}, "norm_rel_ebd 'batch_norm'"),
    "deberta: size of heads": ("deberta-v2", {"attention_head_size": 32}, "attention_head_size 32"),
    "deberta: size of the pooler": ("deberta-v2", {"pooler_hidden_size": 100}, "pooler_hidden_size 100"),
    "deberta: more buckets than positions": (
        "deberta-v2",
        {"position_buckets": 512, "max_relative_positions": 128},
        "position_buckets 512",
    ),
    "deberta: activation of the convolution": ("deberta-v2", {"conv_act": "mish"}, "conv_act 'mish'"),
    "an older version of deberta": ("deberta", {}, "model_type 'deberta'"),
}
BROKEN: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "bert: heads": ("bert", {"num_attention_heads": 7}, "hidden_size 768"),
    "bert: no layers": ("bert", {"num_hidden_layers": 0}, "num_hidden_layers"),
    "distilbert: heads": ("distilbert", {"n_heads": 7}, "hidden_size 768"),
    "roberta: no padding": ("roberta", {"pad_token_id": None}, "pad_token_id"),
    "roberta: padding behind all positions": ("roberta", {"pad_token_id": 511}, "pad_token_id 511"),
    "mpnet: no positions": ("mpnet", {"max_position_embeddings": 2}, "max_position_embeddings"),
    "albert: groups": (
        "albert",
        {"num_hidden_groups": 13, "num_hidden_layers": 12},
        "num_hidden_groups",
    ),
    "deberta: even convolution": ("deberta-v2", {"conv_kernel_size": 4}, "conv_kernel_size 4"),
    "deberta: groups of the convolution": ("deberta-v2", {"conv_groups": 7}, "conv_groups 7"),
    "deberta: flag": ("deberta-v2", {"share_att_key": "yes"}, "share_att_key"),
}
LONGEST: Mapping[str, tuple[str, Mapping[str, Any], int | None]] = {
    "bert": ("bert", {"max_position_embeddings": 512}, 512),
    "roberta": ("roberta", {"max_position_embeddings": 514}, 512),
    "roberta with other padding": ("roberta", {"max_position_embeddings": 514, "pad_token_id": 5}, 508),
    "xlm-roberta": ("xlm-roberta", {"max_position_embeddings": 8194}, 8192),
    "camembert": ("camembert", {"max_position_embeddings": 514}, 512),
    "mpnet": ("mpnet", {"max_position_embeddings": 514}, 512),
    "mpnet with other padding": ("mpnet", {"max_position_embeddings": 514, "pad_token_id": 0}, 512),
    "distilbert": ("distilbert", {"max_position_embeddings": 512}, 512),
    "electra": ("electra", {}, 512),
    "albert": ("albert", {}, 512),
    "deberta with positions": ("deberta-v2", {}, 512),
    "deberta without": ("deberta-v2", {"position_biased_input": False}, None),
}


def read(architecture: str, config: Mapping[str, Any]) -> Any:
    return read_encoder({"model_type": architecture, **config}, "config.json")


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_built_is_refused(name: str) -> None:
    architecture, config, said = REFUSED[name]
    with pytest.raises(UnsupportedModel, match=r"config\.json: ") as caught:
        read(architecture, config)
    assert said in caught.value.message


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_is_refused(name: str) -> None:
    architecture, config, said = BROKEN[name]
    with pytest.raises(CorruptModel, match=r"config\.json: ") as caught:
        read(architecture, config)
    assert said in caught.value.message


@pytest.mark.parametrize("name", LONGEST)
def test_the_longest_input_is_what_positions_allow(name: str) -> None:
    architecture, config, longest = LONGEST[name]
    assert read(architecture, config).max_input_tokens == longest


@pytest.mark.parametrize(
    "architecture",
    ["albert", "bert", "camembert", "deberta-v2", "distilbert", "electra", "mpnet", "roberta", "xlm-roberta"],
)
def test_defaults_are_those_of_transformers(architecture: str) -> None:
    from transformers import AutoConfig

    theirs, ours = AutoConfig.for_model(architecture), read(architecture, {})
    fields = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
        "intermediate_size",
        "hidden_act",
        "layer_norm_eps",
        "embedding_size",
        "type_vocab_size",
        "num_hidden_groups",
        "inner_group_num",
        "relative_attention",
        "position_biased_input",
        "pooler_hidden_act",
        "pad_token_id",
        "tie_word_embeddings",
    )
    shared = [field for field in fields if hasattr(theirs, field) and hasattr(ours, field)]
    assert {field: getattr(ours, field) for field in shared} == {
        field: getattr(theirs, field) for field in shared
    }


def test_names_of_bert_do_for_distilbert_where_transformers_takes_them() -> None:
    ours = read("distilbert", {"hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 3})
    assert (ours.hidden_size, ours.num_attention_heads, ours.num_hidden_layers) == (64, 2, 3)


@pytest.mark.parametrize("model_type", ["distilbert", "t5", "mt5", "umt5"])
def test_a_size_by_its_other_name_is_that_of_the_class(model_type: str) -> None:
    """Which takes precedence over the first, as in transformers."""
    import transformers

    found = find_architecture(model_type)
    assert found is not None
    reference_class = transformers.AutoConfig.for_model(model_type)
    assert dict(found.aliases).items() <= reference_class.attribute_map.items()
    sizes = {"hidden_size": 96, "num_attention_heads": 3, "num_hidden_layers": 5, "head_dim": 24}
    for first in ({}, dict.fromkeys(found.aliases.values(), 48)):
        config = {**first, **{alias: sizes[alias] for alias in found.aliases}}
        reference = type(reference_class).from_dict(config)
        ours = read(model_type, config)
        layers = "num_hidden_layers" if model_type == "distilbert" else "num_layers"
        assert getattr(ours, layers) == reference.num_hidden_layers == 5
        assert ours.hidden_size == reference.hidden_size == 96
