"""How far attention reaches in a layer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reach:
    """A token sees this many tokens before and after itself; `None` for all of them."""

    before: int | None
    after: int | None


EVERYWHERE = Reach(None, None)
CAUSAL = Reach(None, 0)
