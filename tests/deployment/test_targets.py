"""The files of the targets: their values, the names that they use, and the validators of their formats."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from chart.rendering import HELM, run_helm, serve_parameters, variables_in
from deployment.configurations import (
    CASES,
    CONFIGURATIONS,
    LARGE,
    SMALL,
    read_yaml,
    render_text,
    write_rendering,
)
from deployment.programs import needs_program
from support.source_tree import ROOT
from vecmill_server.base.config_file import read_config_file
from vecmill_server.base.deploy_settings import DeploySettings
from vecmill_server.deploy.command import Target, deploy
from vecmill_server.deploy.helm_target import split_image
from vecmill_server.deploy.rendering import DIGESTS_FILE
from vecmill_server.process.watchdog import FROZEN_SIGNAL, PATIENCE_TICKS, REPORT_S, TICK_S

# Variables of programs other than the server: the hub's client, the library for folders, and Ray Serve.
OTHER_VARIABLES = {"HF_ENDPOINT", "HF_HOME", "HF_TOKEN", "RAY_USAGE_STATS_ENABLED", "XDG_CACHE_HOME"}
SERVE_VARIABLES = {
    "RAY_SERVE_ENABLE_HA_PROXY",
    "RAY_SERVE_HAPROXY_RETRY_ON",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S",
}


def compose(folder: Path, name: str) -> dict[str, Any]:
    rendering = render_text(folder, Target.COMPOSE, CONFIGURATIONS[name])
    found: dict[str, Any] = read_yaml(rendering.files["compose.yaml"])
    return found


def unit(folder: Path, name: str, kind: str) -> dict[str, list[str]]:
    """Return the values of each key of a unit."""
    rendering = render_text(folder, Target.SYSTEMD, CONFIGURATIONS[name])
    found: dict[str, list[str]] = {}
    for line in rendering.files[f"vecmill.{kind}"].splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def test_the_files_in_docker_are_those_of_a_small_configuration(tmp_path: Path) -> None:
    arguments = ["render", "--target", "compose", str(ROOT / "docker/vecmill.toml"), "-o", str(tmp_path)]
    result = CliRunner().invoke(deploy, arguments)
    assert result.exit_code == 0, result.output
    (tmp_path / DIGESTS_FILE).unlink()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            kept = ROOT / "docker" / path.relative_to(tmp_path)
            again = "vecmill deploy render --target compose --force -o docker docker/vecmill.toml"
            assert kept.read_text("utf-8") == path.read_text("utf-8"), f"{kept}: run {again}"


@pytest.mark.parametrize(("target", "name"), CASES)
def test_each_variable_and_flag_exists(tmp_path: Path, target: Target, name: str) -> None:
    files = render_text(tmp_path, target, CONFIGURATIONS[name]).files
    text = "\n".join(text for file, text in files.items() if not file.endswith(".json"))
    known = serve_parameters()
    assert variables_in(text) - set(known) == set()
    lines = re.findall(r"^.*(?:command: \[|serve --config).*$", text, re.MULTILINE)
    flags = set(re.findall(r"(?<![\w-])--[a-z-]+", "\n".join(lines)))
    assert flags - set(known) == set()
    others = set(re.findall(r"\b(?:HF|XDG|RAY)_[A-Z_]+\b", text))
    assert others - OTHER_VARIABLES - SERVE_VARIABLES == set()


def test_the_configuration_that_runs_there_is_the_file(tmp_path: Path) -> None:
    for target, name in CASES:
        files = render_text(tmp_path, target, CONFIGURATIONS[name]).files
        if target in (Target.COMPOSE, Target.SYSTEMD):
            text = files["vecmill.toml"]
        elif target in (Target.HELM, Target.TERRAFORM):
            text = read_yaml(files["values-vecmill.yaml"])["config"]
        else:
            config_map = read_yaml(files["ray-config.yaml"])
            text = config_map["data"]["vecmill.toml"]
        (tmp_path / "there.toml").write_text(text)
        there, here = (read_config_file(tmp_path / f"{name}.toml") for name in ("there", "vecmill"))
        if target is Target.RAY:
            assert there == replace(here, options=options_on_ray(here.options), deploy=DeploySettings())
        else:
            assert there == here


def options_on_ray(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a file as the pods of Ray get them."""
    kept = {name: value for name, value in options.items() if name not in ("host", "port", "cache_dir")}
    return kept | {name: Path("/run/secrets/vecmill/keys") for name in kept if name == "api_key_file"}


