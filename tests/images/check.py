"""Check a built image: the server answers the OpenAI client as a user without rights, on a read-only root.

make image-check (IMAGE=vecmill:cpu). Prints the size of each layer and the seconds until the server is ready.
"""

import argparse
import gzip
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType

import numpy as np
from openai import OpenAI

from images.container import Container, Image, buildah, mounted_image, running_container
from support.server import free_port
from support.source_tree import ROOT

TEXTS = ["A dog runs over the grass.", "Prices rose in the third quarter."]
# The folder of the clients inside, which every base has.
CLIENTS = "/mnt"
STOP_LIMIT_S = 60
# The wheels for the processor of an image, by its architecture.
WHEELS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "amd64": ("manylinux2014_x86_64", "manylinux_2_28_x86_64"),
        "arm64": ("manylinux2014_aarch64", "manylinux_2_28_aarch64"),
    }
)
LABELS = ("title", "description", "licenses", "version", "revision", "source")
RIGHTS_OF_OTHERS = stat.S_ISUID | stat.S_ISGID
PROMISED: Mapping[str, object] = MappingProxyType(
    {
        "status of the health check, ready": 0,
        "status of the health check, stopping": 1,
        "user": 10001,
        "rights": ["0000000000000000"],
        "writable": ["/tmp", "/var/cache/vecmill"],
        "shape of the embeddings, inside": (2, 384),
        "embeddings inside and outside are equal": True,
        "status after SIGTERM": 0,
        "programs with the rights of another user": [],
        "programs of the environment": ["python", "vecmill"],
        "labels without a value": [],
        "packages of the bill without a hash": [],
        "image of the bill": "container vecmill",
    }
)
ASK_INSIDE = """
import json, sys
from openai import OpenAI
url, texts = sys.argv[1], json.loads(sys.argv[2])
answer = OpenAI(base_url=url, api_key="none").embeddings.create(model="all-MiniLM-L6-v2", input=texts)
print(json.dumps([item.embedding for item in answer.data]))
"""
PROBE_RIGHTS = """
import json, os, re
def may_write(path):
    try:
        open(path + "/probe", "w").close()
        os.unlink(path + "/probe")
        return True
    except OSError:
        return False
capabilities = set(re.findall(r"^Cap\\w+:\\s+(\\w+)", open("/proc/self/status").read(), re.MULTILINE))
folders = ("/", "/etc", "/opt/vecmill", "/var", "/home", "/tmp", "/var/cache/vecmill")
writable = [folder for folder in folders if may_write(folder)]
print(json.dumps({"user": os.getuid(), "rights": sorted(capabilities), "writable": writable}))
"""


def install_openai(image: Image, folder: Path) -> None:
    """Install the OpenAI client of tests/requirements.lock for the Python of the image."""
    (library,) = image.root.glob("opt/vecmill/lib/python3*")
    lock = (ROOT / "tests/requirements.lock").read_text("utf-8").splitlines()
    constraints = folder.parent / "constraints.txt"
    constraints.write_text("\n".join(line.rstrip(" \\") for line in lock if line[:1].isalpha()))
    command = [*(sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "openai")]
    command += ["--target", str(folder), "--constraint", str(constraints), "--only-binary", ":all:"]
    command += [f"--platform={wheel}" for wheel in WHEELS[image.architecture]]
    subprocess.run([*command, "--python-version", library.name.removeprefix("python")], check=True)
    folder.chmod(0o755)


def wait_until_ready(container: Container, url: str, *, limit_s: float = 120.0) -> None:
    """Return when `/readyz` answers 200. Raises `RuntimeError` if the container ends or the time is over."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and container.process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=1):
                return
        except OSError:
            time.sleep(0.01)
    raise RuntimeError(f"the server did not become ready: {container.log.read_text()[-2000:]}")


def measure_start(image: Image, cache: Path, arguments: Sequence[str]) -> float:
    """Return the seconds until a new container is ready, then stop it."""
    port = free_port()
    arguments = [*arguments, "--port", str(port)]
    start = time.monotonic()
    with running_container(image, cache, arguments, log=cache.with_suffix(".log")) as container:
        wait_until_ready(container, f"http://127.0.0.1:{port}")
        seconds = time.monotonic() - start
        os.kill(container.pid, signal.SIGTERM)
        container.process.wait(STOP_LIMIT_S)
    return seconds


def check_container(image: Image, cache: Path, clients: Path, arguments: Sequence[str]) -> dict[str, object]:
    """Start a container, use it from inside and from outside, and stop it. Return the findings."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = [*arguments, "--port", str(port)]
    health_check = image.config["Healthcheck"]["Test"][1:]
    log = cache.with_suffix(".log")
    with running_container(image, cache, arguments, log=log, mounts={CLIENTS: clients}) as container:
        wait_until_ready(container, url)
        ready = container.run(health_check).returncode
        rights = json.loads(output_of(container, ["python", "-c", PROBE_RIGHTS]))
        command = ["python", "-c", ASK_INSIDE, f"{url}/v1", json.dumps(TEXTS)]
        inside = np.array(json.loads(output_of(container, command, PYTHONPATH=CLIENTS)))
        with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
            answer = client.embeddings.create(model="all-MiniLM-L6-v2", input=TEXTS)
        outside = np.array([item.embedding for item in answer.data])
        start = time.monotonic()
        os.kill(container.pid, signal.SIGTERM)
        # The health check was a probe, so the stop begins with the lame-duck time, without readiness.
        stopping = container.run(health_check).returncode
        status = container.process.wait(STOP_LIMIT_S)
        seconds = time.monotonic() - start
    return {
        "status of the health check, ready": ready,
        "status of the health check, stopping": stopping,
        **rights,
        "shape of the embeddings, inside": inside.shape,
        "embeddings inside and outside are equal": bool(np.allclose(inside, outside, atol=1e-6)),
        "status after SIGTERM": status,
        "seconds to stop": round(seconds, 2),
    }


