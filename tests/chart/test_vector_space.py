"""Pods of two vector spaces are never behind one Service, and clients always have a ready pod."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from chart.fake_cluster import serve_cluster
from chart.rendering import CHART, HELM, VALUES, Manifest, key, render, render_text, select

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("chart_tools")]


def test_the_service_selects_the_active_colour_alone() -> None:
    manifests = render("blue-green")
    selector = select(manifests, "Service", "vecmill")["spec"]["selector"]
    labels = {
        name: select(manifests, "Deployment", f"vecmill-{name}")["spec"]["template"]["metadata"]["labels"]
        for name in ("blue", "green")
    }
    assert selector.items() <= labels["blue"].items()
    assert not selector.items() <= labels["green"].items()
    switched = yaml.safe_load_all(render_text("--set", "active=green", values="blue-green"))
    selector = select(tuple(switched), "Service", "vecmill")["spec"]["selector"]
    assert selector.items() <= labels["green"].items()


def test_a_switch_changes_nothing_but_the_service_and_the_record_of_what_it_serves() -> None:
    before = {key(each): each for each in render("blue-green")}
    switched = yaml.safe_load_all(render_text("--set", "active=green", values="blue-green"))
    after = {key(each): each for each in switched}
    assert [name for name in after if name in before and before[name] != after[name]] == [
        ("Service", "vecmill")
    ]
    assert before.keys() - after.keys() == {("ConfigMap", "vecmill-blue-vector-space")}
    assert after.keys() - before.keys() == {("ConfigMap", "vecmill-green-vector-space")}


OTHER_MODEL = f"[[models]]\nmodel = 'owner/name@{'0' * 40}'"


def wave(manifest: Manifest) -> int:
    """Return the wave in which Argo CD applies a manifest."""
    return int(manifest["metadata"].get("annotations", {}).get("argocd.argoproj.io/sync-wave", 0))


def with_config(text: str, folder: Path, *arguments: str, values: str | None = None) -> tuple[Manifest, ...]:
    (folder / "config.toml").write_text(text, encoding="utf-8")
    config = ("--set-file", f"config={folder / 'config.toml'}")
    return tuple(yaml.safe_load_all(render_text(*config, *arguments, values=values)))


def test_another_model_of_the_active_colour_is_another_text_of_an_immutable_object(tmp_path: Path) -> None:
    # Without a cluster, helm cannot refuse it. The API server does: it never changes an immutable ConfigMap.
    recorded = [
        select(manifests, "ConfigMap", "vecmill-blue-vector-space")
        for manifests in (render(None), with_config(OTHER_MODEL, tmp_path))
    ]
    assert all(each["immutable"] is True for each in recorded)
    before, after = (each["data"]["vector-space"] for each in recorded)
    assert before != after
    selector = select(render(None), "Service", "vecmill")["spec"]["selector"]
    assert selector["vecmill/vector-space"] == before


def test_argo_cd_is_stopped_before_pods_change_and_switches_after_all_are_ready(tmp_path: Path) -> None:
    for manifests in (render(None), render("blue-green"), with_config(OTHER_MODEL, tmp_path)):
        waves = {key(each): wave(each) for each in manifests}
        assert waves[("ConfigMap", "vecmill-blue-vector-space")] < 0
        assert waves[("Service", "vecmill")] > 0
        assert {waves[key(each)] for each in manifests if each["kind"] == "Deployment"} == {0}


def test_what_may_change_its_model_in_place_has_no_such_record(tmp_path: Path) -> None:
    assert ("ConfigMap", "vecmill-green-vector-space") not in map(key, render("blue-green"))
    single = with_config("[server]\nbatch_dir = '/var/lib/vecmill'", tmp_path, values="batches")
    assert "vecmill-blue-vector-space" not in [each["metadata"]["name"] for each in single]


@pytest.mark.parametrize(
    ("changes", "is_other"),
    [
        ("[[models]]\nmodel = 'all-MiniLM-L6-v2'\nengine = 'onnx'\nprecision = 'int8'", False),
        ("[[models]]\nmodel = 'all-MiniLM-L6-v2'\ntask = 'rerank'", True),
        ("[defaults]\ntask = 'rerank'\n[[models]]\nmodel = 'all-MiniLM-L6-v2'", True),
        (f"[[models]]\nmodel = 'owner/name@{'0' * 40}'", True),
        ("[[models]]\nmodel = 'all-MiniLM-L6-v2'\ntimeout_s = 5", False),
        ("[server]\nlog_format = 'json'\n[[models]]\nmodel = 'all-MiniLM-L6-v2'", False),
        ("", False),  # the embedded model is the default
    ],
)
def test_the_models_are_the_vector_space_and_their_precision_is_not(
    changes: str, is_other: bool, tmp_path: Path
) -> None:
    assert (vector_space(changes, tmp_path) != vector_space(None, tmp_path)) is is_other


def test_a_new_version_of_the_chart_does_not_change_the_vector_space(tmp_path: Path) -> None:
    # Otherwise every upgrade to this version would be refused as a change of the model.
    assert vector_space(None, tmp_path) == "2377fe533035b4d4"


def test_a_new_key_changes_no_vector_space(tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    keys = yaml.safe_load((chart / "answer-keys.yaml").read_text("utf-8"))
    for table in keys.values():
        table["changing"].append("new_key")
    (chart / "answer-keys.yaml").write_text(yaml.safe_dump(keys), "utf-8")
    spaces = [
        select(tuple(yaml.safe_load_all(text)), "ConfigMap", "vecmill-blue-vector-space")["data"]
        for text in (render_text(), render_text(chart=chart))
    ]
    assert spaces[0] == spaces[1]


def test_another_image_may_have_another_model_in_its_directory(tmp_path: Path) -> None:
    in_image = "[[models]]\nmodel = '/models/mine'"
    assert vector_space(in_image, tmp_path) != vector_space(in_image, tmp_path, "image.tag=next")
    assert vector_space(None, tmp_path) == vector_space(None, tmp_path, "image.tag=next")


def vector_space(config: str | None, folder: Path, *settings: str) -> str:
    arguments: list[object] = [part for each in settings for part in ("--set", each)]
    if config is not None:
        (folder / "config.toml").write_text(config, encoding="utf-8")
        arguments += ["--set-file", f"config={folder / 'config.toml'}"]
    selector = select(tuple(yaml.safe_load_all(render_text(*arguments))), "Service", "vecmill")["spec"][
        "selector"
    ]
    return str(selector["vecmill/vector-space"])


class TestUpgrade:
    """Upgrades of a release, whose objects helm finds in the cluster."""

    def run(self, folder: Path, objects: list[Manifest], *arguments: str) -> str:
        """Return the error message of helm; empty if it accepts the upgrade."""
        with serve_cluster(folder, objects) as kubeconfig:
            command = [
                str(HELM),
                "template",
                "vecmill",
                str(CHART),
                "--namespace",
                "prod",
                "--dry-run=server",
            ]
            command += ["--disable-openapi-validation", "--kubeconfig", str(kubeconfig), *arguments]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""

    def served(self, missing: int = 0, old: int = 0, values: str = "blue-green") -> list[Manifest]:
        """Return the objects of a release that was installed with these values, by default two colours.

        So many pods of each colour are not ready, or still have an old template.
        """
        owner = {"meta.helm.sh/release-name": "vecmill", "meta.helm.sh/release-namespace": "prod"}
        found: list[Manifest] = []
        for manifest in render(values):
            pods = manifest.get("spec", {}).get("replicas", 1)
            status = {"replicas": pods, "updatedReplicas": pods - old, "readyReplicas": pods - missing}
            annotations = manifest["metadata"].get("annotations", {}) | owner
            metadata = manifest["metadata"] | {"namespace": "prod", "annotations": annotations}
            found.append({**manifest, "metadata": metadata, "status": status})
        return found

    def test_of_limits_alone_is_allowed(self, tmp_path: Path) -> None:
        values = ("--values", str(VALUES / "blue-green.yaml"), "--set", "replicas=5")
        assert self.run(tmp_path, self.served(), *values) == ""
        assert self.run(tmp_path, [], *values) == ""

    def test_that_changes_the_model_of_the_active_colour_is_refused(self, tmp_path: Path) -> None:
        config = tmp_path / "config.toml"
        config.write_text(f"[[models]]\nmodel = 'owner/name@{'0' * 40}'", "utf-8")
        said = self.run(tmp_path, self.served(), "--set-file", f"config={config}")
        assert "blue is active and serves all-MiniLM-L6-v2." in said
        assert "would serve owner/name@0000" in said
        assert "Enable green with the new config" in said

    def test_that_switches_to_a_ready_colour_is_allowed(self, tmp_path: Path) -> None:
        values = ("--values", str(VALUES / "blue-green.yaml"), "--set", "active=green")
        assert self.run(tmp_path, self.served(), *values) == ""

    @pytest.mark.parametrize(("missing", "old"), [(1, 0), (0, 1), (2, 2)])
    def test_that_switches_to_a_colour_without_all_of_its_pods_is_refused(
        self, tmp_path: Path, missing: int, old: int
    ) -> None:
        values = ("--values", str(VALUES / "blue-green.yaml"), "--set", "active=green")
        said = self.run(tmp_path, self.served(missing=missing, old=old), *values)
        assert "not all pods of green are ready with these models" in said

    def test_of_the_model_of_a_single_pod_is_allowed(self, tmp_path: Path) -> None:
        config = tmp_path / "config.toml"
        config.write_text(
            f"[server]\nbatch_dir = '/var/lib/vecmill'\n[[models]]\nmodel = 'owner/name@{'0' * 40}'",
            "utf-8",
        )
        values = ("--values", str(VALUES / "batches.yaml"), "--set-file", f"config={config}")
        objects = self.served(values="batches")
        assert self.run(tmp_path, objects, *values) == ""
        colours = ("--set", "active=green,green.enabled=true,blue.enabled=false")
        said = self.run(tmp_path, objects, *values, *colours)
        assert "there must be one pod. Keep active=blue and change its config" in said
