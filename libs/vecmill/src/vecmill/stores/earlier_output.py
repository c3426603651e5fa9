"""The earlier output of `vecmill embed --update`, from which vectors of unchanged texts are taken.

A text is found by the digest of its content, so rows may have moved. Outputs have these digests in a column;
of one that was written without `--update` they are computed from its texts, if it has them.
"""

import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vecmill.bulk.chunk_table import CHUNK_COLUMNS
from vecmill.bulk.embedder import EmbeddedTexts, Embedder
from vecmill.bulk.input_files import BUFFER_BYTES
from vecmill.bulk.input_scan import ColumnOptions
from vecmill.bulk.outputs import EMBEDDING, TRUNCATED, read_metadata
from vecmill.bulk.picture_inputs import EmbedInput
from vecmill.errors import InvalidConfig
from vecmill.stores.content_digests import ContentDigest
from vecmill.values.aliases import IntArray, JsonValue

CONTENT_DIGEST = "content_digest"
_READ_ROWS = 4096
_PLACES = tuple(CHUNK_COLUMNS)[1:]
_TABLE = (
    "CREATE TABLE texts (digest TEXT PRIMARY KEY, row INTEGER, rows INTEGER, truncated INTEGER) WITHOUT ROWID"
)


class EarlierOutput:
    """The texts of a Parquet output by their digests, and their vectors, in temporary files.

    The vectors are on disk once more, in `folder`, so that any row is read quickly. Memory use does not
    depend on the number of rows.
    """

    def __init__(self, path: Path, folder: Path, digest: ContentDigest, text_column: str) -> None:
        """Read the output. Raises `InvalidConfig` if it cannot be told which texts it has."""
        from pyarrow import parquet

        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.execute(_TABLE)
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            names = [CONTENT_DIGEST if CONTENT_DIGEST in schema.names else text_column]
            if names[0] not in schema.names:
                raise InvalidConfig(
                    f"{path} has neither a column {CONTENT_DIGEST!r} nor the texts in a column "
                    f"{text_column!r}, so what has changed is not known. Remove it once, and write it with "
                    "--update."
                )
            self._has_chunks = set(_PLACES) <= set(schema.names)
            more = _PLACES if self._has_chunks else [name for name in (TRUNCATED,) if name in schema.names]
            kind = schema.field(EMBEDDING).type
            self._vectors = _make_map(folder, kind.value_type.to_pandas_dtype(), rows, kind.list_size)
            self._places = _make_map(folder, np.int64, rows if self._has_chunks else 0, len(_PLACES))
            first = 0
            for batch in file.iter_batches(batch_size=_READ_ROWS, columns=[*names, *more, EMBEDDING]):
                columns = {name: batch.column(batch.schema.get_field_index(name)) for name in [*names, *more]}
                stop = first + len(batch)
                vectors = batch.column(batch.schema.get_field_index(EMBEDDING))
                self._vectors[first:stop] = np.asarray(vectors.flatten()).reshape(len(batch), -1)
                if self._has_chunks:
                    self._places[first:stop] = np.array([columns[name] for name in _PLACES]).T
                known = columns[names[0]].to_pylist()
                digests = known if names[0] == CONTENT_DIGEST else [digest.of_text(text) for text in known]
                dropped = columns[TRUNCATED].to_pylist() if TRUNCATED in columns else [None] * len(batch)
                self._note(digests, range(first, stop), dropped)
                first = stop

    def close(self) -> None:
        """Remove the temporary files."""
        self._database.close()
        del self._vectors, self._places

    def find(self, digest: str) -> tuple[int, int, int | None] | None:
        """Return the first row of a text, its number of rows and of truncated tokens; `None` for another."""
        query = "SELECT row, rows, truncated FROM texts WHERE digest = ?"
        found: tuple[int, int, int | None] | None = self._database.execute(query, (digest,)).fetchone()
        return found

    def read(self, found: tuple[int, int, int | None], index: int) -> EmbeddedTexts:
        """Return the vectors of a text that `find` returned, which has the index `index` in a call."""
        first, count, truncated = found
        rows = slice(first, first + count)
        table: IntArray | None = None
        if self._has_chunks:
            table = np.insert(np.array(self._places[rows]), 0, index, axis=1)
        return EmbeddedTexts(
            np.array(self._vectors[rows]), 0, (), () if table is not None else [truncated], table
        )

    def _note(self, digests: Sequence[str], rows: range, dropped: Sequence[int | None]) -> None:
        """Note rows. The chunks of a text follow each other; of several equal texts the first one counts."""
        with self._database:
            self._database.execute("BEGIN")
            for digest, row, tokens in zip(digests, rows, dropped, strict=True):
                if not self._has_chunks or self._places[row, 0] == 0:
                    values = (digest, row, 1, tokens)
                    self._database.execute("INSERT OR IGNORE INTO texts VALUES (?, ?, ?, ?)", values)
                else:
                    self._database.execute(
                        "UPDATE texts SET rows = rows + 1 WHERE digest = ? AND row + rows = ?", (digest, row)
                    )