def test_the_pods_of_ray_get_nothing_of_the_machine_of_the_author(tmp_path: Path) -> None:
    mine = "/home/author"
    text = f'''# of {mine}
        [server]
        api_key_file = "{mine}/keys.txt"
        [defaults]
        cache_dir = "{mine}/cache"
        [[models]]
        model = "all-MiniLM-L6-v2"
        cache_dir = "{mine}/other"
        [deploy]
        program = "{mine}/vecmill"'''
    rendering = render_text(tmp_path, Target.RAY, text)
    assert mine not in "".join(rendering.files.values())
    assert f"--from-file=keys={mine}/keys.txt " in rendering.commands[0]


def test_a_container_has_no_rights_and_a_read_only_root(tmp_path: Path) -> None:
    for name in CONFIGURATIONS:
        services = compose(tmp_path, name)["services"]
        assert set(services) == {"vecmill", "prometheus", "grafana"}
        for service in services.values():
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
            default = service["image"].partition(":-")[2].removesuffix("}")
            assert ":" in default.rpartition("/")[2]  # a tag
        assert services["vecmill"]["user"] == "10001:10001"
        for other in ("prometheus", "grafana"):
            assert all(port.startswith("127.0.0.1:") for port in services[other]["ports"])


def test_compose_takes_its_values_from_the_file(tmp_path: Path) -> None:
    small = compose(tmp_path, "small")["services"]["vecmill"]
    assert small["ports"] == ["127.0.0.1:7997:7997"]
    assert small["stop_grace_period"] == "40s"
    assert "deploy" not in small
    found = compose(tmp_path, "large")
    large = found["services"]["vecmill"]
    assert large["ports"] == ["0.0.0.0:8001:7997"]
    assert large["stop_grace_period"] == "38s"
    assert large["ulimits"]["nofile"] >= 10000 + 256
    assert large["deploy"]["resources"]["limits"] == {"cpus": "4", "memory": "4096M"}
    assert large["deploy"]["resources"]["reservations"]["devices"][0]["count"] == 2
    assert found["secrets"] == {"keys": {"file": "/etc/vecmill/keys"}}
    assert large["environment"]["VECMILL_API_KEY_FILE"] == "/run/secrets/keys"
    assert "HF_TOKEN" in large["environment"]
    assert "HF_TOKEN" not in small["environment"]
    chosen = {name for name, value in large["environment"].items() if value == ""}
    assert chosen == {"VECMILL_MODEL", "VECMILL_ENGINE", "VECMILL_PRECISION"}
    assert "" not in small["environment"].values()
    found = compose(tmp_path, "batches")
    batches = found["services"]["vecmill"]
    folder = batches["environment"]["VECMILL_BATCH_DIR"]
    assert f"batches:{folder}" in batches["volumes"]  # not that of the cache, which may be emptied
    assert "batches" in found["volumes"]


def test_monitoring_is_a_profile_and_every_log_is_rotated(tmp_path: Path) -> None:
    services = compose(tmp_path, "small")["services"]
    profiles = {name: service.get("profiles") for name, service in services.items()}
    assert profiles == {"vecmill": None, "prometheus": ["monitoring"], "grafana": ["monitoring"]}
    for service in services.values():
        options = service["logging"]["options"]
        assert set(options) == {"max-size", "max-file"}
        assert isinstance(options["max-file"], str)  # which Compose asks for
    started = render_text(tmp_path, Target.COMPOSE, "").commands
    assert [("--profile monitoring" in command) for command in started] == [False, True]


