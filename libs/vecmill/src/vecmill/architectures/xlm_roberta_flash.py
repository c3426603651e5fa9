"""Reads the `config.json` of Jina's "flash" implementation of XLM-RoBERTa.

jina-reranker-v2 and jina-embeddings-v3 were published with this code. Such a file has no `model_type`, or
that of XLM-RoBERTa. The class of the settings, which `auto_map` names, tells the architecture
(`architectures.registry`). transformers adopted the variant with rotary positions as `jina_embeddings_v3`,
without adapters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from vecmill.architectures.bert import RobertaConfig, read_padding
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    check_rotary_heads,
    epsilon,
    head_size,
    read_choice,
    read_flag,
    read_mapping,
    read_number,
    read_size,
    read_text,
    read_texts,
    refuse_unless,
    size,
)
from vecmill.models.rope import Rope, read_rope
from vecmill.models.task_adapters import MOST_RANK

# Keys that a published file must have, because versions of the code have different defaults.
_NEEDS = (
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "layer_norm_eps",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "pad_token_id",
    "position_embedding_type",
    "type_vocab_size",
    "vocab_size",
)
_ADAPTERS_NEED = ("load_trained_adapters", "lora_alpha", "lora_rank", "task_instructions")

# The supported values of keys that only the published code reads.
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "emb_pooler": ("mean",),
    "fused_mlp": (False,),
    "is_decoder": (False,),
    "last_layer_subset": (False,),
    "pad_vocab_size_multiple": (1,),
    "rope_scaling": (),
    "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (),
    "truncate_dim": (),
}
_ACTIVATIONS = ("gelu", "gelu_fast", "gelu_new", "gelu_pytorch_tanh")
_MOST_ADAPTERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class XlmRobertaFlashConfig(RobertaConfig):
    """The settings of the graph: those of XLM-RoBERTa, with the defaults of the published code.

    With a `rope`, positions are rotary, and there is no table of them. `lora_adaptations` are the names of
    the adapters (LoRA: Hu et al., 2021), and `task_instructions` the prompt of each.
    """

    graph: ClassVar = "xlm_roberta_flash_graph:XlmRobertaFlash"
    replaces_code: ClassVar = True
    own_modules: ClassVar = frozenset({"custom_st.Transformer"})

    vocab_size: int = size(250_002)
    hidden_size: int = size(1024)
    num_hidden_layers: int = size(24)
    num_attention_heads: int = size(16)
    intermediate_size: int = size(4096)
    max_position_embeddings: int = size(8194)
    type_vocab_size: int = size(1)
    layer_norm_eps: float = epsilon(1e-5)
    rope: Rope | None
    lora_adaptations: tuple[str, ...] = ()
    lora_rank: int = size(4, most=MOST_RANK)
    lora_alpha: float = 1.0
    task_instructions: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `BertConfig.read`."""
        _check_keys(config)
        refuse_unless(config, _CHOICES)
        kinds = ("absolute", "rotary")
        kind = read_choice(config, "position_embedding_type", kinds, "rotary")
        rope = _read_published_rope(config) if kind == "rotary" else None
        adapters = _read_adapters(config)
        read = cls._read(
            config,
            pad_token_id=read_padding(config),
            hidden_act=read_choice(config, "hidden_act", _ACTIVATIONS, "gelu"),
            rope=rope,
            lora_adaptations=adapters,
            lora_alpha=read_number(config, "lora_alpha", 1.0),
            task_instructions=_read_instructions(config, adapters),
        )
        if adapters and read.type_vocab_size != 1:
            raise UnsupportedModel("config.json: type_vocab_size must be 1 with lora_adaptations.")
        if read.max_input_tokens < 1:
            raise CorruptModel(
                f"config.json: max_position_embeddings {read.max_position_embeddings} leaves no position "
                f"after pad_token_id {read.pad_token_id}."
            )
        return read

    @property
    def max_input_tokens(self) -> int:
        """The number of positions: all with rotary positions, else those after `pad_token_id`."""
        unused = 0 if self.rope is not None else self.pad_token_id + 1
        return self.max_position_embeddings - unused

    @property
    def limits_input(self) -> bool:
        """Whether no setting exceeds `max_input_tokens`: positions are no rotary ones."""
        return self.rope is None

    @property
    def given_layers(self) -> int:
        """0: the graph gives the last layer alone."""
        return 0

    @property
    def token_types(self) -> int:
        """The number of token types, which are adapters if there are any; 0 is none."""
        return len(self.lora_adaptations) + 1 if self.lora_adaptations else self.type_vocab_size

    @property
    def is_in_transformers(self) -> bool:
        """False, since transformers has another architecture under the `model_type` of these models."""
        return False

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of the adapters."""
        return self.lora_adaptations

    @property
    def prompts(self) -> dict[str, str]:
        """The prompt of each adapter."""
        return dict(self.task_instructions)


@dataclass(frozen=True, slots=True, kw_only=True)
class JinaEmbeddingsV3Config(XlmRobertaFlashConfig):
    """The settings of jina-embeddings-v3 in transformers, which are those of the model without adapters."""

    shifts_positions: ClassVar = False
    own_modules: ClassVar = frozenset()

    @property
    def is_in_transformers(self) -> bool:
        """Whether transformers has the class: always."""
        return True

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, with the defaults of transformers. Raises the errors of `BertConfig.read`."""
        choices = {"is_decoder": (False,), "lora_adaptations": (), "position_embedding_type": ("rotary",)}
        refuse_unless(config, choices)
        positions = read_size(config, "max_position_embeddings", 8194)
        rope = read_rope(config, theta=20_000.0, positions=positions)
        read = cls._read(config, pad_token_id=read_padding(config), rope=rope)
        check_rotary_heads(read.head_dim)
        return read


