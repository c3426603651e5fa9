"""The target `helm`: the chart, and a values file for Kubernetes."""

import re
from collections.abc import Iterator
from pathlib import Path

from vecmill.config import MillConfig
from vecmill.errors import InvalidConfig
from vecmill.values.engine_plan import Precision
from vecmill_server.deploy.deployed_server import DeployedServer, refuse_sockets
from vecmill_server.deploy.extras import image_extra_notes
from vecmill_server.deploy.pods import (
    directory_notes,
    preparation_notes,
    refuse_local_directories,
    secret_commands,
    secret_name,
    write_total,
)
from vecmill_server.deploy.rendering import Rendering, fill_template, list_data, read_data

_FOLDER = "helm"
CHART = "vecmill"  # the folder of the chart in the output
_BATCHES = Path("/var/lib/vecmill")  # where the chart mounts the volume
_CACHE = Path("/var/cache/vecmill")  # where the chart mounts the volume of models
_COMMIT = re.compile("@[0-9a-f]{40}$")


def render_files(server: DeployedServer, folder: Path) -> Rendering:
    """Return the chart and values-NAME.yaml. Raises `InvalidConfig`."""
    files = render_chart(server)
    values = folder / values_name(server)
    return Rendering(
        files,
        (
            *secret_commands(server),
            f"helm upgrade --install {server.name} {folder / CHART} --values {values}",
        ),
        "Put changes of values into a file of your own, and name it with a second --values.",
        list_notes(server),
    )


def values_name(server: DeployedServer) -> str:
    """Return the name of the file of values."""
    return f"values-{server.name}.yaml"


def render_chart(server: DeployedServer) -> dict[str, str]:
    """Return the files of the chart and of its values. Raises `InvalidConfig`."""
    refuse_sockets(server)
    refuse_local_directories(server)
    _refuse_moving_models(server)
    _refuse_open_engines(server)
    _refuse_folders(server)
    repository, tag, digest = split_image(server.deploy.image)
    files = {f"{CHART}/{name}": read_data("chart", name) for name in list_data("chart")}
    files |= {f"{CHART}/monitoring/{name}": read_data("monitoring", name) for name in list_data("monitoring")}
    files[values_name(server)] = fill_template(
        _FOLDER,
        "values.yaml",
        server=server,
        deploy=server.deploy,
        repository=repository,
        tag=tag,
        digest=digest,
        secret=secret_name(server),
    )
    return files


def list_notes(server: DeployedServer) -> tuple[str, ...]:
    """Return sentences about what the pods of the chart need."""
    return (
        *_total_notes(server),
        *directory_notes(server),
        *image_extra_notes(server.choices, server.settings, server.deploy.image),
        *_preparation_notes(server),
        *_collector_notes(server),
        *server.notes,
    )


def _total_notes(server: DeployedServer) -> Iterator[str]:
    """Return a sentence about what several pods take together."""
    deploy = server.deploy
    if deploy.replicas == 1:
        return
    models = f", each with all {len(server.choices)} models" if len(server.choices) > 1 else ""
    each = {"cores": deploy.cores, "MiB of memory": deploy.memory_mib, "GPUs": deploy.gpus}
    total = write_total(deploy.replicas, each) or "each as much as the chart's values say"
    yield f"{deploy.replicas} pods{models}: {total}. One pod more while a change is rolled out."


def _preparation_notes(server: DeployedServer) -> Iterator[str]:
    if not (server.deploy.cache_claim or server.deploy.helm.shared_cache):
        yield from preparation_notes(
            server,
            "deploy.helm.shared_cache = true makes a volume that all pods share (docs/kubernetes.md), and "
            "deploy.cache_claim names one.",
        )


def _refuse_folders(server: DeployedServer) -> None:
    """Raise `InvalidConfig` for a folder that the pods cannot share or write to."""
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