def test_alerts_lead_to_the_published_address(tmp_path: Path) -> None:
    text = '[server]\nhost = "0.0.0.0"\nport = 8081\nurl_prefix = "/texts"\n'
    rules = read_yaml(render_text(tmp_path, Target.COMPOSE, text).files["prometheus/vecmill-alerts.yaml"])
    links = {each["alert"]: each["annotations"]["runbook_url"] for each in rules["groups"][0]["rules"]}
    assert links["VecmillErrors"] == "http://localhost:8081/texts/alerts/VecmillErrors"
    assert "http://localhost:8081/texts/alerts/VecmillDown" in links["VecmillDown"]
    assert "instance" not in links["VecmillDown"]


@pytest.mark.parametrize(
    ("image", "command"),
    [
        ("vecmill:cpu", "make image TARGET=cpu IMAGE=vecmill:cpu"),
        ("vecmill:cuda", "make image TARGET=cuda IMAGE=vecmill:cuda"),
        ("registry:5000/a/b", "make image TARGET=cpu IMAGE=registry:5000/a/b"),
        ("registry:5000/a/b:1.2@sha256:12", "make image TARGET=cpu IMAGE=registry:5000/a/b:1.2"),
    ],
)
def test_a_variable_names_another_image_and_a_comment_how_to_build_it(
    tmp_path: Path, image: str, command: str
) -> None:
    text = render_text(tmp_path, Target.COMPOSE, f"[deploy]\nimage = '{image}'").files["compose.yaml"]
    assert f": {command}\n" in text
    images = {name: service["image"] for name, service in read_yaml(text)["services"].items()}
    assert images["vecmill"] == f"${{SERVER_IMAGE:-{image}}}"
    assert images["prometheus"].startswith("${PROMETHEUS_IMAGE:-prom/prometheus:")
    assert images["grafana"].startswith("${GRAFANA_IMAGE:-grafana/grafana:")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert "docker/build.sh $(TARGET)" in makefile
    assert " AS cpu" in (ROOT / "docker/Dockerfile").read_text("utf-8")


def test_a_changed_file_starts_the_server_again_and_nothing_else(tmp_path: Path) -> None:
    def digests(text: str) -> dict[str, str]:
        files = render_text(tmp_path, Target.COMPOSE, text).files
        services = read_yaml(files["compose.yaml"])["services"]
        return {name: each["labels"]["vecmill.config-digest"] for name, each in services.items()}

    before, after = digests(""), digests("[defaults]\ntimeout_s = 20")
    assert {name for name in before if before[name] != after[name]} == {"vecmill"}


def test_a_model_directory_is_mounted_where_it_is(tmp_path: Path) -> None:
    model = tmp_path / "$model"
    model.mkdir()
    rendering = render_text(tmp_path / "a", Target.COMPOSE, f"[[models]]\nmodel = '{model}'")
    (mount,) = [
        volume
        for volume in read_yaml(rendering.files["compose.yaml"])["services"]["vecmill"]["volumes"]
        if isinstance(volume, dict)
    ]
    written = str(model).replace("$", "$$")  # Compose replaces variables
    assert mount == {"type": "bind", "source": written, "target": written, "read_only": True}
    assert rendering.notes == ()


