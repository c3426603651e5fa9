"""The linter finds no fault in the Dockerfile, and an image serves without rights on a read-only root."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import httpx
import pytest

from images.check import check_image, problems_of
from images.container import buildah, missing_program, mounted_image
from support.server import live_server
from support.source_tree import ROOT
from vecmill.models import locate_model

HADOLINT = ROOT / ".venv/hadolint"
IMAGE = os.environ.get("VECMILL_TEST_IMAGE", "vecmill:cpu")


def test_the_linter_finds_nothing_in_the_dockerfile() -> None:
    if not (HADOLINT / "ready").exists():
        pytest.skip("`make image-lint` has not been run here")
    found = subprocess.run(
        [HADOLINT / "bin/hadolint", ROOT / "docker/Dockerfile"], capture_output=True, text=True
    )
    assert (found.returncode, found.stdout) == (0, "")


def documented_dockerfiles() -> dict[str, str]:
    """Return the Dockerfiles of the docs by their first lines."""
    page = (ROOT / "docs/deployment.md").read_text("utf-8")
    found = re.findall(r"^```Dockerfile\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return {f"{text.splitlines()[0]}, {text.splitlines()[1]}": text for text in found}


@pytest.mark.parametrize("name", documented_dockerfiles())
def test_the_linter_finds_nothing_in_the_dockerfiles_of_the_docs(name: str, tmp_path: Path) -> None:
    if not (HADOLINT / "ready").exists():
        pytest.skip("`make image-lint` has not been run here")
    (tmp_path / "Dockerfile").write_text(documented_dockerfiles()[name], "utf-8")
    found = subprocess.run(
        [HADOLINT / "bin/hadolint", tmp_path / "Dockerfile"], capture_output=True, text=True
    )
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.full
def test_the_lines_for_an_image_with_a_model_of_your_own_serve_it(tmp_path: Path) -> None:
    (text,) = [text for text in documented_dockerfiles().values() if "/models/docs" in text]
    base, copied, command = text.splitlines()
    dockerfile = (ROOT / "docker/Dockerfile").read_text("utf-8")
    assert base == "FROM vecmill:cpu"
    assert " AS cpu\n" in dockerfile
    (source, target) = re.findall(r"^COPY --chown=10001:10001 (\S+) (\S+)$", copied)[0]
    assert "\nUSER 10001:10001\n" in dockerfile  # whose files they are
    (tmp_path / "context").mkdir()
    shutil.copytree(locate_model().directory, tmp_path / "context" / source)
    root = tmp_path / "root"
    shutil.copytree(tmp_path / "context" / source, root / target.lstrip("/"))
    (arguments,) = re.findall(r"^CMD (\[.*\])$", command)
    models = [f"{root}{each}" for each in json.loads(arguments)]
    with live_server(tmp_path, arguments=models, timeout_s=300) as server:
        response = httpx.post(f"{server.url}/v1/embeddings", json={"input": "a", "model": "docs"}, timeout=60)
        assert response.status_code == 200, response.text
        assert response.json()["model"] == "docs"


def test_the_image_of_ray_has_packages_of_one_version() -> None:
    (text,) = [text for text in documented_dockerfiles().values() if "vecmill-ray" in text]
    project = tomllib.loads((ROOT / "services/vecmill_ray/pyproject.toml").read_text("utf-8"))["project"]
    assert set(re.findall(r"==([\d.]+)", text)) == {project["version"]}
    manifest = (
        ROOT / "services/vecmill_server/src/vecmill_server/deploy/ray/ray-service.yaml.jinja"
    ).read_text("utf-8")
    (version,) = re.findall(r'rayVersion: "(.*)"', manifest)
    assert text.startswith(f"FROM rayproject/ray:{version}-")


@pytest.mark.parametrize("script", sorted((ROOT / "docker").glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_plain_shell(script: Path) -> None:
    subprocess.run(["sh", "-n", script], check=True)
    assert os.access(script, os.X_OK)


@pytest.mark.full
def test_a_built_image_serves_on_a_read_only_root_without_rights(tmp_path: Path) -> None:
    if missing := missing_program():
        pytest.skip(f"{missing} is not installed: Debian's packages are buildah, bubblewrap and util-linux")
    if os.getuid() != 0:
        pytest.skip("only root can mount an image")
    if not buildah("images", "--quiet", "--filter", f"reference={IMAGE}"):
        pytest.skip(f"there is no {IMAGE}: make image")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)  # the user of the image reads the client below it
    with mounted_image(IMAGE) as image:
        findings = check_image(image, tmp_path, 1, ())
    assert problems_of(findings) == []
