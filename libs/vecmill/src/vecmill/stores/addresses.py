"""Addresses of collections, `STORE:PLACE/COLLECTION`, and the table of the stores."""

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from urllib.parse import parse_qsl, urlsplit

from vecmill.errors import InvalidConfig
from vecmill.stores.vector_store import VectorStore

# The module and the class of each store. A new store needs one more line here.
STORES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "chroma": ("vecmill.stores.chroma", "ChromaStore"),
        "lancedb": ("vecmill.stores.lancedb", "LanceStore"),
        "pgvector": ("vecmill.stores.pgvector", "PgvectorStore"),
        "qdrant": ("vecmill.stores.qdrant", "QdrantStore"),
    }
)
PARQUET = ("vecmill.stores.parquet_store", "ParquetStore")

FORMS = (
    "lancedb:FOLDER/TABLE, qdrant:FOLDER-OR-URL/COLLECTION, chroma:FOLDER-OR-URL/COLLECTION, "
    "pgvector:postgresql://HOST/DATABASE/TABLE or FILE.parquet"
)


def find_store(address: str) -> VectorStore:
    """Return the store of an address, not connected. Raises `InvalidConfig`."""
    kind, colon, rest = address.partition(":")
    if kind in ("postgres", "postgresql"):
        kind, rest = "pgvector", address
    if not colon or kind not in STORES:
        if Path(address).suffix.lower() != ".parquet":
            raise InvalidConfig(f"{_without_query(address)!r} is no address of a store: {FORMS}.")
        return _load(PARQUET)(address, Path(address).name, address)
    _refuse_secrets(rest)
    place, query = _split_query(rest)
    place, slash, collection = place.rstrip("/").rpartition("/")
    shown = f"{kind}:{_without_query(rest)}"
    if not slash or not place or not collection or place.endswith((":/", "/")):
        raise InvalidConfig(f"{shown!r} names no place and collection: {FORMS}.")
    if "://" not in place:
        place = str(Path(place).expanduser())
    return _load(STORES[kind])(place + query, collection, shown)


def _load(names: tuple[str, str]) -> type[VectorStore]:
    module, name = names
    found: type[VectorStore] = getattr(import_module(module), name)
    return found


def _split_query(rest: str) -> tuple[str, str]:
    """Return an address without its query, and the query with its question mark. A path has none."""
    if "://" not in rest:
        return rest, ""
    place, mark, query = rest.partition("?")
    return place, mark + query


def _without_query(text: str) -> str:
    """Return an address for messages: without a password, and without what libpq is told in the query."""
    return re.sub(r"://[^/@?]*@", "://", _split_query(text)[0])


def _refuse_secrets(rest: str) -> None:
    """Raise `InvalidConfig` for an address with a password, which would be in shell histories and logs."""
    if "://" not in rest:
        return
    try:
        parsed = urlsplit(rest)
        has_secret = bool(parsed.password) or any("pass" in name.lower() or "key" in name.lower()
                                                  for name, _ in parse_qsl(parsed.query))  # fmt: skip
    except ValueError:
        raise InvalidConfig(f"{_without_query(rest)!r} is no address: {FORMS}.") from None
    if has_secret:
        raise InvalidConfig(
            f"The address of {_without_query(rest)} has a password or a key in it. Put it into the "
            "environment or the configuration of the store's client, such as PGPASSWORD, ~/.pgpass or "
            "QDRANT_API_KEY."
        )
