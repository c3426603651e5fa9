"""The routes of the console: its assets, the server's state and last minutes, and the report on the models.

The report has facts, prompts, accuracy, and the measurements of `vecmill optimize`. Only the page asks for
these routes, and they change with it: the OpenAPI document leaves them out.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from vecmill.errors import NotReady, VecmillError
from vecmill.models.directory import read_object
from vecmill.models.location import MANIFEST_FILE
from vecmill.serving_plan.outcome import list_weights
from vecmill.serving_plan.plans import describe_plan, read_plan
from vecmill.values.clock import monotonic
from vecmill.values.own_thread import call_in_thread
from vecmill_server.app.browser_page import ASSETS_PATH, ConsolePage, media_type
from vecmill_server.app.routes.accuracy import report_accuracy
from vecmill_server.app.routes.health import tell_readiness
from vecmill_server.app.routes.model_entries import list_capabilities
from vecmill_server.app.shared_page import SharedPage
from vecmill_server.base.errors import UnknownRoute
from vecmill_server.base.json_io import encode_json
from vecmill_server.catalog.catalog import Catalog, ServedModel
from vecmill_server.service.service import Service

# Reports are made at most this long before they are asked for.
REPORTS_AGE_S = 1.0
# So is the history. A page that is opened draws it once.
HISTORY_AGE_S = 1.0

# The address of an asset changes with its content.
_KEPT = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}


def console_routes(service: Service, page: ConsolePage | None) -> list[Route]:
    """Return the routes of `page`; none without a page."""
    if page is None:
        return []
    assets = page.assets

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        content = assets.contents.get(name)
        if content is None:
            raise UnknownRoute("The page has no asset with this name.")
        headers = _KEPT if request.path_params["version"] == assets.version else {"cache-control": "no-store"}
        return Response(content, media_type=media_type(name), headers=headers)

    def write_reports() -> bytes:
        return encode_json({"models": [report_model(model, service.catalog) for model in service.catalog]})

    # In a thread, because the fingerprint of a model may have to be read again.
    reports = SharedPage(
        partial(call_in_thread, "vecmill-reports", write_reports), REPORTS_AGE_S, service.page_clock
    )

    async def page_of_all(request: Request) -> Response:
        return RedirectResponse(f"{service.settings.url_prefix}/")

    async def models(request: Request) -> Response:
        return Response(await reports.read(), media_type="application/json")

    async def state(request: Request) -> Response:
        # Not /readyz: a server that is asked there waits for load balancers when it is stopped.
        return tell_readiness(service)

    async def write_history() -> bytes:
        return b"[]" if service.history is None else await service.history.write()

    # Everybody may ask for it, as for the metrics.
    readings = SharedPage(write_history, HISTORY_AGE_S, service.page_clock)

    async def history(request: Request) -> Response:
        return Response(await readings.read(), media_type="application/json")

    return [
        # An address that people type; the page itself is at the root.
        Route("/console", page_of_all, methods=["GET"], name="console_page"),
        Route("/console/history.json", history, methods=["GET"], name="console_history"),
        Route("/console/state.json", state, methods=["GET"], name="console_state"),
        Route("/console/models.json", models, methods=["GET"], name="console_models"),
        Route(f"{ASSETS_PATH}/{{version}}/{{name:path}}", asset, methods=["GET"], name="console_asset"),
    ]


def report_model(model: ServedModel, catalog: Catalog) -> dict[str, Any]:
    """Return the report on one model. A model that is not loaded has its state, names and capabilities."""
    facts: dict[str, Any] = {"state": str(model.state)}
    report: dict[str, Any] = {
        "name": model.name,
        "fingerprint": None,
        "facts": facts,
        "aliases": catalog.names.aliases_of(model),
        "capabilities": None if model.tasks is None else list_capabilities(model.tasks),
        "used_s_ago": None if model.used_at is None else monotonic() - model.used_at,
        "space": None,
        "memory_mb": None if model.resident is None else model.resident.held_mb,
        "prompts": [],
        "accuracy": None,
        "precision_check": None,
        "check": None,
        "optimized": None,
    }
    if model.reason is not None:
        facts["reason"] = model.reason
    try:
        description, info, config = model.mill.description, model.mill.info, model.mill.config
    except NotReady:
        return report
    facts |= {
        "task": description.task,
        "architecture": description.architecture,
        "dimensions": info.dim,
        "longest text, tokens": description.max_tokens,
        "engine": info.name,
        "precision": info.precision,
        "device": info.device,
        "cores of a call": list(info.lane_widths),
        "tokens of a full batch": model.mill.batch_tokens,
        "texts in a request, at most": config.inputs.max_inputs,
        "texts that may wait": config.queue.max_queue_texts,
        "longest wait of an interactive request, s": config.queue.target_wait_s,
    }
    if model.mill.query_info is not None:
        facts |= {
            "longest query, tokens": model.mill.query_info.max_tokens,
            "engine of queries": model.mill.query_info.name,
        }
    if (pictures := model.mill.picture_info) is not None:
        facts["encoder of pictures"] = f"{pictures.name} in {pictures.precision}"
    report["space"] = model.mill.identity.space
    with suppress(VecmillError, OSError):  # its files were removed since
        stored = sum(file.stat().st_size for file in set(list_weights(description)))
        facts["weights on disk"] = f"{stored / 1e6:,.0f} MB"
    report["prompts"] = [{"name": name, "text": text} for name, text in description.prompts.items()]
    found = report_accuracy(model.mill)
    report |= {"fingerprint": found["fingerprint"], "accuracy": found["optimized"], "check": found["check"]}
    report["precision_check"] = found["precision_check"]
    report["optimized"] = _read_measurements(description.directory)
    return report


def _read_measurements(directory: Path) -> dict[str, Any] | None:
    """Return the measurements in the manifest of a directory; `None` if there is none that can be read."""
    try:
        document = read_object(directory, MANIFEST_FILE)
        return None if document is None else _measurements(document)
    except (VecmillError, KeyError, TypeError, ValueError):
        return None


def _measurements(document: Mapping[str, Any]) -> dict[str, Any]:
    chosen = document["plan"]
    return {
        "reason": document["reason"],
        "machine": f"{document['machine']['processor_model']}, {document['machine']['cores']} cores",
        "texts": document["texts"],
        "plans": [_plan(entry, is_chosen=entry["plan"] == chosen) for entry in document["candidates"]],
    }


def _plan(entry: Mapping[str, Any], *, is_chosen: bool) -> dict[str, Any]:
    speed, accuracy = entry["speed"], entry["accuracy"]
    worst = None if accuracy is None else accuracy["cosine_min"]
    return {
        "name": describe_plan(read_plan(entry["plan"])),
        "is_chosen": is_chosen,
        "is_safe": bool(entry["is_safe"]),
        "texts_per_s": None if speed is None else speed["texts_per_s"],
        "single_ms": None if speed is None else 1000 * speed["latency_s"],
        "loss": None if worst is None else 1 - worst,
        "memory_mb": entry["memory_mb"],
        "failure": entry["failure"],
    }
