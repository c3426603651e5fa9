"""`/embeddings`: OpenAI's shape, which Azure's, Mistral's, Jina's, Voyage's, Infinity's and vLLM's clients
share.

They differ in optional fields alone, and no two mean different things by one name. So one reader takes
all of them. Source: the clients' own code, and the providers' API references.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from vecmill.errors import InvalidRequest
from vecmill.reading import Reading
from vecmill.types import JsonValue
from vecmill_server.calls import EmbedCall, Embedded
from vecmill_server.dialects import Asked, Dialect, DialectOptions, Document
from vecmill_server.dialects.fields import (
    Output,
    read_dimensions,
    read_inputs,
    read_normalize,
    read_outputs,
    read_purpose,
    read_reading,
    usage,
)
from vecmill_server.documents import Envelope, read_flag, read_string, refuse_other_modalities


def read_embeddings(document: Document, options: DialectOptions) -> Asked:
    """A request for embeddings."""
    refuse_other_modalities(document)
    _refuse_what_is_not_done(document)
    outputs = read_outputs(document)
    kinds = tuple(output.kind for output in outputs.values())
    late_chunking = read_flag(document, "late_chunking", default=False)
    if late_chunking and any(kind.needs_ranges for kind in kinds):
        raise InvalidRequest(
            "`late_chunking` gives no rows of 8 bits. Ask for float, binary or ubinary.",
            field="late_chunking",
        )
    call = EmbedCall(
        model=read_string(document, "model"),
        inputs=read_inputs(document, "input", options.read_ids),
        reading=_read_reading(document),
        dimensions=read_dimensions(document),
        normalize=read_normalize(document),
        kinds=kinds,
        late_chunking=late_chunking,
    )
    return Asked(call, partial(write_embeddings, outputs))


def write_embeddings(outputs: Mapping[str, Output], result: Embedded, envelope: Envelope) -> JsonValue:
    """The rows, in input order; where they are asked for in several ways, each is an object of these."""
    written: dict[str, Any] = {
        name: output.encode(result.rows_as(output.kind)) for name, output in outputs.items()
    }
    (rows, *others) = written.values()
    if others:
        rows = [dict(zip(written, row, strict=True)) for row in zip(rows, *others, strict=True)]
    return {
        "id": f"embd-{envelope.request_id}",
        "object": "list",
        "created": envelope.created,
        "model": envelope.model,
        "data": [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)],
        "usage": usage(result.token_count),
    }


def _read_reading(document: Document) -> Reading:
    # Jina's word for it is `task`, everybody else's `input_type`.
    reading, purpose = read_reading(document), read_purpose(document, "task")
    return reading if purpose is None else replace(reading, purpose=purpose)


def _refuse_what_is_not_done(document: Document) -> None:
    if document.get("messages") is not None:
        raise InvalidRequest(
            "`messages` are not embedded: send the text itself as `input`.", field="messages"
        )
    if read_flag(document, "return_multivector", default=False):
        raise InvalidRequest(
            "`return_multivector` is not for this route: /embed_all gives a row for each token.",
            field="return_multivector",
        )


EMBEDDINGS = Dialect(read_embeddings)
