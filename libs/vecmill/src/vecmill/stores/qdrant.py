"""Qdrant: a collection of a server, or of the client's local mode in a folder.

Points have UUIDs: version 5 of the id, which is in the payload. The local mode excludes a second process. On
a server two runs at once write the same points, since these have the same UUIDs.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vecmill.bulk.embedder import EmbeddingForm
from vecmill.bulk.input_scan import ColumnType
from vecmill.errors import InvalidConfig
from vecmill.stores.vector_store import (
    ABOUT,
    DIGEST,
    DOCUMENT,
    ID,
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

_KEY_VARIABLE = "QDRANT_API_KEY"
SPARSE = "sparse"  # the name of sparse vectors, which need one
_READ_ROWS = 4096
_TIMEOUT_S = 120
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "vecmill:row")
_DISTANCES = {
    Distance.COSINE: "COSINE",
    Distance.DOT: "DOT",
    Distance.EUCLIDEAN: "EUCLID",
    Distance.MANHATTAN: "MANHATTAN",
}


def point_id(row_id: str) -> str:
    """Return the UUID of the point with an id."""
    return str(uuid.uuid5(_NAMESPACE, row_id))


class QdrantStore(VectorStore):
    """A collection of Qdrant."""

    name = "Qdrant"
    extra = "qdrant"
    distances = tuple(_DISTANCES)
    forms = tuple(EmbeddingForm)
    secret_variables = (_KEY_VARIABLE,)

    _client: Any = None
    _form = EmbeddingForm.DENSE

    def connect(self) -> None:
        """Connect to the server, or open and lock the folder; see `VectorStore.connect`."""
        client = import_client("qdrant_client")
        self._models = client.models
        if "://" in self.place:
            key = environment_variables().get(_KEY_VARIABLE) or None
            # Whether the server is new enough is seen by the metadata that it keeps.
            self._client = client.QdrantClient(
                url=self.place, api_key=key, timeout=_TIMEOUT_S, check_compatibility=False
            )
            return
        try:
            self._client = client.QdrantClient(path=str(Path(self.place)))
        except RuntimeError as error:
            if "already accessed" not in str(error):
                raise
            raise InvalidConfig(f"Another process is writing {self.shown} now.") from error

    def find(self) -> FoundCollection | None:
        """Return the collection; see `VectorStore.find`."""
        if not self._client.collection_exists(self.collection):
            return None
        config = self._client.get_collection(self.collection).config
        about = CollectionAbout.from_json((config.metadata or {}).get(ABOUT))
        vectors = config.params.vectors
        is_empty = self._client.count(self.collection, exact=True).count == 0
        if not vectors and SPARSE in (config.params.sparse_vectors or {}):
            self._form = EmbeddingForm.SPARSE
            return FoundCollection(about, is_empty)
        if not isinstance(vectors, self._models.VectorParams):
            raise InvalidConfig(f"{self.shown} has vectors with names. vecmill writes one without a name.")
        self._form = EmbeddingForm.TOKENS if vectors.multivector_config else EmbeddingForm.DENSE
        names = {getattr(self._models.Distance, name): distance for distance, name in _DISTANCES.items()}
        return FoundCollection(about, is_empty, vectors.size, names[vectors.distance])

    def create(self, about: CollectionAbout, columns: Mapping[str, ColumnType]) -> None:
        """Make the collection; see `VectorStore.create`."""
        models, metadata = self._models, {ABOUT: about.to_json()}
        self._form = about.form
        if about.form is EmbeddingForm.SPARSE:
            if about.distance is not Distance.DOT:
                raise InvalidConfig("Qdrant compares sparse vectors by dot product only.")
            sparse = {SPARSE: models.SparseVectorParams()}
            self._client.create_collection(
                self.collection, vectors_config={}, sparse_vectors_config=sparse, metadata=metadata
            )
        else:
            measure = getattr(models.Distance, _DISTANCES[about.distance])
            best = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
            several = best if about.form is EmbeddingForm.TOKENS else None
            vectors = models.VectorParams(size=about.dim, distance=measure, multivector_config=several)
            self._client.create_collection(self.collection, vectors, metadata=metadata)
        self._require_metadata()

    def describe(self, about: CollectionAbout) -> None:
        """Keep `about` in the metadata of the collection; see `VectorStore.describe`."""
        self._client.update_collection(self.collection, metadata={ABOUT: about.to_json()})
        self._require_metadata()

    def rows(self) -> Iterator[StoredRow]:
        """Return all rows; see `VectorStore.rows`. The key of a row without an id is its UUID or number."""
        offset: Any = None
        while True:
            points, offset = self._client.scroll(
                self.collection, limit=_READ_ROWS, offset=offset, with_payload=[ID, DOCUMENT, SOURCE, DIGEST]
            )
            for point in points:
                found = point.payload or {}
                key = str(found.get(ID, point.id))
                is_own = str(point.id) == point_id(key)
                source = found.get(SOURCE) if is_own else None
                yield StoredRow(key, str(found.get(DOCUMENT, key)), source, found.get(DIGEST))
            if offset is None:
                return

    def upsert(self, rows: StoreRows) -> None:
        """Write points, and wait until they are written; see `VectorStore.upsert`."""
        assert rows.vectors is not None
        vectors = map(self._vector_of, rows.vectors)
        points = [
            self._models.PointStruct(id=point_id(key), vector=vector, payload={ID: key, **payload})
            for key, vector, payload in zip(rows.keys, vectors, rows.payloads(), strict=True)
        ]
        self._client.upsert(self.collection, points, wait=True)

    def update(self, rows: StoreRows) -> None:
        """Replace fields of the payload; see `VectorStore.update`."""
        models = self._models
        operations = [
            models.SetPayloadOperation(set_payload=models.SetPayload(payload=payload, points=[point_id(key)]))
            for key, payload in zip(rows.keys, rows.payloads(), strict=True)
        ]
        self._client.batch_update_points(self.collection, operations, wait=True)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete points; see `VectorStore.delete`."""
        points = self._models.PointIdsList(points=[point_id(key) for key in keys])
        self._client.delete(self.collection, points, wait=True)

    def close(self, *, is_complete: bool) -> None:
        """Disconnect, and unlock a folder; see `VectorStore.close`."""
        if self._client is not None:
            self._client.close()

    def _vector_of(self, vector: Any) -> Any:
        if self._form is not EmbeddingForm.SPARSE:
            return vector.tolist()
        values = {"indices": vector.columns.tolist(), "values": vector.values.tolist()}
        return {SPARSE: self._models.SparseVector(**values)}

    def _require_metadata(self) -> None:
        """Raise `InvalidConfig` if the server does not keep metadata of collections."""
        if not (self._client.get_collection(self.collection).config.metadata or {}).get(ABOUT):
            raise InvalidConfig(
                f"The server of {self.shown} keeps no metadata of collections, so the space of the vectors "
                "would not be known. Qdrant has them since version 1.16."
            )
