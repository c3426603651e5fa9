"""Decoders that were published as encoders: both directions, by the name of a class or of a model type.

The code of such a repository is never run. Its class is rebuilt from the class of transformers that it
changes, with the mask taken back by `is_causal`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.families import TinyFamily, assert_agrees, random_sequences, save_tiny_family
from support.published import NORMALIZE, Published, pooling, respell, save_published
from vecmill import MillConfig, SyncMill
from vecmill.architectures.registry import has_foreign_code, read_encoder
from vecmill.directory_layouts import describe_model
from vecmill.errors import UnsupportedModel
from vecmill.models import locate_model
from vecmill.models.heads import HeadKind
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import TokenSequence

VOCABULARY = 60
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "is_causal": False,
}
QWEN3: dict[str, Any] = {**SIZES, "head_dim": 16}
WIDTH = 24  # of a projection
DECODER_SIZES: dict[str, Any] = {
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


@dataclass(frozen=True, slots=True)
class Spelling:
    """What a repository says instead of `is_causal`, and the class of transformers that its code changes."""

    class_name: str
    sizes: Mapping[str, Any]
    config: Mapping[str, Any]


PUBLISHED: dict[str, Spelling] = {
    "gte-Qwen2": Spelling(
        "Qwen2Model",
        SIZES,
        {
            "architectures": ["Qwen2ForCausalLM"],
            "auto_map": {
                "AutoModel": "modeling_qwen.Qwen2Model",
                "AutoModelForCausalLM": "modeling_qwen.Qwen2ForCausalLM",
                "AutoModelForSequenceClassification": "modeling_qwen.Qwen2ForSequenceClassification",
            },
        },
    ),
    "gte-Qwen2 tuned further": Spelling(
        "Qwen2Model",
        SIZES,
        {
            "architectures": ["Qwen2Model"],
            "auto_map": {"AutoModel": "Alibaba-NLP/gte-Qwen2-1.5B-instruct--modeling_qwen.Qwen2Model"},
        },
    ),
    "llama-embed-nemotron": Spelling(
        "LlamaModel",
        SIZES,
        {
            "model_type": "llama_bidirec",
            "architectures": ["LlamaBidirectionalModel"],
            "auto_map": {
                "AutoConfig": "llama_bidirectional_model.LlamaBidirectionalConfig",
                "AutoModel": "llama_bidirectional_model.LlamaBidirectionalModel",
            },
        },
    ),
    "ministral3_bidirec": Spelling(
        "Ministral3Model",
        {**SIZES, "head_dim": 16, "pad_token_id": 0},
        {
            "model_type": "ministral3_bidirec",
            "architectures": ["Ministral3BidirectionalModel"],
            "pooling": "avg",
            "temperature": 1.0,
        },
    ),
    "pplx-embed": Spelling(
        "Qwen3Model",
        QWEN3,
        {
            "model_type": "bidirectional_pplx_qwen3",
            "architectures": ["PPLXQwen3Model"],
            "use_bidirectional_attention": True,
            "auto_map": {
                "AutoConfig": "configuration.PPLXQwen3Config",
                "AutoModel": "modeling.PPLXQwen3Model",
            },
        },
    ),
    "LLM2Vec-Llama": Spelling(
        "LlamaModel",
        SIZES,
        {
            "architectures": ["LlamaEncoderModel"],
            "auto_map": {"AutoModel": "modeling_llama_encoder.LlamaEncoderModel"},
        },
    ),
    "LLM2Vec-Mistral": Spelling(
        "MistralModel", {**SIZES, "sliding_window": None}, {"architectures": ["MistralEncoderModel"]}
    ),
    "LLM2Vec-Qwen2": Spelling("Qwen2Model", SIZES, {"architectures": ["Qwen2BiModel"]}),
}


def sequences() -> list[TokenSequence]:
    return random_sequences((1, 2, 5, 9, 20, 41), vocab_size=VOCABULARY)


def spell(tiny: TinyFamily, config: Mapping[str, Any]) -> TinyFamily:
    """The same files, whose config.json says `config` instead of `is_causal`."""
    kept = {key: value for key, value in tiny.config.items() if key != "is_causal"}
    return replace(tiny, config={**kept, **config})


@pytest.mark.parametrize("name", PUBLISHED)
def test_tokens_attend_in_both_directions(name: str, tmp_path: Path) -> None:
    published = PUBLISHED[name]
    tiny = spell(save_tiny_family(tmp_path, published.class_name, **published.sizes), published.config)
    assert_agrees(tiny, sequences())


@pytest.mark.parametrize("name", PUBLISHED)
def test_without_the_name_of_the_class_the_answers_would_differ(name: str, tmp_path: Path) -> None:
    published = PUBLISHED[name]
    tiny = save_tiny_family(tmp_path, published.class_name, **published.sizes)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(spell(tiny, {}), sequences())


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_contradiction_is_refused(name: str) -> None:
    model_type = PUBLISHED[name].class_name.removesuffix("Model").lower()
    config = {"model_type": model_type, **PUBLISHED[name].config, "is_causal": True}
    with pytest.raises(UnsupportedModel, match=r"config\.json: is_causal True is not supported"):
        read_encoder(config, "config.json")


def test_other_settings_of_these_models_are_refused() -> None:
    for config, message in (
        ({"model_type": "llama_bidirec", "pooling": "last"}, "pooling 'last' is not supported"),
        (
            {"model_type": "bidirectional_pplx_qwen3", "use_bidirectional_attention": False},
            "use_bidirectional_attention False is not supported",
        ),
        ({"model_type": "llama", "use_bidirectional_attention": True}, "use_bidirectional_attention True"),
    ):
        with pytest.raises(UnsupportedModel, match=message):
            read_encoder(config, "config.json")


def test_the_published_code_is_replaced_by_its_name_alone() -> None:
    for published in PUBLISHED.values():
        config = {"model_type": published.class_name.removesuffix("Model").lower(), **published.config}
        assert not has_foreign_code(config)
    for named in ("modeling.Qwen2Model", "modeling_qwen.OwnModel", "owner/model--modeling.OwnModel"):
        assert has_foreign_code({"model_type": "qwen2", "auto_map": {"AutoModel": named}})
    two = {"AutoModel": "modeling_qwen.Qwen2Model", "AutoConfig": "configuration.OwnConfig"}
    assert has_foreign_code({"model_type": "qwen2", "auto_map": two})


@pytest.mark.parametrize("name", PUBLISHED)
def test_transformers_would_compute_another_model(name: str) -> None:
    """It has no such `model_type`, or does not read the class that config.json names."""
    model_type = PUBLISHED[name].class_name.removesuffix("Model").lower()
    encoder = read_encoder({"model_type": model_type, **PUBLISHED[name].config}, "config.json")
    assert not encoder.is_in_transformers
    assert not encoder.is_causal
    plain = read_encoder({"model_type": model_type, "is_causal": False}, "config.json")
    assert plain.is_in_transformers
    assert not plain.is_causal


def test_a_reranker_scores_the_mean_of_all_tokens(tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "LlamaForSequenceClassification", **SIZES, num_labels=2)
    temperature = 0.5

    class Reranker:
        """The published head on the model of transformers: the mean, `score`, and the temperature."""

        def __init__(self, model: Any) -> None:
            self._model = model

        def __call__(self, input_ids: Any) -> Any:
            return self.forward(input_ids)

        def forward(self, input_ids: Any) -> Any:
            from transformers.modeling_outputs import SequenceClassifierOutput

            hidden = self._model.model(input_ids).last_hidden_state
            return SequenceClassifierOutput(logits=self._model.score(hidden.mean(1)) / temperature)

    config = {
        "model_type": "llama_bidirec",
        "architectures": ["LlamaBidirectionalForSequenceClassification"],
        "pooling": "avg",
        "temperature": temperature,
    }
    tiny = replace(spell(tiny, config), reference=tiny.reference.part("mean and temperature", Reranker))
    assert_agrees(tiny, sequences(), HeadKind.SEQUENCE, labels=2)
    for defect in ({"temperature": 1.0}, {"model_type": "llama", "architectures": [], "is_causal": False}):
        with pytest.raises(AssertionError, match="off by"):
            assert_agrees(tiny.with_config(**defect), sequences(), HeadKind.SEQUENCE, labels=2)


def test_the_output_of_voyage_4_nano_is_projected(tmp_path: Path) -> None:
    tiny = save_tiny_family(tmp_path, "Qwen3Model", **QWEN3)
    projection = np.random.default_rng(5).standard_normal((WIDTH, 32), np.float32)

    class Projected:
        """The model of transformers, and the product that vLLM's class describes."""

        def __init__(self, model: Any) -> None:
            self._model = model

        def __call__(self, input_ids: Any) -> Any:
            return self.forward(input_ids)

        def forward(self, input_ids: Any) -> Any:
            import torch
            from transformers.modeling_outputs import BaseModelOutput

            hidden = self._model(input_ids).last_hidden_state
            return BaseModelOutput(last_hidden_state=hidden @ torch.from_numpy(projection).T)

    tensors = safetensors.numpy.load_file(tiny.weights_file)
    named = {f"model.{name}": tensor for name, tensor in tensors.items()} | {"linear.weight": projection}
    safetensors.numpy.save_file(named, tiny.weights_file)
    config = {"architectures": ["VoyageQwen3BidirectionalEmbedModel"], "num_labels": WIDTH}
    tiny = replace(spell(tiny, config), reference=tiny.reference.part("projected", Projected))
    encoder = read_encoder(tiny.config, "config.json")
    assert encoder.output_size == WIDTH
    assert not encoder.is_in_transformers
    assert_agrees(tiny, sequences())
    defect = tiny.with_tensor("linear.weight", lambda weight: weight[::-1])
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees(defect, sequences())


