"""What the `config.json` of DeBERTa, versions 2 and 3, says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.bert import BertConfig, read_bert
from vecmill.models.settings import read_activation, read_flag, read_size, refuse_unless


@dataclass(frozen=True, slots=True)
class DebertaConfig(BertConfig):
    """As BERT, with attention that looks at contents and at distances apart.

    `content_to_position` and `position_to_content`: which of the two are in `pos_att_type`; both are
    computed only with `relative_attention`, but scale scores all the same. `position_buckets` is 0 where
    each distance up to `max_relative_positions` has an embedding of its own. `conv_kernel_size` is 0
    without a convolution. `legacy`: a language model's head is like BERT's.
    """

    relative_attention: bool
    content_to_position: bool
    position_to_content: bool
    position_buckets: int
    max_relative_positions: int
    share_att_key: bool
    normalize_distances: bool
    position_biased_input: bool
    conv_kernel_size: int
    conv_groups: int
    conv_act: str
    pooler_hidden_act: str
    legacy: bool

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Take what is needed from `config.json`. Raises as `BertConfig.read`."""
        fields = read_bert(
            config,
            vocab_size=128100,
            hidden_size=1536,
            num_hidden_layers=24,
            num_attention_heads=24,
            intermediate_size=6144,
            type_vocab_size=0,
            layer_norm_eps=1e-7,
        )
        hidden_size = fields["hidden_size"]
        head_dim = hidden_size // fields["num_attention_heads"]
        refuse_unless(config, {"attention_head_size": (head_dim,), "pooler_hidden_size": (hidden_size,)})
        kinds = _read_kinds(config)
        deberta = cls(
            **{**fields, "embedding_size": read_size(config, "embedding_size", hidden_size)},
            relative_attention=read_flag(config, "relative_attention", default=False),
            content_to_position="c2p" in kinds,
            position_to_content="p2c" in kinds,
            position_buckets=_read_extent(config, "position_buckets") or 0,
            max_relative_positions=_read_extent(config, "max_relative_positions")
            or fields["max_position_embeddings"],
            share_att_key=read_flag(config, "share_att_key", default=False),
            normalize_distances=_read_normalization(config),
            position_biased_input=read_flag(config, "position_biased_input", default=True),
            conv_kernel_size=read_size(config, "conv_kernel_size", 0, least=0),
            conv_groups=read_size(config, "conv_groups", 1),
            conv_act=read_activation(config, "conv_act", "tanh"),
            pooler_hidden_act=read_activation(config, "pooler_hidden_act", "gelu"),
            legacy=read_flag(config, "legacy", default=True),
        )
        deberta._check()
        return deberta

    @property
    def max_input_tokens(self) -> int | None:
        """One token for each position embedding; without them, any number: distances only saturate."""
        return self.max_position_embeddings if self.position_biased_input else None

    @property
    def distance_span(self) -> int:
        """Half of the rows of the embeddings of distances."""
        return self.position_buckets or self.max_relative_positions

    def _check(self) -> None:
        middle = self.position_buckets // 2
        if self.position_buckets and not 0 < middle < self.max_relative_positions - 1:
            raise UnsupportedModel(
                f"config.json: position_buckets {self.position_buckets} is not supported with "
                f"max_relative_positions {self.max_relative_positions}; supported are at least 2 and less "
                "than twice that number."
            )
        if self.conv_kernel_size and not self.conv_kernel_size % 2:
            raise CorruptModel(
                f"config.json: conv_kernel_size {self.conv_kernel_size} must be odd, or texts would shrink."
            )
        if self.hidden_size % self.conv_groups:
            raise CorruptModel(
                f"config.json: hidden_size {self.hidden_size} is not a multiple of "
                f"conv_groups {self.conv_groups}."
            )


def _read_kinds(config: Mapping[str, Any]) -> set[str]:
    """The parts of `pos_att_type`, which is a list or a string such as "p2c|c2p"."""
    written = config.get("pos_att_type") or []
    kinds = [part.strip() for part in written.lower().split("|")] if isinstance(written, str) else written
    if not isinstance(kinds, list) or not set(map(str, kinds)) <= {"c2p", "p2c"}:
        raise UnsupportedModel(
            f"config.json: pos_att_type {written!r} is not supported; its parts may be c2p and p2c."
        )
    return set(kinds)


def _read_extent(config: Mapping[str, Any], key: str) -> int | None:
    """A number of positions; 0 and less stand for none."""
    value = config.get(key)
    if value is None or (isinstance(value, int) and value < 1):
        return None
    return read_size(config, key, 1)


def _read_normalization(config: Mapping[str, Any]) -> bool:
    """Whether the embeddings of distances are normalised."""
    written = str(config.get("norm_rel_ebd") or "none")
    parts = {part.strip() for part in written.lower().split("|")}
    if not parts <= {"none", "layer_norm"}:
        raise UnsupportedModel(
            f"config.json: norm_rel_ebd {written!r} is not supported; supported are none and layer_norm."
        )
    return "layer_norm" in parts
