"""A release is made of a clean tree with one version, and two builds of it are equal."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from release import make_release
from release.make_release import (
    PLACEHOLDER,
    ROOT,
    Release,
    ReleaseRefused,
    check_tree,
    compare_builds,
    describe_next_steps,
    export_sources,
    hash_files,
    read_home,
    read_notes,
    read_versions,
    write_checksums,
)
from support.git_files import kept_files

CHANGELOG = "# Changelog\n\n## 2.0.0 (2027-01-31)\n\n- New.\n\n## 1.0.0 (2026-12-01)\n\n- First.\n"
RELEASE = Release("2.0.0", "0" * 40, 1_800_000_000, "https://home.test/")


def commit(folder: Path) -> None:
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "All"]):
        author = ["-c", "user.name=a", "-c", "user.email=a@a.test"]
        subprocess.run(["git", *author, *command], cwd=folder, check=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with the files that a release reads, all in version 2.0.0."""
    for name in ("pyproject.toml", "CHANGELOG.md", make_release.CHART, *PYPROJECTS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text("utf-8")
        (tmp_path / name).write_text(text.replace(next(iter(read_versions().values())), "2.0.0"), "utf-8")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG, "utf-8")
    (tmp_path / "README.md").write_text(f"[Home]({PLACEHOLDER}docs)\n", "utf-8")
    commit(tmp_path)
    return tmp_path


PYPROJECTS = tuple(f"{project}/pyproject.toml" for project in make_release.PROJECTS)


def test_all_versions_of_the_project_are_one() -> None:
    versions = read_versions()
    assert len(versions) == 3 + 2 + 2  # of the packages, their pins and the chart
    assert len(set(versions.values())) == 1, versions


def test_a_clean_tree_is_released_with_its_commit(tree: Path) -> None:
    found = check_tree(tree)
    assert (found.version, found.home) == ("2.0.0", PLACEHOLDER)
    assert re.fullmatch("[0-9a-f]{40}", found.revision)


def test_a_changed_tree_is_refused(tree: Path) -> None:
    (tree / "README.md").write_text("other", "utf-8")
    with pytest.raises(ReleaseRefused, match=r"not committed:\n.*README\.md"):
        check_tree(tree)


def test_versions_that_differ_are_listed(tree: Path) -> None:
    path = tree / PYPROJECTS[0]
    path.write_text(path.read_text("utf-8").replace('"2.0.0"', '"2.0.1"'), "utf-8")
    commit(tree)
    with pytest.raises(ReleaseRefused, match=r"differ:\n  2\.0\.1 +libs/vecmill/pyproject\.toml"):
        check_tree(tree)


@pytest.mark.parametrize("version", ["1.5.0", "2.0", "2.0.0rc1"])
def test_a_version_without_notes_is_refused(version: str) -> None:
    with pytest.raises(ReleaseRefused, match=re.escape(f"no section '## {version} (")):
        read_notes(version, CHANGELOG)


def test_the_notes_are_the_section_of_the_version() -> None:
    assert read_notes("2.0.0", CHANGELOG) == "- New.\n"
    assert read_notes("1.0.0", CHANGELOG) == "- First.\n"
    with pytest.raises(ReleaseRefused):
        read_notes("1.0.0", "## 1.0.0 (2026-12-01)\n\n## 0.9.0 (2026-11-01)\n- x\n")


def test_the_sources_get_the_address_of_the_project(
    tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("export") / "sources"
    export_sources(replace(check_tree(tree), home=RELEASE.home), folder, tree)
    assert (folder / "README.md").read_text("utf-8") == "[Home](https://home.test/docs)\n"
    text = (folder / PYPROJECTS[1]).read_text("utf-8")
    assert "https://home.test/CHANGELOG.md" in text
    assert PLACEHOLDER not in text
    assert (tree / "README.md").read_text("utf-8").count(PLACEHOLDER) == 1


def test_nothing_but_the_setting_and_its_placeholder_is_an_address_of_the_project() -> None:
    """An address of another form would stay in the files of a release."""
    assert read_home() == PLACEHOLDER
    host = b"vecmill" + b".example"  # here it is neither
    files = [ROOT / name for name in kept_files() if (ROOT / name).is_file()]
    texts = ((path, path.read_bytes()) for path in files)
    other = [path for path, text in texts if text.count(host) != text.count(b"https://" + host + b"/")]
    assert other == []


def test_builds_that_differ_are_named() -> None:
    compare_builds({"a": "1", "b": "2"}, {"b": "2", "a": "1"})
    with pytest.raises(ReleaseRefused, match=r"differ: a, c\."):
        compare_builds({"a": "1", "b": "2"}, {"a": "3", "b": "2", "c": "4"})


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a b.whl").write_bytes(b"a")
    (tmp_path / "c.json").write_text(json.dumps({}))
    write_checksums(tmp_path)
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)


def test_a_person_is_told_what_comes_next_and_what_is_still_missing() -> None:
    folder = make_release.FOLDER / "vecmill-2.0.0"
    told = describe_next_steps(RELEASE, folder)
    assert "Nothing was uploaded" in told
    assert "twine upload build/release/vecmill-2.0.0/*.whl" in told
    assert "placeholder" not in told
    assert "still its placeholder" in describe_next_steps(replace(RELEASE, home=PLACEHOLDER), folder)


def test_two_builds_of_a_package_are_equal_whenever_its_files_were_written(tmp_path: Path) -> None:
    build = (
        "import sys, flit_core.buildapi as api; api.build_wheel(sys.argv[1]); api.build_sdist(sys.argv[1])"
    )
    built = []
    for number in range(2):
        sources, folder = tmp_path / f"sources-{number}", tmp_path / f"dist-{number}"
        shutil.copytree(ROOT / "services/vecmill_ray", sources, ignore=shutil.ignore_patterns("__pycache__"))
        for path in sources.rglob("*"):
            os.utime(path, (1_500_000_000 + number, 1_500_000_000 + number))
        folder.mkdir()
        settings = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
        subprocess.run([sys.executable, "-c", build, str(folder)], cwd=sources, env=settings, check=True)
        built.append(hash_files(folder))
    assert len(built[0]) == 2
    compare_builds(*built)
