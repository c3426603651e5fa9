"""The health check of the image asks the server where it really listens."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.server import free_port
from vecmill_server.base.options import build_settings
from vecmill_server.base.settings import ServerSettings
from vecmill_server.cli.container_health import ProbeTarget, find_target, find_target_of
from vecmill_server.cli.serve import serve

PROGRAM = ["/opt/vecmill/bin/python", "/opt/vecmill/bin/vecmill", "serve"]


def test_the_defaults_are_those_of_the_server() -> None:
    settings = ServerSettings()
    assert find_target(PROGRAM, {}) == ProbeTarget(settings.host, settings.port, "", settings.url_prefix)


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--port", "80", "--url-prefix", "/a/b"], {}),
        (["--port=80", "owner/name", "--api-key", "k", "--url-prefix=/a"], {"VECMILL_PORT": "90"}),
        ([], {"VECMILL_PORT": "90", "VECMILL_URL_PREFIX": "/c", "VECMILL_HOST": "::1"}),
        (["--uds", "/run/vecmill.sock", "--max-inputs", "8"], {"VECMILL_PORT": "90"}),
        (["--host", "127.0.0.2", "--port", "1", "--port", "2"], {}),
        (["--port", "80", "vecmill", "--alias", "vecmill-server"], {"VECMILL_URL_PREFIX": ""}),
    ],
)
def test_options_are_read_as_the_server_reads_them(
    arguments: list[str], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = build_settings(ServerSettings, serve.make_context("serve", list(arguments)).params)
    uds = "" if settings.uds is None else str(settings.uds)
    wanted = ProbeTarget(settings.host, settings.port, uds, settings.url_prefix)
    for program in (PROGRAM, ["/sbin/docker-init", "--", "vecmill", "serve"], ["vecmill-server"]):
        assert find_target([*program, *arguments], environment) == wanted


@pytest.mark.parametrize(("host", "reached"), [("0.0.0.0", "127.0.0.1"), ("::", "::1")])
def test_a_wildcard_address_is_reached_on_the_loopback_address(host: str, reached: str) -> None:
    assert find_target(PROGRAM, {"VECMILL_HOST": host}).host == reached


@pytest.mark.linux
@pytest.mark.parametrize("option", ["--uds", "--port"])
def test_the_check_follows_the_address_and_the_prefix_of_a_running_server(
    tmp_path: Path, option: str
) -> None:
    address = str(tmp_path / "a socket") if option == "--uds" else str(free_port())
    options = ("--engine", "fake", "--url-prefix", "/a", option, address)
    command = [sys.executable, "-m", "vecmill", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        try:
            assert running.stdout is not None
            assert b"vecmill serves" in running.stdout.readline()
            assert find_target_of(running.pid).is_ready()
        finally:
            running.kill()


def test_nothing_there_is_not_ready() -> None:
    assert not ProbeTarget("127.0.0.1", free_port(), "", "").is_ready()
    assert not ProbeTarget("127.0.0.1", 1, "/nothing/here", "").is_ready()


def test_the_command_line_counts_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "vecmill.toml"
    file.write_text('[server]\nport = 1\nurl_prefix = "/file"\nhost = "127.0.0.3"\n')
    environment = {"VECMILL_CONFIG": str(file), "VECMILL_PORT": "2", "VECMILL_URL_PREFIX": "/environment"}
    found = find_target([*PROGRAM, "--port", "3"], environment)
    assert found == ProbeTarget("127.0.0.3", 3, "", "/environment")
