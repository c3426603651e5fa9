"""Chroma: a collection in a folder, or of a server.

Chroma's metadata has no empty values, so a row lacks the columns that have none. A collection in a folder is
locked by a file in it. On a server two runs at once write the same rows, since these have the same ids.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from vecmill.bulk.input_scan import ColumnType
from vecmill.stores.lock_files import lock_collection
from vecmill.stores.vector_store import (
    ABOUT,
    DIGEST,
    DOCUMENT,
    SOURCE,
    CollectionAbout,
    Distance,
    FoundCollection,
    StoredRow,
    StoreRows,
    VectorStore,
    import_client,
)
from vecmill.values.environment import environment_variables

_READ_ROWS = 2048
_DISTANCES = {Distance.COSINE: "cosine", Distance.DOT: "ip", Distance.EUCLIDEAN: "l2"}
_PORTS = {"http": 80, "https": 443}


class ChromaStore(VectorStore):
    """A collection of Chroma."""

    name = "Chroma"
    extra = "chroma"
    distances = tuple(_DISTANCES)
    secret_variables = ("CHROMA_API_KEY", "CHROMA_CLIENT_AUTH_CREDENTIALS")

    _found: Any = None
    _lock: BinaryIO | None = None

    def connect(self) -> None:
        """Connect to the server, or open and lock the folder; see `VectorStore.connect`."""
        client = import_client("chromadb")
        # Its settings come from variables such as CHROMA_CLIENT_AUTH_PROVIDER.
        settings = client.config.Settings(anonymized_telemetry=False)
        if "://" in self.place:
            parsed = urlsplit(self.place)
            key = environment_variables().get("CHROMA_API_KEY")
            self._client = client.HttpClient(
                parsed.hostname,
                parsed.port or _PORTS[parsed.scheme],
                ssl=parsed.scheme == "https",
                headers={"x-chroma-token": key} if key else None,
                settings=settings,
            )
            return
        self._lock = lock_collection(Path(self.place, f".{self.collection}.vecmill-lock"), self.shown)
        self._client = client.PersistentClient(self.place, settings=settings)

    def find(self) -> FoundCollection | None:
        """Return the collection; see `VectorStore.find`."""
        errors = import_client("chromadb.errors")
        try:
            self._found = self._client.get_collection(self.collection, embedding_function=None)
        except errors.NotFoundError:
            return None
        names = {name: distance for distance, name in _DISTANCES.items()}
        config = self._found.configuration
        index = config.get("hnsw") or config.get("spann") or {}
        some = self._found.get(limit=1, include=["embeddings"])["embeddings"]
        is_empty = len(some) == 0
        return FoundCollection(
            CollectionAbout.from_json((self._found.metadata or {}).get(ABOUT)),
            is_empty,
            None if is_empty else len(some[0]),
            names.get(str(index.get("space"))),
        )

    def create(self, about: CollectionAbout, columns: Mapping[str, ColumnType]) -> None:
        """Make the collection; see `VectorStore.create`."""
        self._found = self._client.create_collection(
            self.collection,
            metadata={ABOUT: about.to_json()},
            configuration={"hnsw": {"space": _DISTANCES[about.distance]}},
            embedding_function=None,
        )

    def describe(self, about: CollectionAbout) -> None:
        """Keep `about` in the metadata of the collection; see `VectorStore.describe`."""
        self._found.modify(metadata={**(self._found.metadata or {}), ABOUT: about.to_json()})

    def rows(self) -> Iterator[StoredRow]:
        """Return all rows; see `VectorStore.rows`."""
        offset = 0
        while True:
            page = self._found.get(include=["metadatas"], limit=_READ_ROWS, offset=offset)
            for key, metadata in zip(page["ids"], page["metadatas"], strict=True):
                found = metadata or {}
                yield StoredRow(key, found.get(DOCUMENT, key), found.get(SOURCE), found.get(DIGEST))
            if len(page["ids"]) < _READ_ROWS:
                return
            offset += _READ_ROWS

    def upsert(self, rows: StoreRows) -> None:
        """Write rows; see `VectorStore.upsert`."""
        self._found.upsert(list(rows.keys), embeddings=rows.vectors, metadatas=rows.payloads())

    def update(self, rows: StoreRows) -> None:
        """Replace columns; see `VectorStore.update`."""
        self._found.update(list(rows.keys), metadatas=rows.payloads())

    def delete(self, keys: Sequence[str]) -> None:
        """Delete rows; see `VectorStore.delete`."""
        self._found.delete(list(keys))

    def close(self, *, is_complete: bool) -> None:
        """Unlock a folder; see `VectorStore.close`."""
        if self._lock is not None:
            self._lock.close()
