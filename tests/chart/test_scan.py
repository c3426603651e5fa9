"""checkov finds nothing in the chart, the pods of Ray and the Dockerfile but what the docs explain."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.rendering import VALUE_FILES, render_text
from deployment import configurations as deployment
from support.source_tree import ROOT
from vecmill_server.deploy.command import Target

ENVIRONMENT = ROOT / ".venv/checkov"
PAGE = ROOT / "docs/kubernetes.md"

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("chart_tools", "scanner")]


@pytest.fixture(scope="module")
def scanner() -> None:
    """Skip the test if `make chart-scan` has not installed checkov."""
    if not (ENVIRONMENT / "ready").exists():
        pytest.skip("checkov is not installed: run `make chart-scan`")


def scan(framework: str, files: Sequence[Path]) -> Iterator[str]:
    """Yield the name of each check that fails, of all checks of checkov. It uses no network."""
    named = [word for file in files for word in ("--file", str(file))]
    command = [str(ENVIRONMENT / "bin/checkov"), *named, "--framework", framework]
    done = subprocess.run(
        [*command, "--quiet", "--compact", "--output", "json", "--skip-download", "--soft-fail"],
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    report = json.loads(done.stdout)
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] > 50
    for check in report["results"]["failed_checks"]:
        yield check["check_id"]


def explained(kind: str, page: Path = PAGE) -> set[str]:
    """Return the checks in the table of the page, without those of other files than `kind`."""
    table = page.read_text("utf-8").partition("## Findings of scanners\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `(CKV\w+)` \|", table, flags=re.MULTILINE)
    return {check for check in found if check.startswith("CKV_DOCKER") == (kind == "dockerfile")}


def test_each_finding_in_the_rendered_chart_has_a_reason(tmp_path: Path) -> None:
    files = []
    for values in VALUE_FILES:
        file = tmp_path / f"{values}.yaml"
        file.write_text(render_text(values=values), "utf-8")
        files.append(file)
    assert set(scan("kubernetes", files)) == explained("kubernetes")


def pods_of_ray(folder: Path, text: str) -> Iterator[dict[str, Any]]:
    """Yield the pods of Ray, as objects of Kubernetes' own, which checkov reads, and their policies."""
    files = deployment.render_text(folder, Target.RAY, text).files
    service = yaml.safe_load(files["ray-service.yaml"])["spec"]["rayClusterConfig"]
    job = yaml.safe_load(files["ray-job.yaml"])["spec"]
    templates = [
        group["template"]
        for cluster in (service, job["rayClusterSpec"])
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
    ]
    for index, template in enumerate(templates):
        metadata = {"name": f"ray-{index}", "namespace": "prod", **template["metadata"]}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    submitter = {"template": job["submitterPodTemplate"]}
    metadata = {"name": "submitter", "namespace": "prod"}
    yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": submitter}
    for policy in yaml.safe_load_all(files["ray-network.yaml"]):
        yield {**policy, "metadata": {**policy["metadata"], "namespace": "prod"}}


def test_each_finding_in_the_pods_of_ray_has_a_reason(tmp_path: Path) -> None:
    files = []
    for name in ("large", "strict"):
        file = tmp_path / f"ray-{name}.yaml"
        text = deployment.CONFIGURATIONS[name]
        file.write_text(yaml.safe_dump_all(pods_of_ray(tmp_path, text)), "utf-8")
        files.append(file)
    assert set(scan("kubernetes", files)) == explained("kubernetes", ROOT / "docs/ray.md")


def test_each_finding_in_the_dockerfile_has_a_reason() -> None:
    assert set(scan("dockerfile", [ROOT / "docker/Dockerfile"])) == explained("dockerfile")


def test_a_planted_fault_is_found(tmp_path: Path) -> None:
    manifests = tuple(yaml.safe_load_all(render_text()))
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            manifest["spec"]["template"]["spec"]["hostNetwork"] = True
    (tmp_path / "planted.yaml").write_text(yaml.safe_dump_all(manifests), "utf-8")
    assert "CKV_K8S_19" in set(scan("kubernetes", [tmp_path / "planted.yaml"])) - explained("kubernetes")
