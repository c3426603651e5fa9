"""The volumes of pods: prepared models that pods share, and model directories that no image has."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.rendering import CHART, HELM, run_helm
from deployment.configurations import LARGE, render_text, write_rendering
from vecmill.errors import InvalidConfig
from vecmill_server.base.config_file import read_config_file
from vecmill_server.base.deploy_settings import ModelVolume
from vecmill_server.deploy.command import Target

PODS = (Target.HELM, Target.TERRAFORM, Target.RAY)
IN_IMAGE = """
[[models]]
model = "/models/docs"

[deploy.model_volume]
image = "registry.example/models:3"
"""
IN_CLAIM = IN_IMAGE.replace("image =", "claim =").replace("registry.example/models:3", "models")


def values_of(folder: Path, text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        render_text(folder, Target.HELM, text).files["values-vecmill.yaml"]
    )
    return found


def workers_on_ray(folder: Path, text: str) -> list[dict[str, Any]]:
    """Return the specifications of the pods of workers: of the servers, and of the job."""
    files = render_text(folder, Target.RAY, text).files
    service = yaml.safe_load(files["ray-service.yaml"])["spec"]["rayClusterConfig"]
    job = yaml.safe_load(files["ray-job.yaml"])["spec"]["rayClusterSpec"]
    return [cluster["workerGroupSpecs"][0]["template"]["spec"] for cluster in (service, job)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[deploy.model_volume]", "deploy.model_volume needs either image or claim."),
        ("[deploy.model_volume]\nimage = ' '", "deploy.model_volume needs either image or claim."),
        (
            "[deploy.model_volume]\nimage = 'a'\nclaim = 'b'",
            "deploy.model_volume needs either image or claim.",
        ),
        ("[deploy.model_volume]\nclaim = 'b'\npath = 'models'", "path must be an absolute path below /"),
        ("[deploy.model_volume]\nclaim = 'b'\npath = '/'", "path must be an absolute path below /"),
        (
            "[deploy.model_volume]\nclaims = 'b'",
            "deploy.model_volume.claims is not known. Did you mean deploy.",
        ),
        ("[deploy.model_volume]\nclaim = 'b'\npath = '/opt'", "it would hide /opt/vecmill of the pods."),
        ("[deploy.ray]\nimage = ''", "deploy.ray.image must not be empty."),
        ("[deploy]\nray = 3", "deploy.ray must be a table."),
        ("[deploy]\ncache_claim = ' '", "deploy.cache_claim must not be empty."),
        ("[deploy.raj]\nimage = 'a'", "deploy.raj is not known. Did you mean deploy.ray?"),
        (
            "[deploy]\ncache_claim = 'a'\n[deploy.helm]\nshared_cache = true",
            "deploy.cache_claim and deploy.helm.shared_cache exclude each other.",
        ),
    ],
)
def test_a_mistake_in_an_inner_table_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "vecmill.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidConfig, match=re.escape(message)):
        read_config_file(path)


def test_a_volume_of_models_hides_no_mount_of_the_pods(tmp_path: Path) -> None:
    files = render_text(tmp_path, Target.RAY, LARGE).files
    templates = "\n".join(path.read_text("utf-8") for path in (CHART / "templates").iterdir())
    text = "\n".join((files["ray-service.yaml"], files["ray-job.yaml"], templates))
    mounted = set(re.findall(r'mountPath: "?(/[a-z/-]+)', text))
    assert len(mounted) >= 7
    for path in map(Path, mounted):
        for each in (path, path.parent):
            if each != Path("/"):
                with pytest.raises(InvalidConfig, match="it would hide"):
                    ModelVolume(path=each, claim="models")


@pytest.mark.parametrize("target", PODS)
def test_a_volume_without_a_model_is_refused(tmp_path: Path, target: Target) -> None:
    with pytest.raises(InvalidConfig, match=r"no directory of .* is in /models"):
        render_text(tmp_path, target, IN_CLAIM.replace("/models/docs", "/model/docs"))


def test_a_directory_in_a_volume_may_be_on_this_machine_too(tmp_path: Path) -> None:
    model = tmp_path / "models/docs"
    model.mkdir(parents=True)
    text = IN_CLAIM.replace("/models/docs", str(model))
    for target in PODS:
        with pytest.raises(InvalidConfig, match="which pods cannot read"):
            render_text(tmp_path, target, text.partition("[deploy")[0])
        found = render_text(tmp_path, target, f"{text}path = '{model.parent}'\n")
        assert "models has to contain docs (models[0].model)." in found.notes


def test_the_chart_mounts_the_volume_that_the_file_names(tmp_path: Path) -> None:
    assert values_of(tmp_path, IN_IMAGE)["modelVolume"] == {
        "path": "/models",
        "image": "registry.example/models:3",
    }
    assert values_of(tmp_path, IN_CLAIM)["modelVolume"] == {"path": "/models", "existingClaim": "models"}
    assert "modelVolume" not in values_of(tmp_path, "")
    shared = values_of(tmp_path, "[deploy.helm]\nshared_cache = true")
    assert shared["cache"] == {"size": "20Gi", "persistent": True}
    claimed = values_of(tmp_path, "[deploy]\ncache_claim = 'prepared'")
    assert claimed["cache"] == {"size": "20Gi", "existingClaim": "prepared"}
    schema = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    assert {"path", "image", "existingClaim"} <= set(schema["modelVolume"])


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (IN_IMAGE, {"image": {"reference": "registry.example/models:3", "pullPolicy": "IfNotPresent"}}),
        (IN_CLAIM, {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}}),
    ],
)
def test_the_pods_of_ray_mount_the_volume_that_the_file_names(
    tmp_path: Path, text: str, source: dict[str, Any]
) -> None:
    for pod in workers_on_ray(tmp_path, text):
        volumes = {each.pop("name"): each for each in pod["volumes"]}
        assert volumes["model-volume"] == source
        mounts = {each["name"]: each for each in pod["containers"][0]["volumeMounts"]}
        assert mounts["model-volume"] == {"name": "model-volume", "mountPath": "/models", "readOnly": True}


def test_the_pods_of_ray_share_prepared_models_that_they_can_write(tmp_path: Path) -> None:
    for pod in workers_on_ray(tmp_path, "[deploy]\ncache_claim = 'prepared'"):
        volumes = {each["name"]: each for each in pod["volumes"]}
        assert volumes["cache"]["persistentVolumeClaim"] == {"claimName": "prepared"}
        assert pod["securityContext"]["fsGroup"] == 10001
    for pod in workers_on_ray(tmp_path, ""):
        assert "fsGroup" not in pod["securityContext"]


@pytest.mark.full
@pytest.mark.skipif(not HELM.exists(), reason="helm is not installed: run `make chart`")
def test_another_volume_is_another_vector_space_and_another_image_of_the_server_is_none(
    tmp_path: Path,
) -> None:
    write_rendering(tmp_path, render_text(tmp_path, Target.HELM, IN_IMAGE))

    def space(*settings: str) -> str:
        arguments = [word for each in settings for word in ("--set", each)]
        done = run_helm(
            "template",
            "vecmill",
            tmp_path / "vecmill",
            "--values",
            tmp_path / "values-vecmill.yaml",
            *arguments,
        )
        assert done.returncode == 0, done.stderr
        (found,) = set(re.findall(r"vecmill/vector-space: \"?(\w+)", done.stdout))
        return str(found)

    assert space() == space("image.tag=other")
    assert space() != space("modelVolume.image=registry.example/models:4")
    assert space() != space("modelVolume.image=", "modelVolume.existingClaim=models")
    both = ("--set", "modelVolume.existingClaim=models")
    refused = run_helm(
        "template", "vecmill", tmp_path / "vecmill", "--values", tmp_path / "values-vecmill.yaml", *both
    )
    assert "modelVolume of blue has an image and an existingClaim" in refused.stderr
