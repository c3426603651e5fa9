"""The programs of the build: what they remove from an image, and what its bill of materials says."""

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.source_tree import ROOT


def load(name: str) -> ModuleType:
    """Return a module of the folder docker, which is no package."""
    spec = importlib.util.spec_from_file_location(f"docker_{name}", ROOT / f"docker/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


trim, records = load("trim"), load("records")


def make_environment(folder: Path) -> Path:
    environment = folder / "opt/vecmill"
    (environment / "lib/python3.13/site-packages/onnx/tests").mkdir(parents=True)
    (environment / "bin").mkdir()
    return environment


def test_only_python_and_the_programs_of_vecmill_stay(tmp_path: Path) -> None:
    environment = make_environment(tmp_path)
    kept = {"python", "python3", "python3.13", "vecmill", "vecmill-server", "neuronx-cc"}
    for name in {*kept, "backend-test-tools", "check-model", "onnxruntime_test", "f2py", "uvicorn"}:
        (environment / "bin" / name).write_text("")
    trim.main(environment)
    assert {path.name for path in (environment / "bin").iterdir()} == kept
    assert not (environment / "lib/python3.13/site-packages/onnx/tests").exists()


def write_report(folder: Path, name: str, version: str, digest: str) -> None:
    entry = {
        "metadata": {"name": name, "version": version},
        "download_info": {"archive_info": {"hashes": {"sha256": digest}}},
    }
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"install": [entry]}))


def test_hashes_are_those_of_the_reports_of_pip_and_of_local_wheels(tmp_path: Path) -> None:
    environment = make_environment(tmp_path)
    write_report(tmp_path / "reports", "Jinja2", "3.1.6", "aa")
    local = environment / "lib/python3.13/site-packages/vecmill_server-0.1.0.dist-info"
    local.mkdir()
    (local / "METADATA").write_text("Metadata-Version: 2.1\nName: vecmill_server\nVersion: 0.1.0\n")
    (local / "direct_url.json").write_text(json.dumps({"archive_info": {"hashes": {"sha256": "bb"}}}))
    hashes = records.read_hashes(tmp_path / "reports", environment)
    assert hashes == {("jinja2", "3.1.6"): "aa", ("vecmill-server", "0.1.0"): "bb"}


def make_bill() -> dict[str, Any]:
    debian = {"bom-ref": "d", "name": "libc6", "version": "2", "purl": "pkg:deb/debian/libc6@2"}
    package = {"bom-ref": "j", "name": "Jinja2", "version": "3.1.6", "purl": "pkg:pypi/jinja2@3.1.6"}
    return {"components": [package, debian], "metadata": {}, "dependencies": [{"ref": "j"}]}


def test_the_bill_names_the_image_and_each_package_with_its_hash() -> None:
    bill = make_bill()
    image = records.Image("cpu", "1.2", "0123abcd")
    records.complete_bill(bill, image, {("jinja2", "3.1.6"): "aa"})
    component = bill["metadata"]["component"]
    assert (component["type"], component["name"], component["version"]) == ("container", "vecmill", "1.2")
    assert "0123abcd" in [each["value"] for each in component["properties"]]
    assert bill["components"][0]["hashes"] == [{"alg": "SHA-256", "content": "aa"}]
    assert {"ref": component["bom-ref"], "dependsOn": ["j", "d"]} in bill["dependencies"]


def test_a_package_without_a_hash_ends_the_build() -> None:
    with pytest.raises(ValueError, match="no hash of Jinja2"):
        records.complete_bill(make_bill(), records.Image("cpu", "1.2", "0"), {("jinja2", "3.1.5"): "aa"})


def test_the_build_passes_version_revision_and_source(tmp_path: Path) -> None:
    (tmp_path / "docker").write_text('#!/bin/sh\n[ "$1" = info ] || printf "%s\\n" "$@"\n')
    (tmp_path / "docker").chmod(0o755)
    done = subprocess.run(
        ["sh", ROOT / "docker/build.sh", "cpu", "", "vecmill:cpu"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    project = (ROOT / "services/vecmill_server/pyproject.toml").read_text("utf-8")
    passed = dict(line.split("=", 1) for line in done.stdout.splitlines() if line.isascii() and "=" in line)
    assert f'\nversion = "{passed["VERSION"]}"\n' in project
    assert f'\nSource = "{passed["SOURCE"]}"\n' in project
    assert len(passed["REVISION"].removesuffix("-dirty")) in (40, len("unknown"))
