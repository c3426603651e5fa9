"""Every setting of the library, in frozen dataclasses that validate their values.

Each default is written once.

The help text of a field is that of its command-line option, whose default is read from here.
"""

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal, TypeVar

import platformdirs

from vecmill.errors import InvalidConfig
from vecmill.values.engine_plan import (
    DEFAULT_BATCH_TOKENS,
    DEFAULT_ENGINE,
    EngineInfo,
    EnginePlan,
    Precision,
    PrecisionName,
)
from vecmill.values.field_help import explained
from vecmill.values.field_help import setting as setting
from vecmill.values.field_types import find_wrong_field

Choice = TypeVar("Choice", bound=StrEnum)


def default_cache_dir() -> Path:
    """Return the default folder of prepared models: the user's cache folder."""
    return Path(platformdirs.user_cache_dir("vecmill"))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidConfig(message)


def _check_types(settings: object) -> None:
    """Raise `InvalidConfig` for a setting of a wrong type."""
    wrong = find_wrong_field(settings)
    if wrong is not None:
        raise InvalidConfig(f"{wrong.name} is {wrong.value!r:.50}; it must be {wrong.expected}")


def _choose(kind: type[Choice], name: str, value: str) -> Choice:
    """Return the member of `kind` that `value` names. Raises `InvalidConfig`."""
    members = list(kind)
    _require(value in members, f"{name} is {value!r}; it must be one of {', '.join(members)}")
    return kind(value)


class OnLongInput(StrEnum):
    """The fate of a text that is longer than the model reads."""

    CUT = "cut"
    ERROR = "error"


@explained
@dataclass(frozen=True, slots=True)
class BatchConfig:
    """The settings of batching."""

    max_batch_tokens: int | None = setting(
        None,
        "Tokens in one engine call; a longer text runs alone. By default as in the model's optimised plan, "
        "else the engine's own value, else the size that is measured to be fastest, beginning at 512.",
    )
    bulk_s: float = setting(
        0.5,
        "Requests that take longer than this on an idle machine have bulk priority, behind smaller requests, "
        "whatever they ask for.",
    )
    interactive_weight: int = setting(
        4, "Seconds of interactive requests computed for each second of bulk requests."
    )

    def __post_init__(self) -> None:
        _check_types(self)
        _require(self.batch_tokens >= 1, "max_batch_tokens must be at least 1")
        _require(self.bulk_s > 0, "bulk_s must be more than 0")
        _require(self.interactive_weight >= 1, "interactive_weight must be at least 1")

    @property
    def batch_tokens(self) -> int:
        """`max_batch_tokens`, or the size before the first measurement."""
        return DEFAULT_BATCH_TOKENS if self.max_batch_tokens is None else self.max_batch_tokens


@explained
@dataclass(frozen=True, slots=True)
class QueueConfig:
    """The limits of the queue."""

    max_queue_tokens: int = setting(
        1_000_000,
        "Tokens that may wait in the queue, two thirds of them of one client; a request that does not fit is "
        "refused whole.",
    )
    max_queue_texts: int = setting(
        32_768, "Texts that may wait in the queue, two thirds of them of one client."
    )
    target_wait_s: float = setting(
        2.0,
        "Seconds that the waiting interactive requests of one client may take, and one and a half times as "
        "many for those of all clients; more are refused. A client with nothing waiting may always bring one "
        "beside another client.",
    )
    timeout_s: float | None = setting(
        None,
        "A request without an answer after this time fails with a timeout. Four times the seconds that the "
        "request takes on an idle machine are added.",
    )

    def __post_init__(self) -> None:
        _check_types(self)
        _require(self.max_queue_tokens >= 1, "max_queue_tokens must be at least 1")
        _require(self.max_queue_texts >= 1, "max_queue_texts must be at least 1")
        _require(self.target_wait_s > 0, "target_wait_s must be more than 0")
        _require(self.longest_s > 0, "timeout_s must be more than 0")

    @property
    def longest_s(self) -> float:
        """`timeout_s`, infinity if there is none."""
        return math.inf if self.timeout_s is None else self.timeout_s


