"""Whether this version and an earlier commit read each other's files: upgrade, and downgrade.

    make upgrade REVISION=c05de456

How it works. The sources of the commit are exported beside these, and both run in the test environment, whose
other packages are the same for both. For each kind of file one side writes it and the other reads it, in both
directions: prepared models, the directory of `vecmill optimize`, an interrupted `vecmill embed`, the files
and batches of the Batch API, ended and interrupted. What cannot be read must be refused with a sentence.
Anything else, such as a traceback or other numbers, fails.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from bench.report import markdown_table, save_page
from release.make_release import extract_commit
from support.batches import ENDED, create_batch, ended, lines_of, request_line, retrieve, rows_of
from support.server import MODEL, LiveServer, live_server
from support.source_tree import ROOT
from support.texts import mixed_texts
from vecmill.commands.embed.parts import folder_of
from vecmill.commands.optimize.progress import DONE, TOO_NOISY
from vecmill.values.aliases import FloatArray

SEED = 11
TOLERANCE = 1e-5
TEXTS, CORPUS_TEXTS, BATCH_LINES = 200, 6_000, 400
PATIENCE_S = 300.0
SOURCES = ("libs/vecmill/src", "services/vecmill_server/src")
READ = "read"


class Failed(Exception):
    """A side neither read a file nor refused it with a sentence."""


@dataclass(frozen=True, slots=True)
class Side:
    """One version: its name and its sources."""

    name: str
    root: Path

    @property
    def path(self) -> str:
        """The value of PYTHONPATH that chooses this version."""
        return os.pathsep.join(str(self.root / source) for source in SOURCES)

    def require_own_sources(self) -> None:
        """Raise `Failed` if another version would run, such as the installed one."""
        code = "import vecmill, vecmill_server; print(vecmill.__file__, vecmill_server.__file__)"
        found = subprocess.check_output([sys.executable, "-c", code], env=self._environment(), text=True)
        if not all(path.startswith(str(self.root)) for path in found.split()):
            raise Failed(f"{self.name} would run {found}")

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run `vecmill` with these arguments to its end."""
        return subprocess.run(
            self._command(arguments),
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """Start `vecmill` with these arguments."""
        return subprocess.Popen(
            self._command(arguments), env=self._environment(), stdout=subprocess.DEVNULL, text=True
        )

    @contextmanager
    def serve(self, folder: Path) -> Iterator[LiveServer]:
        """Serve with the batches of a folder."""
        place = folder / "server"
        place.mkdir(exist_ok=True)
        command = ("env", f"PYTHONPATH={self.path}", sys.executable, "-m", "vecmill")
        with live_server(place, arguments=["--batch-dir", str(folder / "batches")], command=command) as live:
            yield live

    def _command(self, arguments: Sequence[object]) -> list[str]:
        return [sys.executable, "-m", "vecmill", *map(str, arguments)]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": self.path}


def write_corpus(folder: Path, count: int) -> Path:
    """Write a text file with so many rows."""
    path = folder / "corpus.csv"
    rows = (text.replace('"', "'").replace("\n", " ") for text in mixed_texts(SEED, count))
    path.write_text("text\n" + "".join(f'"{row}"\n' for row in rows), encoding="utf-8")
    return path


def require(done: subprocess.CompletedProcess[str]) -> None:
    """Raise `Failed` if what writes a file fails."""
    if done.returncode:
        raise Failed(f"{' '.join(map(str, done.args))} ended with {done.returncode}:\n{done.stderr}")


def outcome_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return `READ`, or the sentence of a refusal. Raises `Failed` for any other end."""
    if done.returncode == 0:
        return READ
    sentence = done.stderr.strip().rsplit("Error: ", 1)[-1]
    if "Traceback" in done.stderr or not sentence:
        raise Failed(done.stderr)
    return f"refused: {sentence}"


def read_prepared_models(writer: Side, reader: Side, folder: Path) -> str:
    """The prepared models in the cache."""
    corpus, cache = write_corpus(folder, TEXTS), folder / "cache"
    outputs = [folder / "one.npy", folder / "other.npy"]
    require(writer.run("embed", corpus, "-o", outputs[0], "--cache-dir", cache))
    before = {path.name for path in cache.iterdir()}
    outcome = outcome_of(reader.run("embed", corpus, "-o", outputs[1], "--cache-dir", cache))
    if outcome != READ:
        return outcome
    compare(np.load(outputs[0]), np.load(outputs[1]))
    added = {path.name for path in cache.iterdir()} - before
    return "prepared again beside it" if added else "read; nothing is prepared again"


def read_optimized_directory(writer: Side, reader: Side, folder: Path) -> str:
    """The directory of `vecmill optimize`, with its manifest."""
    corpus, directory = write_corpus(folder, TEXTS), folder / "optimized"
    texts = folder / "texts.txt"
    texts.write_text("\n".join(mixed_texts(SEED, 48)), encoding="utf-8")
    options = ["--engine", "onnx", "--time-limit-s", 20, "--texts", texts, "-o", directory]
    made = writer.run("optimize", MODEL, *options, "--cache-dir", folder / "cache")
    if made.returncode not in (DONE, TOO_NOISY):
        raise Failed(made.stderr)
    outputs = [folder / "one.npy", folder / "other.npy"]
    require(writer.run("embed", corpus, "-o", outputs[0], "--model", directory))
    outcome = outcome_of(reader.run("embed", corpus, "-o", outputs[1], "--model", directory))
    if outcome == READ:
        compare(np.load(outputs[0]), np.load(outputs[1]), tolerance=0.05)  # the plan may be int8
    return outcome


def read_interrupted_embed(writer: Side, reader: Side, folder: Path) -> str:
    """The finished parts of a `vecmill embed` that was interrupted."""
    corpus, output = write_corpus(folder, CORPUS_TEXTS), folder / "rows.npy"
    arguments = ["embed", corpus, "-o", output, "--cache-dir", folder / "cache"]
    process = writer.start(*arguments)
    deadline = time.monotonic() + PATIENCE_S
    while not any(folder_of(output).glob("part-*.npz")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failed("the command ended before it could be interrupted")
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=PATIENCE_S)
    done = reader.run(*arguments)
    outcome = outcome_of(done)
    if outcome != READ:
        return outcome
    if "in an earlier run" not in done.stdout:
        raise Failed(f"no part was continued:\n{done.stdout}")
    fresh = folder / "fresh.npy"
    require(reader.run("embed", corpus, "-o", fresh, "--cache-dir", folder / "cache"))
    compare(np.load(output), np.load(fresh))
    return "continued with the stored parts"


def read_batches(writer: Side, reader: Side, folder: Path) -> str:
    """The files and batches of the Batch API, one that has ended and one that was interrupted."""
    texts = mixed_texts(SEED, BATCH_LINES)
    lines = [request_line(str(place), {"input": text, "model": MODEL}) for place, text in enumerate(texts)]
    with writer.serve(folder) as live, httpx.Client(base_url=live.url, timeout=60) as client:
        short = create_batch(client, lines[:20])
        before = lines_of(client, ended(client, short)["output_file_id"])
        long = create_batch(client, lines)
        if retrieve(client, long)["status"] in ENDED:
            raise Failed("the batch ended before it could be interrupted")
        live.process.kill()
        live.process.wait()
    with reader.serve(folder) as live, httpx.Client(base_url=live.url, timeout=60) as client:
        if retrieve(client, short)["status"] != "completed":
            raise Failed(f"the batch that had ended is now {retrieve(client, short)}")
        if lines_of(client, retrieve(client, short)["output_file_id"]) != before:
            raise Failed("the output of the batch that had ended is another one")
        found = ended(client, long, patience_s=PATIENCE_S)
        if found["status"] != "completed":
            raise Failed(f"the interrupted batch ended as {found}")
        rows = {line["custom_id"]: rows_of(line) for line in lines_of(client, found["output_file_id"])}
    if len(rows) != len(lines):
        raise Failed(f"the interrupted batch has {len(rows)} of {len(lines)} answers")
    earlier = np.concatenate([rows_of(line) for line in before])
    compare(earlier, np.concatenate([rows[line["custom_id"]] for line in before]))
    return "read, and the interrupted one completed"


def compare(one: FloatArray, other: FloatArray, tolerance: float = TOLERANCE) -> None:
    """Raise `Failed` if two arrays of embeddings differ."""
    if one.shape != other.shape or np.abs(one - other).max() > tolerance:
        raise Failed(f"the embeddings differ: {one.shape}, {other.shape}")


KINDS: dict[str, Callable[[Side, Side, Path], str]] = {
    "prepared models": read_prepared_models,
    "directory of optimize": read_optimized_directory,
    "interrupted embed": read_interrupted_embed,
    "files and batches": read_batches,
}


def main() -> int:
    """Write with one side and read with the other, for each kind of file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("revision", help="The commit to compare with.")
    parser.add_argument("--kind", nargs="+", choices=sorted(KINDS), default=list(KINDS))
    options = parser.parse_args()
    rows, failures = [], 0
    with tempfile.TemporaryDirectory(prefix="vecmill-upgrade-") as name:
        scratch = Path(name)
        extract_commit(options.revision, scratch / "earlier")
        earlier = Side(f"earlier ({options.revision})", scratch / "earlier")
        this = Side("this version", ROOT)
        for side in (earlier, this):
            side.require_own_sources()
        for kind in options.kind:
            for writer, reader in ((earlier, this), (this, earlier)):
                folder = scratch / "files"
                folder.mkdir()
                try:
                    outcome = KINDS[kind](writer, reader, folder)
                except Failed as failure:
                    outcome, failures = f"FAILED: {failure}", failures + 1
                print(f"{kind}, {writer.name} to {reader.name}: {outcome}", flush=True)
                rows.append([kind, writer.name, reader.name, outcome.replace("\n", " ")])
                shutil.rmtree(folder)
    page = markdown_table(["files", "written by", "read by", "outcome"], rows)
    print(f"written to {save_page('upgrade', page)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
