"""The time limit of requests, which every server has: its clients wait behind each other.

In a program of its own, a `Mill` has none unless it is given one.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from vecmill.config import MillConfig

TIMEOUT_S = 30.0

# The defaults that a server has instead of the library's, by field name.
SERVER_DEFAULTS: Mapping[str, Any] = MappingProxyType({"timeout_s": TIMEOUT_S})


def limit_time(config: MillConfig) -> MillConfig:
    """Return these settings of a model, with the time limit of servers if they have none."""
    if config.queue.timeout_s is not None:
        return config
    return replace(config, queue=replace(config.queue, timeout_s=TIMEOUT_S))
