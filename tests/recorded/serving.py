"""Sends the requests of a configuration to a server of its own, and writes down what it answers."""

import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from recorded.cases import Case
from recorded.freezing import StillClock, frozen_time, unix_now
from recorded.masks import BATCHING, HTTP_TIMES, MODEL_TIMES, Ids, find_place, write_answer, write_metrics
from support.http_server import PATIENCE_S, QUIET, build_service, receive_all, run_in_thread, wait_until
from vecmill.config import MillConfig
from vecmill.engines.base import Engine
from vecmill.models import ModelDescription
from vecmill.values.clock import monotonic
from vecmill_server.base.settings import ServerSettings
from vecmill_server.service.service import Service

METRICS = "metrics"

Models = Sequence[tuple[ModelDescription, Engine | None]]
Answers = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Running:
    """A server that takes requests, for what a configuration does beside them."""

    service: Service
    models: Models
    client: httpx.Client

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series; 0 if there is none yet."""
        return self.service.metrics.registry.get_sample_value(name, labels) or 0.0


def nothing_beside(_running: Running) -> AbstractContextManager[None]:
    """Nothing happens but the requests."""
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Configuration:
    """A server, and what it is asked, in this order.

    `models` makes the models and engines anew, on the clock of the configuration; `beside` lasts from before
    the first request to after the last. Without `has_still_clock` the models' time is the real one, for
    deadlines that pass; without `wait` requests are sent while the models load. `keeps_batches` turns batches
    on. Where `runs_at_once` several calls of the model are made at once, so that chance puts texts together;
    where it `hangs`, the last engine call has not returned in the end. Floats may differ by `tolerance`, and
    are recorded with so many `digits`, or all.
    """

    name: str
    cases: tuple[Case, ...]
    models: Callable[[StillClock], Models]
    settings: ServerSettings = QUIET
    config: MillConfig = field(default_factory=lambda: MillConfig(cores=1))
    beside: Callable[[Running], AbstractContextManager[None]] = nothing_beside
    has_still_clock: bool = True
    wait: bool = True
    keeps_batches: bool = False
    runs_at_once: bool = False
    hangs: bool = False
    tolerance: float = 1e-6
    digits: int | None = None


def ask_all(configuration: Configuration, folder: Path) -> Answers:
    """The answers to all requests of a configuration by their names, and its metrics at the end.

    `folder` is empty, for files that the server keeps.
    """
    with frozen_time(), _serve(configuration, folder) as running, configuration.beside(running):
        conversation = _Conversation(configuration, running)
        answers = {case.name: conversation.ask(case) for case in configuration.cases}
        assert len(answers) == len(configuration.cases), "two cases have one name"
        return {**answers, METRICS: conversation.read_metrics()}


@contextmanager
def _serve(configuration: Configuration, folder: Path) -> Iterator[Running]:
    clock = StillClock()
    models = configuration.models(clock)
    settings = configuration.settings
    if configuration.keeps_batches:
        settings = replace(settings, batch_dir=folder)
    service = build_service(
        settings,
        models,
        config=configuration.config,
        clock=clock if configuration.has_still_clock else monotonic,
        wall_clock=unix_now,
    )
    with (
        run_in_thread(service, wait=configuration.wait) as (port, _),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
    ):
        yield Running(service, models, client)


@dataclass(slots=True)
class _Conversation:
    """What has been asked so far, and the ids that the server gave."""

    configuration: Configuration
    running: Running
    ids: Ids = field(default_factory=Ids)
    labels: dict[str, str] = field(default_factory=dict)
    asked: int = 0

    def ask(self, case: Case) -> dict[str, Any]:
        """The answer to one request, as it is recorded."""
        if case.until is not None:
            name, labels, value = case.until
            wait_until(lambda: self.running.metric(name, **labels) == value)
        answer = self._exchange(case) if case.raw else self._send(case)
        self.asked += 1
        for label, place in case.labels.items():
            self.labels[label] = find_place(answer.json(), place)
        return write_answer(case, answer, self.ids, self.configuration.digits)

    def read_metrics(self) -> dict[str, Any]:
        """The exposition once everything is counted, as it is recorded."""
        wait_until(self._is_settled)
        answer = self.running.client.get(f"{self.configuration.settings.url_prefix}/metrics")
        times = HTTP_TIMES if self.configuration.has_still_clock else HTTP_TIMES | MODEL_TIMES
        chance = BATCHING if self.configuration.runs_at_once else frozenset[str]()
        written = write_answer(Case(METRICS, "GET", "/metrics"), answer, self.ids, None)
        return {**written, "body": write_metrics(answer.text, times=times, chance=chance)}

    def _send(self, case: Case) -> httpx.Response:
        request = self.running.client.build_request(
            case.method,
            # As it is: joined by httpx, `//a` would mean a host.
            f"{str(self.running.client.base_url).rstrip('/')}{self._fill(case.path)}",
            content=None
            if case.content is None
            else self._fill(case.content.decode("latin-1")).encode("latin-1"),
            headers={"x-request-id": re.sub("[^A-Za-z0-9._-]+", "-", case.name), **case.headers},
        )
        if request.headers["x-request-id"] == "":
            del request.headers["x-request-id"]
        return self.running.client.send(request)

    def _exchange(self, case: Case) -> httpx.Response:
        url = self.running.client.base_url
        assert case.content is not None
        assert url.port is not None
        with socket.create_connection((url.host, url.port), timeout=PATIENCE_S) as connection:
            connection.sendall(case.content)
            head, _, body = receive_all(connection).partition(b"\r\n\r\n")
        status, *headers = head.decode("latin-1").split("\r\n")
        pairs = [(name, value) for name, _, value in (header.partition(": ") for header in headers)]
        return httpx.Response(int(status.split()[1]), headers=pairs, content=body)

    def _fill(self, text: str) -> str:
        for label, value in self.labels.items():
            text = text.replace(f"<{label}>", value)
        return text

    def _is_settled(self) -> bool:
        """Whether every answer is counted, and every engine call."""
        samples = [
            sample for family in self.running.service.metrics.registry.collect() for sample in family.samples
        ]
        counted = sum(sample.value for sample in samples if sample.name == "vecmill_http_requests_total")
        is_busy = any(sample.labels.get("state") == "busy" and sample.value > 0 for sample in samples)
        return counted == self.asked and is_busy is self.configuration.hangs


def by_name(configurations: Sequence[Configuration]) -> Mapping[str, Configuration]:
    """Configurations by their names."""
    return {configuration.name: configuration for configuration in configurations}