def _make_map(folder: Path, dtype: Any, rows: int, columns: int) -> Any:
    """Return an array in a file of `folder` that is gone when the array is."""
    path = folder / f"earlier-{os.getpid()}-{columns}"
    if rows * columns == 0:
        return np.empty((rows, columns), dtype)
    try:
        return np.memmap(path, dtype, "w+", shape=(rows, columns))
    finally:
        path.unlink(missing_ok=True)


class UpdatingEmbedder:
    """An embedder that takes the vectors of known texts from an earlier output. Satisfies `Embedder`."""

    def __init__(self, embedder: Embedder, digest: ContentDigest, earlier: EarlierOutput) -> None:
        self.identity: Mapping[str, JsonValue] = embedder.identity
        self.dim, self.dtype = embedder.dim, embedder.dtype
        self.call_texts, self.similarity = embedder.call_texts, embedder.similarity
        self._embedder = embedder
        self._digest = digest
        self._earlier = earlier

    async def embed(self, inputs: Sequence[EmbedInput]) -> EmbeddedTexts:
        """Embed the texts that are not known; see `Embedder.embed`."""
        texts = [each for each in inputs if isinstance(each, str)]
        found = [self._earlier.find(self._digest.of_text(text)) for text in texts]
        missing = [index for index, row in enumerate(found) if row is None]
        if len(missing) == len(texts):
            return await self._embedder.embed(texts)
        parts = {index: self._earlier.read(row, index) for index, row in enumerate(found) if row is not None}
        tokens = 0
        if missing:
            new = await self._embedder.embed([texts[index] for index in missing])
            tokens = new.token_count
            parts |= {index: _pick(new, place, index) for place, index in enumerate(missing)}
        ordered = [parts[index] for index in range(len(texts))]
        tables = [part.chunks for part in ordered if part.chunks is not None]
        return EmbeddedTexts(
            np.concatenate([part.embeddings for part in ordered]),
            tokens,
            truncated_tokens=[each for part in ordered for each in part.truncated_tokens],
            chunks=np.concatenate(tables) if tables else None,
            reused=len(texts) - len(missing),
        )


def _pick(found: EmbeddedTexts, place: int, index: int) -> EmbeddedTexts:
    """Return what a call found for one of its texts, which has another index in the whole call."""
    if found.chunks is None:
        return EmbeddedTexts(found.embeddings[place : place + 1], 0, (), [found.dropped[place]])
    rows = found.chunks[:, 0] == place
    table = found.chunks[rows].copy()
    table[:, 0] = index
    return EmbeddedTexts(found.embeddings[rows], 0, (), (), table)


def check_updated(path: Path, options: ColumnOptions) -> None:
    """Raise `InvalidConfig` for an output that cannot be updated with these options."""
    if path.suffix.lower() != ".parquet":
        raise InvalidConfig(f"{path} cannot be updated: --update needs a .parquet file.")
    if CONTENT_DIGEST in (options.id_column, *options.copied_columns):
        raise InvalidConfig(f"The column {CONTENT_DIGEST!r} holds the digests, so it cannot be copied.")


def check_earlier(path: Path, identity: Mapping[str, JsonValue], dtype: str, dim: int) -> Mapping[str, Any]:
    """Return the metadata of an output. Raises `InvalidConfig` if other vectors are in it, naming both."""
    from pyarrow import parquet

    try:
        schema = parquet.read_schema(path)
        about = read_metadata(schema)
        size = schema.field(EMBEDDING).type.list_size
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise InvalidConfig(f"{path} is no Parquet file of `vecmill embed -o`.") from error
    if "name" not in about:
        raise InvalidConfig(f"{path} has vectors that vecmill did not write, so their space is not known.")
    key = "space" if about.get("space") or identity.get("space") else "name"
    for word, there, here in (
        (key, about.get(key), identity.get(key)),
        ("type", about.get("dtype"), dtype),
        ("number of values", size, dim),
    ):
        if there != here:
            raise InvalidConfig(
                f"{path} has vectors of the {word} {there}, made by {about['name']!r}, but the new ones are "
                f"of {here}, made by {identity['name']!r}. Choose another output, or remove this file."
            )
    return about
