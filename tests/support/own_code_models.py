"""Models that transformers has no class for, computed from the formulas that their publishers gave.

Each is written as plainly as it can be: one text at a time is what matters, loops instead of tricks, and no
code shared with the graphs. Tensors have the names of the published checkpoints. The classes are registered
with transformers under names of their own, so that sentence-transformers loads what they save; published
files say `published_type` instead.

    JinaBert          jinaai/jina-bert-implementation
    JinaBertCode      jinaai/jina-bert-v2-qk-post-norm
    NomicMixture      nomic-ai/nomic-bert-2048 with experts, as nomic-embed-text-v2-moe has them
    LayerwiseMiniCpm  BAAI/bge-reranker-v2-minicpm-layerwise
    Lfm2Bidirectional LiquidAI/LFM2.5-Embedding-350M: transformers' class, whose convolutions are replaced
"""

import math
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)


class JinaConfig(transformers.PretrainedConfig):  # type: ignore[misc]
    """The keys of a published config.json, whatever they are."""

    model_type = "reference_jina_bert"
    published_type = "bert"


class JinaCodeConfig(transformers.PretrainedConfig):  # type: ignore[misc]
    """The same for the second code."""

    model_type = "reference_jina_bert_code"
    published_type = "bert"


class NomicMixtureConfig(transformers.PretrainedConfig):  # type: ignore[misc]
    """The published keys of NomicBERT."""

    model_type = "reference_nomic_mixture"
    published_type = "nomic_bert"
    attribute_map = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer"}  # noqa: RUF012


class MiniCpmConfig(transformers.PretrainedConfig):  # type: ignore[misc]
    """The published keys of layerwise MiniCPM; `cutoff_layers` is the argument of the published program."""

    model_type = "reference_minicpm"
    published_type = "minicpm"


class Lfm2BidirectionalConfig(transformers.Lfm2Config):  # type: ignore[misc]
    """The keys of LFM2."""

    model_type = "reference_lfm2_bidirectional"
    published_type = "lfm2"
    is_causal = False


class _Module(nn.Module):  # type: ignore[misc]
    """A part of a model; torch has no types here."""


class _Reference(transformers.PreTrainedModel):  # type: ignore[misc]
    base_model_prefix = "bert"
    _supports_sdpa = True

    def _init_weights(self, module: nn.Module) -> None:
        """Leave what torch chose."""


def alibi_slopes(heads: int) -> list[float]:
    """The slopes of the paper; where heads are no power of two, its authors' way to interpolate them."""
    exponent = math.log2(heads)
    if exponent.is_integer():
        ratio = 2 ** (-(2 ** -(exponent - 3)))
        return [ratio ** (place + 1) for place in range(heads)]
    below = 2 ** math.floor(exponent)
    return alibi_slopes(below) + [*alibi_slopes(2 * below)[0::2]][: heads - below]


def attend(query: Tensor, key: Tensor, value: Tensor, heads: int, bias: Tensor) -> Tensor:
    """Attention of (texts, tokens, width), head by head; `bias` is (texts, heads, tokens, tokens)."""
    width = query.shape[-1] // heads
    attended = []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        scores = query[..., part] @ key[..., part].transpose(1, 2) / math.sqrt(width)
        attended.append(torch.softmax(scores + bias[:, head], dim=-1) @ value[..., part])
    return torch.cat(attended, dim=-1)


def mask_bias(mask: Tensor, heads: int) -> Tensor:
    """Nothing for tokens, and the least number for padding."""
    hidden = (1.0 - mask.float()) * torch.finfo(torch.float32).min
    return hidden[:, None, None, :].expand(-1, heads, mask.shape[1], -1)


def jina_bias(mask: Tensor, heads: int) -> Tensor:
    """The same, less the distance of two tokens times the slope of the head."""
    places = torch.arange(mask.shape[1])
    distances = (places[None, :] - places[:, None]).abs()
    falling = torch.stack([-slope * distances for slope in alibi_slopes(heads)])
    return mask_bias(mask, heads) + falling


