"""The runner of the server process: it opens the listener, loads the models, serves requests and drains."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import shlex
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FrameType
from typing import NoReturn

import uvicorn

from vecmill.errors import SetupError, VecmillError
from vecmill.values.clock import RunningClock, monotonic
from vecmill.values.environment import environment_variables
from vecmill.values.task import Task
from vecmill_server.app import create_app
from vecmill_server.app.browser_page import EXAMPLES
from vecmill_server.base.byte_budget import ByteBudget
from vecmill_server.base.error_responses import error_response
from vecmill_server.base.headers import HeaderList
from vecmill_server.base.settings import Address, LogFormat, ServerSettings
from vecmill_server.http1.connection_limits import ConnectionLimits, ConnectionShare
from vecmill_server.http1.protocol import HttpConnection
from vecmill_server.process import IGNORED_SIGNALS, STOP_SIGNALS, ExitStatus, say_ignored
from vecmill_server.process.alarm import Alarm
from vecmill_server.process.listener import BACKLOG, Acceptor, Listener, open_listener
from vecmill_server.process.loading import advise_processes, load_models, measure_ranges
from vecmill_server.process.service_manager import ServiceManager, find_manager
from vecmill_server.process.watchdog import Watchdog
from vecmill_server.service.drain import Phase
from vecmill_server.service.service import Service
from vecmill_server.telemetry.logs import flush_log, report_setup_error
from vecmill_server.telemetry.metrics.definitions import NO_ROUTE
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics

logger = logging.getLogger(__name__)

Announce = Callable[[str], None]

# The time to answer the requests that `drain_s` was too short for.
LAST_ANSWERS_S = 1.0
# The time between two looks at the connections, and at the phase of a stop.
POLL_S = 0.01
TICK_S = 0.1
# The files that the process opens besides connections: models, batches, threads, refused connections.
OTHER_FILES = 256


def run_server(service: Service, announce: Announce, listener: Listener | None = None) -> ExitStatus:
    """Serve until a signal or a fault, and return the exit status of the process.

    `announce` prints the ready message to the operator. `listener` is by default that of the settings. Raises
    `SetupError` if the address is in use or no model can be loaded. If a thread still loads a model when the
    server has stopped, the process ends here.
    """
    listener = listener or open_listener(service.settings)
    runner = Runner(service, listener, lambda: announce(ready_message(service, listener.address)))
    runner.owns_process = True
    if service.siblings is None:  # otherwise the supervisor tells the manager
        runner.manager = find_manager(environment_variables())
    runner.run()
    if runner.is_loading_left:
        if runner.load_error is None:
            logger.info(
                "stopped before all models were loaded; the next start continues unfinished downloads"
            )
        end_at_once(runner.exit_status, runner.load_error, service.settings.log_format)
    if runner.load_error is not None:
        raise runner.load_error
    return runner.exit_status


def ready_message(service: Service, address: Address) -> str:
    """Return the models, the address of the server and an example request for the shell.

    The last lines are the addresses of the pages for browsers, unless the server listens on a Unix socket.
    """
    served = [model for model in service.catalog if model.failure is None]
    names = ", ".join(model.name for model in served)
    base, options = _base_url(service.settings.url_prefix, address)
    if service.settings.has_api_keys:
        options += ["-H", "authorization: Bearer YOUR_KEY"]
    path, body = EXAMPLES[served[0].task or Task.EMBED]
    command = ["curl", *options, f"{base}{path}", "-d", body]
    # As systemd writes the names of abstract sockets.
    shown = str(address.path).replace("\0", "@")
    place = base if address.path is None else f"the socket {shown}"
    lines = [f"vecmill serves {names} on {place}", shlex.join(command)]
    if address.path is None:  # a browser cannot connect to a socket
        if service.settings.console:
            lines.append(f"To try it in a browser: {base}/")
        lines.append(f"The API, with examples to send: {base}/docs")
    return "\n".join(lines)


def _base_url(prefix: str, address: Address) -> tuple[str, list[str]]:
    if address.path is not None:
        option = "--abstract-unix-socket" if address.is_abstract else "--unix-socket"
        return f"http://localhost{prefix}", [option, str(address.path).removeprefix("\0")]
    # A client cannot connect to a wildcard address, so the example uses the loopback address.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{address.port}{prefix}", []


def end_at_once(status: ExitStatus, error: SetupError | None, log_format: LogFormat) -> NoReturn:
    """Print the error, and end the process. The interpreter would wait for all threads first."""
    flush_log()
    if error is not None:
        report_setup_error(error.message, log_format)
        flush_log()
    os._exit(status)


def uvicorn_config(service: Service, address: Address | None = None) -> uvicorn.Config:
    """Return the configuration of uvicorn, with `HttpConnection` and without uvicorn's logs.

    The server listens on `address`, by default that of the settings.
    """
    settings = service.settings
    is_traced = service.tracer is not None
    share = share_connections(settings, service.metrics, service.budget, is_traced=is_traced)
    return uvicorn.Config(
        create_app(service, address),
        http=partial(HttpConnection, share),  # type: ignore[arg-type]
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]
    )


def share_connections(
    settings: ServerSettings, metrics: ServerMetrics, budget: ByteBudget, *, is_traced: bool = False
) -> ConnectionShare:
    """Return what all connections of a server with these settings share."""

    def refuse(error: VecmillError) -> tuple[int, HeaderList, bytes]:
        response = error_response(error)
        metrics.request_done(NO_ROUTE, response.status, 0.0)
        metrics.error_answered(response.reason)
        return response.status, response.headers, response.body

    trace_clock = monotonic if is_traced else None
    return ConnectionShare(limit_connections(settings), budget, refuse, trace_clock)


def limit_connections(settings: ServerSettings) -> ConnectionLimits:
    """Return the limits in `settings`. The process must be able to open a file for each connection."""
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ConnectionLimits(
        min(settings.max_connections, max(1, open_files - OTHER_FILES)),
        settings.max_header_bytes,
        settings.header_timeout_s,
        settings.body_timeout_s,
        settings.keep_alive_s,
        settings.write_timeout_s,
        settings.max_connection_age_s,
    )


class Runner(uvicorn.Server):
    """uvicorn's server, with the listener of `listener` and the graceful stop of `drain`."""

    def __init__(self, service: Service, listener: Listener, on_ready: Callable[[], None]) -> None:
        super().__init__(uvicorn_config(service, listener.address))
        self.load_error: SetupError | None = None
        # Only then the watchdog may end the process, and the garbage collector be set.
        self.owns_process = False
        self.manager = ServiceManager()
        self.is_loading_left = False  # True if the server has stopped and a thread still loads a model
        self._is_clean = False
        self._has_fault = False
        self._service = service
        self._listener = listener
        self._acceptor = Acceptor(listener, self._make_protocol)
        self._on_ready = on_ready
        self._loading: asyncio.Task[None] | None = None
        self._signing: asyncio.Task[None] | None = None

    @property
    def exit_status(self) -> ExitStatus:
        """The exit status after `run`."""
        if self.load_error is not None:
            return ExitStatus.SETUP
        if self._has_fault:
            return ExitStatus.FAULT
        return ExitStatus.CLEAN if self._is_clean else ExitStatus.LOST

    def stop_for_fault(self) -> None:
        """Stop because no model can answer. Call this on the event loop."""
        self._has_fault = True
        if self._service.drain.is_serving:
            self._service.drain.stop(time.monotonic(), at_once=True)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, so that probes are answered, and start loading the models."""
        if self._service.siblings is not None:
            await self._service.siblings.open()
        if not self._listener.is_inherited:
            await self._acceptor.open()
        self._loading = asyncio.create_task(self._load())
        self._signing = asyncio.create_task(self.manager.give_signs_of_life())
        if self.owns_process:
            Watchdog(self._service, self.stop_for_fault, lambda: self.exit_status).start()
        self.started = True

    async def main_loop(self) -> None:
        """Tick until a tick says to stop. A request to stop, and a failed start, are seen at once."""
        assert self._loading is not None
        alarm = Alarm(asyncio.get_running_loop())
        self._service.drain.on_stop = alarm.ring
        self._loading.add_done_callback(lambda _: alarm.ring())
        counter = 0
        while not await self.on_tick(counter):
            await alarm.sleep(TICK_S)
            counter += 1

    async def on_tick(self, counter: int) -> bool:
        """Return True to stop listening. `counter` counts in `TICK_S`, for uvicorn's part."""
        await super().on_tick(counter)
        if not self._service.drain.is_serving:
            self.manager.stopping()
        if self.load_error is not None:
            return True
        return self._service.drain.advance(time.monotonic()) >= Phase.DRAINING

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals that stop the server. Under nohup, SIGHUP stays ignored.

        Signals that mean nothing to the server are ignored, and the log says so.
        The handlers stay until the process ends, so that a late signal does not change the exit status.
        """
        try:
            handlers = {number: signal.getsignal(number) for number in (*STOP_SIGNALS, *IGNORED_SIGNALS)}
            for number, handler in handlers.items():
                if number in IGNORED_SIGNALS:
                    if handler in (signal.SIG_DFL, signal.SIG_IGN):  # nobody else handles it
                        signal.signal(number, lambda number, _: logger.info(say_ignored(number)))
                elif number is not signal.SIGHUP or handler is not signal.SIG_IGN:
                    signal.signal(number, self.handle_exit)
        except ValueError:  # this is not the main thread
            handlers = {}
        try:
            yield
        finally:
            if not self.owns_process:
                for number, handler in handlers.items():
                    signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the stop for a signal. uvicorn would raise the signal again, and lose the exit status."""
        service = self._service
        if sig == signal.SIGHUP and not service.drain.is_serving:
            return
        at_once = sig == signal.SIGINT or service.catalog.is_loading
        service.drain.stop(time.monotonic(), at_once=at_once)
        if service.drain.is_forced:
            # Exits without the event loop, which may be blocked.
            end_at_once(self.exit_status, None, service.settings.log_format)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listener, answer every request that has begun to arrive, and close the models."""
        logger.info("stopping; what was accepted is answered first")
        self.manager.stopping()
        await self._stop_loading()
        # A thread that loads a model cannot be stopped.
        is_loading_left = self._service.catalog.has_running_load
        batches = self._service.batches
        if batches is not None:
            await batches.stop()
        # The models accept work until the last connection closes. Otherwise requests that had arrived,
        # in whole or in part, when the listener closed would be lost.
        await self._acceptor.close()
        has_failed = self._has_fault or self.load_error is not None
        drain_s = LAST_ANSWERS_S if has_failed else self._service.settings.drain_s
        self._is_clean = await self._finish_connections(drain_s)
        self._service.drain.finish()
        if self._service.catalog.residency is not None:
            is_loading_left |= self._service.catalog.has_running_load
            await self._service.catalog.residency.close()
        closing = asyncio.gather(*(model.mill.close() for model in self._service.catalog.models))
        if not self._is_clean:
            requests, connections = len(self.server_state.tasks), len(self.server_state.connections)
            logger.warning("%d requests on %d connections did not end in time", requests, connections)
            # Requests that wait for a model have failed by now, and are answered with 503.
            await self._finish_connections(LAST_ANSWERS_S)
            for task in self.server_state.tasks:
                task.cancel()
        if batches is not None:
            await batches.close()
        await closing
        if self._service.embedding_cache is not None:
            await self._service.embedding_cache.close()
        if self._service.tracer is not None:
            await self._service.tracer.close()
        if is_loading_left and self.owns_process:
            self.is_loading_left = True
            # The event loop waits for the threads of its executor when it is closed.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))

    def _make_protocol(self) -> asyncio.Protocol:
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state={})

    async def _finish_connections(self, timeout_s: float) -> bool:
        """Wait until every connection is closed, and return True if none is left.

        Time in which the process was stopped or suspended does not count.
        """
        clock, state = RunningClock(time.monotonic), self.server_state
        began = clock()
        told: set[object] = set()
        while state.connections or state.tasks:
            passed_s = clock() - began
            if passed_s >= timeout_s:
                return False
            # Closes a connection without a request; any other connection closes after its response.
            for connection in state.connections - told:
                assert isinstance(connection, HttpConnection)
                if connection.has_rested:
                    connection.shutdown()
                    told.add(connection)
            clock.expect_tick(time.monotonic() + POLL_S)
            await asyncio.sleep(POLL_S)
            clock.tick()
        return True

    async def _load(self) -> None:
        try:
            await load_models(self._service)
        except SetupError as error:
            self.load_error = error
        else:
            if self._service.batches is not None:
                self._service.batches.start()
            if self._listener.is_inherited:
                await self._acceptor.open()
            if self.owns_process:
                spare_lasting_objects()
            self._on_ready()
            self.manager.ready()
            if self.owns_process:
                advise_processes(self._service)
                await measure_ranges(self._service)

    async def _stop_loading(self) -> None:
        if self._loading is None or self._loading.done():
            return
        self._loading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._loading


def spare_lasting_objects() -> None:
    """Exempt all objects that exist now from garbage collections.

    A full collection reads every object, and would stop the event loop for 100 ms every few seconds under
    load. Most objects belong to modules, routes and models, which last as long as the process.
    """
    gc.collect()
    gc.freeze()
