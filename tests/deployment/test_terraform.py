"""The module for Terraform and OpenTofu: what a parser of its language reads, and `terraform fmt`."""

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hcl2.api import loads

from deployment.configurations import CONFIGURATIONS, LARGE, render_text, write_rendering
from vecmill_server.deploy.command import Target
from vecmill_server.deploy.rendering import Rendering


def read_module(rendering: Rendering) -> dict[str, list[Any]]:
    """Return the blocks of all files of a module by their kinds."""
    blocks: dict[str, list[Any]] = {}
    for name, text in rendering.files.items():
        if name.endswith(".tf"):
            for kind, found in loads(text).items():
                blocks.setdefault(kind, []).extend(found)
    return blocks


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_module_installs_the_chart_that_helm_would(tmp_path: Path, name: str) -> None:
    rendering = render_text(tmp_path, Target.TERRAFORM, CONFIGURATIONS[name])
    helm = render_text(tmp_path, Target.HELM, CONFIGURATIONS[name])
    assert helm.files.items() <= rendering.files.items()
    assert set(rendering.files) - set(helm.files) == {"main.tf", "variables.tf", "outputs.tf"}
    module = read_module(rendering)
    ((release,),) = [resource.values() for resource in module["resource"]]
    (arguments,) = release.values()
    assert arguments["chart"] == "${path.module}/vecmill"
    assert "vecmill/Chart.yaml" in rendering.files
    assert 'file("${path.module}/values-vecmill.yaml")' in arguments["values"]
    assert "values-vecmill.yaml" in rendering.files


def test_each_variable_is_declared_once_used_and_described(tmp_path: Path) -> None:
    rendering = render_text(tmp_path, Target.TERRAFORM, LARGE.replace("replicas = 1", "replicas = 3"))
    module = read_module(rendering)
    declared = {name: each for block in module["variable"] for name, each in block.items()}
    assert len(declared) == len(module["variable"])
    for name, each in declared.items():
        assert each["description"].endswith(".")
        assert "default" in each  # `terraform apply` asks nothing
        assert f"var.{name}" in rendering.files["main.tf"]
    chart = yaml.safe_load(rendering.files["vecmill/values.yaml"])
    assert declared["timeout_s"]["default"] == 3 * (chart["startupSeconds"] + 120)
    assert declared["release"]["default"] == "vecmill"


def test_the_module_takes_the_provider_of_whoever_uses_it(tmp_path: Path) -> None:
    module = read_module(render_text(tmp_path, Target.TERRAFORM, ""))
    assert "provider" not in module
    (settings,) = module["terraform"]
    (providers,) = settings["required_providers"]
    assert providers["helm"] == {"source": "hashicorp/helm", "version": ">= 2.13, < 4"}


def test_no_key_is_in_the_module(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("search a-secret\n", "utf-8")
    rendering = render_text(tmp_path, Target.TERRAFORM, "[server]\napi_key_file = 'keys'")
    assert not any("a-secret" in text for text in rendering.files.values())
    assert f"--from-file=keys={tmp_path}/keys" in rendering.commands[0]


def test_a_key_file_in_a_folder_with_a_space_is_one_word_of_the_command(tmp_path: Path) -> None:
    for target in (Target.HELM, Target.TERRAFORM, Target.RAY):
        folder = tmp_path / "my servers; true"
        command = render_text(folder, target, "[server]\napi_key_file = 'keys'").commands[0]
        assert f"--from-file=keys={folder}/keys" in shlex.split(command)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not installed")
def test_terraform_reads_the_module_and_would_write_it_alike(tmp_path: Path) -> None:
    for name in CONFIGURATIONS:
        write_rendering(tmp_path / name, render_text(tmp_path, Target.TERRAFORM, CONFIGURATIONS[name]))
        command = ["terraform", "fmt", "-check", "-diff", str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