class _JinaEmbeddings(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, ids: Tensor, types: Tensor) -> Any:
        return self.LayerNorm(self.word_embeddings(ids) + self.token_type_embeddings(types))


class _SelfAttention(_Module):
    def __init__(self, config: Any, *, has_norms: bool) -> None:
        super().__init__()
        width = config.hidden_size
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.heads = config.num_attention_heads
        if has_norms:
            self.layer_norm_q = nn.LayerNorm(width, eps=config.layer_norm_eps)
            self.layer_norm_k = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.has_norms = has_norms

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        query, key = self.query(x), self.key(x)
        if self.has_norms:
            query, key = self.layer_norm_q(query), self.layer_norm_k(key)
        return attend(query, key, self.value(x), self.heads, bias)


class _AttentionOutput(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, attended: Tensor, x: Tensor) -> Any:
        return self.LayerNorm(self.dense(attended) + x)


class _Attention(_Module):
    def __init__(self, config: Any, *, has_norms: bool) -> None:
        super().__init__()
        self.self = _SelfAttention(config, has_norms=has_norms)
        self.output = _AttentionOutput(config)

    def forward(self, x: Tensor, bias: Tensor) -> Any:
        return self.output(self.self(x, bias), x)


def _gate(config: Any, gate: Tensor) -> Tensor:
    is_smooth = {"geglu": True, "reglu": False}[config.feed_forward_type]
    return functional.gelu(gate) if is_smooth else functional.relu(gate)


class _GatedUnit(_Module):
    """The gates are the first half, and the norm belongs to the unit."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.gated_layers = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.wo = nn.Linear(config.intermediate_size, config.hidden_size)
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x: Tensor) -> Any:
        gate, value = self.gated_layers(x).split(self.config.intermediate_size, dim=-1)
        return self.layernorm(x + self.wo(_gate(self.config, gate) * value))


class _JinaLayer(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.attention = _Attention(config, has_norms=False)
        self.mlp = _GatedUnit(config)

    def forward(self, x: Tensor, bias: Tensor) -> Any:
        return self.mlp(self.attention(x, bias))


class _GatedCodeUnit(_Module):
    """The gates are the second half."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.up_gated_layer = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.down_layer = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Any:
        value, gate = self.up_gated_layer(x).split(self.config.intermediate_size, dim=-1)
        return self.down_layer(value * _gate(self.config, gate))


