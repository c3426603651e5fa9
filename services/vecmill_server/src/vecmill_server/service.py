"""What the routes share: settings, models, metrics, and the state of shutting down."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from vecmill_server.batches.facade import Batches
from vecmill_server.bodies import BodyLimits
from vecmill_server.catalog import Catalog
from vecmill_server.dialects import DialectOptions
from vecmill_server.drain import Drain
from vecmill_server.metrics import ServerMetrics
from vecmill_server.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class Service:
    """Set by whoever starts the server. `wall_clock` gives Unix seconds; without `batches` they are off."""

    settings: ServerSettings
    catalog: Catalog
    metrics: ServerMetrics
    drain: Drain
    dialect_options: DialectOptions
    batches: Batches | None = None
    wall_clock: Callable[[], float] = time.time

    @property
    def is_ready(self) -> bool:
        """Whether a balancer should send requests here."""
        return self.drain.is_serving and self.catalog.is_ready

    @property
    def body_limits(self) -> BodyLimits:
        """What a request's body may cost."""
        return BodyLimits.of(self.settings)
