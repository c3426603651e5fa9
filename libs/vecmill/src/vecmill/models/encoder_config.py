"""The base class of the settings of all encoders, which also says what an architecture is.

A subclass for each architecture (`vecmill.architectures`) reads its `config.json`. Its class attributes are
the facts that hold for every model of the architecture, whatever its settings.
"""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """The settings of one encoder. `vocab_size` is the number of rows of the embedding table.

    A subclass sets only the class attributes whose values differ:

    graph               the class of the graph, as `module:Class` in `vecmill.architectures`; `None` if
                        transformers runs the model
    has_config          whether models have a `config.json` with a `model_type`
    replaces_code       whether models were published with code of their own, which the graph replaces
    replaced_classes    the published classes that the graph replaces, if it does not replace all: `Class`, or
                        `module.Class` as in `auto_map`
    has_attention       whether tokens attend to each other
    shifts_positions    whether the first token has another position than 0
    masks_every_layer   whether a token that others do not attend to also becomes zeros in every layer
    judges_pairs        whether a language model may be a reranker that answers "yes" or "no"
    """

    graph: ClassVar[str | None] = None
    has_config: ClassVar[bool] = True
    replaces_code: ClassVar[bool] = False
    replaced_classes: ClassVar[frozenset[str]] = frozenset()
    has_attention: ClassVar[bool] = True
    shifts_positions: ClassVar[bool] = False
    masks_every_layer: ClassVar[bool] = False
    judges_pairs: ClassVar[bool] = False

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
    def token_types(self) -> int:
        """The number of token types that the model distinguishes; 0 if it reads none."""
        return 0
