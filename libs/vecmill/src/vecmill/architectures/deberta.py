"""Reads the `config.json` of DeBERTa, versions 2 and 3."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from vecmill.architectures.bert import BertConfig
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    MOST_DISTANCE,
    MOST_LAYERS,
    activation,
    epsilon,
    flag,
    read_fields,
    read_size,
    refuse_unless,
    size,
)
from vecmill.values.messages import not_supported


@dataclass(frozen=True, slots=True, kw_only=True)
class DebertaConfig(BertConfig):
    """The settings of DeBERTa: those of BERT, and disentangled attention to contents and distances.

    `content_to_position` and `position_to_content` are the parts of `pos_att_type`. Both are computed only
    with `relative_attention`, but always scale scores. With a `position_buckets` of 0 each distance up to
    `max_relative_positions` has an embedding of its own. With a `conv_kernel_size` of 0 there is no
    convolution. With `legacy` a language model's head is like BERT's.
    """

    graph: ClassVar = "deberta_graph:Deberta"
    masks_every_layer: ClassVar = True

    vocab_size: int = size(128_100)
    hidden_size: int = size(1536)
    num_hidden_layers: int = size(24, most=MOST_LAYERS)
    num_attention_heads: int = size(24)
    intermediate_size: int = size(6144)
    type_vocab_size: int = size(0, least=0)
    layer_norm_eps: float = epsilon(1e-7)
    relative_attention: bool = flag(False)
    content_to_position: bool
    position_to_content: bool
    position_buckets: int
    max_relative_positions: int
    share_att_key: bool = flag(False)
    normalize_distances: bool
    position_biased_input: bool = flag(True)
    conv_kernel_size: int = size(0, least=0)
    conv_groups: int = size(1)
    conv_act: str = activation("tanh")
    pooler_hidden_act: str = activation("gelu")
    legacy: bool = flag(True)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`. Raises the same errors as `BertConfig.read`."""
        sizes = read_fields(cls, config)
        hidden_size = sizes["hidden_size"]
        head_dim = hidden_size // sizes["num_attention_heads"]
        by = "hidden_size and num_attention_heads"
        allowed = {"attention_head_size": (head_dim,), "pooler_hidden_size": (hidden_size,)}
        refuse_unless(config, allowed, by=by)
        kinds = _read_attention_kinds(config)
        deberta = cls._read(
            config,
            embedding_size=read_size(config, "embedding_size", hidden_size),
            content_to_position="c2p" in kinds,
            position_to_content="p2c" in kinds,
            position_buckets=_read_positions(config, "position_buckets") or 0,
            max_relative_positions=_read_positions(config, "max_relative_positions")
            or sizes["max_position_embeddings"],
            normalize_distances=_read_normalization(config),
        )
        deberta._check()
        return deberta

    @property
    def given_layers(self) -> int:
        """0: the graph gives the last layer alone."""
        return 0

    @property
    def max_input_tokens(self) -> int | None:
        """The number of position embeddings, or `None` if the model has only distances."""
        return self.max_position_embeddings if self.position_biased_input else None

    @property
    def distance_span(self) -> int:
        """Half the number of distance embeddings."""
        return self.position_buckets or self.max_relative_positions

    def _check(self) -> None:
        if self.max_relative_positions > MOST_DISTANCE:
            raise CorruptModel(
                f"config.json: max_relative_positions, by default max_position_embeddings, must be at most "
                f"{MOST_DISTANCE}."
            )
        middle = self.position_buckets // 2
        if self.position_buckets and not 0 < middle < self.max_relative_positions - 1:
            most = 2 * self.max_relative_positions - 3
            supported = f"0 and, with max_relative_positions {self.max_relative_positions}, 2 to {most}"
            raise UnsupportedModel(
                not_supported("config.json: position_buckets", self.position_buckets, (supported,))
            )
        if self.conv_kernel_size and not self.conv_kernel_size % 2:
            raise CorruptModel(f"config.json: conv_kernel_size {self.conv_kernel_size} must be odd.")
        if self.hidden_size % self.conv_groups:
            raise CorruptModel(
                f"config.json: hidden_size {self.hidden_size} is not a multiple of "
                f"conv_groups {self.conv_groups}."
            )


def _read_attention_kinds(config: Mapping[str, Any]) -> set[str]:
    """Read `pos_att_type`, a list or a string such as "p2c|c2p"."""
    value = config.get("pos_att_type") or []
    kinds = [part.strip() for part in value.lower().split("|")] if isinstance(value, str) else value
    if not isinstance(kinds, list) or not set(map(str, kinds)) <= {"c2p", "p2c"}:
        raise UnsupportedModel(not_supported("config.json: pos_att_type", value, ("parts c2p and p2c",)))
    return set(kinds)


def _read_positions(config: Mapping[str, Any], key: str) -> int | None:
    """Read a number of positions; `None` for 0 and less."""
    value = config.get(key)
    if value is None or (isinstance(value, int) and value < 1):
        return None
    return read_size(config, key, 1)


def _read_normalization(config: Mapping[str, Any]) -> bool:
    """Read whether the distance embeddings are normalised."""
    value = str(config.get("norm_rel_ebd") or "none")
    parts = {part.strip() for part in value.lower().split("|")}
    if not parts <= {"none", "layer_norm"}:
        raise UnsupportedModel(not_supported("config.json: norm_rel_ebd", value, ("none", "layer_norm")))
    return "layer_norm" in parts
