"""The vectors of a corpus in a Parquet file, as `vecmill embed` writes them, in the order of the corpus."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vecmill.bulk.outputs import EMBEDDING
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
    places = {document: place for place, document in enumerate(ids)}
    vectors: FloatArray | None = None
    missing = set(ids)
    try:
        with source.opened() as file:
            metadata = json.loads((file.schema_arrow.metadata or {}).get(b"vecmill", b"{}"))
            for batch in file.iter_batches(batch_size=_ROWS, columns=[id_column, EMBEDDING]):
                rows = _rows_of(path, batch.column(batch.schema.get_field_index(EMBEDDING)))
                if vectors is None:
                    vectors = np.zeros((len(ids), rows.shape[1]), np.float32)
                documents = map(str, batch.column(batch.schema.get_field_index(id_column)).to_pylist())
                for document, row in zip(documents, rows, strict=True):
                    if document in missing:
                        vectors[places[document]] = row
                        missing.remove(document)
    except (OSError, ValueError, NotImplementedError) as error:
        raise InvalidCorpus(f"{path} cannot be read as a Parquet file: {one_line(error)}.") from error
    if vectors is None or missing:
        raise InvalidCorpus(
            f"{path} has no vector of {len(missing)} of the {len(ids)} documents, such as {min(missing)!r}."
        )
    plan = " ".join(str(metadata[name]) for name in ("engine", "precision") if name in metadata)
    return StoredDocuments(vectors, metadata.get("space"), f"stored: {plan}" if plan else "stored")


def _rows_of(path: Path, column: object) -> FloatArray:
    values = column.flatten().to_numpy(zero_copy_only=False)  # type: ignore[attr-defined]  # an Arrow array
    count = len(column)  # type: ignore[arg-type]
    if values.dtype.kind != "f" or not count or len(values) % count or not np.isfinite(values).all():
        raise InvalidConfig(f"The vectors of {path} must be of finite floats, all of equal length.")
    rows: FloatArray = values.reshape(count, -1).astype(np.float32, copy=False)
    return rows
