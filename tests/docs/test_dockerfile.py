"""The Dockerfile keeps what it downloads, checks the server where it listens, and a stop has enough time."""

import re
import shlex
import tomllib

import pytest

from support.source_tree import ROOT
from vecmill_server.base.settings import DEFAULT_LAME_DUCK_S, ServerSettings

DOCKERFILE = (ROOT / "docker/Dockerfile").read_text("utf-8")
# Continued lines joined, without comments.
INSTRUCTIONS = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
PAGES = [DOCKERFILE, *(path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md")))]
TARGETS = ("openvino", "cuda", "rocm", "neuron", "cpu")
# The extras of the library that the targets install.
EXTRAS = {"openvino": "openvino", "cuda": "gpu", "rocm": "migraphx", "neuron": "neuron"}


def instructions(name: str) -> list[str]:
    return [line.removeprefix(f"{name} ") for line in INSTRUCTIONS if line.startswith(f"{name} ")]


def environment() -> dict[str, str]:
    pairs = [word.partition("=") for line in instructions("ENV") for word in shlex.split(line)]
    return {name: value for name, _, value in pairs}


def test_everything_that_is_kept_is_inside_the_volume() -> None:
    (volume,) = instructions("VOLUME")
    for name in ("HF_HOME", "VECMILL_CACHE_DIR"):
        assert environment()[name].startswith(f"{volume}/"), name
    assert f"--owner 10001 --group 10001 {volume}" in " ".join(instructions("RUN"))
    assert instructions("USER") == ["10001:10001"]


def test_the_health_check_finds_the_address_itself() -> None:
    (check,) = instructions("HEALTHCHECK")
    assert check.endswith('CMD ["python", "-m", "vecmill_server.cli.container_health"]')


def test_every_copied_path_exists_and_is_sent_to_the_build() -> None:
    copied = [shlex.split(line) for line in instructions("COPY") if not line.startswith("--from")]
    sources = [source for words in copied for source in words[:-1]]
    assert len(sources) >= 5
    assert [source for source in sources if not (ROOT / source).exists()] == []
    ignored, *sent = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert ignored == "*"
    patterns = [name.removeprefix("!") for name in sent if name.startswith("!")]
    folders = [pattern.removesuffix("/*.py") for pattern in patterns]
    assert [source for source in sources if not source.startswith(tuple(folders))] == []


def test_each_target_is_a_stage_and_cpu_is_the_default() -> None:
    stages = [line.partition(" AS ")[2] for line in instructions("FROM")]
    assert tuple(stage for stage in stages if stage in TARGETS) == TARGETS
    assert stages[-1] == "cpu"
    base, *others = instructions("ARG")
    assert base == "BASE=python:3.13-slim"
    assert {argument.partition("=")[0] for argument in others} == {"VERSION", "REVISION", "SOURCE"}
    assert {line.partition(" AS ")[0] for line in instructions("FROM")} - {*stages} == {"${BASE}"}


@pytest.mark.parametrize("target", EXTRAS)
def test_a_target_installs_the_extra_of_the_library(target: str) -> None:
    project = tomllib.loads((ROOT / "libs/vecmill/pyproject.toml").read_text("utf-8"))["project"]
    extra = project["optional-dependencies"][EXTRAS[target]]
    lines = (ROOT / f"docker/packages/{target}.in").read_text("utf-8").splitlines()
    # NVIDIA's libraries are extras of onnxruntime-gpu.
    listed = [line.replace("[cuda,cudnn]", "") for line in lines if not line.startswith("#")]
    # The stage `packages` has ONNX Runtime for CPUs, which the target neuron needs too.
    assert sorted(listed) == sorted(wanted for wanted in extra if not wanted.startswith("onnxruntime >="))


def stage(beginning: str) -> str:
    """Return the instructions of the only stage whose FROM begins with this text."""
    stages = re.split(r"^FROM ", "\n".join(INSTRUCTIONS), flags=re.MULTILINE)
    (found,) = [each for each in stages if each.startswith(f"{beginning}\n")]
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_and_its_bill_of_materials_name_version_revision_and_source(target: str) -> None:
    image = stage(f"runtime AS {target}")
    base = stage("${BASE} AS runtime")
    labels = dict(re.findall(r"org\.opencontainers\.image\.(\w+)=(\S+)", base + image))
    names = {"version": "$VERSION", "revision": "$REVISION", "source": "$SOURCE", "licenses": "Apache-2.0"}
    assert names.items() <= labels.items()
    assert labels["title"] == "vecmill"
    for argument in ("VERSION", "REVISION", "SOURCE"):
        # An argument of the beginning would build all later layers again for each revision.
        assert image.index(f"ARG {argument}=") > image.rindex("COPY ")
    source = "packages" if target == "cpu" else f"packages-{target}"
    assert f'--image {target} "$VERSION" "$REVISION"' in stage(f"{source} AS records-{target}")


def test_no_program_of_an_image_changes_the_user() -> None:
    (command,) = [line for line in instructions("RUN") if "/etc/passwd" in line]
    assert command.index("chmod u-s,g-s") < command.index('test -z "$(find / -xdev -type f -perm /6000)"')


def test_every_target_installs_what_traces_need() -> None:
    # `vecmill deploy render` accepts `tracing = true`. Without these packages the server ends at its start.
    project = tomllib.loads((ROOT / "services/vecmill_server/pyproject.toml").read_text("utf-8"))["project"]
    lines = (ROOT / "docker/packages/otel.in").read_text("utf-8").splitlines()
    assert [line for line in lines if not line.startswith("#")] == project["optional-dependencies"]["otel"]
    packages = stage("tools AS packages")
    assert "install --no-compile --require-hashes" in packages
    assert "--requirement otel.txt" in packages
    for target in TARGETS:
        source = "packages" if target == "cpu" else f"packages-{target}"
        assert target == "cpu" or f"packages AS {source}" in instructions("FROM"), target
        assert f"COPY --from={source} /opt/vecmill /opt/vecmill" in stage(f"runtime AS {target}"), target


def test_the_versions_for_traces_are_those_that_are_tested() -> None:
    def versions(path: str) -> dict[str, str]:
        text = (ROOT / path).read_text("utf-8")
        return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, flags=re.MULTILINE))

    traces = versions("docker/packages/otel.txt")
    for lock in ("services/vecmill_server/requirements.lock", "tests/requirements.lock"):
        other = versions(lock)
        assert {name: other[name] for name in traces if name in other} == {
            name: version for name, version in traces.items() if name in other
        }, lock
    assert "opentelemetry-sdk" in traces


def test_containers_are_given_the_time_that_a_stop_takes() -> None:
    commands = [
        command
        for page in PAGES
        for command in re.findall(r"docker run (?:.*\\\n)*.*$", page, re.MULTILINE)
        if "vecmill:cpu" in command
    ]
    assert len(commands) >= 3
    for command in commands:
        found = re.search(r"--stop-timeout (\d+)", command)
        assert found is not None, command
        # The health check is a probe, so a stop begins with the lame-duck time.
        assert int(found[1]) >= DEFAULT_LAME_DUCK_S + ServerSettings().drain_s
