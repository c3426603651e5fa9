"""The field `chunking` of `/embeddings`, and the chunks of its response."""

import re
from collections.abc import Mapping
from typing import Any

from vecmill.requests import Chunking, ChunkingMode
from vecmill.results import Chunk
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_io import kind_of
from vecmill_server.base.json_schema import Component, Schema
from vecmill_server.dialects import fields

_NAMES = ("mode", "tokens", "overlap", "sentences")
# A name that could be meant for one of these is repeated; any other may be anything.
_WORD = re.compile(r"[A-Za-z_]{1,40}")
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
            "sentences": json_schema.described(
                json_schema.FLAG,
                "Whether chunks are shorter where that lets them end at the end of a sentence; by default "
                "not. They then share whole sentences of at most `overlap` tokens, if there are any.",
            ),
        },
        additionalProperties=False,
    ),
    "nullable": True,
}


def _to_chunking(value: JsonValue, field: str) -> Chunking:
    if not isinstance(value, dict):
        raise fields.invalid(field, f'must be an object such as {{"mode": "chunks"}}, not {kind_of(value)}.')
    unknown = next((name for name in value if name not in _NAMES), None)
    if unknown is not None and _WORD.fullmatch(unknown):
        raise fields.invalid(f"{field}.{unknown}", f"is not known. The keys are {', '.join(_NAMES)}.")
    if unknown is not None:
        raise fields.invalid(field, f"has a key besides {', '.join(_NAMES)}.")
    mode = value.get("mode")
    if mode is None:
        raise fields.invalid(f"{field}.mode", f"is required: one of {', '.join(ChunkingMode)}.")
    return Chunking(
        ChunkingMode(fields.choice_of(tuple(ChunkingMode))(mode, f"{field}.mode")),
        _to_count(value, field, "tokens"),
        _to_count(value, field, "overlap") or 0,
        _to_flag(value, field, "sentences"),
    )


def _to_count(value: Mapping[str, JsonValue], field: str, name: str) -> int | None:
    found = value.get(name)
    return None if found is None else fields.to_count(found, f"{field}.{name}")


def _to_flag(value: Mapping[str, JsonValue], field: str, name: str) -> bool:
    found = value.get(name)
    return False if found is None else fields.to_flag(found, f"{field}.{name}")


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
