"""What is printed at the start leads to the server, whatever it listens on."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from vecmill.mill import Mill
from vecmill_server.base.settings import Address, ServerSettings
from vecmill_server.catalog.catalog import ServedModel
from vecmill_server.process.runner import ready_message
from vecmill_server.service.service import assemble_service
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics


def message(settings: ServerSettings) -> tuple[str, list[str], list[str]]:
    service = assemble_service([ServedModel("the-model", Mill())], settings, ServerMetrics())
    address = Address(path=settings.uds) if settings.uds else Address(settings.host, 7997)
    place, command, *pages = ready_message(service, address).splitlines()
    return place, shlex.split(command), pages


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (ServerSettings(), "http://127.0.0.1:7997/v1/embeddings"),
        (ServerSettings(host="0.0.0.0"), "http://127.0.0.1:7997/v1/embeddings"),
        (ServerSettings(host="::1"), "http://[::1]:7997/v1/embeddings"),
        (ServerSettings(host="::"), "http://[::1]:7997/v1/embeddings"),
        (ServerSettings(url_prefix="/a"), "http://127.0.0.1:7997/a/v1/embeddings"),
    ],
)
def test_the_address_is_one_to_call(settings: ServerSettings, url: str) -> None:
    place, command, pages = message(settings)
    assert url in command
    assert place == f"vecmill serves the-model on {url.removesuffix('/v1/embeddings')}"
    base = url.removesuffix("/v1/embeddings")
    api = f"The API, with examples to send: {base}/docs"
    assert pages == [f"To try it in a browser: {base}/", api]
    assert message(replace(settings, console=False))[2] == [api]


def test_a_socket_and_a_key_are_in_the_command_but_not_the_key_itself() -> None:
    place, command, pages = message(ServerSettings(uds=Path("/tmp/a b"), api_key=("secret",)))
    assert place.endswith("on the socket /tmp/a b")
    assert pages == []
    assert command[command.index("--unix-socket") + 1] == "/tmp/a b"
    assert "authorization: Bearer YOUR_KEY" in command
    assert "secret" not in " ".join(command)
