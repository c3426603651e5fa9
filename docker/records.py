"""Write the bill of materials and the licences of an image.

`python3 -m audit.records FOLDER` describes the environment /opt/vecmill and the Debian packages of the base:

- FOLDER/sbom.json: a bill of materials in CycloneDX's format.
- FOLDER/licences.txt: one line for each Python package, with its version and licence.
- FOLDER/licences/PACKAGE/: the licence files of each Python package. Those of Debian's packages are in
  /usr/share/doc/*/copyright.

Exits with 1 if a licence is not allowed. With `--unchecked`, such licences are only listed.
"""

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from audit.licences import read_licences

ENVIRONMENT = Path("/opt/vecmill")
CYCLONEDX = Path("/opt/tools/bin/cyclonedx-py")
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


def make_bill_of_materials() -> dict[str, Any]:
    """Return the bill of materials of the Python packages, of Python and of the Debian packages."""
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


def main(folder: Path, *, unchecked: bool) -> None:
    """Write all records. Exit with 1 if a licence is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    bill = make_bill_of_materials()
    (folder / "sbom.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    licences = read_licences(ENVIRONMENT)
    lines = [f"{licence.package} {licence.version} {licence.expression or 'unknown'}" for licence in licences]
    (folder / "licences.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    copy_licence_files(folder / "licences")
    problems = [f"{licence.package}: {licence.problem}" for licence in licences if licence.problem]
    print(f"{len(bill['components'])} components, {len(licences)} licences", *problems, sep="\n")
    sys.exit(1 if problems and not unchecked else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), unchecked="--unchecked" in sys.argv)
