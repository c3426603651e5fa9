"""Who reaches the pods of the Ray manifests, by which token, and that Ray takes what is rendered."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.rendering import VALIDATE
from deployment.configurations import LARGE, STRICT, read_yaml, render_text
from vecmill.errors import InvalidConfig
from vecmill_ray.serving.model_plan import read_plan
from vecmill_server.base.config_file import read_config_file
from vecmill_server.base.options import list_settings
from vecmill_server.base.settings import ServerSettings
from vecmill_server.deploy.command import Target, render_target
from vecmill_server.deploy.deployed_server import read_server

Pod = Mapping[str, Any]

IN_IMAGE = "[[models]]\nmodel = '/models/docs'\n[deploy.model_volume]\nimage = 'registry.example/models:3'\n"
CONFIGURATIONS_OF_RAY = ("", LARGE, STRICT, IN_IMAGE)


def policies(folder: Path, text: str) -> dict[str, Any]:
    """Return the specifications of the network policies by the label of their pods."""
    documents = yaml.load_all(
        render_text(folder, Target.RAY, text).files["ray-network.yaml"], yaml.CSafeLoader
    )
    return {each["spec"]["podSelector"]["matchLabels"]["vecmill/ray"]: each["spec"] for each in documents}


def clusters(folder: Path, text: str, name: str = "vecmill") -> Iterator[tuple[str, Pod]]:
    """Yield the label and the specification of each cluster: of the servers, and of the job."""
    files = render_text(folder, Target.RAY, text, name).files
    yield name, read_yaml(files["ray-service.yaml"])["spec"]["rayClusterConfig"]
    yield f"{name}-embed", read_yaml(files["ray-job.yaml"])["spec"]["rayClusterSpec"]


def groups(cluster: Pod) -> list[Pod]:
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def ports_of(rule: Mapping[str, Any]) -> set[int]:
    return {each["port"] for each in rule.get("ports", ())}


@pytest.mark.parametrize("name", ["vecmill", "2026"])  # a name that YAML could take for a number
def test_a_policy_selects_each_pod_and_each_cluster_wants_a_token(tmp_path: Path, name: str) -> None:
    text = render_text(tmp_path, Target.RAY, LARGE, name).files["ray-network.yaml"]
    selected = [each["spec"]["podSelector"]["matchLabels"] for each in yaml.load_all(text, yaml.CSafeLoader)]
    assert selected == [{"vecmill/ray": name}, {"vecmill/ray": f"{name}-embed"}]
    for label, cluster in clusters(tmp_path, LARGE, name):
        assert cluster["authOptions"] == {"mode": "token"}
        major, minor, _ = map(int, cluster["rayVersion"].split("."))
        assert (major, minor) >= (2, 52)  # which KubeRay asks for
        for group in groups(cluster):
            assert group["template"]["metadata"]["labels"] == {"vecmill/ray": label}
            assert group["template"]["spec"]["automountServiceAccountToken"] is False
    job = read_yaml(render_text(tmp_path, Target.RAY, LARGE, name).files["ray-job.yaml"])["spec"]
    assert job["submitterPodTemplate"]["metadata"]["labels"] == {"vecmill/ray": f"{name}-embed"}


def test_only_the_operator_and_the_cluster_itself_reach_the_dashboard(tmp_path: Path) -> None:
    for label, policy in policies(tmp_path, LARGE).items():
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        for rule in policy["ingress"]:
            (peer,) = rule["from"]
            labels = peer["podSelector"].get("matchLabels", {})
            if labels == {"vecmill/ray": label}:
                assert "ports" not in rule  # all ports of Ray
            elif labels:
                assert labels == {"app.kubernetes.io/name": "kuberay-operator"}
                assert peer["namespaceSelector"] == {}
                assert 8265 in ports_of(rule)
            else:  # the pods of the namespace
                assert "namespaceSelector" not in peer
                assert ports_of(rule) == {8000, 8080}
    clients = [rule for rule in policies(tmp_path, LARGE)["vecmill"]["ingress"] if 8080 in ports_of(rule)]
    assert len(clients) == 1
    assert not any(8000 in ports_of(rule) for rule in policies(tmp_path, LARGE)["vecmill-embed"]["ingress"])


def test_connections_go_to_the_hub_and_the_collector_only_if_the_file_needs_them(tmp_path: Path) -> None:
    def ports(text: str) -> set[int]:
        return set().union(*(ports_of(rule) for rule in policies(tmp_path, text)["vecmill"]["egress"]))

    assert ports("") == {53}
    assert ports(LARGE) == {53, 443}
    assert ports(STRICT) == {53, 4318}


def test_no_probe_asks_for_a_program_of_the_image(tmp_path: Path) -> None:
    for label, cluster in clusters(tmp_path, LARGE):
        for index, group in enumerate(groups(cluster)):
            (container,) = group["template"]["spec"]["containers"]
            found = [container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]
            node = {"path": "/api/healthz", "port": 52365}
            is_server = label == "vecmill" and index > 0
            assert found == [node, {"path": "/-/healthz", "port": 8000} if is_server else node]


def test_all_pods_have_the_image_of_ray(tmp_path: Path) -> None:
    for text, image in ((STRICT, "registry.example/vecmill:ray"), ("", "vecmill:cpu")):
        files = render_text(tmp_path, Target.RAY, text).files
        found = re.findall(r" image: (.*)", files["ray-service.yaml"] + files["ray-job.yaml"])
        assert found == [f'"{image}"'] * 5
    values = read_yaml(render_text(tmp_path, Target.HELM, STRICT).files["values-vecmill.yaml"])
    assert values["image"] == {"repository": "vecmill", "tag": "cpu"}


def test_the_secret_of_the_collector_reaches_each_server(tmp_path: Path) -> None:
    (_, service), _ = clusters(tmp_path, STRICT)
    for group in groups(service):
        (container,) = group["template"]["spec"]["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "vecmill-tracing", "optional": True}}]
    (_, plain), _ = clusters(tmp_path, "")
    assert all("envFrom" not in group["template"]["spec"]["containers"][0] for group in groups(plain))
    assert "create secret generic vecmill-tracing" in " ".join(
        render_text(tmp_path, Target.RAY, STRICT).notes
    )


def test_the_names_of_jobs_are_short_enough_for_kuberay(tmp_path: Path) -> None:
    text = render_text(tmp_path, Target.RAY, "", "a" * 60).files["ray-job.yaml"]
    assert len(read_yaml(text)["metadata"]["generateName"]) + 5 <= 47


@pytest.mark.full
@pytest.mark.skipif(not VALIDATE.exists(), reason="kubernetes-validate is not installed: run `make chart`")
@pytest.mark.parametrize("text", CONFIGURATIONS_OF_RAY)
def test_pods_and_policies_match_the_schemas_of_kubernetes(tmp_path: Path, text: str) -> None:
    manifests = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "a", **template["metadata"]},
            "spec": template["spec"],
        }
        for _, cluster in clusters(tmp_path, text)
        for template in (group["template"] for group in groups(cluster))
    ]
    files = render_text(tmp_path, Target.RAY, text).files
    manifests += yaml.load_all(files["ray-network.yaml"], yaml.CSafeLoader)
    manifests.append(read_yaml(files["ray-config.yaml"]))
    (tmp_path / "manifests.yaml").write_text(yaml.safe_dump_all(manifests), "utf-8")
    command = [str(VALIDATE), "--strict", "--quiet", "-k", "1.37", str(tmp_path / "manifests.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


OTHER_VALUES = {bool: "true", int: "2000000", float: "12.5"}
VALUES_OF_NAMES = {
    "cors_origin": "['https://a.example']",
    "url_prefix": "'/vectors'",
    "uds_mode": "'600'",
    "port": "7998",
    "processes": "2",
    "fd": "3",
    "memory_budget_mib": "4096",
    "result_cache_disk_bytes": "99999999",
    "image_urls": "['images.example.org']",
}


def write_option(name: str, kind: Any, repeats: bool) -> str:
    """Return a line that sets an option of the server to another value than its default."""
    value = VALUES_OF_NAMES.get(name) or OTHER_VALUES.get(kind)
    if value is None:
        word = str(list(kind)[-1]) if hasattr(kind, "__members__") else "/var/lib/vecmill"
        value = f"['{word}']" if repeats else f"'{word}'"
    return f"{name} = {value}"


OPTIONS = [
    each for each in list_settings(ServerSettings) if each.field.name not in ("task", "trust_remote_code")
]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda each: each.field.name)
def test_what_is_rendered_is_what_ray_takes(tmp_path: Path, option: Any) -> None:
    line = write_option(option.field.name, option.type, option.repeats)
    needed = (
        "memory_budget_mib = 4096\n" if option.field.name in ("admin_key_file", "model_keep_alive_s") else ""
    )
    path = tmp_path / "vecmill.toml"
    path.write_text(f"[server]\n{needed}{line}\n", "utf-8")
    read_config_file(path)
    try:
        files = render_target(Target.RAY, read_server(path), Path("out")).files
    except InvalidConfig:
        files = {}
    if files:  # then the pods start
        path.write_text(read_yaml(files["ray-config.yaml"])["data"]["vecmill.toml"], "utf-8")
        read_plan(path, cores=1)
        return
    refused = {"batch_dir", "result_cache_dir", "result_cache_memory_bytes", "memory_budget_mib", "uds", "fd"}
    refused |= {"api_key", "metrics_key", "admin_key_file", "model_keep_alive_s"}
    assert option.field.name in refused


@pytest.mark.parametrize(
    "line", ["batch_dir = '/srv'", "result_cache_dir = '/srv'", "memory_budget_mib = 4096"]
)
def test_both_refuse_with_the_same_sentence(tmp_path: Path, line: str) -> None:
    path = tmp_path / "vecmill.toml"
    path.write_text(f"[server]\n{line}\n", "utf-8")
    with pytest.raises(InvalidConfig) as rendered:
        render_target(Target.RAY, read_server(path), Path("out"))
    with pytest.raises(InvalidConfig) as served:
        read_plan(path, cores=1)
    assert served.value.message == f"{path}: {rendered.value.message}"


def test_the_key_file_of_a_job_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("search a-secret\n", "utf-8")
    rendering = render_text(tmp_path, Target.RAY, STRICT)
    assert not any("a-secret" in text for text in rendering.files.values())
    config = read_yaml(rendering.files["ray-config.yaml"])["data"]["vecmill.toml"]
    (tmp_path / "there.toml").write_text(config, "utf-8")
    there = read_config_file(tmp_path / "there.toml")
    assert there == replace(
        there, options={**there.options, "api_key_file": Path("/run/secrets/vecmill/keys")}
    )
