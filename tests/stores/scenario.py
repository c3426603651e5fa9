"""What a collection is and what is told, step by step. Runs where the client of the store is installed.

`python scenario.py KIND PLACE ADDRESS` prints it as JSON.
"""

import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from stores.counted_server import DIM, vector_of
from stores.store_readers import NAME, Rows, read_rows
from vecmill.bulk.embedder import EmbeddedTexts, Embedder, EmbeddingForm, EmbedParameters
from vecmill.bulk.input_scan import ColumnOptions
from vecmill.bulk.picture_inputs import EmbedInput
from vecmill.bulk.sources import RowSequence
from vecmill.errors import VecmillError
from vecmill.stores import embedded_collections
from vecmill.stores.embedded_collections import StoreJob, run_job
from vecmill.stores.store_writer import StoreOptions
from vecmill.values.aliases import JsonValue
from vecmill.values.embeddings import SparseEmbedding
from vecmill.values.output_kinds import OutputDtype

SPACE, OTHER_SPACE = "s1-" + "a" * 32, "s1-" + "b" * 32


class DigestEmbedder:
    """Vectors by digest. Keeps the texts that it was given."""

    call_texts = 8
    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __init__(self, space: str, dim: int, similarity: str) -> None:
        self.identity: Mapping[str, JsonValue] = {"name": f"model of {space[3:5]}", "space": space}
        self.dim = dim
        self.similarity: str | None = similarity
        self.seen: list[str] = []

    async def embed(self, inputs: Sequence[EmbedInput]) -> EmbeddedTexts:
        """The vectors of some texts."""
        texts = [each for each in inputs if isinstance(each, str)]
        self.seen += texts
        return EmbeddedTexts(np.array([vector_of(text, self.dim) for text in texts]), len(texts))


@contextmanager
def replaced(opened: Any) -> Iterator[None]:
    """Let runs embed with what `opened` opens."""
    given = embedded_collections._open_embedder
    embedded_collections._open_embedder = opened
    try:
        yield
    finally:
        embedded_collections._open_embedder = given


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

        columns = ColumnOptions(copied_columns=copied)
        job = StoreJob(
            RowSequence(rows), self._address, StoreOptions(source, **options), columns, EmbedParameters()
        )
        outcome: dict[str, Any] = {}
        try:
            with replaced(opened):
                outcome = asdict(run_job(job))
        except VecmillError as error:
            outcome["error"] = error.message
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
    if kind in ("lancedb", "pgvector"):
        collection.outcomes["bits"] = play_bits(kind, place, address)
    if kind == "pgvector":
        collection.outcomes["sparse"] = play_sparse(place, address)
    if kind != "parquet":
        collection.run("other distance", rows, similarity="euclidean")
    return collection.outcomes


class BitsEmbedder(DigestEmbedder):
    """The signs of the vectors, packed into bytes."""

    dtype = np.dtype(np.uint8)

    async def embed(self, inputs: Sequence[EmbedInput]) -> EmbeddedTexts:
        """The bits of some texts."""
        texts = [each for each in inputs if isinstance(each, str)]
        vectors = np.array([vector_of(text, self.dim * 8) for text in texts])
        return EmbeddedTexts(np.packbits(vectors > 0, axis=1), len(texts))


class SparseEmbedder(DigestEmbedder):
    """A weight at two of a thousand places."""

    dtype = np.dtype(object)

    async def embed(self, inputs: Sequence[EmbedInput]) -> EmbeddedTexts:
        """The weights of some texts."""
        texts = [each for each in inputs if isinstance(each, str)]
        found = np.empty(len(texts), object)
        for at, text in enumerate(texts):
            found[at] = SparseEmbedding(np.array([len(text), 999]), np.array([0.5, 2.0], np.float32))
        return EmbeddedTexts(found, len(texts))


def play_bits(kind: str, place: str, address: str) -> list[Any]:
    """What a store has of two binary vectors, as text."""
    run_other(address, BitsEmbedder(SPACE, DIM // 8, "cosine"), EmbedParameters(kind=OutputDtype.UBINARY))
    if kind == "pgvector":
        return read_texts(place)
    import lancedb

    rows = lancedb.connect(place).open_table(f"{NAME}_other").to_arrow().to_pylist()
    return [np.unpackbits(np.array(row["embedding"], np.uint8)).tolist() for row in rows]


def play_sparse(place: str, address: str) -> list[Any]:
    """What a store has of two sparse vectors, as text."""
    import psycopg

    with psycopg.connect(place) as connection:
        connection.execute(f"DROP TABLE {NAME}_other")
    run_other(address, SparseEmbedder(SPACE, 1000, "dot"), EmbedParameters(form=EmbeddingForm.SPARSE))
    return read_texts(place)


def read_texts(place: str) -> list[str]:
    """The vectors of a table of PostgreSQL, as it writes them."""
    import psycopg

    query = f"SELECT embedding::text FROM {NAME}_other ORDER BY id"
    with psycopg.connect(place) as connection:
        return [row[0] for row in connection.execute(query)]


def run_other(address: str, embedder: DigestEmbedder, parameters: EmbedParameters) -> None:
    """Embed two texts into another collection."""

    @asynccontextmanager
    async def opened(_job: StoreJob) -> AsyncIterator[Embedder]:
        yield embedder

    before, _, after = address.rpartition(f"/{NAME}")
    rows = RowSequence([{"id": at, "text": "x" * at} for at in (1, 2)])
    job = StoreJob(rows, f"{before}/{NAME}_other{after}", StoreOptions("a"), parameters=parameters)
    with replaced(opened):
        run_job(job)


if __name__ == "__main__":
    json.dump(play(*sys.argv[1:]), sys.stdout)