def test_prometheus_scrapes_the_metrics_below_the_prefix(tmp_path: Path) -> None:
    files = render_text(tmp_path, Target.COMPOSE, LARGE).files
    (scrape,) = read_yaml(files["prometheus/prometheus.yml"])["scrape_configs"]
    assert scrape["metrics_path"] == "/embed/metrics"
    assert scrape["static_configs"] == [{"targets": ["vecmill:7997"]}]
    (source,) = read_yaml(files["grafana/data_sources.yaml"])["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    (provider,) = read_yaml(files["grafana/boards.yaml"])["providers"]
    volumes = read_yaml(files["compose.yaml"])["services"]["grafana"]["volumes"]
    board = f"./grafana/vecmill-board.json:{provider['options']['path']}/vecmill-board.json:ro"
    assert board in volumes
    assert json.loads(files["grafana/vecmill-board.json"])["panels"]
    for volume in volumes:
        source_path = volume.partition(":")[0]
        assert not source_path.startswith("./") or source_path.removeprefix("./") in files


def test_the_service_reads_its_keys_as_a_credential_and_stops_in_time(tmp_path: Path) -> None:
    service = unit(tmp_path, "large", "service")
    assert service["LoadCredential"] == ["keys:/etc/vecmill/keys"]
    assert "VECMILL_API_KEY_FILE=%d/keys" in service["Environment"]
    assert service["TimeoutStopSec"] == ["38"]
    assert (service["CPUQuota"], service["MemoryMax"]) == (["400%"], ["4096M"])
    assert service["BindReadOnlyPaths"] == ["-/nonexistent/models/reranker"]
    assert service["PrivateDevices"] == ["no"]
    small = unit(tmp_path, "small", "service")
    assert small["PrivateDevices"] == ["yes"]
    assert {"CPUQuota", "MemoryMax", "LoadCredential", "BindReadOnlyPaths"}.isdisjoint(small)
    assert small["Restart"] == ["on-failure"]
    batches = unit(tmp_path, "batches", "service")
    assert "VECMILL_BATCH_DIR=%S/vecmill/batches" in batches["Environment"]
    assert batches["StateDirectory"] == ["vecmill"]


def test_a_service_that_cannot_start_is_given_up_so_that_clients_are_refused(tmp_path: Path) -> None:
    for name in CONFIGURATIONS:
        service = unit(tmp_path, name, "service")
        assert (service["StartLimitIntervalSec"], service["TimeoutStartSec"]) == (["1d"], ["1h"])
        (burst,), (pause,) = service["StartLimitBurst"], service["RestartSec"]
        # Starts that each use up their hour reach the limit too.
        assert 2 <= int(burst) <= 24 * 3600 / (3600 + int(pause))


def test_the_watchdog_of_systemd_waits_longer_than_that_of_the_server(tmp_path: Path) -> None:
    service = unit(tmp_path, "small", "service")
    assert service["Type"] == ["notify"]
    assert service["WatchdogSec"] == ["1min"]
    assert PATIENCE_TICKS * TICK_S + REPORT_S < 60 / 4
    assert service["WatchdogSignal"] == [FROZEN_SIGNAL.name]  # whose handler writes the stacks
    loads = "[server]\nmemory_budget_mib = 4096"
    assert "\nWatchdogSec=10min\n" in render_text(tmp_path, Target.SYSTEMD, loads).files["vecmill.service"]


def test_the_unit_says_how_its_program_is_installed(tmp_path: Path) -> None:
    text = "[deploy]\nprogram = '/srv/embedding/bin/vecmill'"
    head = render_text(tmp_path, Target.SYSTEMD, text).files["vecmill.service"].partition("[Unit]")[0]
    assert "#   python3 -m venv /srv/embedding\n" in head
    assert "#   /srv/embedding/bin/pip install --find-links dist 'vecmill-server[minilm]'\n" in head
    page = (ROOT / "docs/deployment.md").read_text("utf-8")
    small = render_text(tmp_path, Target.SYSTEMD, "").files["vecmill.service"].partition("[Unit]")[0]
    commands = re.findall(r"^#   (.*)$", small, re.MULTILINE)
    assert "\n".join(commands) in page


def test_the_socket_has_the_address_of_the_file(tmp_path: Path) -> None:
    assert unit(tmp_path, "small", "socket")["ListenStream"] == ["127.0.0.1:7997"]
    assert unit(tmp_path, "large", "socket")["ListenStream"] == ["0.0.0.0:8001"]
    for text, stream, other in (
        ("host = '::'", "[::]:7997", {}),
        ("host = 'localhost'", "127.0.0.1:7997", {}),
        ("host = '192.0.2.1'", "192.0.2.1:7997", {"FreeBind": "yes"}),
        ("uds = '/run/vecmill.sock'\nuds_mode = '600'", "/run/vecmill.sock", {"SocketMode": "600"}),
    ):
        files = render_text(tmp_path, Target.SYSTEMD, f"[server]\n{text}").files
        lines = [line for line in files["vecmill.socket"].splitlines() if "=" in line]
        section = dict(line.split("=", 1) for line in lines if not line.startswith(("#", "Desc", "Wanted")))
        assert section == {"ListenStream": stream, **other}


def test_the_values_of_the_chart_come_from_the_file(tmp_path: Path) -> None:
    rendering = render_text(tmp_path, Target.HELM, LARGE)
    values = read_yaml(rendering.files["values-vecmill.yaml"])
    assert values["image"] == {"repository": "registry.example:5000/team/vecmill", "tag": "1.2"}
    assert values["resources"]["requests"] == {"cpu": "4", "memory": "4096Mi"}
    assert (values["gpu"], values["replicas"]) == ({"count": 2}, 1)
    assert values["keys"] == {"existingSecret": "vecmill-keys"}
    assert "kubectl create secret generic vecmill-keys" in rendering.commands[0]
    chart = read_yaml(rendering.files["vecmill/values.yaml"])
    assert set(values) <= set(chart)
    assert "vecmill/monitoring/vecmill-board.json" in rendering.files


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("vecmill", ("vecmill", "", "")),
        ("vecmill:cpu", ("vecmill", "cpu", "")),
        ("registry:5000/vecmill", ("registry:5000/vecmill", "", "")),
        ("registry:5000/a/b:c@sha256:12", ("registry:5000/a/b", "c", "sha256:12")),
    ],
)
def test_an_image_has_a_repository_a_tag_and_a_digest(image: str, parts: tuple[str, str, str]) -> None:
    assert split_image(image) == parts


