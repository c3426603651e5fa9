"""The target `ray`: manifests of KubeRay's operator, for Ray Serve and for `vecmill ray embed`."""

import hashlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli_w

from vecmill_server.base.ray_refusals import refuse_on_ray
from vecmill_server.deploy.deployed_server import CONFIG_FILE, DeployedServer, refuse_sockets
from vecmill_server.deploy.extras import image_extra_notes
from vecmill_server.deploy.pods import (
    directory_notes,
    preparation_notes,
    refuse_local_directories,
    secret_commands,
    secret_name,
    write_total,
)
from vecmill_server.deploy.rendering import Rendering, fill_template, quote

_FOLDER = "ray"
_CONFIG, _NETWORK = "ray-config.yaml", "ray-network.yaml"
_SERVICE, _JOB = "ray-service.yaml", "ray-job.yaml"
# Memory of a worker if the file says nothing: of a small model, as docs/choosing.md computes it, and of Ray.
_MEMORY_MIB, _RAY_MEMORY_MIB = 4096, 1024
# The head, which runs no model.
_HEAD_CORES, _HEAD_MEMORY_MIB = 2, 4096
# Where the pods have the configuration file and the key file.
_MOUNTED = f"/etc/vecmill-ray/{CONFIG_FILE}"
_KEYS = Path("/run/secrets/vecmill/keys")


def render_files(server: DeployedServer, folder: Path) -> Rendering:
    """Return a RayService, a RayJob and their network policies. Raises `InvalidConfig`."""
    refuse_sockets(server)
    refuse_local_directories(server)
    refuse_on_ray(server.settings)
    deploy, models = server.deploy, len(server.choices)
    # Another text has another name, so that KubeRay starts a new cluster and switches when it is ready.
    text = _write_config(server.text)
    values = {
        "server": server,
        "deploy": deploy,
        "image": _image(server),
        "cores": deploy.cores or 1,
        "worker_memory_mib": _worker_memory_mib(server),
        "head_cores": _HEAD_CORES,
        "head_memory_mib": _HEAD_MEMORY_MIB,
        "digest": hashlib.sha256(text.encode("utf-8")).hexdigest()[:8],
    }
    files = {
        _CONFIG: fill_template(_FOLDER, _CONFIG, **values, text=text),
        _NETWORK: fill_template(_FOLDER, _NETWORK, **values),
        _SERVICE: fill_template(
            _FOLDER,
            _SERVICE,
            **values,
            workers=deploy.replicas * models,
            has_router=models > 1,
            lame_duck_s=f"{max(0.1, server.settings.longest_lame_duck_s):g}",
            body_timeout_ms=round(server.settings.body_timeout_s * 1000),
            secret=secret_name(server),
            keys=_KEYS,
        ),
        _JOB: fill_template(
            _FOLDER,
            _JOB,
            **values,
            entrypoint=quote(f"vecmill ray embed $INPUT --output $OUTPUT --config {_MOUNTED}"),
        ),
    }
    applied = " ".join(f"--filename {folder / name}" for name in (_CONFIG, _NETWORK, _SERVICE))
    return Rendering(
        files,
        (
            *secret_commands(server),
            f"kubectl apply {applied}",
            "INPUT=s3://bucket/texts OUTPUT=s3://bucket/embeddings envsubst '$INPUT $OUTPUT' "
            f"< {folder / _JOB} | kubectl create --filename -",
        ),
        "Put changes into a Kustomize patch, and leave the files as they are.",
        tuple(_list_notes(server)),
    )


def _image(server: DeployedServer) -> str:
    return server.deploy.ray.image or server.deploy.image


def _worker_memory_mib(server: DeployedServer) -> int:
    return (server.deploy.memory_mib or _MEMORY_MIB) + _RAY_MEMORY_MIB


def _list_notes(server: DeployedServer) -> Iterator[str]:
    image = _image(server)
    yield f"The image {image} has to contain Ray and vecmill-ray (docs/deployment.md has a Dockerfile)."
    if server.settings.tracing:
        yield (
            f"server.tracing: the image {image} has to contain vecmill-server[otel], and a Secret names the "
            f"collector: kubectl create secret generic {server.name}-tracing "
            "--from-literal=OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318. Allow its port in "
            f"{_NETWORK} with a patch if it is not 4318."
        )
    yield from _total_notes(server)
    yield from directory_notes(server)
    yield from image_extra_notes(server.choices, server.settings, image)
    if not server.deploy.cache_claim:
        yield from preparation_notes(server, "deploy.cache_claim names a volume that all workers share.")
    yield from server.notes


def _total_notes(server: DeployedServer) -> Iterator[str]:
    """Return sentences about what all pods take together."""
    deploy, models = server.deploy, len(server.choices)
    for what, workers in (("the servers", deploy.replicas * models), ("the job", deploy.replicas)):
        of_models = f" ({deploy.replicas} for each of {models} models)" if workers != deploy.replicas else ""
        each = {
            "cores": workers * (deploy.cores or 1) + _HEAD_CORES,
            "MiB of memory": workers * _worker_memory_mib(server) + _HEAD_MEMORY_MIB,
            "GPUs": workers * deploy.gpus,
        }
        yield f"{what}: a head and {workers} workers{of_models}, together {write_total(1, each)}."
    yield "A changed configuration starts a second cluster of servers, before the first one ends."
    yield (
        f"{_NETWORK} opens the servers to the pods of the namespace, and port 443 to the job. Add other "
        "peers and ports with a patch."
    )


def _write_config(text: str) -> str:
    """Return the configuration file for the pods, without what is only about the machine of its author."""
    document = tomllib.loads(text)
    document.pop("deploy", None)
    if "server" in document:
        server = _without(document["server"], "host", "port")
        if "api_key_file" in server:
            server["api_key_file"] = str(_KEYS)
        document["server"] = server
    if "defaults" in document:
        document["defaults"] = _without(document["defaults"], "cache_dir")
    if "models" in document:
        document["models"] = [_without(model, "cache_dir") for model in document["models"]]
    return tomli_w.dumps({name: table for name, table in document.items() if table})


def _without(table: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name not in names}
