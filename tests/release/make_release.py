"""Makes the files of a release: `make release`. Nothing is uploaded.

How it works. The sources of the commit are exported to a folder, where the address of the project takes the
place of its placeholder. All distributions are built twice, in two copies of that folder, and must be equal
to the byte. Each Python then installs them by name into an environment of its own, and does there what a user
does first. What is left in build/release is what a person uploads.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import click

from release.first_steps import take_first_steps

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build/release"
PLACEHOLDER = "https://vecmill.example/"
# The package of the embedded model has a version of its own, which changes with the model.
MODEL_PROJECT = "libs/vecmill_minilm"
PROJECTS = ("libs/vecmill", "services/vecmill_server", "services/vecmill_ray")
CHART = "services/vecmill_server/src/vecmill_server/deploy/chart/Chart.yaml"
TEXT_FILES = (".md", ".toml", ".py", ".yaml", ".jinja", ".tpl")


class ReleaseRefused(click.ClickException):
    """A reason not to make a release."""


@dataclass(frozen=True, slots=True)
class Release:
    """What is released: the version, the commit with its time, and the address of the project."""

    version: str
    revision: str
    committed_at: int
    home: str


def read_home(root: Path = ROOT) -> str:
    """Return the address of the project, the one setting of this kind: `home` of `[tool.vecmill]`."""
    document = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    return str(document["tool"]["vecmill"]["home"])


def read_versions(root: Path = ROOT) -> dict[str, str]:
    """Return every version in the tree that must be the same, by its place."""
    found: dict[str, str] = {}
    for project in PROJECTS:
        document = tomllib.loads((root / project / "pyproject.toml").read_text("utf-8"))["project"]
        found[f"{project}/pyproject.toml"] = document["version"]
        for requirement in document.get("dependencies", ()):
            pin = re.fullmatch(r"(vecmill[\w-]*)(?:\[\w+\])? ==(\S+)", requirement)
            if pin is not None:
                found[f"{project}/pyproject.toml, {pin[1]}"] = pin[2]
    chart = (root / CHART).read_text("utf-8")
    for name, version in re.findall(r"^(version|appVersion): (\S+)$", chart, re.MULTILINE):
        found[f"{CHART}, {name}"] = version
    return found


def read_notes(version: str, changelog: str) -> str:
    """Return the section of a version. Raises `ReleaseRefused` if it is missing, empty or without a date."""
    section = re.search(
        rf"^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)\n(.*?)(?=^## |\Z)", changelog, re.M | re.S
    )
    if section is None or not section[2].strip():
        raise ReleaseRefused(
            f"CHANGELOG.md has no section '## {version} ({date.today()})'. Write it: it becomes the notes."
        )
    return section[2].strip() + "\n"


def check_tree(root: Path = ROOT) -> Release:
    """Return what is released. Raises `ReleaseRefused` if the tree is not ready for it."""
    changed = run_git(root, "status", "--porcelain")
    if changed:
        raise ReleaseRefused(f"The tree has changes that are not committed:\n{changed}")
    versions = read_versions(root)
    if len(set(versions.values())) != 1:
        listed = "\n".join(f"  {version:<10} {place}" for place, version in versions.items())
        raise ReleaseRefused(f"The versions differ:\n{listed}")
    version = next(iter(versions.values()))
    read_notes(version, (root / "CHANGELOG.md").read_text("utf-8"))
    committed_at = int(run_git(root, "log", "-1", "--format=%ct"))
    return Release(version, run_git(root, "rev-parse", "HEAD"), committed_at, read_home(root))


def export_sources(release: Release, folder: Path, root: Path = ROOT) -> None:
    """Write the files of the commit into a new folder, with the address of the project."""
    extract_commit(release.revision, folder, root)
    for path in folder.rglob("*"):
        if path.suffix in TEXT_FILES and path.is_file():
            text = path.read_bytes()
            if PLACEHOLDER.encode() in text:
                path.write_bytes(text.replace(PLACEHOLDER.encode(), release.home.encode()))


def extract_commit(revision: str, folder: Path, root: Path = ROOT) -> None:
    """Write the files of a commit into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    archive = folder / "sources.tar"
    run_git(root, "archive", "--output", str(archive), revision)
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    archive.unlink()