def test_a_replica_of_ray_has_a_worker_of_its_own(tmp_path: Path) -> None:
    text = LARGE.replace("replicas = 1", "replicas = 3")
    files = render_text(tmp_path, Target.RAY, text).files
    config_map, service = (read_yaml(files[f"ray-{name}.yaml"]) for name in ("config", "service"))
    serve = read_yaml(service["spec"]["serveConfigV2"])
    (application,) = serve["applications"]
    assert application["import_path"] == "vecmill_ray.serving:build"
    assert (application["args"]["replicas"], application["args"]["replica_cores"]) == (3, 4)
    cluster = service["spec"]["rayClusterConfig"]
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["replicas"] == 3 * 2  # of two models
    assert application["args"]["nodes"] == workers["replicas"] + 1  # with the head: a router on each
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    for group in (cluster["headGroupSpec"], workers):
        pod = group["template"]["spec"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert set(mounts) == set(volumes)
        assert volumes["config"]["configMap"]["name"] == config_map["metadata"]["name"]
        assert application["args"]["config"] == f"{mounts['config']}/vecmill.toml"
        (entry,) = volumes["keys"]["secret"]["items"]
        options = tomllib.loads(config_map["data"]["vecmill.toml"])["server"]
        assert options["api_key_file"] == f"{mounts['keys']}/{entry['path']}"
    job = read_yaml(files["ray-job.yaml"])
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in head["containers"][0]["volumeMounts"]}
    config = f"{mounts['config']}/vecmill.toml"
    assert job["spec"]["entrypoint"] == f"vecmill ray embed $INPUT --output $OUTPUT --config {config}"
    assert head["volumes"][0]["configMap"]["name"] == config_map["metadata"]["name"]


