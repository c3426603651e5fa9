"""Reads the `config.json` of layerwise MiniCPM rerankers (bge-reranker-v2-minicpm-layerwise).

MiniCPM is Llama with multipliers of embeddings and residuals. A layerwise reranker has a head for each of its
later layers, of which one is used, and the layers after it are not computed.

Source: `modeling_minicpm_reranker.py` of FlagEmbedding 1.4.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from vecmill.architectures.decoder import DecoderConfig, DecoderDefaults
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import (
    MOST_LAYERS,
    check_whole_number,
    read_number,
    read_size,
    refuse_unless,
)
from vecmill.models.published_code import names_any

# The layer that all programs of the model card use, of 40.
_USUAL_LAYER = 28


@dataclass(frozen=True, kw_only=True)
class MiniCpmConfig(DecoderConfig):
    """The settings of a layerwise MiniCPM reranker.

    `layers` are those that are computed. `answering_head` is the number of the head after the last of them.
    The published key `start_layer` is the number of layers before the first head. The key `cutoff_layers`,
    named as the argument of the published program, is the number of layers that are computed, or a list of
    that number alone; by default 28, or all if there are fewer.
    """

    graph: ClassVar = "minicpm_graph:MiniCpm"
    defaults: ClassVar = DecoderDefaults(
        intermediate_size=11_008,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        # The published code reads neither the size of a head nor the direction of attention.
        allowed={"head_dim": (), "layer_types": (), "is_causal": (True,)},
    )
    replaced_classes: ClassVar = frozenset(
        {"LayerWiseMiniCPMConfig", "LayerWiseMiniCPMModel", "LayerWiseMiniCPMForCausalLM"}
    )

    answering_head: int = 0

    @property
    def is_in_transformers(self) -> bool:
        """False: transformers has no such `model_type`."""
        return False

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Self:
        """Read a `config.json`, as `DecoderConfig.read` describes."""
        if not names_any(cls.replaced_classes, config):
            raise UnsupportedModel(
                "config.json: of the model_type minicpm, only layerwise rerankers are supported; their class "
                "is LayerWiseMiniCPMForCausalLM."
            )
        refuse_unless(config, {"head_multi": (True,), "head_type": ("simple",)})
        read = super().read(config)
        count = len(read.layers)
        start = read_size(config, "start_layer", 8, most=MOST_LAYERS)
        computed = _read_computed_layers(config, start, count)
        return replace(
            read,
            layers=read.layers[:computed],
            answering_head=computed - start,
            embedding_multiplier=read_number(config, "scale_emb", 1.0),
            # By the number of all layers, however many are computed.
            residual_multiplier=read_number(config, "scale_depth", 1.0) / math.sqrt(count),
        )


def _read_computed_layers(config: Mapping[str, Any], start: int, count: int) -> int:
    """Read how many of `count` layers are computed: at least `start`, whose head is the first."""
    value = config.get("cutoff_layers")
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    computed = min(_USUAL_LAYER, count)
    if value is not None:
        computed = check_whole_number(value, "config.json: cutoff_layers", most=MOST_LAYERS)
    if not start <= computed <= count:
        raise CorruptModel(
            f"config.json: cutoff_layers is {computed}, but layers {start} (start_layer) to {count} "
            "(num_hidden_layers) have a head."
        )
    return computed
