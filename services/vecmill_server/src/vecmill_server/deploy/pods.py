"""What the targets with pods share: Secrets, volumes, and notes about what the pods need."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from vecmill.config import MillConfig
from vecmill.errors import InvalidConfig
from vecmill.values.engine_plan import Precision
from vecmill_server.deploy.deployed_server import DeployedServer, image_note


def refuse_local_directories(server: DeployedServer) -> None:
    """Raise `InvalidConfig` if a model is a directory that no pod can read, or a volume has no model."""
    volume = server.deploy.model_volume
    for place, path in server.directories.items():
        if path.exists() and not _is_in_volume(server, path):
            raise InvalidConfig(
                f"{place} is {path} on this machine, which pods cannot read. Name a model of a hub, a "
                "directory that only the image has, or one of deploy.model_volume."
            )
    if volume is not None and not any(_is_in_volume(server, path) for path in server.directories.values()):
        raise InvalidConfig(
            f"deploy.model_volume has no model: no directory of [[models]] is in {volume.path}."
        )


def directory_notes(server: DeployedServer) -> Iterator[str]:
    """Return a sentence for each model directory that the image or the volume of pods has to contain."""
    volume = server.deploy.model_volume
    for place, path in server.directories.items():
        if volume is not None and _is_in_volume(server, path):
            yield f"{volume.image or volume.claim} has to contain {path.relative_to(volume.path)} ({place})."
        else:
            yield image_note(place, path)
    if volume is not None and volume.image:
        yield "deploy.model_volume.image: pods mount images from Kubernetes 1.35 on, by default."


def preparation_notes(server: DeployedServer, hint: str) -> Iterator[str]:
    """Return a sentence for each model in a reduced precision, for pods that share no cache."""
    for index, choice in enumerate(server.choices):
        precision = (choice.config or MillConfig()).precision
        if precision not in (None, Precision.FP32):
            yield (
                f"models[{index}] has the precision {precision}: each pod prepares it again at each start, "
                f"which can take minutes. {hint}"
            )


def write_total(count: int, each: Mapping[str, int | None]) -> str:
    """Return what `count` pods take together, from the amounts of one by unit; without `None` and 0."""
    return ", ".join(f"{count * amount} {unit}" for unit, amount in each.items() if amount)


def secret_name(server: DeployedServer) -> str:
    """Return the name of the Kubernetes Secret with the key file."""
    return f"{server.name}-keys"


def secret_commands(server: DeployedServer) -> tuple[str, ...]:
    """Return the command that makes or replaces the Secret, if the server has a key file."""
    key_file = server.settings.api_key_file
    if key_file is None:
        return ()
    return (
        f"kubectl create secret generic {secret_name(server)} {shlex.quote(f'--from-file=keys={key_file}')} "
        "--dry-run=client --output=yaml | kubectl apply --filename -",
    )


def _is_in_volume(server: DeployedServer, path: Path) -> bool:
    volume = server.deploy.model_volume
    return volume is not None and path.is_relative_to(volume.path)