def output_of(container: Container, command: Sequence[str], **environment: str) -> str:
    """Return the standard output of a command in a container. Raises `RuntimeError` if the command fails."""
    result = container.run(command, **environment)
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    return result.stdout


def layer_sizes(name: str, folder: Path) -> list[tuple[str, float, float]]:
    """Return each layer's instruction, and its size as files and compressed with gzip, in MB."""
    buildah("push", "--quiet", name, f"oci:{folder}")
    blobs = folder / "blobs/sha256"

    def blob(digest: str) -> Path:
        return blobs / digest.removeprefix("sha256:")

    index = json.loads((folder / "index.json").read_text())
    manifest = json.loads(blob(index["manifests"][0]["digest"]).read_text())
    history = json.loads(blob(manifest["config"]["digest"]).read_text())["history"]
    made = [entry["created_by"] for entry in history if not entry.get("empty_layer")]
    sizes = []
    for instruction, layer in zip(made, manifest["layers"], strict=True):
        with gzip.open(blob(layer["digest"])) as unpacked:
            size = unpacked.seek(0, os.SEEK_END)
        sizes.append((instruction, size / 1e6, layer["size"] / 1e6))
    return sizes


def problems_of(findings: Mapping[str, object]) -> list[str]:
    """Return the findings that differ from what an image promises."""
    return [
        f"{name}: {findings[name]}, not {value}"
        for name, value in PROMISED.items()
        if findings[name] != value
    ]


def main() -> None:
    """Print the figures of an image. Exit with 1 if a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", action="store_true", help="print the sizes of the layers too")
    parser.add_argument("arguments", nargs="*", help="arguments of the server, after --")
    options = parser.parse_intermixed_args()  # the arguments follow after options
    with tempfile.TemporaryDirectory() as temporary, mounted_image(options.image) as image:
        findings = check_image(image, Path(temporary), options.rounds, options.arguments)
        sizes = layer_sizes(options.image, Path(temporary) / "layers") if options.sizes else []
    for name, value in findings.items():
        print(f"{name}: {value}")
    for instruction, size, compressed in [*sizes, *([total(sizes)] if sizes else [])]:
        print(f"{size:7.1f} MB, compressed {compressed:6.1f} MB  {instruction[-90:]}")
    problems = problems_of(findings)
    print(*(f"FAILED: {problem}" for problem in problems), sep="\n")
    sys.exit(1 if problems else 0)


def check_image(image: Image, folder: Path, rounds: int, arguments: Sequence[str]) -> dict[str, object]:
    """Return the findings of one container, and the seconds of first and second starts."""
    folder.chmod(0o755)
    clients = folder / "clients"
    install_openai(image, clients)
    caches = [folder / f"cache-{number}" for number in range(rounds)]
    for cache in caches:
        cache.mkdir()
    findings: dict[str, object] = {}
    for kind in ("first", "second"):
        seconds = [measure_start(image, cache, arguments) for cache in caches]
        rounded = ", ".join(f"{value:.2f}" for value in seconds)
        findings[f"{kind} start, seconds to ready"] = f"{median(seconds):.2f} ({rounded})"
    return findings | check_files(image) | check_container(image, caches[0], clients, arguments)


def check_files(image: Image) -> dict[str, object]:
    """Return the findings about the files and labels of an image."""
    files = [path for path in image.root.rglob("*") if path.is_file() and not path.is_symlink()]
    programs = {path.name for path in (image.root / "opt/vecmill/bin").iterdir()}
    labels = image.config.get("Labels") or {}
    bill = json.loads((image.root / "usr/share/vecmill/sbom.json").read_text("utf-8"))
    described = bill["metadata"]["component"]
    packages = [part for part in bill["components"] if part.get("purl", "").startswith("pkg:pypi/")]
    return {
        "programs with the rights of another user": [
            str(path.relative_to(image.root)) for path in files if path.stat().st_mode & RIGHTS_OF_OTHERS
        ],
        "programs of the environment": sorted({re.split(r"[-\d]", name)[0] for name in programs}),
        "labels without a value": [
            name for name in LABELS if labels.get(f"org.opencontainers.image.{name}", "unknown") == "unknown"
        ],
        "packages of the bill without a hash": [part["name"] for part in packages if not part.get("hashes")],
        "image of the bill": f"{described['type']} {described['name']}",
    }


def total(sizes: Sequence[tuple[str, float, float]]) -> tuple[str, float, float]:
    """Return the sum of the sizes of layers."""
    return "total", sum(size for _, size, _ in sizes), sum(compressed for _, _, compressed in sizes)


if __name__ == "__main__":
    main()
