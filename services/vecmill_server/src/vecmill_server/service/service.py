"""The service: the settings, models, metrics and state that the routes of one server share.

`load_service` creates it from settings and the names of models.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.errors import InvalidConfig, SetupError
from vecmill.hardware.budget import CoreBudget
from vecmill.hardware.cores import count_cores
from vecmill.hardware.memory import mapped_mb
from vecmill.mill import Mill
from vecmill.models import ModelDescription, locate_model
from vecmill.models.location import find_hub_name
from vecmill.serving_plan.needs import SERVER_MB
from vecmill.tokenization.shared import SharedTokenizers
from vecmill.values.clock import Clock, monotonic
from vecmill.values.task import Task
from vecmill_server.base.byte_budget import ByteBudget, default_budget_bytes
from vecmill_server.base.catalog import ANY_NAME, Catalog, ServedModel, accepts_any_name
from vecmill_server.base.json_io import LargeJson
from vecmill_server.base.model_choice import ModelChoice, apply_named_options, own_name, read_tasks
from vecmill_server.base.residency import Residency
from vecmill_server.base.settings import RerankDocument, ServerSettings
from vecmill_server.base.time_limit import limit_time
from vecmill_server.batches.batch_service import BatchService
from vecmill_server.batches.execution import BatchContext
from vecmill_server.batches.objects import StoreLimits
from vecmill_server.batches.store_thread import StoreThread
from vecmill_server.dialects.fields import DialectOptions
from vecmill_server.dialects.token_ids import choose_ids_reader
from vecmill_server.service.api_keys import ApiKeys
from vecmill_server.service.catalog_models import CatalogModel
from vecmill_server.service.drain import Drain
from vecmill_server.service.result_cache.server_results import ServerResults, open_results
from vecmill_server.service.unknown_words import UnknownFields, UnknownNames
from vecmill_server.telemetry.logs import adopt_hub_log
from vecmill_server.telemetry.metrics.history import MetricsHistory
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics
from vecmill_server.telemetry.siblings import Siblings
from vecmill_server.telemetry.tracing import start_tracing
from vecmill_server.telemetry.tracing.trace import Tracer

logger = logging.getLogger(__name__)

MEBIBYTE = 1024 * 1024
# The share of the memory budget that counts; the rest is for the requests that the models answer.
MODELS_SHARE = 0.95

# The error message of /v1/files and /v1/batches.
BATCHES_OFF = "Batches are disabled on this server. Start it with --batch-dir FOLDER to enable them."


@dataclass(frozen=True, slots=True)
class _FoundModel:
    """A model that was named. `source` is its description, or a function that locates and describes it.

    `source` is `None` if the model cannot be described, and `failure` then says why. `describe` describes a
    local model again.
    """

    name: str
    source: ModelDescription | Callable[[], ModelDescription] | None
    failure: SetupError | None = None
    describe: Callable[[], ModelDescription] | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """The dependencies of routes. `wall_clock` returns Unix seconds.

    `batches` is `None` if disabled, and `batches_off` is then the error message. `keys` is `None` if no API
    key is required. `tracer` is `None` unless tracing is on. `siblings` is `None` if one process serves.
    `page_clock` tells the age of pages that requests share. `results` is `None` if no results are kept.
    `catalog_models` are those that come and go, by name. `admin_keys` are `None` if nobody may change what is
    served. `history` is `None` without the console, which shows it.
    """

    settings: ServerSettings
    catalog: Catalog
    metrics: ServerMetrics
    drain: Drain
    dialect_options: DialectOptions
    budget: ByteBudget
    unknown_fields: UnknownFields
    batches: BatchService | None = None
    keys: ApiKeys | None = None
    batches_off: str = BATCHES_OFF
    wall_clock: Callable[[], float] = time.time
    page_clock: Clock = monotonic
    large_json: LargeJson = field(default_factory=LargeJson)
    tracer: Tracer | None = None
    siblings: Siblings | None = None
    results: ServerResults | None = None
    catalog_models: Mapping[str, CatalogModel] = field(default_factory=dict)
    admin_keys: ApiKeys | None = None
    history: MetricsHistory | None = None

    @property
    def is_ready(self) -> bool:
        """True if a load balancer should send requests to this server."""
        has_loaded = not self.catalog.is_loading and (self.batches is None or self.batches.is_open)
        return self.drain.is_serving and has_loaded and self._suffices()

    def _suffices(self) -> bool:
        may_answer = map(self.catalog.may_answer, self.catalog)
        return all(may_answer) if self.settings.strict else any(may_answer)


def load_service(models: Sequence[ModelChoice], settings: ServerSettings, config: MillConfig) -> Service:
    """Return a service of models that share the cores. Local models are described, but no model is loaded.

    The default is the embedded model. Models of a hub are located when they are loaded, since that may take
    a download. Raises `SetupError` if no model can be described, or with `strict` if one cannot, and in any
    case if a directory does not exist.
    """
    choices = models or (ModelChoice(),)
    tasks = read_tasks(settings.task)
    trusted = frozenset(settings.trust_remote_code)
    all_found = [_find(choice, tasks, trusted) for choice in choices]
    failures = [found.failure for found in all_found if found.failure is not None]
    if failures and (settings.strict or len(failures) == len(all_found)):
        raise failures[0]
    for found in all_found:
        if found.failure is not None:
            logger.error("the model %s cannot be read: %s", found.name, found.failure.message)
    served_names = {None, *(choice.model for choice in choices), *(found.name for found in all_found)}
    _refuse_unserved("--task", tasks.keys() - served_names)
    _refuse_unserved("--trust-remote-code", trusted - served_names)
    metrics = ServerMetrics()
    tracer = start_tracing() if settings.tracing else None
    on_batch = None if tracer is None else tracer.end_batch
    budget = CoreBudget(count_cores(config.cores))
    tokenizers = SharedTokenizers()
    served, catalog_models, loads = [], {}, None
    for choice, found in zip(choices, all_found, strict=True):
        observer = metrics.observe_model(found.name, on_batch)
        make_mill = partial(
            Mill,
            config=limit_time(choice.config or config),
            observer=observer,
            budget=budget,
            tokenizers=tokenizers,
        )
        model = ServedModel(found.name, make_mill(found.source), found.failure)
        served.append(model)
        if settings.memory_budget_mib is not None:
            loads = loads or metrics.model_loads()
            catalog_models[found.name] = CatalogModel(
                model, make_mill, metrics, observer, loads, found.describe
            )
    aliases = (
        f"{alias}={found.name}"
        for choice, found in zip(choices, all_found, strict=True)
        for alias in choice.aliases
    )
    settings = replace(settings, alias=(*settings.alias, *aliases))
    service = assemble_service(served, settings, metrics, tracer)
    return replace(service, catalog_models=catalog_models)


def assemble_service(
    models: list[ServedModel], settings: ServerSettings, metrics: ServerMetrics, tracer: Tracer | None = None
) -> Service:
    """Return a service of `models`, whose observers update `metrics` and report batches to `tracer`.

    Raises `SetupError`.
    """
    on_unknown_name = None  # without the alias for any name there is nothing to count, and no counter
    if accepts_any_name(settings.alias):
        on_unknown_name = UnknownNames(metrics.count_unknown_names()).add
    catalog = Catalog(models, settings.alias, on_unknown_name, _make_residency(settings))
    results = _keep_results(models, settings, metrics)
    for model in models:
        metrics.watch_model(model)
    options = DialectOptions(
        choose_ids_reader(settings.token_ids),
        catalog.task_of,
        plain_documents=settings.rerank_document is RerankDocument.STRING,
    )
    keys = ApiKeys(settings.api_key, settings.api_key_file) if settings.has_api_keys else None
    if keys is not None:
        metrics.watch_keys()
    budget = ByteBudget(settings.max_buffered_bytes or default_budget_bytes())
    metrics.watch_budget(budget)
    drain = Drain(lame_duck_s=settings.lame_duck_s)
    unknown_fields = UnknownFields(metrics)
    admin_keys = None
    if settings.admin_key_file is not None:
        admin_keys = ApiKeys((), settings.admin_key_file, option="--admin-key-file")
    service = Service(
        settings,
        catalog,
        metrics,
        drain,
        options,
        budget,
        unknown_fields,
        keys=keys,
        tracer=tracer,
        results=results,
        admin_keys=admin_keys,
        history=MetricsHistory(monotonic) if settings.console else None,
    )
    if settings.batch_dir is None:
        return service
    return replace(service, batches=_assemble_batches(service, settings.batch_dir))


def _keep_results(
    models: Sequence[ServedModel], settings: ServerSettings, metrics: ServerMetrics
) -> ServerResults | None:
    """Let the models keep their results, if the settings say so."""
    if not settings.keeps_results:
        return None
    results = open_results(settings, metrics.watch_results())
    metrics.watch_result_sizes(memory=lambda: results.memory_bytes, disk=lambda: results.disk_bytes)
    for model in models:
        model.mill.results = results
    return results


def _assemble_batches(service: Service, folder: Path) -> BatchService:
    """Return the files and batches of `service`, which are stored in `folder`."""
    settings, keys = service.settings, service.keys
    limits = StoreLimits(
        settings.max_open_batches,
        settings.max_stored_bytes,
        lambda: 1 if keys is None else keys.owner_count,
    )
    context = BatchContext(
        StoreThread(folder, limits),
        settings,
        service.catalog,
        service.metrics,
        service.dialect_options,
        time.time,
        monotonic,
        report_unknown=service.unknown_fields.report,
        tracer=service.tracer,
    )
    return BatchService(context)


def _refuse_unserved(option: str, names: Set[str | None]) -> None:
    if names:
        raise InvalidConfig(f"{option} names {min(map(str, names))!r}, a model that is not served.")


def _make_residency(settings: ServerSettings) -> Residency | None:
    """Return what loads and drops models; `None` if all models stay loaded."""
    if settings.memory_budget_mib is None:
        return None
    budget_mb = MODELS_SHARE * settings.memory_budget_mib * MEBIBYTE / 1e6
    base_mb = max(SERVER_MB, mapped_mb())
    return Residency(budget_mb, settings.kept_s, base_mb=base_mb, measure_mb=mapped_mb)


def _find(choice: ModelChoice, tasks: Mapping[str | None, Task], trusted: Set[str]) -> _FoundModel:
    if choice.name is not None and (choice.name != choice.name.strip() or choice.name == ANY_NAME):
        raise InvalidConfig(f"A model cannot have the name {choice.name!r}.")
    own = own_name(choice.model)
    name = choice.name or own
    choice = apply_named_options(choice, own, tasks, trusted)
    if find_hub_name(choice.model) is not None:
        return _FoundModel(name, partial(_fetch, choice))
    try:
        return _FoundModel(name, _describe(choice), describe=partial(_describe, choice))
    except InvalidConfig:
        raise  # an option, not the model, is wrong
    except SetupError as error:
        return _FoundModel(name, None, error)


def _fetch(choice: ModelChoice) -> ModelDescription:
    """Download a model of a hub if necessary, and describe it. Raises `SetupError`."""
    adopt_hub_log()
    return _describe(choice)


def _describe(choice: ModelChoice) -> ModelDescription:
    # The code of a hub's model is downloaded only if the operator trusts the model.
    return describe_model(locate_model(choice.model, trusts_code=choice.trusts_code), choice.task)
