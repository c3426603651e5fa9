"""The settings that all encoders have, whatever their architecture. `architectures` reads them."""

from typing import Protocol


class EncoderConfig(Protocol):
    """The settings that every architecture provides."""

    @property
    def vocab_size(self) -> int:
        """The number of rows of the embedding table."""
        ...

    @property
    def hidden_size(self) -> int:
        """The number of dimensions of a hidden state."""
        ...

    @property
    def max_input_tokens(self) -> int | None:
        """The longest input in tokens, special tokens included; `None` if the architecture sets no limit."""
        ...
