"""The target `compose`: the server, Prometheus and Grafana in containers on one machine."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from vecmill_server.deploy.deployed_server import CONFIG_FILE, DeployedServer, image_notes, refuse_sockets
from vecmill_server.deploy.rendering import Rendering, fill_template, quote, read_data, read_rules

_FOLDER = "compose"
# The kinds of images that docker/Dockerfile builds.
_IMAGE_TARGETS = ("cpu", "openvino", "cuda", "rocm", "neuron")
_USER = 10001  # of the image, and its group
# What OpenTelemetry reads itself (docs/monitoring.md). Compose leaves a variable out that nobody has set.
TRACING_VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_COMPRESSION",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_SERVICE_NAME",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_TRACES_EXPORTER",
    "OTEL_SDK_DISABLED",
)

_OWN_CHANGES = "Put changes into a file compose.override.yaml beside compose.yaml, which Compose reads too."


def render_files(server: DeployedServer, folder: Path) -> Rendering:
    """Return compose.yaml and the files that it mounts. Raises `InvalidConfig`."""
    refuse_sockets(server)
    files = {
        CONFIG_FILE: server.text,
        "prometheus/prometheus.yml": fill_template(
            _FOLDER, "prometheus.yml", metrics_path=f"{server.settings.url_prefix}/metrics"
        ),
        "prometheus/vecmill-alerts.yaml": read_rules(_find_url(server)),
        "grafana/boards.yaml": read_data(_FOLDER, "boards.yaml"),
        "grafana/data_sources.yaml": read_data(_FOLDER, "data_sources.yaml"),
        "grafana/vecmill-board.json": read_data("monitoring", "vecmill-board.json"),
    }
    mounted = [path for path in sorted(set(server.directories.values())) if path.exists()]
    compose = fill_template(
        _FOLDER,
        "compose.yaml",
        server=server,
        deploy=server.deploy,
        digests={part: _digest_part(files, part) for part in ("vecmill", "prometheus", "grafana")},
        address=server.address,
        directories=[str(path) for path in mounted],
        user=_USER,
        text=_quote_text,
        image=_name_image,
        build=_build_command(server.deploy.image),
        tracing_variables=TRACING_VARIABLES,
    )
    command = f"docker compose --file {folder / 'compose.yaml'}"
    return Rendering(
        {"compose.yaml": compose, **files},
        (
            f"{command} up --detach --wait",
            f"{command} --profile monitoring up --detach --wait",
        ),
        _OWN_CHANGES,
        (
            *server.replica_notes("compose"),
            *server.open_notes,
            *image_notes(server),
            *server.notes,
            *_list_notes(server),
        ),
    )


def _find_url(server: DeployedServer) -> str:
    """Return the address of the server for a browser on this machine."""
    host, _, port = server.address.rpartition(":")
    shown = "localhost" if server.ip_address.is_unspecified else host
    return f"http://{shown}:{port}{server.settings.url_prefix}"


def _list_notes(server: DeployedServer) -> list[str]:
    key_file = server.settings.api_key_file
    notes = []
    if key_file is not None:
        notes.append(f"The user {_USER} of the container has to be able to read {key_file}.")
    if server.settings.tracing:
        notes.append(
            "server.tracing: name the collector in OTEL_EXPORTER_OTLP_ENDPOINT, in the shell or in a file "
            ".env beside compose.yaml. localhost is the container itself."
        )
    return notes


def _build_command(image: str) -> str:
    """Return the command that builds an image of this name. Its tag names the kind of image."""
    name = image.partition("@")[0]
    tag = name.rpartition("/")[2].partition(":")[2]
    target = tag if tag in _IMAGE_TARGETS else _IMAGE_TARGETS[0]
    return f"make image TARGET={target} IMAGE={name}"


def _name_image(variable: str, image: str) -> str:
    """Return the image that a variable of Compose names, by default `image`, in quotes."""
    return quote(f"${{{variable}:-{image.replace('$', '$$')}}}")


def _quote_text(value: object) -> str:
    """Return a text in quotes in which Compose replaces no variable."""
    return quote(str(value).replace("$", "$$"))


def _digest_part(files: Mapping[str, str], start: str) -> str:
    """Return the digest of the files whose paths begin with `start`."""
    texts = [files[name] for name in sorted(files) if name.startswith(start)]
    return hashlib.sha256("\0".join(texts).encode("utf-8")).hexdigest()[:16]