def test_voyage_4_nano_embeds_as_it_was_published(tmp_path: Path) -> None:
    """The directory has a Pooling of the projected width, and no module for the projection."""
    import torch

    folder = tmp_path / "model"
    modules = (pooling("mean", word_embedding_dimension=WIDTH), NORMALIZE)
    sizes = {**DECODER_SIZES, "is_causal": False}
    published = Published(
        "Qwen3Model",
        "Qwen2Tokenizer",
        modules,
        sizes,
        prompts={"query": "Represent: "},
        instead=("is_causal",),
        spelling={
            "architectures": ["VoyageQwen3BidirectionalEmbedModel"],
            "auto_map": {"AutoModel": "modeling.VoyageQwen3BidirectionalEmbedModel"},
            "num_labels": WIDTH,
        },
    )
    save_published(folder, published)
    model = load_model(folder)
    file = folder / "model.safetensors"
    projection = np.random.default_rng(5).standard_normal((WIDTH, 32), np.float32)
    tensors = safetensors.numpy.load_file(file)
    safetensors.numpy.save_file({**tensors, "linear.weight": projection}, file)
    respell(folder, published)
    description = describe_model(locate_model(folder))
    texts = ["some words", "and a few more words than that"]
    tokenizer = Tokenizer.load(description)
    expected = []
    for sequence in tokenizer.encode(texts):
        with torch.no_grad():
            hidden = model(torch.from_numpy(sequence.token_ids)[None]).last_hidden_state[0]
        row = (hidden.numpy() @ projection.T).mean(0)
        expected.append(row / np.linalg.norm(row))
    with SyncMill(description, MillConfig(cache_dir=tmp_path / "prepared")) as mill:
        assert description.dim == WIDTH
        np.testing.assert_allclose(mill.embed(texts), np.stack(expected), atol=1e-5)


def load_model(folder: Path) -> Any:
    """The model of transformers in fp32."""
    import transformers

    return transformers.AutoModel.from_pretrained(folder).float().eval()
