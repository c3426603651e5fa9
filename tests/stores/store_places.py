"""Where the tests of stores have their collections, and the environment that has a store's client."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from stores.store_readers import NAME, Rows, read_rows
from support.client_packages import ensure_environment
from support.forked_process import ForkedProcess
from support.source_tree import ROOT

GROUP = "vector-stores"
# The client of Qdrant is where the tests are, and Parquet has none.
HERE = ("parquet", "qdrant")
ELSEWHERE = ("lancedb", "chroma", "pgvector")
KINDS = [*HERE, *(pytest.param(kind, marks=pytest.mark.full) for kind in ELSEWHERE)]

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A collection that need not exist: its place, its address, and a Python with the client."""

    kind: str
    place: str
    address: str
    python: str

    def read(self) -> Rows:
        """What is in the collection."""
        if self.kind in HERE:
            return read_rows(self.kind, self.place)
        rows: Rows = json.loads(self.run(str(FOLDER / "store_readers.py"), self.kind, self.place))
        return rows

    def run(self, *line: str) -> str:
        """What a script prints that runs with the client of the store."""
        with ForkedProcess[str](
            [self.python, *line], env=self.variables, stdout=PIPE, stderr=PIPE, text=True
        ) as process:
            told, failed = process.communicate()
        assert process.returncode == 0, failed
        return told

    @property
    def variables(self) -> dict[str, str]:
        """The variables of processes with the client, which find vecmill and these tests."""
        paths = (ROOT / "libs/vecmill/src", ROOT / "tests")
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def place_in(kind: str, folder: Path, python: str = sys.executable) -> StorePlace:
    """The place of a collection in a folder."""
    if kind == "parquet":
        return StorePlace(kind, str(folder / "docs.parquet"), str(folder / "docs.parquet"), python)
    return StorePlace(kind, str(folder / "store"), f"{kind}:{folder / 'store'}/{NAME}", python)


@contextmanager
def store_in(kind: str, folder: Path) -> Iterator[StorePlace]:
    """A place in a folder; a PostgreSQL runs there as long as it is needed."""
    folder.mkdir(exist_ok=True)
    if kind in HERE:
        yield place_in(kind, folder)
        return
    python = str(ensure_environment(GROUP) / "bin/python")
    if kind != "pgvector":
        yield place_in(kind, folder, python)
        return
    with run_postgres(python) as url:
        before, _, query = url.partition("?")
        yield StorePlace(kind, url, f"pgvector:{before}/{NAME}?{query}", python)


@contextmanager
def run_postgres(python: str) -> Iterator[str]:
    """The address of a PostgreSQL that runs until the block ends.

    It may run as another user, who cannot read the folders of pytest.
    """
    variables = StorePlace("pgvector", "", "", python).variables
    with (
        TemporaryDirectory(prefix="vecmill-postgres-", ignore_cleanup_errors=True) as folder,
        subprocess.Popen(
            [python, str(FOLDER / "serve_postgres.py"), f"{folder}/data"],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as server,
    ):
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        assert url, "PostgreSQL did not start"
        try:
            yield url
        finally:
            server.communicate()


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path
