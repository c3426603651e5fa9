"""The loading of the models of a service, when its server or its ASGI lifespan starts.

The ASGI lifespan is for ASGI servers other than `runner`, such as Ray Serve. It loads the models when the
ASGI server starts, and closes them when the ASGI server stops.
"""

import asyncio
import logging
import math
import time

from starlette.types import ASGIApp, Receive, Scope, Send

from vecmill.errors import SetupError, VecmillError
from vecmill.hardware.cores import available_cores
from vecmill_server.catalog.loads_at_start import load_at_start, refuse_without_models
from vecmill_server.service.service import Service

logger = logging.getLogger(__name__)

# The time of the event loop for a request with one short text, and the tokens of such a text.
REQUEST_S = 0.7e-3
SHORT_TEXT_TOKENS = 16
# This part of a process is not worth another one.
ENOUGH = 0.25


async def load_models(service: Service) -> None:
    """Load all models of `service`, and open its files and batches.

    A model that cannot be loaded does not stop the others, except with `strict`. Raises `SetupError` if no
    model can be loaded, or with `strict` if one cannot.
    """
    try:
        async with asyncio.TaskGroup() as group:
            if service.batches is not None:
                group.create_task(service.batches.open())
            for model in service.catalog:
                on_demand = service.on_demand_models.get(model.name)
                load = load_at_start(model, service.catalog, on_demand, is_strict=service.settings.strict)
                group.create_task(load)
        refuse_without_models(service.catalog)
        if service.catalog.residency is not None:
            service.catalog.residency.memory.measure_base()  # engines are imported by now
    except* SetupError as errors:
        error = first_error(errors)
    except* Exception:
        logger.exception("loading failed")
        error = SetupError("The server could not start. The log has the cause.")
    else:
        return
    raise error


async def measure_ranges(service: Service) -> None:
    """Measure what int8 and uint8 embeddings of each model need, one model after the other.

    Cancelling the call stops it.
    """
    for model in service.catalog:
        if model.failure is not None or model.resident is not None:
            continue
        try:
            await model.mill.measure_ranges()
        except VecmillError as error:
            logger.warning(
                "the ranges of int8 embeddings of %s could not be measured: %s The next request for them "
                "tries again.",
                model.name,
                error.message,
            )


def advise_processes(service: Service) -> None:
    """Log how many processes the machine needs for single short texts, if one does not suffice."""
    if service.siblings is not None or service.batches is not None or service.catalog.residency is not None:
        return
    mills = [model.mill for model in service.catalog if model.failure is None]
    if any(mill.info.device != "cpu" for mill in mills):
        return
    cores = mills[0].config.cores or available_cores()
    # The cost is that of calls on the narrowest width.
    costs = [(mill.cost, mill.info.lane_widths[0]) for mill in mills if mill.cost is not None]
    text_s = min(cost.seconds(SHORT_TEXT_TOKENS) * width for cost, width in costs)
    wanted = count_processes(cores, text_s)
    if wanted > 1:
        logger.info(
            "one process passes on about %d requests a second, and %d cores compute more single short texts. "
            "For many clients that send one text at a time, start the server with --processes %d",
            1 / REQUEST_S,
            cores,
            wanted,
        )


def count_processes(cores: int, text_s: float) -> int:
    """Return how many processes keep `cores` busy with single texts of `text_s` core seconds each.

    The event loop of a process takes `REQUEST_S` for each request, and its lanes compute meanwhile.
    """
    return max(1, math.ceil(cores / (1 + text_s / REQUEST_S) - ENOUGH))


def first_error(errors: BaseExceptionGroup[SetupError]) -> SetupError:
    """Return the first error of a group, which may be nested."""
    error: SetupError | BaseExceptionGroup[SetupError] = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class LifespanApp:
    """The application `app` with an ASGI lifespan, which loads and closes the models of `service`."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._measuring: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        await receive()  # lifespan.startup
        try:
            await self.start()
        except SetupError as error:
            logger.error("the server cannot start: %s", error.message)
            await send({"type": "lifespan.startup.failed", "message": error.message})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def start(self) -> None:
        """Load the models. Raises `SetupError`."""
        try:
            await load_models(self._service)
        except SetupError:
            await self.close()
            raise
        if self._service.batches is not None:
            self._service.batches.start()
        self._measuring = asyncio.create_task(measure_ranges(self._service))

    async def close(self) -> None:
        """Close the models, and send the last spans."""
        batches, drain = self._service.batches, self._service.drain
        if drain.is_serving:
            drain.stop(time.monotonic(), at_once=True)
        if self._measuring is not None:
            self._measuring.cancel()
            await asyncio.wait([self._measuring])
        if batches is not None:
            await batches.stop()
        if self._service.catalog.residency is not None:
            await self._service.catalog.residency.close()
        await asyncio.gather(*(model.mill.close() for model in self._service.catalog.models))
        if batches is not None:
            await batches.close()
        if self._service.embedding_cache is not None:
            await self._service.embedding_cache.close()
        if self._service.tracer is not None:
            await self._service.tracer.close()
        drain.finish()
