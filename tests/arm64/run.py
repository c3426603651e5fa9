"""Tests vecmill on arm64 by emulation: `make arm64`, as root on a Debian machine with an x86-64 processor.

Everything is in build/arm64, and later runs use the root and the packages again. `report.json` there has the
largest difference between the embeddings of both processors for each family, and the seconds of each test.
"""

import argparse
import hashlib
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from arm64.emulator import (
    BF16_PROCESSOR,
    INSIDE_RESULTS,
    PLAIN_PROCESSOR,
    QEMU_PACKAGE,
    ROOT_PACKAGES,
    SUITE,
    CannotEmulate,
    Machine,
    arm64_programs,
    install_projects,
    install_wheels,
    make_debian,
    run_inside,
)
from arm64.references import read_references, write_references
from arm64.results import read_differences, write_report
from support.source_tree import ROOT

FOLDER = ROOT / "build/arm64"
LOCKS = (
    "services/vecmill_server/requirements.lock",
    "libs/vecmill_minilm/model.lock",
    "tests/arm64/requirements.txt",
)
PROJECTS = ("libs/vecmill", "services/vecmill_server")
LIMIT_S = 3_300.0
# The repository is read-only in the root, and no test hangs before 15 minutes.
PYTEST_OPTIONS = ("-p", "no:cacheprovider", "-o", "faulthandler_timeout=900", "--durations", "5")

# Each part is a process of pytest, with the processor that it emulates.
PARTS = {
    "families": (PLAIN_PROCESSOR, ("tests/arm64/inside/test_families.py",)),
    "commands": (PLAIN_PROCESSOR, ("tests/arm64/inside/test_commands.py",)),
    "server": (PLAIN_PROCESSOR, ("tests/arm64/inside/test_server.py",)),
    "engine": (PLAIN_PROCESSOR, ("tests/contract", "-k", "onnx")),
    "tokenisation": (
        PLAIN_PROCESSOR,
        tuple(f"tests/tokenization/test_{name}.py" for name in ("tokenizer", "truncation", "pairs")),
    ),
    "bf16": (BF16_PROCESSOR, ("tests/arm64/inside/test_bf16.py",)),
}


def prepare_qemu() -> Path:
    """Return QEMU's program, extracted from its package once."""
    program = FOLDER / "qemu/usr/bin/qemu-aarch64"
    if not program.exists():
        print("extracting QEMU into build/arm64 (this needs a network, once)", flush=True)
        make_debian(FOLDER / "qemu", "amd64", [QEMU_PACKAGE])
    return program


def prepare_root(uv: Path) -> Path:
    """Return the folder of the arm64 root, made or brought up to date."""
    root = FOLDER / "root"
    digest = hashlib.sha256(b"".join((ROOT / lock).read_bytes() for lock in LOCKS))
    digest.update(" ".join((SUITE, *ROOT_PACKAGES)).encode())
    made = FOLDER / "made"
    if not made.exists() or made.read_text() != digest.hexdigest():
        print("extracting an arm64 Debian into build/arm64 (this needs a network, once)", flush=True)
        made.unlink(missing_ok=True)
        make_debian(root, "arm64", ROOT_PACKAGES)
        install_wheels(uv, root, [word for lock in LOCKS for word in ("--requirement", str(ROOT / lock))])
        made.write_text(digest.hexdigest())
    install_projects(uv, root, [ROOT / project for project in PROJECTS])
    for name in ("repository", INSIDE_RESULTS.name):
        (root / name).mkdir(exist_ok=True)
    return root


def compute_references(results: Path) -> None:
    """Write models and the embeddings of this machine, anew: they depend on the sources."""
    shutil.rmtree(results, ignore_errors=True)
    shutil.rmtree(FOLDER / "cache", ignore_errors=True)
    references = results / "references"
    for reference in write_references(references, FOLDER / "cache"):
        print(f"  {reference.family}", end="", flush=True)
    print(f"\n{len(read_references(references))} models written", flush=True)


def run_parts(root: Path, names: Sequence[str], deadline: float) -> dict[str, int | None]:
    """Return the exit status of each part; `None` for one that was not done in time."""
    statuses: dict[str, int | None] = {}
    for name in names:
        processor, arguments = PARTS[name]
        print(f"\n{name}, on an emulated {processor}", flush=True)
        command = [
            "python3",
            "-m",
            "pytest",
            "-m",
            "",
            "-p",
            "no:cacheprovider",
            "-o",
            "faulthandler_timeout=900",
        ]
        command += ["--junit-xml", str(INSIDE_RESULTS / f"{name}.xml"), *arguments]
        timeout_s = max(deadline - time.monotonic(), 1.0)
        statuses[name] = run_inside(root, ROOT, command, processor=processor, timeout_s=timeout_s)
    return statuses


def main(arguments: Sequence[str] | None = None) -> None:
    """Prepare, run the parts, and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uv", type=Path, required=True, help="the program uv")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="by default all")
    options = parser.parse_args(arguments)
    try:
        Machine.look().require()
    except CannotEmulate as error:
        sys.exit(f"make arm64: {error}")
    began = time.monotonic()
    root = prepare_root(options.uv)
    results = root / INSIDE_RESULTS.name
    compute_references(results)
    with arm64_programs(prepare_qemu()):
        statuses = run_parts(root, options.parts or list(PARTS), began + LIMIT_S)
    seconds = time.monotonic() - began
    write_report(FOLDER / "report.json", results, statuses, seconds)
    for difference in read_differences(results):
        print(difference)
    print(f"{seconds / 60:.0f} minutes; the report is {FOLDER / 'report.json'}")
    failed = [name for name, status in statuses.items() if status != 0]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
