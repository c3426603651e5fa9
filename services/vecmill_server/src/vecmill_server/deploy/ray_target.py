"""The target `ray`: manifests of KubeRay's operator, for Ray Serve and for `vecmill ray embed`."""

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from vecmill.errors import InvalidConfig
from vecmill_server.base.settings import ServerSettings
from vecmill_server.deploy.deployed_server import (
    CONFIG_FILE,
    DeployedServer,
    image_notes,
    refuse_local_directories,
    refuse_sockets,
    secret_commands,
    secret_name,
)
from vecmill_server.deploy.rendering import Rendering, fill_template, quote

_FOLDER = "ray"
_CONFIG, _SERVICE, _JOB = "ray-config.yaml", "ray-service.yaml", "ray-job.yaml"
# Memory of a worker if the file says nothing: of a small model, as docs/sizing.md computes it, and of Ray.
_MEMORY_MIB, _RAY_MEMORY_MIB = 4096, 1024
# Where the pods have the configuration file and the key file.
_MOUNTED = f"/etc/vecmill-ray/{CONFIG_FILE}"
_KEYS = Path("/run/secrets/vecmill/keys")


def render_files(server: DeployedServer, folder: Path) -> Rendering:
    """Return a RayService and a RayJob. Raises `InvalidConfig`."""
    refuse_sockets(server)
    refuse_local_directories(server)
    settings, deploy = server.settings, server.deploy
    _refuse_files(settings)
    models = len(server.choices)
    worker_memory_mib = (deploy.memory_mib or _MEMORY_MIB) + _RAY_MEMORY_MIB
    # Another text has another name, so that KubeRay starts a new cluster and switches when it is ready.
    text = _write_config(server.text)
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()[:8]
    service = fill_template(
        _FOLDER,
        _SERVICE,
        server=server,
        deploy=deploy,
        cores=deploy.cores or 1,
        worker_memory_mib=worker_memory_mib,
        workers=deploy.replicas * models,
        has_router=models > 1,
        lame_duck_s=f"{max(0.1, settings.longest_lame_duck_s):g}",
        digest=digest,
        secret=secret_name(server),
        keys=_KEYS,
    )
    job = fill_template(
        _FOLDER,
        _JOB,
        server=server,
        deploy=deploy,
        cores=deploy.cores or 1,
        worker_memory_mib=worker_memory_mib,
        digest=digest,
        entrypoint=quote(f"vecmill ray embed $INPUT --output $OUTPUT --config {_MOUNTED}"),
    )
    config = fill_template(_FOLDER, _CONFIG, server=server, text=text, digest=digest)
    config_path, service_path, job_path = folder / _CONFIG, folder / _SERVICE, folder / _JOB
    return Rendering(
        {_CONFIG: config, _SERVICE: service, _JOB: job},
        (
            *secret_commands(server),
            f"kubectl apply --filename {config_path} --filename {service_path}",
            "INPUT=s3://bucket/texts OUTPUT=s3://bucket/embeddings envsubst '$INPUT $OUTPUT' "
            f"< {job_path} | kubectl create --filename -",
        ),
        "Put changes into a Kustomize patch, and leave the files as they are.",
        (
            f"The image {deploy.image} has to contain Ray and vecmill-ray.",
            *image_notes(server),
            *server.notes,
        ),
    )


def _refuse_files(settings: ServerSettings) -> None:
    """Raise `InvalidConfig` if a server keeps files that the others would need."""
    if settings.batch_dir is not None:
        raise InvalidConfig(
            "server.batch_dir does not work on Ray: a file that one replica keeps is unknown to the others. "
            "Remove the key."
        )
    if settings.has_embedding_cache:
        raise InvalidConfig(
            "server.result_cache_dir and server.result_cache_memory_bytes do not work on Ray: a "
            "replica does not know whose key a request has. Remove the keys."
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
