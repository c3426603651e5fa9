"""The base class of the settings of all encoders, and the settings of those that transformers runs.

The base class also says what an architecture is. A subclass for each architecture (`vecmill.architectures`)
reads its `config.json`. Its class attributes are the facts that hold for every model of the architecture,
whatever its settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from vecmill.errors import UnsupportedModel
from vecmill.models.config_fields import MOST_TOKENS, read_size
from vecmill.models.stages import Stage
from vecmill.values.messages import show


@dataclass(frozen=True, slots=True)
class AttentionWindow:
    """The numbers of tokens before and after itself that a token attends to; `None` for all."""

    before: int | None
    after: int | None


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
    judges_pairs        whether a language model may be a reranker that answers "yes" or "no"
    own_modules         classes of modules.json that came with the code, and do what Transformer does
    """

    graph: ClassVar[str | None] = None
    has_config: ClassVar[bool] = True
    replaces_code: ClassVar[bool] = False
    replaced_classes: ClassVar[frozenset[str]] = frozenset()
    has_attention: ClassVar[bool] = True
    shifts_positions: ClassVar[bool] = False
    masks_every_layer: ClassVar[bool] = False
    judges_pairs: ClassVar[bool] = False
    own_modules: ClassVar[frozenset[str]] = frozenset()

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

    def rename_tensor(self, name: str) -> tuple[str, ...]:
        """Return the names that transformers' class has for a tensor of the model's files.

        Several names are those of equal parts of the tensor, along the first axis.
        """
        return (name,)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformersConfig(EncoderConfig):
    """The sizes that are needed before the model is loaded. With `runs_code` the model has its own class."""

    positions: int | None
    type_vocab_size: int
    runs_code: bool

    @classmethod
    def read(cls, config: Mapping[str, Any], path: str, *, runs_code: bool) -> Self:
        """Read the sizes of a `config.json`; `path` is its path for error messages.

        Raises `UnsupportedModel` if no known key has a size, `CorruptModel` if a value is not a size.
        """
        positions = _find_key(config, _POSITIONS)
        # Some models with relative positions write -1.
        is_bounded = positions is not None and config[positions] not in (None, -1, 0)
        return cls(
            vocab_size=_read_size(config, _VOCABULARY, path),
            hidden_size=_read_size(config, _WIDTH, path),
            positions=read_size(config, positions, 0, most=MOST_TOKENS) if positions and is_bounded else None,
            type_vocab_size=read_size(config, "type_vocab_size", 0, least=0),
            runs_code=runs_code,
        )

    @property
    def max_input_tokens(self) -> int | None:
        """The number of positions, if `config.json` has it."""
        return self.positions

    @property
    def token_types(self) -> int:
        """The `type_vocab_size`, if `config.json` has it."""
        return self.type_vocab_size


def _find_key(config: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in config), None)


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
