"""What is printed at the start leads to the server, whatever it listens on."""

import shlex
import socket
from pathlib import Path

import pytest

from vecmill.errors import InvalidConfig
from vecmill.mill import Mill
from vecmill_server.catalog import ServedModel
from vecmill_server.metrics import ServerMetrics
from vecmill_server.runner import bind_listener, exit_status, ready_message, refuse_live_socket
from vecmill_server.service import assemble_service
from vecmill_server.settings import ServerSettings


def message(settings: ServerSettings) -> tuple[str, list[str]]:
    service = assemble_service([ServedModel("the-model", Mill())], settings, ServerMetrics())
    place, command = ready_message(service, 7997).splitlines()
    return place, shlex.split(command)


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
    place, command = message(settings)
    assert url in command
    assert place == f"vecmill serves the-model on {url.removesuffix('/v1/embeddings')}"


def test_a_socket_and_a_key_are_in_the_command_but_not_the_key_itself() -> None:
    place, command = message(ServerSettings(uds=Path("/tmp/a b"), api_key=("secret",)))
    assert place.endswith("on the socket /tmp/a b")
    assert command[command.index("--unix-socket") + 1] == "/tmp/a b"
    assert "authorization: Bearer YOUR_KEY" in command
    assert "secret" not in " ".join(command)


def test_a_taken_port_is_named() -> None:
    with bind_listener("127.0.0.1", 0) as taken, pytest.raises(InvalidConfig, match="--port"):
        bind_listener("127.0.0.1", taken.getsockname()[1])


def test_only_sockets_that_nobody_answers_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    refuse_live_socket(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(InvalidConfig, match="Another process"):
            refuse_live_socket(path)
    refuse_live_socket(path)
    path.unlink()
    path.write_text("a file")
    with pytest.raises(InvalidConfig, match="not a socket"):
        refuse_live_socket(path)


def test_the_exit_status_tells_whether_anything_was_lost() -> None:
    assert (exit_status(is_clean=True), exit_status(is_clean=False)) == (0, 1)