def _check_keys(config: Mapping[str, Any]) -> None:
    """Raise `UnsupportedModel` if a published file lacks a key that it needs."""
    if "auto_map" not in config:
        return
    needs = [*_NEEDS, *(_ADAPTERS_NEED if config.get("lora_adaptations") else ())]
    if config.get("position_embedding_type") == "rotary":
        needs.append("rotary_emb_base")
    missing = [key for key in needs if config.get(key) is None]
    if missing:
        raise UnsupportedModel(f"config.json: without {', '.join(missing)} the model is not supported.")


def _read_published_rope(config: Mapping[str, Any]) -> Rope:
    theta = read_number(config, "rotary_emb_base", 10_000.0)
    heads = read_size(config, "num_attention_heads", 16)
    head_dim = head_size(read_size(config, "hidden_size", 1024), heads)
    refuse_unless(config, {"rotary_emb_dim": (head_dim,)}, by="hidden_size and num_attention_heads")
    refuse_unless(config, {"rope_theta": (theta,)}, by="rotary_emb_base")
    check_rotary_heads(head_dim)
    return Rope(theta)


def _read_adapters(config: Mapping[str, Any]) -> tuple[str, ...]:
    names = read_texts(config, "lora_adaptations")
    if len(set(names)) < len(names) or not all(names) or len(names) > _MOST_ADAPTERS:
        raise CorruptModel(f"config.json: lora_adaptations must be at most {_MOST_ADAPTERS} different names.")
    if names and not read_flag(config, "load_trained_adapters", default=True):
        raise UnsupportedModel(
            "config.json: load_trained_adapters false is not supported; only True is, because the adapters "
            "of lora_adaptations would be random."
        )
    return names


def _read_instructions(config: Mapping[str, Any], adapters: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Read the prompt of each adapter. Raises `CorruptModel` unless each has one."""
    if not adapters:
        return ()
    prompts = read_mapping(config, "task_instructions")
    if set(prompts) != set(adapters):
        raise CorruptModel("config.json: task_instructions must have a prompt for each of lora_adaptations.")
    file = "config.json: task_instructions"
    return tuple((name, read_text(prompts, name, "", file=file) or "") for name in adapters)
