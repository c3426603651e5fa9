"""Defects that are planted into the server, so that the proofs can be seen to find them."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import orjson

from vecmill.batching import containment, lanes
from vecmill.batching.containment import Outcomes
from vecmill.batching.dispatcher import Dispatcher
from vecmill.batching.ticket import CountsSnapshot, QueuedRequest
from vecmill_server.app.routes import endpoint
from vecmill_server.dialects.dialect import WrittenBody
from vecmill_server.http1.protocol import HttpConnection
from vecmill_server.http1.time_limits import State

EVERY = 15
PATIENCE_S = 0.002


def plant_loss() -> None:
    """Make the dispatcher forget some requests."""
    resolve, number = Dispatcher._resolve, count(1)

    def forgetful(self: Dispatcher, requests: Iterable[QueuedRequest]) -> None:
        resolve(self, [request for request in requests if next(number) % EVERY])

    Dispatcher._resolve = forgetful  # type: ignore[method-assign]


def plant_swap() -> None:
    """Make some batches return their embeddings in reverse order."""
    run_contained, number = containment.run_contained, count(1)

    def reversing(*arguments: Any) -> Outcomes:
        outcomes = run_contained(*arguments)
        return outcomes if next(number) % EVERY else replace(outcomes, outcomes=outcomes.outcomes[::-1])

    vars(lanes)["run_contained"] = reversing


def plant_duplicate() -> None:
    """Make some responses repeat an embedding."""
    send_answer, number = endpoint.send_answer, count(1)

    def repeating(scope: Any, context: Any, send: Any, answer: WrittenBody, lines: bytes) -> Any:
        if next(number) % EVERY == 0:
            value = orjson.loads(b"".join(answer.pieces))
            value["data"].append(value["data"][0])
            answer = replace(answer, pieces=[orjson.dumps(value)])
        return send_answer(scope, context, send, answer, lines)

    vars(endpoint)["send_answer"] = repeating


def plant_wrong_counter() -> None:
    """Make some snapshots of the counts forget a text."""
    snapshot, number = Dispatcher.counts_snapshot, count(1)

    def forgetful(self: Dispatcher) -> CountsSnapshot:
        counts = snapshot(self)
        return counts if next(number) % 4 else replace(counts, admitted=counts.admitted + 1)

    Dispatcher.counts_snapshot = forgetful  # type: ignore[method-assign]


def plant_patience() -> None:
    """Make the event loop wait after each part of a body that is not complete."""
    read = HttpConnection._read_body

    def waiting(self: HttpConnection, data: bytes) -> bytes:
        rest = read(self, data)
        if self._body is not None:
            time.sleep(PATIENCE_S)
        return rest

    HttpConnection._READERS = {**HttpConnection._READERS, State.BODY: waiting}


PLANTS: Mapping[str, Callable[[], None]] = {
    "loss": plant_loss,
    "swap": plant_swap,
    "duplicate": plant_duplicate,
    "counter": plant_wrong_counter,
    "patience": plant_patience,
}


def plant_fault(name: str) -> None:
    """Plant one defect of `PLANTS`."""
    PLANTS[name]()
