"""The Helm chart: its files, and what helm makes of them."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import click
import yaml

from support.source_tree import ROOT
from vecmill_server.cli.serve import serve

CHART = ROOT / "services/vecmill_server/src/vecmill_server/deploy/chart"
MONITORING = CHART.parent / "monitoring"
VALUES = ROOT / "tests/chart/values"
# None: the values of the chart itself.
VALUE_FILES = (None, *sorted(path.stem for path in VALUES.glob("*.yaml")))

ENVIRONMENT = ROOT / ".venv/chart"
HELM = ENVIRONMENT / "bin/helm"
VALIDATE = ENVIRONMENT / "bin/kubernetes-validate"
NPM = ROOT / "tests/chart/npm"

# Variables of programs other than the server that the chart sets.
OTHER_VARIABLES = frozenset({"HF_HOME", "HF_TOKEN", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"})

Manifest = Mapping[str, Any]


def run_helm(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run helm without a cluster and without the user's settings."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "KUBECONFIG": "/nonexistent"}
    command = [str(HELM), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def render_text(*arguments: object, values: str | None = None, chart: Path = CHART) -> str:
    """Return the manifests of the release `vecmill` in the namespace `prod`, as YAML."""
    files = () if values is None else ("--values", VALUES / f"{values}.yaml")
    done = run_helm("template", "vecmill", chart, "--namespace", "prod", *files, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def render(values: str | None) -> tuple[Manifest, ...]:
    """Return the manifests with a file of values."""
    return tuple(manifest for manifest in yaml.safe_load_all(render_text(values=values)) if manifest)


def refusal(*arguments: object, values: str | None = None) -> str:
    """Return the error message of helm."""
    files = () if values is None else ("--values", VALUES / f"{values}.yaml")
    done = run_helm("template", "vecmill", CHART, "--namespace", "prod", *files, *arguments)
    assert done.returncode != 0, done.stdout
    return done.stderr


def select(manifests: tuple[Manifest, ...], kind: str, name: str | None = None) -> Manifest:
    """Return the only manifest of a kind, or the one with a name."""
    found = [each for each in manifests if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    assert len(found) == 1, [each["metadata"]["name"] for each in found]
    return found[0]


def config_file_of(manifests: tuple[Manifest, ...]) -> str:
    """Return the configuration file of the only Deployment."""
    (found,) = [each for each in manifests if "vecmill.toml" in each.get("data", {})]
    return str(found["data"]["vecmill.toml"])


def container_of(deployment: Manifest) -> Mapping[str, Any]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


def serve_parameters() -> dict[str, click.Parameter]:
    """Return the parameters of `vecmill serve`, by each of their flags and environment variables."""
    context = click.Context(serve, auto_envvar_prefix="VECMILL")
    return {
        name: parameter
        for parameter in serve.params
        for name in chain(parameter.opts, parameter.secondary_opts, variables_of(parameter, context))
    }


def variables_of(parameter: click.Parameter, context: click.Context) -> Iterator[str]:
    if isinstance(parameter.envvar, str):
        yield parameter.envvar
    elif parameter.name is not None:
        yield f"{context.auto_envvar_prefix}_{parameter.name.upper()}"


def variables_in(text: str) -> set[str]:
    """Return the environment variables of the server that a text names."""
    return set(re.findall(r"\bVECMILL_[A-Z_]+\b", text))


def deployments(values: str | None) -> list[Manifest]:
    return [each for each in render(values) if each["kind"] == "Deployment"]


def values_of(values: str | None) -> Mapping[str, Any]:
    if values is None:
        return {}
    found: Mapping[str, Any] = yaml.safe_load((VALUES / f"{values}.yaml").read_text("utf-8"))
    return found


def config_of(deployment: Manifest, values: str | None) -> str:
    volumes = {each["name"]: each for each in deployment["spec"]["template"]["spec"]["volumes"]}
    config = select(render(values), "ConfigMap", volumes["config"]["configMap"]["name"])
    return str(config["data"]["vecmill.toml"])


def key(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]
