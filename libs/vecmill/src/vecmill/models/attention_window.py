"""The attention window of a layer: how far a token attends before and after itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AttentionWindow:
    """The numbers of tokens before and after itself that a token attends to; `None` for all."""

    before: int | None
    after: int | None


BIDIRECTIONAL = AttentionWindow(None, None)
CAUSAL = AttentionWindow(None, 0)
