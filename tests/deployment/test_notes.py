"""What `vecmill deploy render` prints beside the files: what an installation, an image and the pods need."""

import re
from pathlib import Path

import pytest

from deployment.configurations import LARGE, STRICT, read_yaml, render_text
from support.source_tree import ROOT
from vecmill.engines import ENGINES
from vecmill_server.deploy.command import Target
from vecmill_server.deploy.compose_target import TRACING_VARIABLES

MODEL = "[[models]]\nmodel = 'all-MiniLM-L6-v2'\n"


def notes(folder: Path, target: Target, text: str) -> str:
    return "\n".join(render_text(folder, target, text).notes)


@pytest.mark.parametrize(
    ("text", "packages"),
    [
        ("", "'vecmill-server[minilm]'"),
        ("[server]\ntracing = true", "'vecmill-server[minilm,otel]'"),
        ("[server]\ntoken_ids = 'cl100k'", "'vecmill-server[minilm,cl100k]'"),
        (
            f"{MODEL}engine = 'torch-compile'\n{MODEL}name = 'b'\nengine = 'openvino'",
            "'vecmill-server[minilm,openvino,torch]'",
        ),
        ("[defaults]\nengine = 'neuron'", "'vecmill-server[minilm]' 'vecmill[neuron]'"),
        ("[defaults]\nengine = 'onnx'", "'vecmill-server[minilm]'"),
    ],
)
def test_the_unit_names_the_extras_that_the_file_needs(tmp_path: Path, text: str, packages: str) -> None:
    rendering = render_text(tmp_path, Target.SYSTEMD, text)
    (line,) = re.findall(r"^#   .*pip install (.*)$", rendering.files["vecmill.service"], re.MULTILINE)
    assert line == f"--find-links dist {packages}"
    told = " ".join(rendering.notes).replace(", ", " ")
    assert (packages.replace("'", "") in told) == (packages != "'vecmill-server[minilm]'")


def test_each_extra_of_an_engine_is_one_of_a_package(tmp_path: Path) -> None:
    of_server = (ROOT / "services/vecmill_server/pyproject.toml").read_text("utf-8")
    of_library = (ROOT / "libs/vecmill/pyproject.toml").read_text("utf-8")
    for name in ENGINES:
        text = render_text(tmp_path, Target.SYSTEMD, f"[defaults]\nengine = '{name}'").files[
            "vecmill.service"
        ]
        for package, extras in re.findall(r"'(vecmill[a-z-]*)\[([a-z,0-9]+)\]'", text.partition("[Unit]")[0]):
            project = of_server if package == "vecmill-server" else of_library
            assert all(f"\n{extra} = [" in project for extra in extras.split(",")), (name, extras)


def test_a_device_of_onnx_runtime_needs_another_wheel(tmp_path: Path) -> None:
    assert "models[0] has the device cuda" in notes(tmp_path, Target.SYSTEMD, "[defaults]\ndevice = 'cuda'")
    for text in ("[defaults]\ndevice = 'cpu'", "[defaults]\ndevice = 'cuda'\nengine = 'torch'"):
        assert "has the device" not in notes(tmp_path, Target.SYSTEMD, text)


@pytest.mark.parametrize("target", [Target.COMPOSE, Target.HELM, Target.TERRAFORM, Target.RAY])
def test_an_extra_that_no_image_has_is_noted(tmp_path: Path, target: Target) -> None:
    text = "[server]\ntoken_ids = 'cl100k'\ntracing = true\n[defaults]\nengine = 'openvino'"
    assert "The image vecmill:cpu has to contain the extra cl100k" in notes(tmp_path, target, text)
    assert "The image vecmill:cpu has to contain the extra openvino" in notes(tmp_path, target, text)
    assert "the extra otel" not in notes(tmp_path, target, text)
    made = notes(tmp_path, target, f"{text}\n[deploy]\nimage = 'vecmill:openvino'")
    assert "the extra openvino" not in made


@pytest.mark.parametrize(
    "target", [Target.COMPOSE, Target.HELM, Target.TERRAFORM, Target.RAY, Target.SYSTEMD]
)
def test_the_collector_is_asked_for_where_there_are_traces(tmp_path: Path, target: Target) -> None:
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in notes(tmp_path, target, STRICT)
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in notes(tmp_path, target, "")


