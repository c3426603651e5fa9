"""The base class of the settings of all encoders, and the settings of those that transformers runs.

The base class also says what an architecture is. A subclass for each architecture (`vecmill.architectures`)
reads its `config.json`. Its class attributes are the facts that hold for every model of the architecture,
whatever its settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import MOST_TOKENS, read_size, read_token_id
from vecmill.models.stages import Stage
from vecmill.models.tied_tensors import Tie
from vecmill.values.messages import show


@dataclass(frozen=True, slots=True)
class AttentionWindow:
    """The numbers of tokens before and after itself that a token attends to; `None` for all."""

    before: int | None
    after: int | None

    def may_miss_all(self, most_unseen: int) -> bool:
        """Return whether the window of a token may hold no token that is attended to.

        These are the first tokens of a text, all but at most its last `most_unseen` tokens.
        """
        return self.before is not None and most_unseen > self.before


BIDIRECTIONAL = AttentionWindow(None, None)
CAUSAL = AttentionWindow(None, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """The settings of one encoder. `vocab_size` is the number of rows of the embedding table.

    A subclass sets only the class attributes whose values differ:

    graph               the class of the graph, as `module:Class` in `vecmill.architectures`; `None` if
                        transformers runs the model
    has_config          whether models have a `config.json` with a `model_type`
    replaces_code       whether the graph replaces all code that models name in `auto_map`
    replaced_classes    the published classes that the graph replaces, if it does not replace all code:
                        `Class`, or `module.Class` as in `auto_map`
    has_attention       whether tokens attend to each other
    shifts_positions    whether the first token has another position than 0
    masks_every_layer   whether a token that others do not attend to also becomes zeros in every layer
    averages_keyless    whether a token that attends to none gets the mean of all values of its text, not 0
    judges_pairs        whether a language model may be a reranker that answers "yes" or "no"
    reads_more          whether the model reads images or sound too, of which vecmill has no graph
    features            the `modality_config` of sentence-transformers for the model, if it has its own
    own_modules         classes of modules.json that came with the code, and do what Transformer does
    aliases             other names of keys, which take precedence (`attribute_map` of transformers)
    reads_aliases_alone whether version 1.0 read them too, where the first names are missing
    exported_names      how the names of exported graphs of the model begin, the preferred one first
    exported_output     the output of exported graphs that is the embedding, if the encoder pools by itself
    """

    graph: ClassVar[str | None] = None
    has_config: ClassVar[bool] = True
    replaces_code: ClassVar[bool] = False
    replaced_classes: ClassVar[frozenset[str]] = frozenset()
    has_attention: ClassVar[bool] = True
    shifts_positions: ClassVar[bool] = False
    masks_every_layer: ClassVar[bool] = False
    averages_keyless: ClassVar[bool] = False
    judges_pairs: ClassVar[bool] = False
    reads_more: ClassVar[bool] = False
    features: ClassVar[Mapping[str, Any]] = {}
    own_modules: ClassVar[frozenset[str]] = frozenset()
    aliases: ClassVar[Mapping[str, str]] = {}
    reads_aliases_alone: ClassVar[bool] = False
    exported_names: ClassVar[tuple[str, ...]] = ("model",)
    exported_output: ClassVar[str | None] = None

    vocab_size: int
    hidden_size: int

    @property
    def output_size(self) -> int:
        """The width of the encoder's output: `hidden_size`, unless the encoder ends in a projection."""
        return self.hidden_size

    @property
    def max_input_tokens(self) -> int | None:
        """The longest input in tokens, special tokens included; `None` if the architecture sets no limit."""
        return None

    @property
    def limits_input(self) -> bool:
        """Whether no setting exceeds `max_input_tokens`. Rotary positions are computed, and have no end."""
        return True

    def rename_tensor(self, name: str) -> tuple[str, ...]:
        """Return the names that transformers' class has for a tensor of the model's files.

        Several names are those of equal parts of the tensor, along the first axis.
        """
        return (name,)

    @property
    def ties(self) -> tuple[Tie, ...]:
        """The tensors that are one tensor of the model, as `_tied_weights_keys` of transformers' classes."""
        return ()

    @property
    def patch_values(self) -> int | None:
        """The numbers of each patch of a picture, if the encoder reads pictures and not texts."""
        return None

    @property
    def picture_side(self) -> int | None:
        """The height and width in pixels of the pictures that the encoder reads, if it reads any."""
        return None

    @property
    def is_causal(self) -> bool:
        """Whether the hidden state of a token depends only on the token and those before it."""
        return False

    @property
    def given_layers(self) -> int:
        """The number of layers, if the graph gives the hidden states of all of them, else 0."""
        return 0

    @property
    def is_in_transformers(self) -> bool:
        """Whether transformers has a class that computes the model, without code of the model's own."""
        return True

    @property
    def windows(self) -> frozenset[AttentionWindow]:
        """The windows of the layers, if any layer has another one than all tokens, or all before it."""
        return frozenset()

    @property
    def token_types(self) -> int:
        """The number of token types that the model distinguishes; 0 if it reads none."""
        return 0

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of the adapters that texts may choose.

        The token types of a text are then the number of its adapter, from 1, or 0 for none.
        """
        return ()

    @property
    def prompts(self) -> Mapping[str, str]:
        """The prompts in `config.json`, by name."""
        return {}

    @property
    def adapter_folders(self) -> Mapping[str, str]:
        """The folders of the adapters of tasks, by task, relative to that of `config.json`.

        They are not merged: all tasks are served together.
        """
        return {}

    @property
    def adapted_modules(self) -> frozenset[str]:
        """The modules that the adapters in `adapter_folders` may change."""
        return frozenset()

    @property
    def own_stages(self) -> tuple[Stage, ...]:
        """The stages that the class in `own_modules` has after the encoder."""
        return ()


# The keys are those that transformers 5 maps to `vocab_size`, `hidden_size` and `max_position_embeddings`
# (`attribute_map` of its configurations).
_VOCABULARY = ("vocab_size", "n_words")
_WIDTH = ("hidden_size", "d_model", "dim", "n_embd", "emb_dim")
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len")
_PROJECTION = "word_embed_proj_dim"  # of OPT
# LED reads a text with both.
_SIDES = ("max_encoder_position_embeddings", "max_decoder_position_embeddings")
# Model types whose classes have relative positions, or compute a row for any position.
_UNBOUNDED = frozenset(
    {
        "funnel",
        "longt5",
        "m2m_100",
        "nllb-moe",
        "pegasus_x",
        "prophetnet",
        "switch_transformers",
        "udop",
        "xglm",
        "xlnet",
    }
)
# Model types whose classes count positions from `pad_token_id` + 1, as RoBERTa, and the usual `pad_token_id`.
_SHIFTED: Mapping[str, int] = {
    **dict.fromkeys(("ibert", "layoutlmv3", "longformer", "luke", "xmod"), 1),
    **dict.fromkeys(("lilt", "markuplm"), 0),
    "esm": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformersConfig(EncoderConfig):
    """The sizes that are needed before the model is loaded. With `runs_code` the model has its own class.

    `positions` is the longest input by the positions that `config.json` has; `None` if the class of
    transformers computes any input. `projection` is the width of the encoder's output, if that is another one
    than `hidden_size`.
    """

    positions: int | None
    projection: int | None
    type_vocab_size: int
    runs_code: bool

    @classmethod
    def read(cls, config: Mapping[str, Any], path: str, *, runs_code: bool) -> Self:
        """Read the sizes of a `config.json`; `path` is its path for error messages.

        Raises `UnsupportedModel` if no known key has a size, `CorruptModel` if a value is not a size.
        """
        return cls(
            vocab_size=_read_size(config, _VOCABULARY, path),
            hidden_size=_read_size(config, _WIDTH, path),
            positions=_read_positions(config, "" if runs_code else str(config.get("model_type"))),
            projection=read_size(config, _PROJECTION, 0) if config.get(_PROJECTION) is not None else None,
            type_vocab_size=read_size(config, "type_vocab_size", 0, least=0),
            runs_code=runs_code,
        )

    @property
    def output_size(self) -> int:
        """The width of the projection at the end, if there is one, else `hidden_size`."""
        return self.projection or self.hidden_size

    @property
    def max_input_tokens(self) -> int | None:
        """The number of positions, if the class has so many and `config.json` says how many."""
        return self.positions

    @property
    def token_types(self) -> int:
        """The `type_vocab_size`, if `config.json` has it."""
        return self.type_vocab_size


def _read_positions(config: Mapping[str, Any], model_type: str) -> int | None:
    """Return the longest input that has a position for each token; `None` if any input has.

    Raises `CorruptModel` if no input has.
    """
    if model_type in _UNBOUNDED:
        return None
    first = _find_key(config, _POSITIONS)
    # Some models with relative positions write -1.
    keys = [key for key in (first, *_SIDES) if key is not None and config.get(key) not in (None, -1, 0)]
    positions = min((read_size(config, key, 0, most=MOST_TOKENS) for key in keys), default=None)
    is_absolute = config.get("position_embedding_type", "absolute") == "absolute"  # not so in ESM-2
    if positions is None or model_type not in _SHIFTED or not is_absolute:
        return positions
    padding = read_token_id(config, "pad_token_id", _SHIFTED[model_type])
    longest = positions - 1 - (0 if padding is None else padding)
    if longest < 1:
        raise CorruptModel(
            f"config.json: {positions} positions leave none after pad_token_id {padding}, from which they "
            "are counted."
        )
    return min(longest, positions)


def _find_key(config: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """Return the first of some keys that has a value: null is none."""
    return next((name for name in names if config.get(name) is not None), None)


# Keys that hold the settings of another encoder, beside those of the text's encoder in a key of its own.
_OTHER_INPUTS = {"vision_config": "images", "audio_config": "audio"}


def _read_size(config: Mapping[str, Any], names: tuple[str, ...], path: str) -> int:
    key = _find_key(config, names)
    if key is None:
        other = _find_key(config, tuple(_OTHER_INPUTS))
        if other is not None:
            raise UnsupportedModel(
                f"{path}: {other} is not supported: a model of model_type "
                f"{show(config.get('model_type'))} also reads {_OTHER_INPUTS[other]}."
            )
        raise UnsupportedModel(
            f"{path}: model_type {show(config.get('model_type'))} has no built-in graph, and config.json has "
            f"none of {', '.join(names)}, one of which must give a size."
        )
    return read_size(config, key, 0)
