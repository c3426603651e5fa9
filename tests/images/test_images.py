"""The linter finds no fault in the Dockerfile, and an image serves without rights on a read-only root."""

import os
import subprocess
from pathlib import Path

import pytest

from images.check import check_image, problems_of
from images.container import buildah, missing_program, mounted_image
from support.source_tree import ROOT

HADOLINT = ROOT / ".venv/hadolint"
IMAGE = os.environ.get("VECMILL_TEST_IMAGE", "vecmill:cpu")


def test_the_linter_finds_nothing_in_the_dockerfile() -> None:
    if not (HADOLINT / "ready").exists():
        pytest.skip("`make image-lint` has not been run here")
    found = subprocess.run(
        [HADOLINT / "bin/hadolint", ROOT / "docker/Dockerfile"], capture_output=True, text=True
    )
    assert (found.returncode, found.stdout) == (0, "")


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
