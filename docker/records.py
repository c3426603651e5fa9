"""Write the bill of materials and the licences of an image.

`python3 -m audit.records FOLDER --image TARGET VERSION REVISION` describes the environment /opt/vecmill and
the Debian packages of the base:

- FOLDER/sbom.json: a bill of materials in CycloneDX's format, with the image, and with the hash of the file
  from which each Python package was installed.
- FOLDER/licences.txt: one line for each Python package, with its version and licence.
- FOLDER/licences/PACKAGE/: the licence files of each Python package. Those of Debian's packages are in
  /usr/share/doc/*/copyright.

Exits with 1 if a licence is not allowed. With `--unchecked`, such licences are only listed.
"""

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from audit.licences import read_licences

ENVIRONMENT = Path("/opt/vecmill")
CYCLONEDX = Path("/opt/tools/bin/cyclonedx-py")
# pip's reports of its installations (docker/pip.sh).
REPORTS = Path("/build/reports")
DPKG_STATUS = Path("/var/lib/dpkg/status")
OS_RELEASE = Path("/etc/os-release")
LICENCE_FILES = ("licen", "copying", "notice", "thirdpartynotices")


def read_debian_packages(status: str) -> Iterator[dict[str, str]]:
    """Return the fields of each installed package in dpkg's database."""
    for entry in status.split("\n\n"):
        lines = (line.partition(": ") for line in entry.splitlines() if not line.startswith(" "))
        fields = {name: value for name, _, value in lines}
        if fields.get("Status", "").endswith(" installed"):
            yield fields


def describe_debian_package(fields: dict[str, str], distribution: str) -> dict[str, Any]:
    """Return the component of a Debian package in CycloneDX's format."""
    name, version = fields["Package"], fields["Version"]
    url = f"pkg:deb/{distribution}/{name}@{version.replace(':', '%3A')}?arch={fields['Architecture']}"
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}


@dataclass(frozen=True, slots=True)
class Image:
    """The image that is described: a target of the Dockerfile, the version of vecmill, and its revision."""

    target: str
    version: str
    revision: str

    def describe(self) -> dict[str, Any]:
        """Return the component of the image in CycloneDX's format."""
        return {
            "type": "container",
            "bom-ref": "image",
            "name": "vecmill",
            "version": self.version,
            "purl": f"pkg:oci/vecmill?tag={self.target}",
            "licenses": [{"license": {"id": "Apache-2.0"}}],
            "properties": [
                {"name": "org.opencontainers.image.revision", "value": self.revision},
                {"name": "vecmill:target", "value": self.target},
            ],
        }


def canonical(name: str) -> str:
    """Return the name of a package as package indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_hashes(reports: Path, environment: Path) -> dict[tuple[str, str], str]:
    """Return the SHA-256 of the file of each package, by name and version.

    pip's reports have those of packages from an index, and the metadata of a package that of a local file.
    """
    found: dict[tuple[str, str], str] = {}

    def add(name: str, version: str, source: Mapping[str, Any]) -> None:
        digest = source.get("archive_info", {}).get("hashes", {}).get("sha256")
        if digest:
            found[canonical(name), version] = digest

    for report in sorted(reports.glob("*.json")):
        for entry in json.loads(report.read_text(encoding="utf-8"))["install"]:
            add(entry["metadata"]["name"], entry["metadata"]["version"], entry["download_info"])
    for package in distributions(path=[str(path) for path in environment.glob("lib/python3*/site-packages")]):
        source = package.read_text("direct_url.json")
        if source:
            add(package.name, package.version, json.loads(source))
    return found


def complete_bill(bill: dict[str, Any], image: Image, hashes: Mapping[tuple[str, str], str]) -> None:
    """Add the image and the hashes to a bill of materials. Raises `ValueError` if a package has no hash."""
    missing = []
    for component in bill["components"]:
        if not component.get("purl", "").startswith(("pkg:deb/", "pkg:generic/")):
            digest = hashes.get((canonical(component["name"]), component["version"]))
            if digest is None:
                missing.append(component["name"])
            else:
                component["hashes"] = [{"alg": "SHA-256", "content": digest}]
    if missing:
        raise ValueError(f"pip reported no hash of {', '.join(missing)}")
    bill["metadata"]["component"] = image.describe()
    contents = [component["bom-ref"] for component in bill["components"]]
    bill.setdefault("dependencies", []).append({"ref": "image", "dependsOn": contents})


def make_bill_of_materials(image: Image) -> dict[str, Any]:
    """Return the bill of materials of the image, the Python packages, Python and the Debian packages."""
    command = [
        str(CYCLONEDX),
        "environment",
        str(ENVIRONMENT / "bin/python"),
        "--output-reproducible",
        "--output-format",
        "JSON",
    ]
    bill: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    python = {"type": "application", "name": "python", "version": platform.python_version()}
    bill["components"] += [{**python, "bom-ref": "python", "purl": f"pkg:generic/python@{python['version']}"}]
    if DPKG_STATUS.exists():
        release = dict(line.split("=", 1) for line in OS_RELEASE.read_text().splitlines() if "=" in line)
        packages = read_debian_packages(DPKG_STATUS.read_text(encoding="utf-8"))
        bill["components"] += [
            describe_debian_package(fields, release["ID"].strip('"')) for fields in packages
        ]
    complete_bill(bill, image, read_hashes(REPORTS, ENVIRONMENT))
    return bill


def copy_licence_files(folder: Path) -> None:
    """Copy the licence files of each Python package to a folder that is named after the package."""
    for package in distributions(path=[str(path) for path in ENVIRONMENT.glob("lib/python3*/site-packages")]):
        for file in package.files or ():
            path = Path(str(package.locate_file(file)))
            if file.name.lower().startswith(LICENCE_FILES) and file.suffix != ".py" and path.is_file():
                target = folder / package.name / "-".join(file.parts[1:])
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)


def main(folder: Path, image: Image, *, unchecked: bool) -> None:
    """Write all records. Exit with 1 if a licence is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    bill = make_bill_of_materials(image)
    (folder / "sbom.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    licences = read_licences(ENVIRONMENT)
    lines = [f"{licence.package} {licence.version} {licence.expression or 'unknown'}" for licence in licences]
    (folder / "licences.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    copy_licence_files(folder / "licences")
    problems = [f"{licence.package}: {licence.problem}" for licence in licences if licence.problem]
    print(f"{len(bill['components'])} components, {len(licences)} licences", *problems, sep="\n")
    sys.exit(1 if problems and not unchecked else 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--image", nargs=3, metavar=("TARGET", "VERSION", "REVISION"), required=True)
    parser.add_argument("--unchecked", action="store_true", help="only list licences that are not allowed")
    options = parser.parse_args()
    main(options.folder, Image(*options.image), unchecked=options.unchecked)
