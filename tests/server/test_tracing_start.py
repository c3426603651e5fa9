"""Tracing starts as OpenTelemetry's environment variables say, or tells in a sentence why it cannot."""

import sys

import pytest

from vecmill.errors import InvalidConfig, MissingExtra
from vecmill_server.telemetry import tracing
from vecmill_server.telemetry.tracing import start_tracing


@pytest.mark.parametrize("variables", [{"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "True"}])
def test_a_variable_turns_tracing_off(variables: dict[str, str]) -> None:
    assert start_tracing(variables) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "console"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
    ],
)
def test_another_exporter_or_protocol_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{name} must be .*OTLP over HTTP"):
        start_tracing({name: value})


@pytest.mark.parametrize("size", ["0", "100"])  # 100 is below the default size of a batch of spans
def test_a_size_that_the_sdk_refuses_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", size)
    with pytest.raises(InvalidConfig, match="OTEL_ variables: max_"):
        start_tracing({})


async def test_the_usual_protocol_may_be_named() -> None:
    tracer = start_tracing({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_TRACES_EXPORTER": "otlp"})
    assert tracer is not None
    await tracer.close()


def test_missing_packages_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"install.*vecmill-server\[otel\]"):
        start_tracing({})


def test_packages_that_are_not_all_there_are_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vecmill_server.telemetry.tracing.tracer", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(MissingExtra, match="OpenTelemetry's packages"):
        start_tracing({})
