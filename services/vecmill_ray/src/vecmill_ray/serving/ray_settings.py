"""The settings of the Serve application: replicas, their resources, and when to add a replica."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vecmill.config import setting
from vecmill.errors import InvalidConfig
from vecmill_server.base.options import list_settings


@dataclass(frozen=True, slots=True)
class RaySettings:
    """The settings of the Serve application. Raises `InvalidConfig` if a value is invalid."""

    replicas: int = setting(1, "The number of replicas of each model, or the minimum with --max-replicas.")
    max_replicas: int | None = setting(
        None, "The maximum number of replicas of each model; by default, the number does not change."
    )
    replica_cores: int = setting(1, "The cores of each replica.")
    replica_gpus: float = setting(0.0, "The GPUs of each replica.")
    queue_s: float = setting(
        0.5,
        "The seconds of queued work for each replica above which Serve adds a replica. Serve also adds a "
        "replica if the replicas compute for more than 80% of the time.",
    )
    upscale_delay_s: float = setting(10.0, "The time before Serve adds a replica, in seconds.")
    downscale_delay_s: float = setting(300.0, "The time before Serve removes a replica, in seconds.")
    routers: int | None = setting(
        None, "The number of routers, which several models need; by default one on each node."
    )
    nodes: int | None = setting(
        None,
        "The number of nodes that the cluster will have, if they start later; by default those that it has.",
    )

    def __post_init__(self) -> None:
        for name in ("replicas", "replica_cores", "routers", "nodes"):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"{name} must be at least 1")
        most = self.max_replicas
        _require(most is None or most >= self.replicas, "max_replicas must not be less than replicas")
        _require(self.replica_gpus >= 0, "replica_gpus must not be negative")
        _require(self.queue_s > 0, "queue_s must be more than 0")
        for name in ("upscale_delay_s", "downscale_delay_s"):
            _require(getattr(self, name) >= 0, f"{name} must not be negative")

    def count_nodes(self, alive: int) -> int:
        """Return the number of nodes that routers are spread over, for a cluster with so many now."""
        return alive if self.nodes is None else max(self.nodes, alive)

    def count_routers(self, alive: int) -> int:
        """Return the number of routers for a cluster that has so many nodes now."""
        return self.count_nodes(alive) if self.routers is None else self.routers

    @property
    def scales(self) -> bool:
        """True if the number of replicas changes with the load."""
        return self.max_replicas is not None and self.max_replicas > self.replicas

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "RaySettings":
        """Return the settings in `values`, whose strings are converted. Raises `InvalidConfig`."""
        known = {each.field.name: each.type for each in list_settings(cls)}
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = (
                    f"Did you mean {near[0]}?" if near else f"The arguments are config, {', '.join(known)}."
                )
                raise InvalidConfig(f"The argument {name} is not known. {hint}")
        try:
            return cls(**{name: known[name](value) for name, value in values.items()})
        except (TypeError, ValueError) as error:
            raise InvalidConfig(f"An argument has the wrong type: {error}.") from error


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidConfig(f"{message}.")