def test_compose_passes_the_variables_of_opentelemetry_on(tmp_path: Path) -> None:
    page = (ROOT / "docs/monitoring.md").read_text("utf-8")
    page = page.partition("### Settings")[2].partition("\n### ")[0]
    names = " ".join(re.findall(r"^\|(.*?)\|", page, re.MULTILINE))
    documented = {name.partition("=")[0] for name in re.findall(r"`(OTEL_[^`]+)`", names)}
    assert set(TRACING_VARIABLES) == documented
    for text, passed in ((STRICT, documented), ("", set())):
        files = render_text(tmp_path, Target.COMPOSE, text).files
        environment = read_yaml(files["compose.yaml"])["services"]["vecmill"]["environment"]
        assert {name for name in environment if name.startswith("OTEL_")} == passed
        assert all(environment[name] is None for name in passed)  # Compose takes them from the shell or .env


def test_totals_are_told_where_servers_multiply(tmp_path: Path) -> None:
    three = LARGE.replace("replicas = 1", "replicas = 3")
    assert (
        "3 pods, each with all 2 models: 12 cores, 12288 MiB of memory, 6 GPUs. One pod more while"
        in notes(tmp_path, Target.HELM, three)
    )
    assert "pods" not in notes(tmp_path, Target.HELM, "")
    on_ray = notes(tmp_path, Target.RAY, three)
    servers, job = 6 * (4096 + 1024) + 4096, 3 * (4096 + 1024) + 4096
    assert (
        f"6 workers (3 for each of 2 models), together 26 cores, {servers} MiB of memory, 12 GPUs." in on_ray
    )
    assert f"the job: a head and 3 workers, together 14 cores, {job} MiB of memory, 6 GPUs." in on_ray


def test_the_totals_of_ray_are_those_of_its_pods(tmp_path: Path) -> None:
    rendering = render_text(tmp_path, Target.RAY, LARGE)
    manifests = {name: read_yaml(rendering.files[f"ray-{name}.yaml"])["spec"] for name in ("service", "job")}
    clusters = (manifests["service"]["rayClusterConfig"], manifests["job"]["rayClusterSpec"])
    for what, cluster in zip(("the servers", "the job"), clusters, strict=True):
        groups = [(1, cluster["headGroupSpec"])]
        groups += [(group["replicas"], group) for group in cluster["workerGroupSpecs"]]
        limits = [
            (count, group["template"]["spec"]["containers"][0]["resources"]["limits"])
            for count, group in groups
        ]
        cores = sum(count * int(each["cpu"]) for count, each in limits)
        memory = sum(count * int(each["memory"].removesuffix("Mi")) for count, each in limits)
        gpus = sum(count * each.get("nvidia.com/gpu", 0) for count, each in limits)
        (note,) = [note for note in rendering.notes if note.startswith(what)]
        assert note.endswith(f"together {cores} cores, {memory} MiB of memory, {gpus} GPUs.")


@pytest.mark.parametrize("target", [Target.HELM, Target.TERRAFORM, Target.RAY])
def test_pods_that_prepare_a_reduced_precision_again_are_noted(tmp_path: Path, target: Target) -> None:
    text = f"{MODEL}engine = 'onnx'\nprecision = 'int8'\n{MODEL}name = 'b'\n"
    told = notes(tmp_path, target, text)
    assert "models[0] has the precision int8: each pod prepares it again at each start" in told
    assert "models[1] has" not in told
    assert "deploy.cache_claim" in told
    shared = notes(tmp_path, target, f"{text}[deploy]\ncache_claim = 'prepared'")
    assert "prepares it again" not in shared
    of_chart = notes(tmp_path, target, f"{text}[deploy.helm]\nshared_cache = true")
    assert ("prepares it again" in of_chart) == (target is Target.RAY)


@pytest.mark.parametrize("target", [Target.COMPOSE, Target.SYSTEMD])
def test_a_server_that_is_open_to_all_is_noted(tmp_path: Path, target: Target) -> None:
    for text, is_open in (
        ("host = '0.0.0.0'", True),
        ("host = '192.0.2.1'", True),
        ("host = '::1'", False),
        ("host = '0.0.0.0'\napi_key_file = 'keys'", False),
        ("", False),
    ):
        assert ("Everyone who reaches" in notes(tmp_path, target, f"[server]\n{text}")) == is_open, text
