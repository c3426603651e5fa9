"""Probes, metrics, and the description itself with its page."""

from typing import Any

from vecmill_server.openapi.headers import headers
from vecmill_server.openapi.operations import as_json, at, get, path_parameter
from vecmill_server.openapi.vocabulary import STRING, Family, an_object, reference
from vecmill_server.settings import ServerSettings


def describe_probes(settings: ServerSettings) -> Family:
    """What computes nothing and knows no model."""
    page = get("A page that renders this document", {"text/html": {"schema": STRING}})
    page["responses"]["200"]["headers"] = headers(("content-security-policy",))
    part = get(
        "A part of that page",
        {name: {"schema": STRING} for name in ("text/javascript", "text/css")},
        errors={"404": "It has no such part"},
        parameters=[path_parameter("name")],
    )
    part["responses"]["200"]["headers"] = headers(("cache-control",))
    return Family(
        {
            "/livez": {"get": get("Whether the process runs", as_json(reference("Status")))},
            "/readyz": {"get": _probe("Whether requests should be sent here")},
            **at("/health", "/ping", "/", get=_probe("The same as /readyz")),
            "/metrics": {"get": get("For Prometheus", {"text/plain": {"schema": STRING}})},
            "/openapi.json": {"get": get("This document", as_json({"type": "object"}))},
            "/docs": {"get": page},
            "/docs/{name}": {"get": part},
        },
        {"Status": an_object(("status", "unix"), {"status": STRING, "unix": {"type": "number"}})},
    )


def _probe(summary: str) -> dict[str, Any]:
    status = as_json(reference("Status"))
    operation = get(summary, status)
    operation["responses"]["503"] = {
        "description": "Loading, stopping, or without one of its workers",
        "content": status,
    }
    return operation
