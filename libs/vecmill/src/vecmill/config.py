"""Every setting of the library: frozen, validated where it is made, each default written once.

A field's `help` metadata is the sentence that `--help` shows; command lines read their defaults
from here.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import platformdirs

from vecmill.errors import InvalidConfig
from vecmill.plan import DEFAULT_BATCH_TOKENS, DEFAULT_ENGINE, EnginePlan, Precision
from vecmill.types import EngineInfo


def setting(default: Any, help_text: str) -> Any:
    """A dataclass field that carries the sentence explaining it."""
    return field(default=default, metadata={"help": help_text})


def default_cache_dir() -> Path:
    """Where prepared models are kept unless a folder is named: the user's cache folder."""
    return Path(platformdirs.user_cache_dir("vecmill"))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidConfig(message)


@dataclass(frozen=True, slots=True)
class BatchConfig:
    """How texts are put together into batches."""

    max_batch_tokens: int | None = setting(
        None,
        "Tokens that one engine call may hold; a longer text runs alone. 512, unless the model was optimised "
        "or its engine knows better.",
    )
    age_cap_s: float = setting(
        2.0,
        "Texts that have waited this long take turns with all others, whatever their weight; those of "
        "batches do not.",
    )
    bulk_texts: int = setting(
        16, "Requests with more texts than this count as bulk and give way to smaller ones."
    )
    interactive_weight: int = setting(4, "How many tokens of small requests run for each token of bulk ones.")

    def __post_init__(self) -> None:
        _require(self.batch_tokens >= 1, "max_batch_tokens must be at least 1")
        _require(self.age_cap_s > 0, "age_cap_s must be more than 0")
        _require(self.bulk_texts >= 1, "bulk_texts must be at least 1")
        _require(self.interactive_weight >= 1, "interactive_weight must be at least 1")

    @property
    def batch_tokens(self) -> int:
        """`max_batch_tokens`, or the default."""
        return DEFAULT_BATCH_TOKENS if self.max_batch_tokens is None else self.max_batch_tokens


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """How much may wait."""

    max_queue_tokens: int = setting(
        1_000_000, "Tokens that may wait; a request that does not fit is refused whole."
    )
    max_queue_texts: int = setting(32_768, "Texts that may wait.")
    timeout_s: float = setting(30.0, "A text that is not done this long after admission is given up.")

    def __post_init__(self) -> None:
        _require(self.max_queue_tokens >= 1, "max_queue_tokens must be at least 1")
        _require(self.max_queue_texts >= 1, "max_queue_texts must be at least 1")
        _require(self.timeout_s > 0, "timeout_s must be more than 0")


@dataclass(frozen=True, slots=True)
class InputConfig:
    """What one request may carry, checked before any work."""

    max_inputs: int = setting(2_048, "Texts in one request.")
    max_text_characters: int = setting(1_000_000, "Characters in one text.")
    max_request_characters: int = setting(16_000_000, "Characters in all texts of one request.")
    max_request_tokens: int = setting(600_000, "Tokens in all texts of one request, after truncation.")

    def __post_init__(self) -> None:
        for name in ("max_inputs", "max_text_characters", "max_request_characters", "max_request_tokens"):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1")


@dataclass(frozen=True, slots=True)
class MillConfig:
    """Everything that a `Mill` can be told."""

    engine: str | None = setting(
        None,
        f"The engine that computes the rows; {DEFAULT_ENGINE}, unless the model was optimised for another or "
        "only torch can run it.",
    )
    precision: Precision | None = setting(
        None, "What the engine multiplies; fp32, unless the model was optimised for less."
    )
    device: str | None = setting(
        None, "What the engine runs on, such as cpu, cuda:1 or tensorrt; the best it finds if not given."
    )
    cores: int | None = setting(None, "Cores to compute on; as many as this process may use if not given.")
    hang_s: float = setting(
        30.0, "An engine call that takes longer than this is given up, and readiness goes false."
    )
    cache_dir: Path | None = field(
        default=None,
        metadata={"help": "Where prepared models are kept; the user's cache folder if not given."},
    )
    batch: BatchConfig = field(default_factory=BatchConfig)
    queue: QueueConfig = field(default_factory=QueueConfig)
    inputs: InputConfig = field(default_factory=InputConfig)

    def plan(self, default_engine: str = DEFAULT_ENGINE) -> EnginePlan:
        """What these settings say about the engine."""
        return EnginePlan(
            engine=self.engine or default_engine,
            precision=self.precision,
            device=self.device,
            max_batch_tokens=self.batch.max_batch_tokens,
        )

    def sized_for(self, info: EngineInfo) -> "MillConfig":
        """These settings, with batches as large as the engine likes them where no size was given."""
        if self.batch.max_batch_tokens is not None:
            return self
        return replace(self, batch=replace(self.batch, max_batch_tokens=info.batch_tokens))

    def __post_init__(self) -> None:
        _require(self.cores is None or self.cores >= 1, "cores must be at least 1")
        _require(self.hang_s > 0, "hang_s must be more than 0")
