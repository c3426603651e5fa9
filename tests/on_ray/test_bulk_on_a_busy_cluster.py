"""`vecmill ray embed` on a cluster that runs already: relative paths, and cores that others use."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow import parquet

from support.corpora import numbered_rows, write_corpus
from support.ray_server import CLUSTER_CORES, RAY, environment, ray_cluster, require_ray

pytestmark = pytest.mark.full

PATIENCE_S = 240.0
HOLD_A_CORE = """
import ray, sys
ray.init(address=sys.argv[1], log_to_driver=False)
@ray.remote(num_cpus=1)
class Holder:
    def hold(self): pass
holder = Holder.remote()
ray.get(holder.hold.remote())
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_core(address: str, folder: Path) -> Iterator[None]:
    """Use one core of the cluster until the block ends."""
    with subprocess.Popen(
        [f"{RAY}/bin/python", "-c", HOLD_A_CORE, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(folder),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield
        process.communicate(timeout=PATIENCE_S)


def wait_for(log: Path, process: "subprocess.Popen[bytes]", words: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while words not in log.read_text("utf-8"):
        assert time.monotonic() < deadline, log.read_text("utf-8")
        assert process.poll() is None, log.read_text("utf-8")
        time.sleep(0.2)


def test_the_command_says_that_it_waits_and_writes_into_its_own_folder(tmp_path: Path) -> None:
    require_ray()
    here, log = tmp_path / "here", tmp_path / "embed.log"
    (here / "in").mkdir(parents=True)
    (here / "in/a.jsonl").touch()
    write_corpus(here / "in/b.jsonl", numbered_rows(30))
    line = [f"{RAY}/bin/vecmill", "ray", "embed", "in", "-o", "out", "--cores", str(CLUSTER_CORES)]
    with ray_cluster(tmp_path) as address, log.open("wb") as output:
        variables = {**environment(tmp_path), "RAY_ADDRESS": address}
        with held_core(address, tmp_path):
            process = subprocess.Popen(line, stdout=output, stderr=output, cwd=here, env=variables)
            wait_for(log, process, f"Waiting for a node with {CLUSTER_CORES} free cores.")
        assert process.wait(PATIENCE_S) == 0, log.read_text("utf-8")
    assert parquet.read_table(here / "out")["id"].to_pylist() == list(range(30))
