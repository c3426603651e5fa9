"""pgvector: a table of PostgreSQL with a column of the type `vector`, `sparsevec` or `bit`.

What vecmill keeps is the comment of the column of vectors. Rows of a part are written in one transaction. An
advisory lock excludes a second writer while the connection lasts.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vecmill.bulk.embedder import EmbeddingForm
from vecmill.bulk.input_scan import ColumnType
from vecmill.errors import InvalidConfig
from vecmill.stores.vector_store import (
    DIGEST,
    DOCUMENT,
    ID,
    SOURCE,
    VECTOR,
    CollectionAbout,
    Distance,
    FoundCollection,
    StoredRow,
    StoreRows,
    VectorStore,
    import_client,
)
from vecmill.values.output_kinds import OutputDtype

_READ_ROWS = 8192
# A process that was killed a moment ago has its lock until the server notices.
_LOCK_WAIT_MS = 10_000
_TYPES = {
    ColumnType.NOTHING: "text",
    ColumnType.BOOLEAN: "boolean",
    ColumnType.INTEGER: "bigint",
    ColumnType.LONG: "bigint",
    ColumnType.FLOAT: "double precision",
    ColumnType.TEXT: "text",
    ColumnType.MIXED: "text",
}
_FIND = """
SELECT attname, format_type(atttypid, NULL), atttypmod, col_description(attrelid, attnum)
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
"""


class PgvectorStore(VectorStore):
    """A table of PostgreSQL. Its name may begin with a schema and a dot."""

    name = "pgvector"
    extra = "pgvector"
    dtypes = (OutputDtype.FLOAT, OutputDtype.UBINARY)
    distances = (
        Distance.COSINE,
        Distance.DOT,
        Distance.EUCLIDEAN,
        Distance.MANHATTAN,
        Distance.HAMMING,
    )
    forms = (EmbeddingForm.DENSE, EmbeddingForm.SPARSE)
    secret_variables = ("PGPASSWORD",)

    _connection: Any = None
    _dim = 0
    _columns: Mapping[str, str] = {}  # the type of each column that is there
    _staged: Sequence[str] = ()  # the columns of the temporary table

    def connect(self) -> None:
        """Connect, and wait for the lock of the table; see `VectorStore.connect`."""
        self._client, types = import_client("psycopg"), import_client("pgvector.psycopg")
        self._client_types = import_client("pgvector")
        self._sql = import_client("psycopg.sql")
        self._connection = self._client.connect(self.place, autocommit=True, application_name="vecmill")
        self._table = self._sql.Identifier(*self.collection.split("."))
        try:
            self._run(f"SET lock_timeout = {_LOCK_WAIT_MS}")
            name = f"vecmill:{self._table.as_string(self._connection)}"
            self._run("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [name])
        except self._client.errors.LockNotAvailable as error:
            raise InvalidConfig(f"Another process is writing {self.shown} now.") from error
        if self._run("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone() is None:
            self._run("CREATE EXTENSION vector")
        types.register_vector(self._connection)

    def find(self) -> FoundCollection | None:
        """Return the table; see `VectorStore.find`."""
        name = self._table.as_string(self._connection)
        (oid,) = self._run("SELECT to_regclass(%s)::oid", [name]).fetchone()
        if oid is None:
            return None
        found = {column: more for column, *more in self._run(_FIND, [oid])}
        missing = [column for column in (ID, VECTOR) if column not in found]
        kind, size, comment = found.get(VECTOR, ("", 0, None))
        if missing or kind not in ("vector", "bit", "sparsevec"):
            raise InvalidConfig(
                f"{self.shown} lacks the columns {ID!r}, and {VECTOR!r} of the type vector, sparsevec or bit."
            )
        self._columns = {column: more[0] for column, more in found.items()}
        is_empty = self._run(self._statement("SELECT 1 FROM {table} LIMIT 1")).fetchone() is None
        self._dim = size
        return FoundCollection(CollectionAbout.from_json(comment), is_empty, size if size > 0 else None)

    def create(self, about: CollectionAbout, columns: Mapping[str, ColumnType]) -> None:
        """Make the table; see `VectorStore.create`."""
        dense = "bit" if about.dtype.needs_bytes else "vector"
        kind = "sparsevec" if about.form is EmbeddingForm.SPARSE else dense
        self._dim = about.dim
        types = {ID: "text PRIMARY KEY"} | {name: _TYPES[each] for name, each in columns.items()}
        types[VECTOR] = f"{kind}({about.dim}) NOT NULL"
        fields = [self._sql.Identifier(name) + self._sql.SQL(f" {each}") for name, each in types.items()]
        with self._connection.transaction():
            self._run(self._statement("CREATE TABLE {table} ({fields})", fields=self._list(fields)))
            self.describe(about)
        self._columns = {ID: "text", **{name: _TYPES[each] for name, each in columns.items()}, VECTOR: kind}

    def describe(self, about: CollectionAbout) -> None:
        """Keep `about` as the comment of the column of vectors; see `VectorStore.describe`."""
        column = self._sql.Identifier(*self.collection.split("."), VECTOR)
        text = self._sql.Literal(about.to_json())
        self._run(self._statement("COMMENT ON COLUMN {column} IS {text}", column=column, text=text))

    def extend(self, columns: Mapping[str, ColumnType]) -> None:
        """Add columns; see `VectorStore.extend`."""
        for name, kind in columns.items():
            if name not in self._columns:
                named = self._sql.Identifier(name)
                self._run(
                    self._statement(f"ALTER TABLE {{table}} ADD COLUMN {{name}} {_TYPES[kind]}", name=named)
                )
        self._columns = {**{name: _TYPES[kind] for name, kind in columns.items()}, **self._columns}

    def rows(self) -> Iterator[StoredRow]:
        """Return all rows; see `VectorStore.rows`."""
        document = DOCUMENT if DOCUMENT in self._columns else ID
        names = self._list(map(self._sql.Identifier, (ID, document, SOURCE, DIGEST)))
        with self._connection.transaction(), self._connection.cursor("vecmill_rows") as cursor:
            cursor.itersize = _READ_ROWS
            for row in cursor.execute(self._statement("SELECT {names} FROM {table}", names=names)):
                yield StoredRow(*row)

    def upsert(self, rows: StoreRows) -> None:
        """Write rows in one transaction; see `VectorStore.upsert`."""
        assert rows.vectors is not None
        names = (ID, *rows.columns, VECTOR)
        vectors = [self._vector_of(row) for row in rows.vectors]
        listed = self._list(map(self._sql.Identifier, names))
        kept = self._list(
            self._sql.SQL("{0} = EXCLUDED.{0}").format(self._sql.Identifier(name)) for name in names[1:]
        )
        with self._connection.transaction(), self._connection.cursor() as cursor:
            self._stage(names, listed)
            copied = self._statement("COPY vecmill_part ({names}) FROM STDIN (FORMAT BINARY)", names=listed)
            with cursor.copy(copied) as copy:
                copy.set_types([_SHORT.get(self._columns[name], self._columns[name]) for name in names])
                for row in zip(rows.keys, *rows.columns.values(), vectors, strict=True):
                    copy.write_row(row)
            cursor.execute(
                self._statement(
                    "INSERT INTO {table} ({names}) SELECT {names} FROM vecmill_part "
                    "ON CONFLICT (id) DO UPDATE SET {kept}",
                    names=listed,
                    kept=kept,
                )
            )

    def update(self, rows: StoreRows) -> None:
        """Replace columns in one transaction; see `VectorStore.update`."""
        kept = self._list(
            self._sql.SQL("{} = %s").format(self._sql.Identifier(name)) for name in rows.columns
        )
        query = self._statement("UPDATE {table} SET {kept} WHERE id = %s", kept=kept)
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(query, list(zip(*rows.columns.values(), rows.keys, strict=True)))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete rows; see `VectorStore.delete`."""
        self._run(self._statement("DELETE FROM {table} WHERE id = ANY(%s)"), [list(keys)])

    def close(self, *, is_complete: bool) -> None:
        """Disconnect, which releases the lock; see `VectorStore.close`."""
        if self._connection is not None:
            self._connection.close()

    def _vector_of(self, vector: Any) -> Any:
        kind = self._columns[VECTOR]
        if kind == "bit":
            return self._client_types.Bit(vector.tobytes())
        if kind == "sparsevec":
            weights = dict(zip(vector.columns.tolist(), vector.values.tolist(), strict=True))
            return self._client_types.SparseVector(weights, self._dim)
        return vector

    def _stage(self, names: Sequence[str], listed: Any) -> None:
        """Make the temporary table that a part is copied into, if it has other columns."""
        if names == self._staged:
            return
        self._run("DROP TABLE IF EXISTS vecmill_part")
        query = "CREATE TEMPORARY TABLE vecmill_part ON COMMIT DELETE ROWS AS SELECT {names} FROM {table}"
        self._run(self._statement(f"{query} WITH NO DATA", names=listed))
        self._staged = names

    def _run(self, query: Any, values: Sequence[Any] | None = None) -> Any:
        return self._connection.execute(query, values)

    def _statement(self, query: str, **parts: Any) -> Any:
        return self._sql.SQL(query).format(table=self._table, **parts)

    def _list(self, parts: Any) -> Any:
        return self._sql.SQL(", ").join(parts)


# The names by which psycopg knows types.
_SHORT = {"bigint": "int8", "double precision": "float8", "boolean": "bool"}
