"""A replica of one model: the ASGI application of the server, run by Ray Serve."""

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vecmill.config import MillConfig
from vecmill.errors import NotReady
from vecmill.hardware.cores import available_cores
from vecmill.values.clock import Clock, monotonic
from vecmill.values.task import Task
from vecmill_ray.serving.autoscaling import BUSY, QUEUE_S
from vecmill_ray.serving.forwarding import ForwardedRequest, ForwardedResponse, run_request, with_heartbeats
from vecmill_ray.serving.model_plan import PlannedModel
from vecmill_server.app import create_app
from vecmill_server.catalog.catalog import ServedModel
from vecmill_server.process.loading import LifespanApp
from vecmill_server.service.service import Service, create_service
from vecmill_server.telemetry.logs import configure_logging


class WorkMeter:
    """The numbers that a replica reports to Serve's autoscaler: queued seconds, and the busy fraction."""

    def __init__(self, service: Service, model: ServedModel, clock: Clock = monotonic) -> None:
        self._registry = service.metrics.registry
        self._model = model
        self._clock = clock
        self._read_at = clock()
        self._inference_s = self._total_inference_s()

    def read(self) -> dict[str, float]:
        """Return the queued seconds of work, and the busy fraction since the last call."""
        now, inference_s = self._clock(), self._total_inference_s()
        passed_s = max(now - self._read_at, 1e-6) * self._lanes
        busy = min(1.0, (inference_s - self._inference_s) / passed_s)
        self._read_at, self._inference_s = now, inference_s
        return {QUEUE_S: self._model.mill.backlog.seconds, BUSY: busy}

    @property
    def _lanes(self) -> int:
        mill = self._model.mill
        return mill.info.lanes_on(mill.config.cores or available_cores())

    def _total_inference_s(self) -> float:
        name = self._model.name
        return self._registry.get_sample_value("vecmill_inference_seconds_sum", {"model": name}) or 0.0


BATCHES_OFF = (
    "Files and batches are disabled on Ray: a file that one replica keeps would be unknown to the others. "
    "`vecmill ray embed` embeds files."
)


class ModelLost(Exception):
    """The model has lost its workers, so that Serve has to replace the replica."""


class ModelReplica:
    """The class of the deployment of the only model, which takes HTTP requests itself.

    Serve creates an object in each replica, and runs the lifespan of the application.
    """

    def __init__(self, planned: PlannedModel) -> None:
        configure_logging(planned.settings)
        # Serve's own lines have another format, and their own handlers.
        logging.getLogger("ray").propagate = False
        config = planned.choice.config or MillConfig()
        service = create_service([planned.choice], planned.settings, config)
        self._service = replace(service, batches_off=BATCHES_OFF)
        (self._model,) = service.catalog
        self._inner = create_app(self._service)
        self._lifespan = LifespanApp(OneRequestId(self._inner), self._service)
        self._meter: WorkMeter | None = None

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the application, whose lifespan Serve runs."""
        return self._lifespan

    def check_health(self) -> None:
        """Raise `ModelLost` if this replica cannot answer any more. Serve then replaces it."""
        if self._model.mill.is_lost:
            raise ModelLost(f"The model {self._model.name} has lost its workers.")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the numbers for the autoscaler, which Serve collects from each replica."""
        if self._meter is None:
            self._meter = WorkMeter(self._service, self._model)
        return self._meter.read()


class RoutedReplica(ModelReplica):
    """The class of the deployment of one of several models, to which the router forwards requests.

    Serve awaits the constructor and `__del__`. Only the router can be an ASGI application for Serve.
    """

    _is_started = False

    async def __init__(self, planned: PlannedModel) -> None:  # type: ignore[misc]
        super().__init__(planned)
        await self._lifespan.start()
        self._is_started = True

    async def __del__(self) -> None:
        if self._is_started:  # otherwise the constructor failed
            await self._lifespan.close()

    async def find_tasks(self) -> tuple[Task, ...]:
        """Return the tasks of the model, its own first, by which the router finds the model of a request."""
        tasks = self._model.tasks
        if tasks is None:
            raise NotReady(f"The model {self._model.name} is not loaded.")
        return tasks

    async def answer(self, request: ForwardedRequest) -> AsyncIterator[ForwardedResponse | None]:
        """Yield heartbeats, which are `None`, and then the response to a request of the router."""
        async with aclosing(with_heartbeats(run_request(self._inner, request))) as items:
            async for item in items:
                yield item


class OneRequestId:
    """The middleware that leaves the header `x-request-id` of responses to Serve, which adds it too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [each for each in message["headers"] if each[0] != b"x-request-id"]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_without_id)
