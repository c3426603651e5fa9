"""The dialects of the clients: one module for each family, which reads its documents and writes its answers.

A family turns a JSON document into a call (`vecmill_server.calls`) and the call's result into JSON. It
never sees a socket, a header or a batch; `routes` says which family answers where.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vecmill.types import JsonValue, TextOrIds
from vecmill_server.calls import Call, Result
from vecmill_server.documents import Envelope
from vecmill_server.exchange import HeaderList, timing_headers
from vecmill_server.problems import ProblemResponse, problem_response

Document = Mapping[str, Any]

# What is embedded for a list of token ids; takes the name of its field and raises `InvalidRequest`.
ReadIds = Callable[[tuple[int, ...], str], TextOrIds]


@dataclass(frozen=True, slots=True)
class DialectOptions:
    """What the server's settings say about reading and writing.

    `plain_documents` writes the documents of a rerank answer as strings, not objects.
    """

    read_ids: ReadIds
    plain_documents: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A document that was read: what to ask of a model, and how to write what it answers."""

    call: Call
    write: Callable[[Any, Envelope], JsonValue]


def our_headers(_call: Call, result: Result, _device: str) -> HeaderList:
    """Where the time went, as every route says it that has no other custom."""
    return timing_headers(result.timings)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a family of clients speaks of one operation.

    `read` raises `InvalidRequest`; `problem` says how an error is answered, `headers` what an answer says of
    where the time went, and on which device.
    """

    read: Callable[[Document, DialectOptions], Asked]
    problem: Callable[[BaseException], ProblemResponse] = problem_response
    headers: Callable[[Call, Any, str], HeaderList] = our_headers
