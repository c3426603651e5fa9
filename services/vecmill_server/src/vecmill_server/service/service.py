"""The service: the settings, models, metrics and state that the routes of one server share.

`create_service` creates it from settings and the names of models.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from vecmill.config import MillConfig
from vecmill.hardware.budget import CoreBudget
from vecmill.hardware.cores import count_cores
from vecmill.mill import Mill
from vecmill.tokenization.shared import SharedTokenizers
from vecmill.values.clock import Clock, monotonic
from vecmill_server.base.byte_budget import ByteBudget, default_budget_bytes
from vecmill_server.base.json_io import LargeJson
from vecmill_server.base.picture_urls import PictureHosts
from vecmill_server.base.settings import RerankDocument, ServerSettings
from vecmill_server.base.time_limit import limit_time
from vecmill_server.batches.batch_service import BatchService
from vecmill_server.batches.execution import BatchContext, fetch_nothing
from vecmill_server.batches.objects import StoreLimits
from vecmill_server.batches.store_thread import StoreThread
from vecmill_server.catalog.catalog import Catalog, ServedModel
from vecmill_server.catalog.found_models import find_models
from vecmill_server.catalog.model_choice import ModelChoice
from vecmill_server.catalog.model_names import accepts_any_name
from vecmill_server.catalog.on_demand_model import OnDemandModel, make_residency
from vecmill_server.dialects.fields import DialectOptions
from vecmill_server.dialects.token_ids import choose_ids_reader
from vecmill_server.service.api_keys import ApiKeys
from vecmill_server.service.drain import Drain
from vecmill_server.service.embedding_cache.tiered_cache import TieredCache, open_cache
from vecmill_server.service.picture_fetcher import PictureFetcher
from vecmill_server.service.unknown_words import UnknownFields, UnknownNames
from vecmill_server.telemetry.logs import adopt_hub_log
from vecmill_server.telemetry.metrics.history import MetricsHistory
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics
from vecmill_server.telemetry.siblings import Siblings
from vecmill_server.telemetry.tracing import start_tracing
from vecmill_server.telemetry.tracing.trace import Tracer

# The error message of /v1/files and /v1/batches.
BATCHES_OFF = "Batches are disabled on this server. Start it with --batch-dir FOLDER to enable them."


@dataclass(frozen=True, slots=True)
class Service:
    """The dependencies of routes. `wall_clock` returns Unix seconds.

    `batches` is `None` if disabled, and `batches_off` is then the error message. `keys` is `None` if no API
    key is required. `tracer` is `None` unless tracing is on. `siblings` is `None` if one process serves.
    `page_clock` tells the age of pages that requests share. `embedding_cache` is `None` if there is none.
    `on_demand_models` are those that are loaded on demand. `admin_keys` are `None` if nobody may change what
    is served. `history` is `None` without the console, which shows it. `picture_fetcher` is `None` if no URL
    is fetched.
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
    embedding_cache: TieredCache | None = None
    on_demand_models: Mapping[str, OnDemandModel] = field(default_factory=dict)
    admin_keys: ApiKeys | None = None
    history: MetricsHistory | None = None
    picture_fetcher: PictureFetcher | None = None

    @property
    def is_ready(self) -> bool:
        """True if a load balancer should send requests to this server."""
        has_loaded = not self.catalog.is_loading and (self.batches is None or self.batches.is_open)
        return self.drain.is_serving and has_loaded and self._suffices()

    def _suffices(self) -> bool:
        may_answer = map(self.catalog.may_answer, self.catalog)
        return all(may_answer) if self.settings.strict else any(may_answer)


def create_service(models: Sequence[ModelChoice], settings: ServerSettings, config: MillConfig) -> Service:
    """Return a service of models that share the cores. Local models are described, but no model is loaded.

    The default is the embedded model. Models of a hub are located when they are loaded, since that may take
    a download. Raises `SetupError` if no model can be described, or with `strict` if one cannot, and in any
    case if a directory does not exist.
    """
    all_found = find_models(models or (ModelChoice(),), settings, adopt_hub_log)
    metrics = ServerMetrics()
    tracer = start_tracing() if settings.tracing else None
    on_batch = None if tracer is None else tracer.end_batch
    budget = CoreBudget(count_cores(config.cores))
    tokenizers = SharedTokenizers()
    served, on_demand_models = [], {}
    for found in all_found:
        observer = metrics.observe_model(found.name, on_batch)
        make_mill = partial(
            Mill,
            config=limit_time(found.choice.config or config),
            observer=observer,
            budget=budget,
            tokenizers=tokenizers,
        )
        model = ServedModel(found.name, make_mill(found.source), found.failure)
        served.append(model)
        if settings.memory_budget_mib is not None:
            loads = metrics.observe_loads(found.name, observer)
            on_demand_models[found.name] = OnDemandModel(model, make_mill, loads, found.describe)
    aliases = (f"{alias}={found.name}" for found in all_found for alias in found.choice.aliases)
    settings = replace(settings, alias=(*settings.alias, *aliases))
    service = assemble_service(served, settings, metrics, tracer)
    return replace(service, on_demand_models=on_demand_models)


def assemble_service(
    models: list[ServedModel], settings: ServerSettings, metrics: ServerMetrics, tracer: Tracer | None = None
) -> Service:
    """Return a service of `models`, whose observers update `metrics` and report batches to `tracer`.

    Raises `SetupError`.
    """
    on_unknown_name = None  # without the alias for any name there is nothing to count, and no counter
    if accepts_any_name(settings.alias):
        on_unknown_name = UnknownNames(metrics.count_unknown_names()).add
    catalog = Catalog(models, settings.alias, on_unknown_name, make_residency(settings))
    cache = _share_cache(models, settings, metrics)
    metrics.queues.models.extend(models)
    options = DialectOptions(
        choose_ids_reader(settings.token_ids),
        catalog.task_of,
        plain_documents=settings.rerank_document is RerankDocument.STRING,
        picture_hosts=PictureHosts.of(settings.image_urls),
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
        embedding_cache=cache,
        admin_keys=admin_keys,
        history=MetricsHistory(monotonic) if settings.console else None,
        picture_fetcher=PictureFetcher(options.picture_hosts, budget) if settings.image_urls else None,
    )
    if settings.batch_dir is None:
        return service
    return replace(service, batches=_assemble_batches(service, settings.batch_dir))


def _share_cache(
    models: Sequence[ServedModel], settings: ServerSettings, metrics: ServerMetrics
) -> TieredCache | None:
    """Give the models an embedding cache, if the settings say so."""
    if not settings.has_embedding_cache:
        return None
    cache = open_cache(settings, metrics.watch_cache())
    metrics.watch_cache_sizes(memory=lambda: cache.memory_bytes, disk=lambda: cache.disk_bytes)
    for model in models:
        model.mill.embedding_cache = cache
    return cache


def _assemble_batches(service: Service, folder: Path) -> BatchService:
    """Return the files and batches of `service`, which are stored in `folder`."""
    settings, keys, fetcher = service.settings, service.keys, service.picture_fetcher
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
        fetching_for=fetch_nothing if fetcher is None else fetcher.for_client,
    )
    return BatchService(context)
