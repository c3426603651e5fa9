"""An address names one collection, and no message shows a secret."""

import pytest

from vecmill.errors import InvalidConfig, ServerFailed
from vecmill.stores.addresses import find_store
from vecmill.stores.qdrant import QdrantStore


@pytest.mark.parametrize(
    ("address", "place", "collection", "shown"),
    [
        ("lancedb:./db/docs", "db", "docs", "lancedb:./db/docs"),
        ("lancedb:s3://bucket/db/docs", "s3://bucket/db", "docs", "lancedb:s3://bucket/db/docs"),
        ("qdrant:/var/q/docs", "/var/q", "docs", "qdrant:/var/q/docs"),
        ("qdrant:http://h:6333/docs", "http://h:6333", "docs", "qdrant:http://h:6333/docs"),
        ("chroma:https://h/docs", "https://h", "docs", "chroma:https://h/docs"),
        (
            "pgvector:postgresql://u@h:5/db/docs?host=/run/pg",
            "postgresql://u@h:5/db?host=/run/pg",
            "docs",
            "pgvector:postgresql://h:5/db/docs",
        ),
        ("postgres://h/db/s.docs", "postgres://h/db", "s.docs", "pgvector:postgres://h/db/s.docs"),
        ("a/b.parquet", "a/b.parquet", "b.parquet", "a/b.parquet"),
    ],
)
def test_an_address_is_a_place_and_a_collection(
    address: str, place: str, collection: str, shown: str
) -> None:
    store = find_store(address)
    assert (store.place, store.collection, store.shown) == (place, collection, shown)


@pytest.mark.parametrize(
    "address",
    ["", "docs", "milvus:a/b", "lancedb:docs", "qdrant:http://h", "qdrant:", "a.csv", "qdrant:http://[h/x"],
)
def test_another_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidConfig, match="lancedb:FOLDER/TABLE"):
        find_store(address)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:hunter2@h/db/docs",
        "pgvector:postgresql://h/db/docs?password=hunter2",
        "qdrant:https://h/docs?api_key=hunter2",
        "chroma:http://me:hunter2@h/docs",
    ],
)
def test_an_address_with_a_secret_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(InvalidConfig, match="a password or a key") as refused:
        find_store(address)
    assert "hunter2" not in refused.value.message


def test_a_secret_of_the_environment_is_in_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QDRANT_API_KEY", "hunter2")
    store = find_store("qdrant:http://h/docs")
    assert isinstance(store, QdrantStore)
    with pytest.raises(ServerFailed) as failed, store.reported():
        raise ConnectionError("no answer for hunter2")
    assert "no answer for ***" in failed.value.message
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__
