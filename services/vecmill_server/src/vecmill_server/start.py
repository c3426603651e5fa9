"""Puts a service together from settings and the names of models."""

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from vecmill.clock import monotonic
from vecmill.config import MillConfig
from vecmill.cores import CoreBudget, available_cores
from vecmill.errors import InvalidConfig
from vecmill.mill import Mill
from vecmill.models import ModelDescription, Task, describe_model, locate_model
from vecmill_server.batches.access import StoreAccess
from vecmill_server.batches.facade import Batches
from vecmill_server.batches.work import Workshop
from vecmill_server.catalog import Catalog, ServedModel
from vecmill_server.dialects import DialectOptions
from vecmill_server.drain import Drain
from vecmill_server.metrics import ServerMetrics
from vecmill_server.service import Service
from vecmill_server.settings import RerankDocument, ServerSettings
from vecmill_server.token_ids import choose_ids_reader


def load_service(models: Sequence[str], settings: ServerSettings, config: MillConfig) -> Service:
    """A service of models that have been found and read, but not loaded, over one core budget.

    Without any, the embedded model. Raises `SetupError`.
    """
    tasks = _read_tasks(settings.task)
    trusted = frozenset(settings.trust_remote_code)
    descriptions = [_describe(model, tasks, trusted) for model in models or (None,)]
    served_names = {None, *models, *(found.name for found in descriptions)}
    _refuse_unserved("--task", tasks.keys() - served_names)
    _refuse_unserved("--trust-remote-code", trusted - served_names)
    metrics = ServerMetrics()
    budget = CoreBudget(config.cores or available_cores())
    served = [
        ServedModel(
            found.name, Mill(found, config, observer=metrics.observe_model(found.name), budget=budget)
        )
        for found in descriptions
    ]
    return assemble_service(served, settings, metrics)


def assemble_service(models: list[ServedModel], settings: ServerSettings, metrics: ServerMetrics) -> Service:
    """A service of `models`, whose observers count in `metrics`. Raises `SetupError`."""
    catalog = Catalog(models, settings.alias)
    for model in models:
        metrics.watch_backlog(model.name, model.mill)
    options = DialectOptions(
        choose_ids_reader(settings.token_ids), settings.rerank_document is RerankDocument.STRING
    )
    batches = _assemble_batches(settings, catalog, metrics, options)
    return Service(settings, catalog, metrics, Drain(lame_duck_s=settings.lame_duck_s), options, batches)


def _assemble_batches(
    settings: ServerSettings, catalog: Catalog, metrics: ServerMetrics, options: DialectOptions
) -> Batches | None:
    if settings.batch_dir is None:
        return None
    access = StoreAccess(settings.batch_dir, max_open=settings.max_open_batches)
    return Batches(Workshop(access, settings, catalog, metrics, options, time.time, monotonic))


def _refuse_unserved(option: str, names: Set[str | None]) -> None:
    if names:
        raise InvalidConfig(f"{option} names {min(map(str, names))!r}, a model that is not served.")


def _describe(model: str | None, tasks: Mapping[str | None, Task], trusted: Set[str]) -> ModelDescription:
    location = locate_model(model)
    location = replace(location, trusts_code=bool({model, location.name} & trusted))
    return describe_model(location, tasks.get(model) or tasks.get(location.name) or tasks.get(None))


def _read_tasks(written: Sequence[str]) -> dict[str | None, Task]:
    """Tasks by the model that they are for; `None` is any other."""
    tasks: dict[str | None, Task] = {}
    for entry in written:
        name, _, value = entry.rpartition("=")
        if value not in tuple(Task):
            raise InvalidConfig(f"--task {entry!r}: the task must be one of {', '.join(Task)}.")
        tasks[name or None] = Task(value)
    return tasks
