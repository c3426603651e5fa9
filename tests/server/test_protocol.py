"""An offered upgrade is renamed in the headers, and nothing else is touched."""

import pytest

from vecmill_server.protocol import decline_upgrade


@pytest.mark.parametrize("name", [b"Upgrade", b"upgrade", b"UPGRADE"])
def test_the_header_is_renamed(name: bytes) -> None:
    packet = b"POST / HTTP/1.1\r\n" + name + b": h2c\r\nhost: x\r\n\r\nbody"
    assert decline_upgrade(packet) == b"POST / HTTP/1.1\r\nx-declined-upgrade: h2c\r\nhost: x\r\n\r\nbody"


@pytest.mark.parametrize(
    "packet",
    [
        b"POST / HTTP/1.1\r\nhost: x\r\n\r\na body with\r\nupgrade: text",
        b"GET /upgrade: HTTP/1.1\r\nconnection: upgrade\r\nupgrade-insecure-requests: 1\r\n\r\n",
        b"",
    ],
)
def test_everything_else_stays(packet: bytes) -> None:
    assert decline_upgrade(packet) == packet
