"""`make clean` removes what make has made, and leaves what somebody else has put beside it."""

import re
import shutil
import subprocess
from pathlib import Path

from support.git_files import kept_files
from support.source_tree import ROOT


def names_in_build() -> set[str]:
    """The names in the folder build that the sources of make's commands write."""
    found = set[str]()
    for name in kept_files():
        path = ROOT / name
        if path.suffix in (".py", ".sh") and name.startswith("tests/") and path != Path(__file__):
            found.update(
                re.findall(r'(?:ROOT / "|\bin |-output-file |> )build/([\w.-]*\w)', path.read_text("utf-8"))
            )
    return found - {"vectors"}


def test_what_others_have_put_into_the_folder_stays(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    made = [
        "build/bench/short.md",
        "build/sbom.json",
        "dist/vecmill-1.0.0-py3-none-any.whl",
        ".venv/serve/ready",
    ]
    own = ["build/vectors.npy", "dist/notes.txt"]
    for name in (*made, *own):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for folder in ("libs", "services", "tests"):
        (tmp_path / folder).mkdir()
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True)
    assert [name for name in made if (tmp_path / name).exists()] == []
    assert [name for name in own if (tmp_path / name).exists()] == own


def test_everything_that_make_writes_there_is_removed() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    listed = set(
        re.findall(r"[\w.-]+", makefile.partition("MADE_BUILDS := $(addprefix build/,")[2].partition(")")[0])
    )
    assert {"bench", "docs", "arm64", "release"} <= names_in_build()
    assert names_in_build() <= listed
