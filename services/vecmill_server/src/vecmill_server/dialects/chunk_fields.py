"""The field `chunking` of `/embeddings`, and the chunks of its response."""

from collections.abc import Mapping
from typing import Any

from vecmill.requests import Chunking, ChunkingMode
from vecmill.results import Chunk
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_io import kind_of
from vecmill_server.base.json_schema import Component, Schema
from vecmill_server.dialects import fields

_NAMES = ("mode", "tokens", "overlap")
_SCHEMA: Schema = {
    **json_schema.an_object(
        ("mode",),
        {
            "mode": json_schema.described(
                json_schema.word(*ChunkingMode),
                "`pooled` returns one embedding of each text: the mean of those of its chunks, weighted by "
                "their tokens. `chunks` and `late` return an embedding of each chunk. Those of `late` are "
                "means of token embeddings that were computed within the whole text.",
            ),
            "tokens": json_schema.described(
                json_schema.OPTIONAL_COUNT,
                "The tokens of a chunk, without special tokens and prompt; by default as many as the model "
                "reads, and at most 256 for `late`.",
            ),
            "overlap": json_schema.described(
                json_schema.OPTIONAL_COUNT,
                "The tokens that each chunk shares with the next; by default none.",
            ),
        },
        additionalProperties=False,
    ),
    "nullable": True,
}


def _to_chunking(value: JsonValue, field: str) -> Chunking:
    if not isinstance(value, dict):
        raise fields.invalid(field, f'must be an object such as {{"mode": "chunks"}}, not {kind_of(value)}.')
    if not value.keys() <= set(_NAMES):
        # The name is not repeated: it may be anything.
        raise fields.invalid(field, f"has a key besides {', '.join(_NAMES)}.")
    mode = value.get("mode")
    if mode is None:
        raise fields.invalid(f"{field}.mode", f"is required: one of {', '.join(ChunkingMode)}.")
    return Chunking(
        ChunkingMode(fields.choice_of(tuple(ChunkingMode))(mode, f"{field}.mode")),
        _to_count(value, field, "tokens"),
        _to_count(value, field, "overlap") or 0,
    )


def _to_count(value: Mapping[str, JsonValue], field: str, name: str) -> int | None:
    found = value.get(name)
    return None if found is None else fields.to_count(found, f"{field}.{name}")


CHUNKING = fields.optional(
    ("chunking",),
    _SCHEMA,
    _to_chunking,
    "How texts of any length are cut into chunks, instead of being truncated.",
    depends_on_model=True,
)

CHUNK = Component(
    "Chunk",
    json_schema.described(
        {"index": int, "start": int, "end": int, "token_count": int},
        "With `chunking`: the number of the chunk in its text, its place in Unicode code points, and its "
        "tokens without special tokens and prompt.",
    ),
)


def write_chunk(chunk: Chunk) -> dict[str, Any]:
    """Write the place of a chunk."""
    return {
        "index": chunk.index,
        "start": chunk.start,
        "end": chunk.end,
        "token_count": chunk.token_count,
    }