class _JinaCodeLayer(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.attention = _Attention(config, has_norms=True)
        self.layer_norm_1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.layer_norm_2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = _GatedCodeUnit(config)

    def forward(self, x: Tensor, bias: Tensor) -> Any:
        x = self.layer_norm_1(x + self.attention(x, bias))
        return self.layer_norm_2(x + self.mlp(x))


class _Layers(_Module):
    def __init__(self, layers: list[_Module]) -> None:
        super().__init__()
        self.layer = nn.ModuleList(layers)


class _Pooler(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.tanh(self.dense(hidden[:, 0]))


class ReferenceJinaBertModel(_Reference):
    """The encoder."""

    config_class = JinaConfig
    layer_class: type[_Module] = _JinaLayer

    def __init__(self, config: Any, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.embeddings = _JinaEmbeddings(config)
        self.encoder = _Layers([self.layer_class(config) for _ in range(config.num_hidden_layers)])
        self.pooler = _Pooler(config) if add_pooling_layer else None
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **_: Any,
    ) -> BaseModelOutput:
        """The hidden states of all tokens."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        bias = jina_bias(mask, self.config.num_attention_heads)
        x = self.embeddings(input_ids, types)
        for layer in self.encoder.layer:
            x = layer(x, bias)
        return BaseModelOutput(last_hidden_state=x)


class ReferenceJinaBertForSequenceClassification(_Reference):
    """A classifier of the first token, as the rerankers are."""

    config_class = JinaConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.bert = ReferenceJinaBertModel(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **_: Any,
    ) -> SequenceClassifierOutput:
        """The logits of each text."""
        hidden = self.bert(input_ids, attention_mask, token_type_ids).last_hidden_state
        assert self.bert.pooler is not None
        return SequenceClassifierOutput(logits=self.classifier(self.bert.pooler(hidden)))


class ReferenceJinaBertForTokenClassification(_Reference):
    """A classifier of each token."""

    config_class = JinaConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.bert = ReferenceJinaBertModel(config, add_pooling_layer=False)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **_: Any,
    ) -> TokenClassifierOutput:
        """The logits of each token."""
        hidden = self.bert(input_ids, attention_mask, token_type_ids).last_hidden_state
        return TokenClassifierOutput(logits=self.classifier(hidden))


class _Transform(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Any:
        return self.LayerNorm(functional.gelu(self.dense(hidden)))


class _Predictions(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.transform = _Transform(config)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))


class _Head(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.predictions = _Predictions(config)


class ReferenceJinaBertForMaskedLM(_Reference):
    """A language model's head, whose matrix is that of the word embeddings."""

    config_class = JinaConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.bert = ReferenceJinaBertModel(config, add_pooling_layer=False)
        self.cls = _Head(config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **_: Any,
    ) -> MaskedLMOutput:
        """The logits over the vocabulary of each token."""
        hidden = self.bert(input_ids, attention_mask, token_type_ids).last_hidden_state
        head = self.cls.predictions
        words = self.bert.embeddings.word_embeddings.weight
        return MaskedLMOutput(logits=head.transform(hidden) @ words.T + head.bias)


class ReferenceJinaBertCodeModel(ReferenceJinaBertModel):
    """The encoder of the second code."""

    config_class = JinaCodeConfig
    layer_class = _JinaCodeLayer


class _NomicAttention(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.Wqkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.qkv_proj_bias)
        self.out_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.qkv_proj_bias)

    def forward(self, x: Tensor, bias: Tensor) -> Any:
        query, key, value = self.Wqkv(x).chunk(3, dim=-1)
        heads, base = self.config.n_head, self.config.rotary_emb_base
        query, key = (rotate(part, heads, base) for part in (query, key))
        return self.out_proj(attend(query, key, value, heads, bias))


def rotate(x: Tensor, heads: int, base: float) -> Tensor:
    """Rotary positions: dimensions d and d + half of each head turn by place / base^(d / half)."""
    texts, tokens, width = x.shape
    half = width // heads // 2
    one, other = x.reshape(texts, tokens, heads, 2, half).unbind(3)
    speeds = 1.0 / base ** (torch.arange(half, dtype=torch.float32) / half)
    angles = (torch.arange(tokens, dtype=torch.float32)[:, None] * speeds)[:, None, :]
    cosines, sines = angles.cos(), angles.sin()
    turned = torch.stack([one * cosines - other * sines, other * cosines + one * sines], dim=3)
    return turned.reshape(texts, tokens, width)


class _NomicFeed(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.n_embd, config.n_inner, bias=config.mlp_fc1_bias)
        self.fc2 = nn.Linear(config.n_inner, config.n_embd, bias=config.mlp_fc2_bias)

    def forward(self, x: Tensor) -> Any:
        return self.fc2(functional.gelu(self.fc1(x)))


class _Router(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(config.n_embd, config.num_experts, bias=False)


class _ExpertWeights(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        rows = config.num_experts * config.n_inner
        self.w1 = nn.Parameter(torch.zeros(rows, config.n_embd))
        self.w2 = nn.Parameter(torch.zeros(rows, config.n_embd))


class _Experts(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.mlp = _ExpertWeights(config)
        self.bias = nn.Parameter(torch.zeros(config.n_embd))


class _Mixture(_Module):
    """Of each token, the shares of all experts; the outputs of the likeliest, each times its share."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.router = _Router(config)
        self.experts = _Experts(config)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([torch.stack([self._mix(token) for token in text]) for text in x])

    def _mix(self, token: Tensor) -> Tensor:
        shares = torch.softmax(self.router.layer(token).float(), dim=-1)
        mixed = torch.zeros_like(token)
        for expert in shares.argsort(descending=True)[: self.config.moe_top_k].tolist():
            rows = slice(expert * self.config.n_inner, (expert + 1) * self.config.n_inner)
            inner = functional.gelu(self.experts.mlp.w1[rows] @ token)
            mixed = mixed + shares[expert] * (inner @ self.experts.mlp.w2[rows])
        return mixed + self.experts.bias


class _NomicBlock(_Module):
    def __init__(self, config: Any, *, has_experts: bool) -> None:
        super().__init__()
        self.attn = _NomicAttention(config)
        self.mlp = _Mixture(config) if has_experts else _NomicFeed(config)
        self.norm1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.norm2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)

    def forward(self, x: Tensor, bias: Tensor) -> Any:
        x = self.norm1(self.attn(x, bias) + x)
        return self.norm2(self.mlp(x) + x)


class _NomicEmbeddings(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.n_embd)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.n_embd)


class _NomicLayers(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        period = config.moe_every_n_layers
        self.layers = nn.ModuleList(
            _NomicBlock(config, has_experts=period > 0 and index % period == 1)
            for index in range(config.n_layer)
        )


class ReferenceNomicMixtureModel(_Reference):
    """The encoder: attention with rotary positions, and two linear layers or experts in turn."""

    config_class = NomicMixtureConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embeddings = _NomicEmbeddings(config)
        self.emb_ln = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.encoder = _NomicLayers(config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **_: Any,
    ) -> BaseModelOutput:
        """The hidden states of all tokens."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        words = self.embeddings.word_embeddings(input_ids)
        x = self.emb_ln(words + self.embeddings.token_type_embeddings(types))
        bias = mask_bias(mask, self.config.n_head)
        for layer in self.encoder.layers:
            x = layer(x, bias)
        return BaseModelOutput(last_hidden_state=x)


class _RootMeanSquareNorm(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.hidden_size))
        self.epsilon = config.rms_norm_eps

    def forward(self, x: Tensor) -> Tensor:
        return x / torch.sqrt((x**2).mean(dim=-1, keepdim=True) + self.epsilon) * self.weight


class _MiniCpmAttention(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        width, bias = config.hidden_size, config.attention_bias
        shared = width // config.num_attention_heads * config.num_key_value_heads
        self.q_proj = nn.Linear(width, width, bias=bias)
        self.k_proj, self.v_proj = (nn.Linear(width, shared, bias=bias) for _ in range(2))
        self.o_proj = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor) -> Any:
        heads, groups, base = (
            self.config.num_attention_heads,
            self.config.num_key_value_heads,
            self.config.rope_theta,
        )
        query, key = rotate(self.q_proj(x), heads, base), rotate(self.k_proj(x), groups, base)
        key, value = (self._share(part, heads // groups) for part in (key, self.v_proj(x)))
        later = torch.full((x.shape[1], x.shape[1]), -math.inf).triu(1)
        return self.o_proj(attend(query, key, value, heads, later.expand(len(x), heads, -1, -1)))

    def _share(self, x: Tensor, times: int) -> Tensor:
        """Give each head to `times` queries in a row."""
        parts = x.split(self.config.hidden_size // self.config.num_attention_heads, dim=-1)
        return torch.cat([part for part in parts for _ in range(times)], dim=-1)


class _MiniCpmFeed(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        width, wide = config.hidden_size, config.intermediate_size
        self.gate_proj, self.up_proj = (nn.Linear(width, wide, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(wide, width, bias=False)

    def forward(self, x: Tensor) -> Any:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class _MiniCpmLayer(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.self_attn = _MiniCpmAttention(config)
        self.mlp = _MiniCpmFeed(config)
        self.input_layernorm, self.post_attention_layernorm = (_RootMeanSquareNorm(config) for _ in range(2))
        self.share = config.scale_depth / math.sqrt(config.num_hidden_layers)

    def forward(self, x: Tensor) -> Any:
        x = x + self.share * self.self_attn(self.input_layernorm(x))
        return x + self.share * self.mlp(self.post_attention_layernorm(x))


class _MiniCpmModel(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_MiniCpmLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = _RootMeanSquareNorm(config)


class _LayerHead(_Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.linear_head = nn.Linear(config.hidden_size, 1, bias=False)


class ReferenceLayerwiseMiniCpm(_Reference):
    """The reranker: the score of each text after its last token, by the head of one layer."""

    base_model_prefix = "model"
    config_class = MiniCpmConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = _MiniCpmModel(config)
        first, last = config.start_layer, config.num_hidden_layers
        self.lm_head = nn.ModuleList(_LayerHead(config) for _ in range(first, last + 1))
        self.post_init()

    def forward(self, input_ids: Tensor, **_: Any) -> SequenceClassifierOutput:
        """The logits of texts without padding, after as many layers as `cutoff_layers` says."""
        (computed,) = self.config.cutoff_layers
        x = self.model.embed_tokens(input_ids) * self.config.scale_emb
        for layer in self.model.layers[:computed]:
            x = layer(x)
        head = self.lm_head[computed - self.config.start_layer].linear_head
        return SequenceClassifierOutput(logits=head(self.model.norm(x)[:, -1]))


class CentredConvolution(_Module):
    """A gated convolution that looks ahead as far as back, tap by tap; padding is zeros.

    The code of the multi-vector models reads padding, and the expansion of queries, as tokens.
    """

    hides_padding = True

    def __init__(self, config: Any) -> None:
        super().__init__()
        width, taps, bias = config.hidden_size, config.conv_L_cache, config.conv_bias
        self.conv = nn.Conv1d(width, width, taps, groups=width, bias=bias)
        self.in_proj = nn.Linear(width, 3 * width, bias=bias)
        self.out_proj = nn.Linear(width, width, bias=bias)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None, **_: Any) -> Any:
        if attention_mask is not None and self.hides_padding:
            hidden_states = hidden_states * attention_mask[:, :, None]
        before, after, value = self.in_proj(hidden_states).chunk(3, dim=-1)
        x = before * value
        taps = self.conv.weight.shape[-1]
        total = torch.zeros_like(x)
        for tap in range(taps):
            for place in range(x.shape[1]):
                other = place + tap - taps // 2
                if 0 <= other < x.shape[1]:
                    total[:, place] += self.conv.weight[:, 0, tap] * x[:, other]
        if self.conv.bias is not None:
            total = total + self.conv.bias
        return self.out_proj(after * total)


class ReferenceLfm2BidirectionalModel(transformers.Lfm2Model):  # type: ignore[misc]
    """The encoder: attention in both directions is what `is_causal` gives."""

    config_class = Lfm2BidirectionalConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        for layer, kind in zip(self.layers, config.layer_types, strict=True):
            if kind == "conv":
                layer.conv = CentredConvolution(config)


def _register(config: type, **classes: type) -> None:
    transformers.AutoConfig.register(config.model_type, config, exist_ok=True)  # type: ignore[attr-defined]
    for name, model in classes.items():
        getattr(transformers, name).register(config, model, exist_ok=True)


_register(
    JinaConfig,
    AutoModel=ReferenceJinaBertModel,
    AutoModelForSequenceClassification=ReferenceJinaBertForSequenceClassification,
    AutoModelForTokenClassification=ReferenceJinaBertForTokenClassification,
    AutoModelForMaskedLM=ReferenceJinaBertForMaskedLM,
)
_register(JinaCodeConfig, AutoModel=ReferenceJinaBertCodeModel)
_register(NomicMixtureConfig, AutoModel=ReferenceNomicMixtureModel)
_register(MiniCpmConfig, AutoModelForSequenceClassification=ReferenceLayerwiseMiniCpm)
_register(Lfm2BidirectionalConfig, AutoModel=ReferenceLfm2BidirectionalModel)
