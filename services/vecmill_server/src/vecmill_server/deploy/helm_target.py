"""The target `helm`: the chart, and a values file for Kubernetes."""

import re
from pathlib import Path

from vecmill.config import MillConfig
from vecmill.errors import InvalidConfig
from vecmill.values.engine_plan import Precision
from vecmill_server.deploy.deployed_server import (
    DeployedServer,
    image_notes,
    refuse_local_directories,
    refuse_sockets,
    secret_commands,
    secret_name,
)
from vecmill_server.deploy.rendering import Rendering, fill_template, list_data, read_data

_FOLDER = "helm"
_CHART = "vecmill"  # the folder of the chart in the output
_BATCHES = Path("/var/lib/vecmill")  # where the chart mounts the volume
_CACHE = Path("/var/cache/vecmill")  # where the chart mounts the volume of models
_COMMIT = re.compile("@[0-9a-f]{40}$")


def render_files(server: DeployedServer, folder: Path) -> Rendering:
    """Return the chart and values-NAME.yaml. Raises `InvalidConfig`."""
    refuse_sockets(server)
    refuse_local_directories(server)
    _refuse_moving_models(server)
    _refuse_open_engines(server)
    batch_dir = server.settings.batch_dir
    if batch_dir is not None and server.deploy.replicas > 1:
        raise InvalidConfig(
            "server.batch_dir needs deploy.replicas = 1. A file or a batch is known only to the server that "
            "accepted it."
        )
    if batch_dir not in (None, _BATCHES):
        raise InvalidConfig(
            f"server.batch_dir must be {_BATCHES} for helm: the chart mounts its volume there."
        )
    cache_dir = server.settings.result_cache_dir
    if cache_dir is not None and _CACHE not in cache_dir.parents:
        raise InvalidConfig(
            f"server.result_cache_dir must be below {_CACHE} for helm: pods can write to no other folder."
        )
    values_name = f"values-{server.name}.yaml"
    repository, tag, digest = split_image(server.deploy.image)
    files = {f"{_CHART}/{name}": read_data("chart", name) for name in list_data("chart")}
    files |= {
        f"{_CHART}/monitoring/{name}": read_data("monitoring", name) for name in list_data("monitoring")
    }
    files[values_name] = fill_template(
        _FOLDER,
        "values.yaml",
        server=server,
        deploy=server.deploy,
        repository=repository,
        tag=tag,
        digest=digest,
        secret=secret_name(server),
    )
    commands = [f"helm upgrade --install {server.name} {folder / _CHART} --values {folder / values_name}"]
    return Rendering(
        files,
        (*secret_commands(server), *commands),
        "Put changes of values into a file of your own, and name it with a second --values.",
        (*image_notes(server), *_collector_notes(server), *server.notes),
    )


def _collector_notes(server: DeployedServer) -> tuple[str, ...]:
    """Return a sentence about the collector, which the configuration file does not name."""
    if not server.settings.tracing:
        return ()
    return (
        "server.tracing: name the collector in env.OTEL_EXPORTER_OTLP_ENDPOINT of a second values file, and "
        "its port in networkPolicy.egress if that is not 4318.",
    )


def _refuse_open_engines(server: DeployedServer) -> None:
    """Raise `InvalidConfig` if an image would choose the engine of a model in a reduced precision."""
    for index, choice in enumerate(server.choices):
        config = choice.config or MillConfig()
        if not config.engine and config.precision not in (None, Precision.FP32):
            raise InvalidConfig(
                f"models[{index}] has the precision {config.precision}, but no engine. The engines of two "
                f"images would compute different vectors. Set models[{index}].engine too."
            )


def split_image(image: str) -> tuple[str, str, str]:
    """Return the repository, the tag and the digest of an image; the last two may be empty."""
    rest, _, digest = image.partition("@")
    repository, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:  # no colon, or that of a port
        return rest, "", digest
    return repository, tag, digest


def _refuse_moving_models(server: DeployedServer) -> None:
    for place, model in server.hub_models.items():
        if not _COMMIT.search(model):
            raise InvalidConfig(
                f"{place}: {model!r} names no commit, so pods could serve different weights. Write "
                "owner/name@ and the 40 digits of the commit."
            )
