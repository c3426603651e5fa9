"""What is in a collection, read by the store's own client. Runs where the client is installed.

`python store_readers.py KIND FOLDER-OR-ADDRESS` prints it as JSON.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

Rows = dict[str, dict[str, Any]]

NAME = "docs"


def read_parquet(place: str) -> Rows:
    """The rows of a file."""
    from pyarrow import parquet

    table = parquet.read_table(place)
    return {row["id"]: row for row in table.to_pylist()}


def read_qdrant(place: str) -> Rows:
    """The points of a collection in a folder."""
    from qdrant_client import QdrantClient

    client = QdrantClient(path=place)
    points, _ = client.scroll(NAME, limit=10**6, with_payload=True, with_vectors=True)
    client.close()
    return {point.payload["id"]: {**point.payload, "embedding": point.vector} for point in points}


def read_lancedb(place: str) -> Rows:
    """The rows of a table."""
    import lancedb

    table = lancedb.connect(place).open_table(NAME).to_arrow()
    return {row["id"]: row for row in table.to_pylist()}


def read_chroma(place: str) -> Rows:
    """The rows of a collection in a folder."""
    import chromadb

    settings = chromadb.config.Settings(anonymized_telemetry=False)
    collection = chromadb.PersistentClient(place, settings=settings).get_collection(
        NAME, embedding_function=None
    )
    found = collection.get(include=["embeddings", "metadatas"])
    rows = zip(found["ids"], found["embeddings"].tolist(), found["metadatas"], strict=True)
    return {key: {**metadata, "id": key, "embedding": vector} for key, vector, metadata in rows}


def read_pgvector(place: str) -> Rows:
    """The rows of a table."""
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(place, row_factory=dict_row) as connection:
        rows = connection.execute(f"SELECT * FROM {NAME}").fetchall()
    return {row["id"]: {**row, "embedding": json.loads(row["embedding"])} for row in rows}


READERS: Mapping[str, Callable[[str], Rows]] = {
    "parquet": read_parquet,
    "qdrant": read_qdrant,
    "lancedb": read_lancedb,
    "chroma": read_chroma,
    "pgvector": read_pgvector,
}


def read_rows(kind: str, place: str) -> Rows:
    """The rows by their ids: columns without empty values, and the vectors rounded to six digits."""
    rows = READERS[kind](place)
    return {
        key: {
            name: [round(number, 6) for number in value] if name == "embedding" else value
            for name, value in row.items()
            if value is not None
        }
        for key, row in sorted(rows.items())
    }


if __name__ == "__main__":
    json.dump(read_rows(*sys.argv[1:]), sys.stdout)
