"""The target `systemd`: a service and a socket on one machine."""

import shlex
from pathlib import Path

from vecmill.errors import InvalidConfig
from vecmill_server.deploy.deployed_server import DeployedServer
from vecmill_server.deploy.extras import device_notes, list_requirements
from vecmill_server.deploy.rendering import Rendering, fill_template

_FOLDER = "systemd"
_CONFIG_FOLDER = Path("/etc/vecmill")
_UNIT_FOLDER = "/etc/systemd/system"
# Starts in a day. A wrong option reaches the limit in about 80 s, and starts that use up their hour before
# the day is over.
_STARTS = 20


def render_files(server: DeployedServer, folder: Path) -> Rendering:
    """Return the units and the configuration file. Raises `InvalidConfig`."""
    if server.deploy.program.parts[:2] in (("/", "home"), ("/", "root")):
        raise InvalidConfig("deploy.program must not be in a home directory, which the service cannot read.")
    name = server.name
    installed = _CONFIG_FOLDER / f"{name}.toml"
    program = server.deploy.program
    values = {"server": server, "deploy": server.deploy, "name": name, "escape": escape}
    service = fill_template(
        _FOLDER,
        "vecmill.service",
        **values,
        config=str(installed),
        environment_file=str(installed.with_suffix(".env")),
        directories=sorted({str(path) for path in server.directories.values()}),
        program=program,
        install=_list_installation(server),
        starts=_STARTS,
    )
    socket = fill_template(_FOLDER, "vecmill.socket", **values, **_listen(server))
    return Rendering(
        {f"{name}.toml": server.text, f"{name}.service": service, f"{name}.socket": socket},
        (
            f"sudo install -D -m 644 {folder / name}.toml {installed}",
            f"sudo install -m 644 {folder / name}.service {folder / name}.socket {_UNIT_FOLDER}/",
            "sudo systemctl daemon-reload",
            f"sudo systemctl enable --now {name}.socket",
            f"sudo systemctl enable {name}.service",
            # Whoever changes the server by hand does not use up its starts.
            f"sudo systemctl reset-failed {name}.socket {name}.service",
            f"sudo systemctl restart {name}.service",
        ),
        f"Put changes into `systemctl edit {name}.service`, which writes a file of its own.",
        (
            *server.replica_notes("systemd"),
            *server.open_notes,
            *server.notes,
            *_list_program_notes(server),
            *_list_socket_notes(server),
            "After a change of server.host or server.port, which the socket has: "
            f"sudo systemctl restart {name}.socket {name}.service",
        ),
    )


def _list_installation(server: DeployedServer) -> tuple[str, ...]:
    """Return the commands that install the program in a clone; its folder is `bin` of an environment."""
    program = server.deploy.program
    packages = shlex.join(list_requirements(server.choices, server.settings))
    return (
        "make wheels",
        f"python3 -m venv {program.parent.parent}",
        f"{program.parent / 'pip'} install --find-links dist {packages}",
    )


def _list_program_notes(server: DeployedServer) -> tuple[str, ...]:
    """Return sentences about what an installed program may lack, and about traces."""
    needed = list_requirements(server.choices, server.settings)
    notes = [*device_notes(server.choices)]
    if needed != ("vecmill-server[minilm]",):
        notes.append(
            f"{server.deploy.program} needs {', '.join(needed)}: the head of the unit has the command."
        )
    if server.settings.tracing:
        notes.append(
            "server.tracing: name the collector in OTEL_EXPORTER_OTLP_ENDPOINT in "
            f"{_CONFIG_FOLDER / server.name}.env, if it is not http://localhost:4318."
        )
    return tuple(notes)


def _list_socket_notes(server: DeployedServer) -> tuple[str, ...]:
    if server.settings.uds is None:
        return ()
    return (
        f"Only root can connect to {server.settings.uds}. To let a group connect, write [Socket] and "
        f"SocketGroup=GROUP with: sudo systemctl edit {server.name}.socket",
    )


def _listen(server: DeployedServer) -> dict[str, str]:
    """Return the address of the socket as systemd writes it. Raises `InvalidConfig`."""
    settings = server.settings
    if settings.fd is not None:
        raise InvalidConfig("systemd opens the socket. Remove server.fd.")
    if settings.uds is not None:
        if not settings.uds.is_absolute():
            raise InvalidConfig("server.uds must be an absolute path for systemd.")
        return {"address": escape(settings.uds), "mode": settings.uds_mode, "free_bind": ""}
    host = server.ip_address
    # The socket is opened before the network has all of its addresses.
    free_bind = "" if host.is_loopback or host.is_unspecified else "yes"
    return {"address": server.address, "mode": "", "free_bind": free_bind}


def escape(value: object) -> str:
    """Return a path for a unit file, in which systemd replaces nothing. Raises `InvalidConfig`."""
    text = str(value)
    if any(character.isspace() or character in "\"'\\:;" for character in text):
        raise InvalidConfig(f"The path {text!r} has a character that systemd reads as its own. Rename it.")
    return text.replace("%", "%%").replace("$", "$$")
