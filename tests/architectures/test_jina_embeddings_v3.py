"""jina-embeddings-v3 against transformers' class, into whose weights each adapter is merged."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.families import (
    TinyFamily,
    assert_agrees,
    build_family,
    open_tiny_family,
    random_sequences,
    save_tiny_family,
)
from support.jina_adapters import ADAPTERS, SETTINGS, add_adapters, merge_adapter
from support.references import Reference
from support.scales import in_part
from vecmill.architectures.registry import name_architecture, read_encoder
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.heads import HeadKind
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import TokenSequence

VOCABULARY = 60
PADDING = 1
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
CODE = "jinaai/xlm-roberta-flash-implementation--"
PUBLISHED: dict[str, Any] = {
    **SIZES,
    **SETTINGS,
    "model_type": "xlm-roberta",
    "architectures": ["XLMRobertaModel"],
    "auto_map": {
        "AutoConfig": f"{CODE}configuration_xlm_roberta.XLMRobertaFlashConfig",
        "AutoModel": f"{CODE}modeling_lora.XLMRobertaLoRA",
    },
    "emb_pooler": "mean",
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "pad_token_id": PADDING,
    "position_embedding_type": "rotary",
    "rotary_emb_base": 20_000.0,
    "type_vocab_size": 1,
    "use_flash_attn": True,
}
HEADS = {
    "ForSequenceClassification": HeadKind.SEQUENCE,
    "ForTokenClassification": HeadKind.TOKENS,
    "ForMaskedLM": HeadKind.VOCABULARY,
}


@dataclass(frozen=True, slots=True)
class MergedModels:
    """The models of all adapters, one for each, as one reference: the token types tell which."""

    models: list[Any]

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        model = self.models[int(token_type_ids[0, 0])]
        return model(input_ids=input_ids, attention_mask=attention_mask)

    __call__ = forward


def sequences(adapters: int = 0) -> list[TokenSequence]:
    """Some with padding tokens inside, which are tokens like others; each with an adapter, or without one."""
    plain = random_sequences((1, 2, 3, 5, 8, 13, 20, 41), vocab_size=VOCABULARY, often=[0, PADDING])
    return [
        TokenSequence.of(one.token_ids.tolist(), [index % (adapters + 1)] * len(one))
        for index, one in enumerate(plain)
    ]


def save_adapted(folder: Path) -> TinyFamily:
    """A model with adapters, and the models that it stands for; transformers reads the published names."""
    tiny = save_tiny_family(folder, "JinaEmbeddingsV3Model", **SIZES)
    tensors = add_adapters(safetensors.numpy.load_file(tiny.weights_file), seed=1)
    references = []
    for adapter in range(len(ADAPTERS) + 1):
        merged = folder / f"adapter-{adapter}"
        merged.mkdir()
        shutil.copy(folder / "config.json", merged)
        path = merged / "model.safetensors"
        safetensors.numpy.save_file(merge_adapter(tensors, adapter), path, metadata={"format": "pt"})
        references.append(open_tiny_family(merged, "JinaEmbeddingsV3Model").reference)
    path = folder / "published.safetensors"
    safetensors.numpy.save_file(tensors, path)
    return TinyFamily(Reference.of_many(references, MergedModels), PUBLISHED, path)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> TinyFamily:
    return save_adapted(tmp_path_factory.mktemp("adapted"))


def test_hidden_states_are_those_of_the_class(tmp_path: Path) -> None:
    assert_agrees(save_tiny_family(tmp_path, "JinaEmbeddingsV3Model", **SIZES), sequences())


@pytest.mark.parametrize("kind", HEADS)
def test_logits_are_those_of_the_class(kind: str, tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, f"JinaEmbeddingsV3{kind}", **SIZES, num_labels=3)
    assert_agrees(tiny, sequences(), HEADS[kind], labels=3)


def test_published_settings_say_the_same(tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "JinaEmbeddingsV3Model", **SIZES)
    published = {**PUBLISHED, "lora_adaptations": None, "task_instructions": None}
    assert_agrees(replace(tiny, config=published), sequences())


def test_texts_of_all_adapters_share_a_batch(adapted: TinyFamily) -> None:
    files = sorted(adapted.weights_file.parent.glob("adapter-*/model.safetensors"))
    found = [safetensors.numpy.load_file(path) for path in files]
    assert len(found) == len(ADAPTERS) + 1
    (name,) = (name for name in found[0] if name.endswith("layers.0.mlp.fc1.weight"))
    assert min(float(np.abs(one[name] - found[0][name]).max()) for one in found[1:]) > 0.1
    assert {int(one.token_type_ids[0]) for one in sequences(len(ADAPTERS))} == {*range(len(ADAPTERS) + 1)}
    assert_agrees(adapted, sequences(len(ADAPTERS)))


def next_adapter(tensor: FloatArray) -> FloatArray:
    """Each adapter in the place of the one before it."""
    return np.roll(tensor, 1, axis=0)


def forget(tensor: FloatArray) -> FloatArray:
    """Adapters that change nothing."""
    return np.zeros_like(tensor)


Defect = Callable[[TinyFamily], TinyFamily]
DEFECTS: dict[str, Defect] = {
    "other_theta": lambda tiny: tiny.with_config(rotary_emb_base=10_000.0),
    "other_epsilon": lambda tiny: tiny.with_config(layer_norm_eps=0.01),
    "other_activation": lambda tiny: tiny.with_config(hidden_act="gelu_new"),
    "other_strength": lambda tiny: tiny.with_config(lora_alpha=3),
    "adapters_exchanged": lambda tiny: tiny.with_tensor("lora_B", next_adapter),
    "words_without_adapters": lambda tiny: tiny.with_tensor(
        "word_embeddings.parametrizations.weight.0.lora_B", forget
    ),
    "types_without_adapters": lambda tiny: tiny.with_tensor(
        "token_type_embeddings.parametrizations.weight.0.lora_A", forget
    ),
    "queries_without_adapters": lambda tiny: tiny.with_tensor(
        "Wqkv.parametrizations.weight.0.lora_A", forget
    ),
    "outputs_without_adapters": lambda tiny: tiny.with_tensor(
        "out_proj.parametrizations.weight.0.lora_A", forget
    ),
    "inner_without_adapters": lambda tiny: tiny.with_tensor("fc1.parametrizations.weight.0.lora_B", forget),
    "outer_without_adapters": lambda tiny: tiny.with_tensor("fc2.parametrizations.weight.0.lora_B", forget),
}


@pytest.mark.parametrize("name", in_part(DEFECTS, "other_strength", "adapters_exchanged"))
def test_planted_defects_are_found(name: str, adapted: TinyFamily) -> None:
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(DEFECTS[name](adapted), sequences(len(ADAPTERS)))


@pytest.mark.parametrize("adapter", range(len(ADAPTERS) + 1))
def test_a_text_with_another_adapter_is_found(adapter: int, adapted: TinyFamily) -> None:
    """The numbers of adapters are not interchangeable: each gives other hidden states."""
    ids = sequences()[-1].token_ids.tolist()
    own, other = (
        adapted.compute([TokenSequence.of(ids, [number] * len(ids))])
        for number in (adapter, (adapter + 1) % (len(ADAPTERS) + 1))
    )
    assert np.abs(own - other).max() > 0.1


def test_a_dropped_padding_mask_is_found(adapted: TinyFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecmill.graphs.batch_layout.MASKED_SCORE", 0.0)
    with pytest.raises(AssertionError, match="batches random"):
        assert_agrees(adapted, sequences(len(ADAPTERS)))


@pytest.mark.parametrize("head", HEADS.values())
def test_a_head_beside_adapters_is_refused(head: HeadKind, adapted: TinyFamily) -> None:
    with pytest.raises(UnsupportedModel, match="lora_adaptations in a model with a head"):
        build_family(adapted, head, labels=1)


def test_the_settings_know_adapters_and_prompts() -> None:
    encoder = read_encoder(PUBLISHED, "config.json")
    assert name_architecture(PUBLISHED) == "xlm-roberta-flash"
    assert (encoder.adapters, encoder.token_types) == (ADAPTERS, len(ADAPTERS) + 1)
    assert dict(encoder.prompts) == SETTINGS["task_instructions"]
    assert encoder.max_input_tokens == SIZES["max_position_embeddings"]


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("lora_adaptations", ["one", "one"], CorruptModel),
        ("lora_adaptations", [""], CorruptModel),
        ("lora_rank", 0, CorruptModel),
        ("lora_alpha", -1, CorruptModel),
        ("task_instructions", {"retrieval.query": "query: "}, CorruptModel),
        ("task_instructions", None, UnsupportedModel),
        ("load_trained_adapters", False, UnsupportedModel),
        ("rope_scaling", {"type": "linear", "factor": 2.0}, UnsupportedModel),
        ("rope_theta", 10_000.0, UnsupportedModel),
        ("rotary_emb_base", None, UnsupportedModel),
        ("rotary_emb_dim", 4, UnsupportedModel),
        ("rotary_emb_interleaved", True, UnsupportedModel),
        ("type_vocab_size", 2, UnsupportedModel),
    ],
)
def test_settings_without_a_graph_are_refused_by_name(
    key: str, value: object, error: type[Exception]
) -> None:
    with pytest.raises(error, match=key):
        read_encoder({**PUBLISHED, key: value}, "config.json")


@pytest.mark.parametrize(
    ("key", "value"),
    [("lora_adaptations", ["one"]), ("position_embedding_type", "absolute"), ("is_decoder", True)],
)
def test_settings_that_the_class_of_transformers_ignores_are_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(UnsupportedModel, match=key):
        read_encoder({"model_type": "jina_embeddings_v3", key: value}, "config.json")
