"""What may befall a run of `vecmill ray embed` on two nodes, and what its rows are afterwards."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import MappingProxyType

import numpy as np
from pyarrow import parquet

from on_ray.two_nodes import BUCKET, RAY, WORKER, TwoNodes
from support.corpora import numbered_texts, read_rows
from vecmill.values.aliases import FloatArray

INPUT = "texts.jsonl"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The rows of a run, against those of a single process."""

    rows: int
    lost: int
    doubled: int
    max_difference: float
    seconds: float
    worker_starts: int


@dataclass(frozen=True, slots=True)
class BulkInput:
    """A file of texts, its rows from a single process, and the rows of a block."""

    lines: bytes
    expected: FloatArray
    block_rows: int

    @classmethod
    def make(cls, folder: Path, texts: int, block_rows: int, environment: Mapping[str, str]) -> "BulkInput":
        """Write the texts, and embed them by `vecmill embed`."""
        file, output = folder / INPUT, folder / "expected.npy"
        rows = ({"id": number, "text": text} for number, text in enumerate(numbered_texts(texts)))
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        line = [str(RAY / "vecmill"), "embed", str(file), "-o", str(output)]
        subprocess.run(line, check=True, capture_output=True, env=dict(environment))
        return cls(file.read_bytes(), read_rows(output), block_rows)


class Run:
    """One run of the command over an input that is in the bucket."""

    def __init__(self, nodes: TwoNodes, texts: BulkInput, folder: Path, name: str) -> None:
        self.nodes = nodes
        self._texts = texts
        self._name = name
        self._log = folder / f"driver-{name}.log"
        self.process = self._start()

    def restart(self) -> None:
        """Run the same command again."""
        self.process = self._start()

    def wait_for_blocks(self, count: int, limit_s: float = 300) -> None:
        """Wait until so many block files are written."""
        deadline = time.monotonic() + limit_s
        while len(self.block_files()) < count:
            assert time.monotonic() < deadline, self._log.read_text("utf-8")
            assert self.process.poll() is None, self._log.read_text("utf-8")
            time.sleep(0.2)

    def block_files(self) -> list[str]:
        """The names of the block files."""
        return [name for name in self.nodes.names(f"{self._name}/") if "/part-" in name]

    def finish(self, limit_s: float) -> None:
        """Wait for the end of the command, which must succeed."""
        status = self.process.wait(limit_s)
        assert status == 0, self._log.read_text("utf-8")

    def outcome(self, seconds: float) -> Outcome:
        """Compare all rows with the expected ones."""
        seen: Counter[int] = Counter()
        largest = 0.0
        for name in self.block_files():
            table = parquet.read_table(BytesIO(self.nodes.get(name)))
            ids = table["id"].to_pylist()
            found = np.asarray(table["embedding"].combine_chunks().flatten()).reshape(len(ids), -1)
            largest = max(largest, float(np.abs(found - self._texts.expected[ids]).max()))
            seen.update(ids)
        lost = len(self._texts.expected) - len(seen)
        doubled = sum(count - 1 for count in seen.values())
        return Outcome(seen.total(), lost, doubled, largest, seconds, self.nodes.worker_starts)

    def _start(self) -> subprocess.Popen[bytes]:
        return self.nodes.drive(
            self._log,
            *("ray", "embed", f"s3://{BUCKET}/{INPUT}", "-o", f"s3://{BUCKET}/{self._name}"),
            *("--block-rows", str(self._texts.block_rows)),
        )


def undisturbed(run: Run) -> None:
    """Nothing happens."""


def kill_actor(run: Run) -> None:
    """The process of an actor on the other node is killed."""
    run.wait_for_blocks(2)
    run.nodes.kill_actor(WORKER)


def cut_20_s(run: Run) -> None:
    """The other node is cut off, and comes back before Ray gives it up."""
    run.wait_for_blocks(2)
    run.nodes.cut_worker(20)


def cut_120_s(run: Run) -> None:
    """The other node is cut off, Ray gives it up, and it comes back with live actors."""
    run.wait_for_blocks(2)
    run.nodes.cut_worker(120)


def kill_driver(run: Run) -> None:
    """The command itself is killed, and run again."""
    run.wait_for_blocks(2)
    run.process.kill()
    run.process.wait()
    assert run.process.returncode != 0
    run.restart()


def fail_in_every_way(run: Run) -> None:
    """All failures, one after the other, each after two more blocks."""
    for failure in (kill_actor, cut_20_s, kill_driver, cut_120_s):
        run.wait_for_blocks(len(run.block_files()) + 2)
        failure(run)


SCENARIOS: Mapping[str, Callable[[Run], None]] = MappingProxyType(
    {
        "undisturbed": undisturbed,
        "an actor killed": kill_actor,
        "driver killed": kill_driver,
        "cut off for 20 s": cut_20_s,
        "cut off for 120 s": cut_120_s,
    }
)
# Needs an input that takes several minutes.
LONG_SCENARIOS: Mapping[str, Callable[[Run], None]] = MappingProxyType(
    {**SCENARIOS, "all of these": fail_in_every_way}
)


def play(nodes: TwoNodes, texts: BulkInput, folder: Path, scenario: str, limit_s: float) -> Outcome:
    """Run the command through a scenario, and compare its rows."""
    nodes.put(INPUT, texts.lines)
    began = time.monotonic()
    run = Run(nodes, texts, folder, scenario.replace(" ", "-"))
    LONG_SCENARIOS[scenario](run)
    run.finish(limit_s)
    return run.outcome(time.monotonic() - began)


def table(outcomes: Sequence[tuple[str, Outcome]]) -> str:
    """The outcomes as a table."""
    lines = [
        "| scenario | rows | lost | doubled | max difference | s | starts of the worker node |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {one.rows:,} | {one.lost} | {one.doubled} | {one.max_difference:.1e} "
        f"| {one.seconds:.0f} | {one.worker_starts} |"
        for name, one in outcomes
    ]
    return "\n".join(lines)