@explained
@dataclass(frozen=True, slots=True)
class InputConfig:
    """The limits of one request, checked before any work."""

    max_inputs: int = setting(2_048, "Texts in one request.")
    max_pictures: int = setting(256, "Pictures in one request.")
    max_text_characters: int = setting(1_000_000, "Characters in one text.")
    max_request_characters: int = setting(16_000_000, "Characters in all texts of one request.")
    max_request_tokens: int = setting(600_000, "Tokens in all texts of one request, after truncation.")
    max_counted_characters: int = setting(
        1_000_000,
        "Characters of one request that are read only to count the tokens that were cut off. What is longer "
        "has a lower bound instead of a count.",
    )
    on_long_input: OnLongInput | Literal["cut", "error"] = setting(
        OnLongInput.CUT,
        "What happens to a text that is longer than the model reads, if its request does not say: it is cut, "
        "or the request is refused (error).",
    )

    def __post_init__(self) -> None:
        _check_types(self)
        for name in (
            "max_inputs",
            "max_pictures",
            "max_text_characters",
            "max_request_characters",
            "max_request_tokens",
        ):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1")
        _require(self.max_counted_characters >= 0, "max_counted_characters must not be negative")
        on_long_input = _choose(OnLongInput, "on_long_input", self.on_long_input)
        object.__setattr__(self, "on_long_input", on_long_input)


@explained
@dataclass(frozen=True, slots=True)
class MillConfig:
    """All settings of a `Mill`."""

    engine: str | None = setting(
        None,
        f"The engine that computes embeddings. The default is the model's optimised plan, else torch for an "
        f"architecture that only torch can run, else {DEFAULT_ENGINE}.",
    )
    precision: Precision | PrecisionName | None = setting(
        None,
        "The number format in which the engine multiplies; by default as in the model's optimised plan, else "
        "fp32.",
    )
    device: str | None = setting(
        None,
        "The device that the engine runs on, such as cpu, cuda:1 or tensorrt; by default the best one found.",
    )
    cores: int | None = setting(None, "Cores to compute on; by default all that this process may use.")
    core_weight: float = setting(
        1.0,
        "The share of the cores that this model gets, relative to that of the other models, while texts of "
        "several models wait.",
    )
    hang_s: float = setting(
        30.0,
        "An engine call hangs if it takes longer than this and longer than 10 times its predicted time. Its "
        "texts fail, and its worker thread is replaced if the call does not return.",
    )
    cache_dir: Path | None = field(
        default=None,
        metadata={"help": "The folder of prepared models; by default in the user's cache folder."},
    )
    batch: BatchConfig = field(default_factory=BatchConfig, metadata={"help": "How calls share batches."})
    queue: QueueConfig = field(
        default_factory=QueueConfig, metadata={"help": "The limits on what waits, and the time limit."}
    )
    inputs: InputConfig = field(default_factory=InputConfig, metadata={"help": "The limits of one request."})

    def plan(self, default_engine: str = DEFAULT_ENGINE) -> EnginePlan:
        """Return the engine plan of these settings."""
        return EnginePlan(
            engine=self.engine or default_engine,
            precision=None if self.precision is None else Precision(self.precision),
            device=self.device,
            max_batch_tokens=self.batch.max_batch_tokens,
        )

    def sized_for(self, info: EngineInfo) -> "MillConfig":
        """Return these settings, with the engine's batch size if no batch size was set."""
        if self.batch.max_batch_tokens is not None:
            return self
        return replace(self, batch=replace(self.batch, max_batch_tokens=info.batch_tokens))

    def __post_init__(self) -> None:
        _check_types(self)
        if self.precision is not None:
            object.__setattr__(self, "precision", _choose(Precision, "precision", self.precision))
        _require(self.cores is None or self.cores >= 1, "cores must be at least 1")
        _require(0.01 <= self.core_weight <= 100, "core_weight must be from 0.01 to 100")
        _require(self.hang_s > 0, "hang_s must be more than 0")
