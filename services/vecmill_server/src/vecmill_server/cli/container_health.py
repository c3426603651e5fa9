"""The health check of the container image: it asks the server of the container whether it is ready.

`python -m vecmill_server.cli.container_health` exits with 0 if the server is ready, otherwise with 1. The
address and the URL prefix come from the command line of the first process of the container, from the
environment, or from the configuration file. The module imports only the standard library, because it runs
every few seconds.
"""

import argparse
import http.client
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_S = 2.5

_PROGRAMS = ("vecmill", "vecmill-server")
# The options that are read, with their defaults.
_OPTIONS = {"--host": "127.0.0.1", "--port": "7997", "--uds": "", "--url-prefix": ""}
# A client cannot connect to a wildcard address.
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """The address of a server: a host and a port, or the path `uds` of a Unix socket."""

    host: str
    port: int
    uds: str
    url_prefix: str

    def is_ready(self) -> bool:
        """Return True if `/readyz` of the server answers 200."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        try:
            if self.uds:
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(TIMEOUT_S)
                connection.sock.connect(self.uds)
            connection.request("GET", f"{self.url_prefix}/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def find_target(command_line: Sequence[str], environment: Mapping[str, str]) -> ProbeTarget:
    """Return the address of the server that was started with this command line and environment."""
    arguments = _arguments_of(command_line)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", default=environment.get("VECMILL_CONFIG"))
    in_file = _read_server_table(parser.parse_known_args(arguments)[0].config)
    for option, default in _OPTIONS.items():
        name = option.removeprefix("--").replace("-", "_")
        chosen = environment.get(f"VECMILL_{name.upper()}") or in_file.get(name, default)
        parser.add_argument(option, default=chosen)
    found, _ = parser.parse_known_args(arguments)
    return ProbeTarget(_WILDCARDS.get(found.host, found.host), int(found.port), found.uds, found.url_prefix)


def find_target_of(process_id: int) -> ProbeTarget:
    """Return the address of the server that runs as this process, or that this process started.

    The environment is that of the calling process, which is the same in a container.
    """
    pairs = (entry.partition("=") for entry in _read_strings(Path("/proc/self/environ")))
    command_line = _read_strings(Path(f"/proc/{process_id}/cmdline"))
    return find_target(command_line, {name: value for name, _, value in pairs})


def _read_server_table(config: str | None) -> Mapping[str, Any]:
    """Return the table [server] of a configuration file, which the server has checked."""
    if not config:
        return {}
    import tomllib

    table: Mapping[str, Any] = tomllib.loads(Path(config).read_text(encoding="utf-8")).get("server", {})
    return table


def _arguments_of(command_line: Sequence[str]) -> Sequence[str]:
    """Return the arguments of the program. An interpreter or an init program may have started it."""
    places = [index for index, word in enumerate(command_line) if word.rpartition("/")[2] in _PROGRAMS]
    return command_line[places[0] + 1 :] if places else ()


def _read_strings(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8", "surrogateescape").rstrip("\0").split("\0")


def main() -> None:
    """Exit with the status of the health check."""
    sys.exit(0 if find_target_of(1).is_ready() else 1)


if __name__ == "__main__":
    main()