def ray_pods(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the specifications of all pods of the Ray manifests."""
    files = render_text(folder, Target.RAY, CONFIGURATIONS[name]).files
    service = read_yaml(files["ray-service.yaml"])["spec"]["rayClusterConfig"]
    job = read_yaml(files["ray-job.yaml"])["spec"]
    groups = [
        group
        for cluster in (service, job["rayClusterSpec"])
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
    ]
    return [job["submitterPodTemplate"]["spec"], *(group["template"]["spec"] for group in groups)]


def test_each_pod_of_ray_has_few_rights_and_bounded_memory(tmp_path: Path) -> None:
    for name in ("small", "large"):
        pods = ray_pods(tmp_path, name)
        assert len(pods) == 5
        for pod in pods:
            security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
            assert pod["securityContext"] == security
            (container,) = pod["containers"]
            rights = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            assert container["securityContext"] == rights
            for kind in ("requests", "limits"):
                assert re.fullmatch(r"[1-9]\d*Mi", container["resources"][kind]["memory"])
    worker = ray_pods(tmp_path, "small")[2]["containers"][0]["resources"]["limits"]["memory"]
    assert worker == f"{4096 + 1024}Mi"


def test_the_manifests_of_ray_are_indented_by_two_spaces(tmp_path: Path) -> None:
    for name in ("small", "large"):
        files = render_text(tmp_path, Target.RAY, CONFIGURATIONS[name]).files
        for file in ("ray-service.yaml", "ray-job.yaml"):
            before = 0
            for line in filter(str.strip, files[file].splitlines()):
                depth = len(line) - len(line.lstrip(" "))
                assert depth % 2 == 0, (file, line)
                assert depth <= before + 2, (file, line)
                before = depth + 2 * line.lstrip(" ").startswith("- ")
            assert not files[file].endswith("\n\n")


def test_no_pod_of_ray_reports_to_its_makers(tmp_path: Path) -> None:
    for name in ("small", "large"):
        submitter, *pods = ray_pods(tmp_path, name)
        assert "env" not in submitter["containers"][0]  # it starts no node
        for pod in pods:
            variables = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
            assert variables["RAY_USAGE_STATS_ENABLED"] == "0"


RAY_SERVING = ROOT / "services/vecmill_ray/src/vecmill_ray/serving"


@pytest.mark.skipif(not RAY_SERVING.is_dir(), reason="this checkout has no vecmill-ray")
def test_the_manifest_names_what_vecmill_ray_reads(tmp_path: Path) -> None:
    files = render_text(tmp_path, Target.RAY, LARGE).files
    service = read_yaml(files["ray-service.yaml"])
    environment = (RAY_SERVING / "ray_settings.py").read_text("utf-8")
    controller = (
        environment.partition("def controller_environment")[2] + environment.partition("def _direct")[2]
    )
    (worker,) = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    variables = worker["template"]["spec"]["containers"][0]["env"]
    named = {entry["name"] for entry in variables if entry["name"].startswith("RAY_SERVE_")}
    assert named == SERVE_VARIABLES
    assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in variables
    assert named <= set(re.findall(r"RAY_SERVE_[A-Z_]+", controller))
    settings = (RAY_SERVING / "ray_settings.py").read_text("utf-8")
    fields = set(re.findall(r"^    (\w+): .*setting\(", settings, re.MULTILINE)) | {"config"}
    (application,) = read_yaml(service["spec"]["serveConfigV2"])["applications"]
    assert set(application["args"]) <= fields


def test_another_configuration_is_another_config_map(tmp_path: Path) -> None:
    def name(text: str) -> str:
        files = render_text(tmp_path, Target.RAY, text).files
        found: str = read_yaml(files["ray-config.yaml"])["metadata"]["name"]
        return found

    assert name("") != name("[defaults]\ntimeout_s = 20")


def test_options_of_the_settings_appear_in_no_help_of_the_server() -> None:
    serve: click.Command = import_module("vecmill_server.cli.serve").serve
    assert {"image", "replicas", "gpus"}.isdisjoint(parameter.name for parameter in serve.params)


@pytest.mark.full
@needs_program("systemd-analyze", "systemd")
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_systemd_accepts_the_units(tmp_path: Path, name: str) -> None:
    program = CONFIGURATIONS["large"].partition('program = "')[2].partition('"')[0]
    text = (
        CONFIGURATIONS[name]
        if "program = " in CONFIGURATIONS[name]
        else f'{CONFIGURATIONS[name]}\n[deploy]\nprogram = "{program}"'
    )
    write_rendering(tmp_path / "units", render_text(tmp_path, Target.SYSTEMD, text))
    units = [str(tmp_path / "units" / f"vecmill.{kind}") for kind in ("service", "socket")]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    most = 20 if "gpus" in text else 12  # tenths; docs/deployment.md has the figure
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={most}", "--no-pager", units[0]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.full
@needs_program("promtool", "prometheus")
def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    for name in CONFIGURATIONS:
        write_rendering(tmp_path / name, render_text(tmp_path, Target.COMPOSE, CONFIGURATIONS[name]))
        command = ["promtool", "check", "config", str(tmp_path / name / "prometheus/prometheus.yml")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 rule files found" in done.stdout


@pytest.mark.full
@needs_program("docker-compose", "docker-compose")
def test_compose_accepts_its_file(tmp_path: Path) -> None:
    version = subprocess.run(
        ["docker-compose", "version", "--short"], capture_output=True, text=True, check=True
    )
    for name in CONFIGURATIONS:
        write_rendering(tmp_path / name, render_text(tmp_path, Target.COMPOSE, CONFIGURATIONS[name]))
        path = tmp_path / name / "compose.yaml"
        if version.stdout.startswith("1."):  # it does not know the name of a project
            path.write_text(path.read_text().replace("name: vecmill\n", ""))
        done = subprocess.run(
            ["docker-compose", "--file", str(path), "config"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.full
@pytest.mark.skipif(not HELM.exists(), reason="helm is not installed: run `make chart`")
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_helm_accepts_the_chart_and_the_values(tmp_path: Path, name: str) -> None:
    rendering = render_text(tmp_path, Target.HELM, CONFIGURATIONS[name])
    write_rendering(tmp_path / "out", rendering)
    chart, values = tmp_path / "out/vecmill", tmp_path / "out/values-vecmill.yaml"
    for command in (("lint", "--strict", chart), ("template", "vecmill", chart)):
        done = run_helm(*command, "--values", values)
        assert done.returncode == 0, done.stdout + done.stderr


def test_traces_may_leave_the_pods_and_a_note_names_the_collector(tmp_path: Path) -> None:
    traced = render_text(tmp_path, Target.HELM, "[server]\ntracing = true")
    values = read_yaml(traced.files["values-vecmill.yaml"])
    (rule,) = values["networkPolicy"]["egress"]
    assert rule == {"ports": [{"port": 4318, "protocol": "TCP"}]}
    assert any("OTEL_EXPORTER_OTLP_ENDPOINT" in note for note in traced.notes)
    plain = render_text(tmp_path, Target.HELM, SMALL)
    assert "networkPolicy" not in read_yaml(plain.files["values-vecmill.yaml"])
    assert plain.notes == ()


@pytest.mark.full
@pytest.mark.skipif(not HELM.exists(), reason="helm is not installed: run `make chart`")
def test_no_file_of_the_cluster_has_a_path_of_this_machine(tmp_path: Path) -> None:
    text = f"{LARGE}\n".replace("[server]", "[server]\ntracing = true")
    rendering = render_text(tmp_path, Target.HELM, text)
    write_rendering(tmp_path / "out", rendering)
    done = run_helm(
        "template", "vecmill", tmp_path / "out/vecmill", "--values", tmp_path / "out/values-vecmill.yaml"
    )
    assert done.returncode == 0, done.stderr
    assert "/etc/vecmill/keys" in text
    assert "/etc/vecmill/keys" not in done.stdout
    assert "[deploy]" not in done.stdout
    assert str(Path(sys.executable).parent) not in done.stdout
