"""The target `ray`: manifests of KubeRay's operator, for Ray Serve and for `vecmill ray embed`."""

import hashlib
from pathlib import Path

from vecmill.errors import InvalidConfig
from vecmill_server.deployment.containers import (
    image_notes,
    refuse_local_directories,
    refuse_sockets,
    secret_commands,
    secret_name,
)
from vecmill_server.deployment.deployed_server import DeployedServer
from vecmill_server.deployment.rendering import Rendering, fill_template, quote
from vecmill_server.drain import DEFAULT_LAME_DUCK_S

_FOLDER = "ray"
_SERVICE, _JOB = "ray-service.yaml", "ray-job.yaml"


def render_files(server: DeployedServer, folder: Path) -> Rendering:
    """Return a RayService and a RayJob. Raises `InvalidConfig`."""
    refuse_sockets(server)
    refuse_local_directories(server)
    settings, deploy = server.settings, server.deploy
    if settings.batch_dir is not None:
        raise InvalidConfig(
            "server.batch_dir does not work on Ray: a file that one replica keeps is unknown to the others. "
            "Remove the key."
        )
    _refuse_key_folder(server)
    models = max(len(server.models), 1)
    lame_duck_s = DEFAULT_LAME_DUCK_S if settings.lame_duck_s is None else settings.lame_duck_s
    service = fill_template(
        _FOLDER,
        _SERVICE,
        server=server,
        deploy=deploy,
        cores=deploy.cores or 1,
        workers=deploy.replicas * models,
        has_router=models > 1,
        lame_duck_s=f"{max(0.1, lame_duck_s):g}",
        digest=hashlib.sha256(server.text.encode("utf-8")).hexdigest()[:8],
        secret=secret_name(server),
    )
    job = fill_template(
        _FOLDER,
        _JOB,
        server=server,
        deploy=deploy,
        cores=deploy.cores or 1,
        entrypoint=quote(" ".join(_embed_command(server))),
    )
    service_path, job_path = folder / _SERVICE, folder / _JOB
    return Rendering(
        {_SERVICE: service, _JOB: job},
        (
            *secret_commands(server),
            f"kubectl apply --filename {service_path}",
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


def _refuse_key_folder(server: DeployedServer) -> None:
    """Raise `InvalidConfig` if the folder of the key file, where the Secret is mounted, has other files."""
    key_file = server.settings.api_key_file
    if key_file is not None and len(key_file.parent.parts) < 3:
        raise InvalidConfig(
            "server.api_key_file must be in a folder of its own for ray, such as /etc/vecmill/keys, because "
            "a Secret is mounted as that folder."
        )


def _embed_command(server: DeployedServer) -> list[str]:
    """Return the command that embeds with the first model of the file."""
    words = ["vecmill", "ray", "embed", "$INPUT", "--output", "$OUTPUT"]
    if not server.models:
        return words
    first = server.models[0]
    words += ["--model", first.model]
    for name in ("engine", "precision", "device"):
        if first.values.get(name) is not None:
            words += [f"--{name}", str(first.values[name])]
    return words
