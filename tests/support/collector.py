"""A collector of OpenTelemetry: an HTTP server that takes spans by OTLP, and keeps them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from support.http_server import wait_until


@dataclass(frozen=True, slots=True)
class Received:
    """One span, as it came over the wire. Times are Unix nanoseconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    began_ns: int
    ended_ns: int
    has_failed: bool
    trace_state: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    links: list[tuple[str, str]]

    @property
    def duration_ns(self) -> int:
        return self.ended_ns - self.began_ns


@dataclass(slots=True)
class Collector:
    """The spans that have arrived, and the bytes in which they came."""

    url: str = ""
    spans: list[Received] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    requests: int = 0  # that have arrived, answered or not
    status: int = 200  # of every response
    released: threading.Event = field(default_factory=threading.Event)  # cleared, no request is answered

    def trace(self, trace_id: str) -> list[Received]:
        """The spans of a trace, by time; of spans that begin together, the outer first."""
        found = [span for span in self.spans if span.trace_id == trace_id]
        return sorted(found, key=lambda span: (span.began_ns, -span.ended_ns))

    def children(self, span: Received) -> list[Received]:
        """The spans directly inside a span, by time."""
        return [each for each in self.trace(span.trace_id) if each.parent_id == span.span_id]

    def roots(self, name: str) -> list[Received]:
        """The outermost spans of this name, by time."""
        ids = {span.span_id for span in self.spans}
        found = [span for span in self.spans if span.name == name and span.parent_id not in ids]
        return sorted(found, key=lambda span: span.began_ns)

    def wait_for(self, name: str, count: int = 1) -> list[Received]:
        """The outermost spans of this name, as soon as there are so many."""
        wait_until(lambda: len(self.roots(name)) >= count)
        return self.roots(name)


@contextmanager
def collect() -> Iterator[Collector]:
    """Take spans on a loopback port until the block ends."""
    collector = Collector()
    collector.released.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.requests += 1
            collector.released.wait()
            if collector.status == 200:
                collector.bodies.append(body)
                collector.spans += _read(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(collector.status)
            self.send_header("content-length", str(len(answer)))
            with suppress(ConnectionError):  # the server did not wait
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="collector")
    thread.start()
    try:
        yield collector
    finally:
        collector.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _read(body: bytes) -> list[Received]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        _receive(span, {each.key: _value(each.value) for each in of_resource.resource.attributes})
        for of_resource in request.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


def _receive(span: Span, resource: dict[str, Any]) -> Received:
    return Received(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code == Status.STATUS_CODE_ERROR,
        span.trace_state,
        {each.key: _value(each.value) for each in span.attributes},
        resource,
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
    )


def _value(value: AnyValue) -> Any:
    return getattr(value, value.WhichOneof("value") or "string_value")
