"""Puts a service together from settings and the name of a model."""

from vecmill.config import MillConfig
from vecmill.mill import Mill
from vecmill.models import describe_model, locate_model
from vecmill_server.catalog import Catalog, ServedModel
from vecmill_server.drain import Drain
from vecmill_server.metrics import ServerMetrics
from vecmill_server.service import Service
from vecmill_server.settings import ServerSettings


def load_service(model: str | None, settings: ServerSettings, config: MillConfig) -> Service:
    """A service of one model that has been found and read, but not loaded. Raises `SetupError`."""
    description = describe_model(locate_model(model))
    metrics = ServerMetrics()
    mill = Mill(description, config, observer=metrics.observe_model(description.name))
    return assemble_service([ServedModel(description.name, mill)], settings, metrics)


def assemble_service(models: list[ServedModel], settings: ServerSettings, metrics: ServerMetrics) -> Service:
    """A service of `models`, whose observers count in `metrics`. Raises `InvalidConfig`."""
    for model in models:
        metrics.watch_backlog(model.name, model.mill)
    return Service(
        settings, Catalog(models, settings.alias), metrics, Drain(lame_duck_s=settings.lame_duck_s)
    )
