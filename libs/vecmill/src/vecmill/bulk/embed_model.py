"""The model that bulk work embeds with."""

from dataclasses import dataclass, field

from vecmill.config import MillConfig
from vecmill.values.task import Task


@dataclass(frozen=True, slots=True)
class EmbedModel:
    """A model and what it runs with; `None` is the embedded model."""

    model: str | None = None
    config: MillConfig = field(default_factory=MillConfig)
    task: Task | None = None
    trusts_code: bool = False
