"""Checks and commands that the targets with containers share."""

from vecmill.errors import InvalidConfig
from vecmill_server.deploy.deployed_server import DeployedServer


def refuse_sockets(server: DeployedServer) -> None:
    """Raise `InvalidConfig` if the server listens on something else than a port."""
    for name in ("uds", "fd"):
        if getattr(server.settings, name) is not None:
            raise InvalidConfig(f"server.{name} does not work in a container. Remove it.")


def refuse_local_directories(server: DeployedServer) -> None:
    """Raise `InvalidConfig` if a model is a directory of this machine, which no pod can read."""
    for place, path in server.directories.items():
        if path.exists():
            raise InvalidConfig(
                f"{place} is {path} on this machine, which pods cannot read. Name a model of a hub, or a "
                "directory that only the image has."
            )


def image_notes(server: DeployedServer) -> tuple[str, ...]:
    """Return a sentence for each model directory that is not on this machine."""
    return tuple(
        f"The image has to contain {path} ({place}), which is not on this machine."
        for place, path in server.directories.items()
        if not path.exists()
    )


def secret_name(server: DeployedServer) -> str:
    """Return the name of the Kubernetes Secret with the key file."""
    return f"{server.name}-keys"


def secret_commands(server: DeployedServer) -> tuple[str, ...]:
    """Return the command that makes or replaces the Secret, if the server has a key file."""
    key_file = server.settings.api_key_file
    if key_file is None:
        return ()
    return (
        f"kubectl create secret generic {secret_name(server)} --from-file=keys={key_file} "
        "--dry-run=client --output=yaml | kubectl apply --filename -",
    )
