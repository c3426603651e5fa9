"""The limits and times of docs/reverse-proxies.md fit the defaults of the server."""

import re

import pytest

from proxies.running import configuration
from vecmill_server.base.settings import ServerSettings
from vecmill_server.base.time_limit import TIMEOUT_S

MIB = 1024 * 1024
DEFAULTS = ServerSettings()
# For each proxy, the patterns of its limits and times.
PATTERNS = {
    "nginx": {
        "body": r"^    client_max_body_size (\d+)m;",
        "file": r"^        client_max_body_size (\d+)m;",
        "idle": r"keepalive_timeout (\d+)s;",
        "answer": r"proxy_read_timeout (\d+)s;",
    },
    "caddy": {
        "body": r"handle \{\n\s+request_body \{\n\s+max_size (\d+)MiB",
        "file": r"handle @files \{\n\s+request_body \{\n\s+max_size (\d+)MiB",
        "idle": r"keepalive (\d+)s",
        "answer": r"response_header_timeout (\d+)s",
    },
}


def figure(kind: str, name: str) -> int:
    """The only value of a limit or a time in the configuration of a proxy."""
    (value,) = set(re.findall(PATTERNS[kind][name], configuration(kind), re.MULTILINE))
    return int(value)


@pytest.mark.parametrize("kind", PATTERNS)
def test_limits_and_times_fit_the_defaults_of_the_server(kind: str) -> None:
    assert figure(kind, "body") * MIB == DEFAULTS.max_body_bytes
    assert figure(kind, "file") * MIB > DEFAULTS.max_file_bytes
    assert figure(kind, "idle") < DEFAULTS.keep_alive_s
    assert figure(kind, "answer") > TIMEOUT_S


def test_nginx_takes_headers_of_the_size_that_the_server_takes() -> None:
    assert f"large_client_header_buffers 4 {DEFAULTS.max_header_bytes // 1024}k;" in configuration("nginx")
