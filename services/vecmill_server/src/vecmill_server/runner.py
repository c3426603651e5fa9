"""The runner of the server process: it binds the socket, loads the models, serves requests and drains."""

import asyncio
import contextlib
import logging
import os
import shlex
import signal
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType, MappingProxyType

import uvicorn

from vecmill.errors import InvalidConfig, SetupError
from vecmill.mill import MillState
from vecmill.values.task import Task
from vecmill_server.app import create_app
from vecmill_server.drain import Phase
from vecmill_server.protocol import HeadLimits, LimitedProtocol
from vecmill_server.service import Service
from vecmill_server.settings import ServerSettings

logger = logging.getLogger(__name__)

Announce = Callable[[str], None]

# The path and body of an example request, by the task of a model.
EXAMPLES: Mapping[Task, tuple[str, str]] = MappingProxyType(
    {
        Task.EMBED: ("/v1/embeddings", '{"input": "hello"}'),
        Task.RERANK: ("/rerank", '{"query": "hello", "documents": ["hi", "goodbye"]}'),
        Task.CLASSIFY: ("/predict", '{"inputs": "hello"}'),
        Task.CLASSIFY_TOKENS: ("/predict", '{"inputs": "hello"}'),
        Task.SPARSE: ("/embed_sparse", '{"inputs": "hello"}'),
        Task.MULTI_VECTOR: ("/embed_all", '{"inputs": "hello"}'),
    }
)

BACKLOG = 2048  # connections that the kernel queues while the event loop is busy


def run_server(service: Service, announce: Announce) -> bool:
    """Serve until a signal, and return True if every accepted request was answered.

    `announce` prints the ready message to the operator. Raises `SetupError` if the address is in use or a
    model cannot be loaded.
    """
    settings = service.settings
    listener = None if settings.uds else bind_listener(settings.host, settings.port)
    if settings.uds:
        refuse_live_socket(settings.uds)
    port = settings.port if listener is None else listener.getsockname()[1]
    runner = Runner(service, lambda: announce(ready_message(service, port)))
    runner.run(sockets=None if listener is None else [listener])
    if settings.uds:
        settings.uds.unlink(missing_ok=True)
    if runner.load_error is not None:
        raise runner.load_error
    return runner.is_clean


def uvicorn_config(service: Service) -> uvicorn.Config:
    """Return the configuration of uvicorn, with `LimitedProtocol` and without uvicorn's logs."""
    settings = service.settings
    protocol = partial(LimitedProtocol, limits=HeadLimits.of(settings), metrics=service.metrics)
    return uvicorn.Config(
        create_app(service),
        host=settings.host,
        port=settings.port,
        uds=str(settings.uds) if settings.uds else None,
        http=protocol,  # type: ignore[arg-type]
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]
        timeout_graceful_shutdown=settings.drain_s,  # type: ignore[arg-type]
    )


class Runner(uvicorn.Server):
    """uvicorn's server, with the graceful stop of `drain`."""

    def __init__(self, service: Service, on_ready: Callable[[], None]) -> None:
        super().__init__(uvicorn_config(service))
        self.load_error: SetupError | None = None
        self.is_clean = False
        self._service = service
        self._on_ready = on_ready
        self._loading: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, so that probes are answered, and start loading the models."""
        await super().startup(sockets)
        self._loading = asyncio.create_task(self._load())

    async def on_tick(self, counter: int) -> bool:
        """Return True to stop listening. uvicorn calls this ten times a second."""
        await super().on_tick(counter)
        if self.load_error is not None:
            return True
        return self._service.drain.advance(time.monotonic()) >= Phase.DRAINING

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the stop for a signal. uvicorn would raise the signal again, and lose the exit status."""
        service = self._service
        is_loading = any(model.mill.state is MillState.LOADING for model in service.catalog)
        service.drain.stop(time.monotonic(), at_once=sig == signal.SIGINT or is_loading)
        if service.drain.is_forced:
            # Exits without the event loop, which may be blocked.
            os._exit(exit_status(is_clean=False))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listener, answer every request that has begun to arrive, and close the models."""
        await self._stop_loading()
        batches = self._service.batches
        if batches is not None:
            await batches.stop()
        # The models accept work until the last connection closes. Otherwise requests that had arrived,
        # in whole or in part, when the listener closed would be lost.
        await super().shutdown(sockets)
        self.is_clean = not (self.server_state.tasks or self.server_state.connections)
        self._service.drain.finish()
        if batches is not None:
            await batches.close()
        for model in self._service.catalog:
            await model.mill.close()

    async def _load(self) -> None:
        batches = self._service.batches
        try:
            # The first failure cancels the other models: all are served, or none.
            async with asyncio.TaskGroup() as group:
                if batches is not None:
                    group.create_task(batches.open())
                for model in self._service.catalog:
                    group.create_task(model.mill.start())
        except* SetupError as errors:
            self.load_error = first_error(errors)
        except* Exception:
            logger.exception("loading failed")
            self.load_error = SetupError("The model could not be loaded. The log has the cause.")
        else:
            if batches is not None:
                batches.start()
            self._on_ready()

    async def _stop_loading(self) -> None:
        if self._loading is None or self._loading.done():
            return
        self._loading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._loading


def first_error(errors: ExceptionGroup[SetupError]) -> SetupError:
    """Return the first error of a group, which may be nested."""
    error: SetupError | ExceptionGroup[SetupError] = errors
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def bind_listener(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket. Raises `InvalidConfig` if the address is invalid or in use."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidConfig(
            f"Cannot listen on {host}: {error.strerror}. Choose another address with --host."
        ) from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidConfig(
            f"Cannot listen on {host} port {port}: {error.strerror}. Choose another with --port or --host."
        ) from error
    return listener


def refuse_live_socket(path: Path) -> None:
    """Raise `InvalidConfig` if another process listens on `path`, or `path` is not a socket."""
    if not path.exists():
        return
    if not path.is_socket():
        raise InvalidConfig(f"{path} exists and is not a socket. Name another path with --uds.")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return  # left behind by a process that has ended; it is replaced
    raise InvalidConfig(f"Another process listens on {path}. Name another path with --uds.")


def ready_message(service: Service, port: int) -> str:
    """Return the names of the models, the address of the server, and an example request for the shell."""
    settings = service.settings
    names = ", ".join(model.name for model in service.catalog)
    base, options = _base_url(settings, port)
    if settings.has_api_keys:
        options += ["-H", "authorization: Bearer YOUR_KEY"]
    first = next(iter(service.catalog)).task
    path, body = EXAMPLES[first or Task.EMBED]
    command = ["curl", *options, f"{base}{path}", "-d", body]
    place = f"the socket {settings.uds}" if settings.uds else base
    return f"vecmill serves {names} on {place}\n{shlex.join(command)}"


def _base_url(settings: ServerSettings, port: int) -> tuple[str, list[str]]:
    if settings.uds:
        return f"http://localhost{settings.url_prefix}", ["--unix-socket", str(settings.uds)]
    # A client cannot connect to a wildcard address, so the example uses the loopback address.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}{settings.url_prefix}", []


def exit_status(*, is_clean: bool) -> int:
    """Return 0 if every accepted request was answered, otherwise 1."""
    return 0 if is_clean else 1
