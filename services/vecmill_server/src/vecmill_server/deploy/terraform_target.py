"""The target `terraform`: a module for Terraform and OpenTofu that installs the Helm chart."""

from pathlib import Path

from vecmill_server.deploy.deployed_server import DeployedServer
from vecmill_server.deploy.helm_target import CHART, list_notes, render_chart, values_name
from vecmill_server.deploy.pods import secret_commands
from vecmill_server.deploy.rendering import Rendering, fill_template

_FOLDER = "terraform"
_FILES = ("main.tf", "variables.tf", "outputs.tf")


def render_files(server: DeployedServer, folder: Path) -> Rendering:
    """Return the module, the chart and values-NAME.yaml. Raises `InvalidConfig`."""
    files = render_chart(server)
    for name in _FILES:
        files[name] = fill_template(_FOLDER, name, server=server, chart=CHART, values=values_name(server))
    return Rendering(
        files,
        (
            *secret_commands(server),
            f"terraform -chdir={folder} init",
            f"terraform -chdir={folder} apply",
        ),
        "Put changes of values into a file of your own, and name it in the variable `values`.",
        (
            *list_notes(server),
            "OpenTofu takes the same commands as `tofu`. The provider helm finds the cluster by "
            "KUBE_CONFIG_PATH, unless a module that uses this one configures it.",
        ),
    )
