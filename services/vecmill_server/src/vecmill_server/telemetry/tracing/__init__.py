"""OpenTelemetry tracing: spans of requests, of batches and of the lines of the Batch API.

    trace ──> layout ──> tracer ──> collector

`trace` records the times of one request, together with the library's `vecmill.values.observer`. `layout`
makes drafts of spans from the times. `tracer` makes OpenTelemetry's spans from the drafts, and sends them.
Only `tracer` imports opentelemetry, and `start_tracing` imports it only if tracing is on.
"""

import logging
from collections.abc import Mapping
from importlib.util import find_spec

from vecmill.errors import InvalidConfig, MissingExtra
from vecmill.values.environment import environment_variables
from vecmill.values.messages import pip_command
from vecmill_server.telemetry.tracing.trace import Tracer

logger = logging.getLogger(__name__)

_EXPORTER = "OTEL_TRACES_EXPORTER"
_DISABLED = "OTEL_SDK_DISABLED"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def start_tracing(variables: Mapping[str, str] | None = None) -> Tracer | None:
    """Return the tracer, or `None` if a variable turns tracing off.

    OpenTelemetry's SDK reads its other variables itself: the address of the collector, the sampler, the name
    of the service, the limits of the queue. Raises `MissingExtra` without the packages, and `InvalidConfig`
    for an exporter or a protocol other than OTLP over HTTP, and for sizes that the SDK refuses.
    """
    variables = environment_variables() if variables is None else variables
    if find_spec("opentelemetry") is None:
        raise _missing()
    exporter = variables.get(_EXPORTER, "").strip().lower()
    if exporter == "none" or variables.get(_DISABLED, "").strip().lower() == "true":
        logger.info("tracing is off: %s", _EXPORTER if exporter == "none" else _DISABLED)
        return None
    if exporter not in ("", "otlp"):
        raise InvalidConfig(f"{_EXPORTER} must be otlp or none: traces are sent by OTLP over HTTP.")
    for name in _PROTOCOLS:
        if variables.get(name, "").strip().lower() not in ("", "http/protobuf"):
            raise InvalidConfig(f"{name} must be http/protobuf: traces are sent by OTLP over HTTP.")
    try:
        from vecmill_server.telemetry.tracing.tracer import make_tracer
    except ImportError as error:
        raise _missing() from error
    return make_tracer()


def _missing() -> MissingExtra:
    return MissingExtra(
        "--tracing needs OpenTelemetry's packages. Install them with: "
        f"{pip_command('install', 'vecmill-server[otel]')}."
    )