def build_distributions(release: Release, folder: Path) -> dict[str, str]:
    """Build the wheel and the sdist of every project in a new `folder`. Return their SHA-256 by name."""
    sources, built = folder / "sources", folder / "dist"
    export_sources(release, sources)
    for project in (*PROJECTS, MODEL_PROJECT):
        # No isolation: the backend is the one that the environment of the release pins.
        options = ["--no-isolation", "--outdir", str(built)]
        command = [sys.executable, "-m", "build", *options, str(sources / project)]
        settings = {**os.environ, "SOURCE_DATE_EPOCH": str(release.committed_at)}
        done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ReleaseRefused(f"{project} cannot be built:\n{done.stdout}{done.stderr}")
    return hash_files(built)


def hash_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files in a folder by name, sorted."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def compare_builds(first: Mapping[str, str], second: Mapping[str, str]) -> None:
    """Raise `ReleaseRefused` if two builds differ."""
    differing = [name for name in first.keys() | second.keys() if first.get(name) != second.get(name)]
    if differing:
        raise ReleaseRefused(f"Two builds of the same sources differ: {', '.join(sorted(differing))}.")


def run_git(root: Path, *arguments: str) -> str:
    """Return what a command of git writes."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@contextmanager
def step(name: str) -> Iterator[list[str]]:
    """Print a line for a step when it ends, with its time and what was added to the list."""
    notes: list[str] = []
    began = time.monotonic()
    click.echo(f"{name} ... ", nl=False)
    yield notes
    click.echo(f"{time.monotonic() - began:.0f} s{''.join(f'; {note}' for note in notes)}")


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS, which `sha256sum --check` reads, of all files in the folder."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in hash_files(folder).items())
    (folder / "SHA256SUMS").write_text(lines, "utf-8")


def write_bill(folder: Path, python: Path, release: Release) -> None:
    """Write the bill of materials, in CycloneDX, of the environment in which the server was tried."""
    command = [sys.executable, "-m", "cyclonedx_py", "environment", str(python), "--output-reproducible"]
    target = folder / f"vecmill-server-{release.version}.cdx.json"
    subprocess.run([*command, "--output-format", "JSON", "--output-file", str(target)], check=True)


@click.command()
@click.option("--python", "pythons", multiple=True, required=True, help="A Python to try the wheels in.")
def main(pythons: Sequence[str]) -> None:
    """Build and try the distributions of the version in the tree, and write build/release."""
    with step("checking the tree, the versions and the changelog") as notes:
        release = check_tree()
        notes.append(f"{release.version} at {release.revision[:12]}")
    shutil.rmtree(FOLDER, ignore_errors=True)
    with step("building wheels and sdists twice") as notes:
        first = build_distributions(release, FOLDER / "first")
        compare_builds(first, build_distributions(release, FOLDER / "second"))
        notes.append(f"{len(first)} files, equal to the byte")
    upload = FOLDER / f"vecmill-{release.version}"
    shutil.move(FOLDER / "first/dist", upload)
    for number, python in enumerate(pythons):
        with step(f"trying the wheels with {python}") as notes:
            environment = FOLDER / f"environment-{number}"
            found = take_first_steps(python, environment, upload, release.version)
            figures = f"installed in {found.install_s:.0f} s, first answer after {found.first_answer_s:.1f} s"
            notes.append(figures)
    with step("writing the bill of materials, the notes and the checksums"):
        write_bill(upload, FOLDER / "environment-0/bin/python", release)
        changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
        (upload / "NOTES.md").write_text(read_notes(release.version, changelog), "utf-8")
        write_checksums(upload)
    for part in ("first", "second"):
        shutil.rmtree(FOLDER / part)
    click.echo(f"\n{upload.relative_to(ROOT)}:")
    for path in sorted(upload.iterdir()):
        click.echo(f"  {path.stat().st_size:>11,}  {path.name}")
    click.echo(describe_next_steps(release, upload))


def describe_next_steps(release: Release, upload: Path) -> str:
    """Return what a person does next."""
    folder = upload.relative_to(ROOT)
    placeholder = ""
    if release.home == PLACEHOLDER:
        placeholder = (
            "\nThe address of the project is still its placeholder. Set `home` of [tool.vecmill] in "
            "pyproject.toml before you upload.\n"
        )
    return (
        f"{placeholder}\nNothing was uploaded. Next:\n"
        f"  git tag --sign v{release.version} {release.revision[:12]} && git push origin v{release.version}\n"
        f"  twine upload {folder}/*.whl {folder}/*.tar.gz\n"
        "  make image for each target, and push the images under the version"
    )


if __name__ == "__main__":
    main()
