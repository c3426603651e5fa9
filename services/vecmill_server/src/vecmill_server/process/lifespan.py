"""The ASGI lifespan of the application, for ASGI servers other than `runner`, such as Ray Serve.

It loads the models when the ASGI server starts, and closes them when the ASGI server stops.
"""

import asyncio
import logging
import time

from starlette.types import ASGIApp, Receive, Scope, Send

from vecmill.errors import SetupError
from vecmill_server.process.loading import load_models, measure_ranges
from vecmill_server.service.service import Service

logger = logging.getLogger(__name__)


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
        await asyncio.gather(*(model.mill.close() for model in self._service.catalog))
        if batches is not None:
            await batches.close()
        if self._service.tracer is not None:
            await self._service.tracer.close()
        drain.finish()
