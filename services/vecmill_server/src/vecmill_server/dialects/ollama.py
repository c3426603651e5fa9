"""Ollama's `/api/embed` and `/api/embeddings`. Source: its API reference and Python package.

Times are whole nanoseconds.
"""

from functools import partial

from vecmill.reading import Reading
from vecmill.types import JsonValue
from vecmill_server.calls import EmbedCall, Embedded
from vecmill_server.dialects import Asked, Dialect, DialectOptions, Document
from vecmill_server.dialects.fields import read_dimensions, read_inputs, read_truncation
from vecmill_server.documents import Envelope, read_required, read_string
from vecmill_server.problems import ollama_response


def read_embed(document: Document, options: DialectOptions) -> Asked:
    """`/api/embed`: rows of one text or several."""
    call = EmbedCall(
        model=read_string(document, "model"),
        inputs=read_inputs(document, "input", options.read_ids),
        reading=Reading(truncation=read_truncation(document)),
        dimensions=read_dimensions(document),
    )
    return Asked(call, partial(_write_rows, call))


def read_embedding(document: Document, options: DialectOptions) -> Asked:
    """`/api/embeddings`, the older one: a single row."""
    prompt = read_required(document, "prompt")
    call = EmbedCall(model=read_string(document, "model"), inputs=(prompt,), field="prompt")

    def write(result: Embedded, _envelope: Envelope) -> JsonValue:
        return {"embedding": result.rows[0]}

    return Asked(call, write)


def _write_rows(call: EmbedCall, result: Embedded, envelope: Envelope) -> JsonValue:
    return {
        "model": call.model or envelope.model,
        "embeddings": result.rows,
        "total_duration": round(result.timings.total_s * 1e9),
        "load_duration": 0,
        "prompt_eval_count": result.token_count,
    }


EMBED = Dialect(read_embed, ollama_response)
EMBEDDINGS = Dialect(read_embedding, ollama_response)
