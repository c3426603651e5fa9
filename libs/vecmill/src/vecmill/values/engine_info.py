"""The properties of a loaded engine, and the cost of its calls."""

from dataclasses import dataclass

from vecmill.values.embeddings import OutputShape


@dataclass(frozen=True, slots=True)
class CostModel:
    """The seconds that a call takes, measured in warm-up: `fixed_s + per_token_s * tokens`."""

    fixed_s: float
    per_token_s: float

    def seconds(self, tokens: int) -> float:
        """Return the expected seconds of one call over `tokens` tokens."""
        return self.fixed_s + self.per_token_s * tokens


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The properties of a loaded engine. Constant after loading.

    `dim` is the number of dimensions of an embedding, `max_tokens` the longest input. `lane_widths` lists the
    numbers of cores that one call may use, ascending. `parallel_calls` is the number of calls that may run at
    once, if it does not depend on the cores. `batch_tokens` is the best number of tokens for a call, if the
    engine or its plan sets one. `normalizes` tells whether the engine scales the embeddings of texts to unit
    length, and returns their former lengths too. With `is_finished` it runs an exported graph that has only
    finished outputs: it has neither embeddings before the normalisation nor hidden states.
    """

    name: str
    precision: str
    device: str
    dim: int
    max_tokens: int
    lane_widths: tuple[int, ...]
    output_shape: OutputShape = OutputShape.TEXT
    parallel_calls: int | None = None
    batch_tokens: int | None = None
    normalizes: bool = False
    is_finished: bool = False

    def lanes_on(self, cores: int) -> int:
        """Return the number of calls that may run at once on `cores` cores, at least 1."""
        calls = max(1, cores // self.lane_widths[0])
        return min(calls, self.parallel_calls or calls)
