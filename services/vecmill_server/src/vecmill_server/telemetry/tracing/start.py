"""The start of tracing, from OpenTelemetry's environment variables."""

import logging
from collections.abc import Mapping
from importlib.util import find_spec

from vecmill.errors import InvalidConfig, MissingExtra
from vecmill.values.environment import environment_variables
from vecmill.values.messages import pip_command
from vecmill_server import __version__
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
    return _make_tracer()


def _make_tracer() -> Tracer:
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        from vecmill_server.telemetry.tracing.tracer import OpenTelemetryTracer, SpanSender
    except ImportError as error:
        raise _missing() from error
    # The provider reads the variables of the sampler and of the resource. It makes no spans here.
    provider = TracerProvider(shutdown_on_exit=False)
    resource = provider.resource.merge(Resource({"service.version": __version__}))
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "vecmill"}))
    try:
        sender = SpanSender()
    except ValueError as error:  # such as OTEL_BSP_MAX_QUEUE_SIZE below OTEL_BSP_MAX_EXPORT_BATCH_SIZE
        raise InvalidConfig(f"OpenTelemetry refuses a value of its OTEL_ variables: {error}") from error
    return OpenTelemetryTracer(provider.sampler, resource, sender)


def _missing() -> MissingExtra:
    return MissingExtra(
        "--tracing needs OpenTelemetry's packages. Install them with: "
        f"{pip_command('install', 'vecmill-server[otel]')}."
    )
