"""What a collection is and what is told, step by step. Runs where the client of the store is installed.

`python scenario.py KIND PLACE ADDRESS` prints it as JSON.
"""

import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from stores.counted_server import DIM, vector_of
from stores.store_readers import Rows, read_rows
from vecmill.bulk.embedder import EmbeddedTexts, Embedder, EmbedParameters
from vecmill.bulk.input_scan import ColumnOptions
from vecmill.bulk.sources import RowSequence
from vecmill.errors import VecmillError
from vecmill.stores import embedded_collections
from vecmill.stores.embedded_collections import StoreJob, run_job
from vecmill.stores.store_writer import StoreOptions
from vecmill.values.aliases import JsonValue

SPACE, OTHER_SPACE = "s1-" + "a" * 32, "s1-" + "b" * 32


class DigestEmbedder:
    """Vectors by digest. Keeps the texts that it was given."""

    call_texts = 8
    dtype = np.dtype(np.float32)

    def __init__(self, space: str, dim: int, similarity: str) -> None:
        self.identity: Mapping[str, JsonValue] = {"name": f"model of {space[3:5]}", "space": space}
        self.dim = dim
        self.similarity: str | None = similarity
        self.seen: list[str] = []

    async def embed(self, texts: Sequence[str]) -> EmbeddedTexts:
        """The vectors of some texts."""
        self.seen += texts
        return EmbeddedTexts(np.array([vector_of(text, self.dim) for text in texts]), len(texts))


class Collection:
    """One collection, and the outcome of each run into it."""

    def __init__(self, kind: str, place: str, address: str) -> None:
        self.outcomes: dict[str, Any] = {}
        self._kind, self._place, self._address = kind, place, address

    def run(
        self,
        step: str,
        rows: list[dict[str, Any]],
        source: str = "a",
        *,
        copied: tuple[str, ...] = ("tag",),
        space: str = SPACE,
        dim: int = DIM,
        similarity: str = "cosine",
        **options: Any,
    ) -> None:
        """Bring the collection up to date, and keep what came of it."""
        embedder = DigestEmbedder(space, dim, similarity)

        @asynccontextmanager
        async def opened(_job: StoreJob) -> AsyncIterator[Embedder]:
            yield embedder

        given = embedded_collections._open_embedder
        embedded_collections._open_embedder = opened  # type: ignore[assignment]
        columns = ColumnOptions(copied_columns=copied)
        job = StoreJob(
            RowSequence(rows), self._address, StoreOptions(source, **options), columns, EmbedParameters()
        )
        outcome: dict[str, Any] = {}
        try:
            outcome = asdict(run_job(job))
        except VecmillError as error:
            outcome["error"] = error.message
        finally:
            embedded_collections._open_embedder = given
        self.outcomes[step] = {**outcome, "seen": sorted(embedder.seen), "rows": self.rows()}

    def rows(self) -> Rows:
        """What is in the collection now; nothing before there is one."""
        try:
            return read_rows(self._kind, self._place)
        except Exception as error:
            return {"error": {"message": str(error)}}


def play(kind: str, place: str, address: str) -> dict[str, Any]:
    """Run all steps, and return the outcome of each."""
    collection = Collection(kind, place, address)
    rows: list[dict[str, Any]] = [{"id": f"n{at}", "text": f"text {at}", "tag": at} for at in range(20)]
    collection.run("first", rows)
    collection.run("again", rows)
    changed = [{**row} for row in rows]
    changed[3]["text"] = "another text"
    changed[4]["tag"] = 404
    changed[5]["tag"] = None
    del changed[7]
    collection.run("changed", changed)
    collection.run("vanished", changed, deletes_vanished=True)
    others = [{"id": 'it\'s "one"; --', "text": "of another source", "tag": 1}]
    collection.run("other source", others, "b")
    collection.run("nothing of another", changed[:-1], deletes_vanished=True)
    collection.run("same id", [{"id": "n1", "text": "mine", "tag": 1}], "b")
    collection.run("new column", [{**others[0], "title": "T"}], "b", copied=("tag", "title"))
    collection.run("other space", rows, space=OTHER_SPACE)
    collection.run("other dimensions", rows, dim=DIM // 2)
    if kind != "parquet":
        collection.run("other distance", rows, similarity="euclidean")
    return collection.outcomes


if __name__ == "__main__":
    json.dump(play(*sys.argv[1:]), sys.stdout)
