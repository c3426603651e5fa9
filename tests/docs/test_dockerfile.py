"""The Dockerfile keeps what it downloads, checks the server where it listens, and a stop has enough time."""

import re
import shlex

from support.source_tree import ROOT
from vecmill_server.drain import DEFAULT_LAME_DUCK_S
from vecmill_server.settings import ServerSettings

DOCKERFILE = (ROOT / "docker/Dockerfile.cpu").read_text("utf-8")
# Continued lines joined, without comments.
INSTRUCTIONS = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
PAGES = [DOCKERFILE, *(path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md")))]


def instructions(name: str) -> list[str]:
    return [line.removeprefix(f"{name} ") for line in INSTRUCTIONS if line.startswith(f"{name} ")]


def environment() -> dict[str, str]:
    pairs = [word.partition("=") for line in instructions("ENV") for word in shlex.split(line)]
    return {name: value for name, _, value in pairs}


def test_everything_that_is_kept_is_inside_the_volume() -> None:
    (volume,) = instructions("VOLUME")
    for name in ("HF_HOME", "VECMILL_CACHE_DIR"):
        assert environment()[name].startswith(f"{volume}/"), name
    assert f"--owner vecmill {volume}" in " ".join(instructions("RUN"))


def test_the_health_check_finds_the_address_itself() -> None:
    (check,) = instructions("HEALTHCHECK")
    assert check.endswith('CMD ["python", "-m", "vecmill_server.container_health"]')


def test_every_copied_path_exists() -> None:
    copied = [shlex.split(line) for line in instructions("COPY") if not line.startswith("--from")]
    sources = [source for words in copied for source in words[:-1]]
    assert len(sources) >= 5
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_build_arguments_have_defaults() -> None:
    arguments = dict(line.split("=", 1) for line in instructions("ARG"))
    assert set(arguments) == {"PYTHON_IMAGE", "EXTRAS"}
    assert instructions("FROM") == ["${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"]


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
