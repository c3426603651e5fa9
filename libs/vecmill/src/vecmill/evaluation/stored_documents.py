"""The vectors of a corpus in a Parquet file, as `vecmill embed` writes them, in the order of the corpus."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vecmill.bulk.outputs import EMBEDDING, read_metadata
from vecmill.bulk.sources import Parquet
from vecmill.errors import InvalidConfig, InvalidCorpus, one_line
from vecmill.values.aliases import FloatArray

_ID_COLUMNS = ("_id", "id")
_ROWS = 8_192


@dataclass(frozen=True, slots=True)
class StoredDocuments:
    """The vectors (documents, dim) float32 of a corpus, and what the file says of them, `None` if nothing."""

    vectors: FloatArray
    space: str | None
    plan: str

    def require_space(self, space: str | None, model: str, path: Path) -> None:
        """Raise `InvalidConfig` if the file says that its vectors are of another space."""
        if self.space is not None and space is not None and self.space != space:
            raise InvalidConfig(
                f"The vectors of {path} are in the space {self.space}, and those of {model} in {space}. "
                "Embed the corpus with this model, or name the model of the file."
            )


def read_documents(path: Path, ids: Sequence[str]) -> StoredDocuments:
    """Read the vectors of the documents `ids`, in this order; others of the file are left out.

    Raises `InvalidCorpus` for a file that cannot be read or lacks a document, `InvalidConfig` for one without
    ids or with vectors of other numbers than floats, and `MissingExtra`.
    """
    if not path.is_file():
        raise InvalidCorpus(f"There is no file {path}.")
    source = Parquet(path)
    names = source.columns()
    id_column = next((name for name in _ID_COLUMNS if name in names), None)
    if id_column is None or EMBEDDING not in names:
        raise InvalidConfig(
            f"{path} must have the columns {EMBEDDING!r} and `_id` or `id`, as `vecmill embed --id-column "
            "_id` writes them."
        )
    rows = _CollectedRows(path, ids)
    try:
        with source.opened() as file:
            metadata = read_metadata(file.schema_arrow)
            if metadata.get("chunking") is not None:
                raise InvalidConfig(f"The vectors of {path} are those of chunks, and not of whole texts.")
            for batch in file.iter_batches(batch_size=_ROWS, columns=[id_column, EMBEDDING]):
                columns = [
                    batch.column(batch.schema.get_field_index(name)) for name in (id_column, EMBEDDING)
                ]
                rows.add(map(str, columns[0].to_pylist()), _rows_of(path, columns[1]))
    except (OSError, ValueError, NotImplementedError) as error:
        raise InvalidCorpus(f"{path} cannot be read as a Parquet file: {one_line(error)}.") from error
    vectors = rows.finish()
    plan = " ".join(str(metadata[name]) for name in ("engine", "precision") if name in metadata)
    space = metadata.get("space")
    told = space if isinstance(space, str) else None
    return StoredDocuments(vectors, told, f"stored: {plan}" if plan else "stored")


class _CollectedRows:
    """The rows of a file, in the order of the documents `ids`."""

    def __init__(self, path: Path, ids: Sequence[str]) -> None:
        self._path = path
        self._places = {document: place for place, document in enumerate(ids)}
        self._missing = set(ids)
        self._vectors: FloatArray | None = None

    def add(self, documents: Iterable[str], rows: FloatArray) -> None:
        """Add vectors (n, dim) of n documents, some of which may not be wanted."""
        if self._vectors is None:
            self._vectors = np.zeros((len(self._places), rows.shape[1]), np.float32)
        if rows.shape[1] != self._vectors.shape[1]:
            raise InvalidConfig(f"The vectors of {self._path} must be of equal length.")
        for document, row in zip(documents, rows, strict=True):
            if document in self._missing:
                self._vectors[self._places[document]] = row
                self._missing.remove(document)
            elif document in self._places:
                raise InvalidCorpus(f"{self._path} has several vectors of the document {document!r}.")

    def finish(self) -> FloatArray:
        """Return the vectors (documents, dim). Raises `InvalidCorpus` if one is missing."""
        if self._vectors is None or self._missing:
            raise InvalidCorpus(
                f"{self._path} has no vector of {len(self._missing)} of the {len(self._places)} documents, "
                f"such as {min(self._missing)!r}."
            )
        return self._vectors


def _rows_of(path: Path, column: object) -> FloatArray:
    values = column.flatten().to_numpy(zero_copy_only=False)  # type: ignore[attr-defined]  # an Arrow array
    count = len(column)  # type: ignore[arg-type]
    if values.dtype.kind != "f" or not count or len(values) % count or not np.isfinite(values).all():
        raise InvalidConfig(f"The vectors of {path} must be of finite floats, all of equal length.")
    rows: FloatArray = values.reshape(count, -1).astype(np.float32, copy=False)
    return rows
