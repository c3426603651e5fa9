"""Ollama's `/api/embed` and `/api/embeddings`. Source: its server, API reference and Python package.

Times are whole nanoseconds. Without a text both answer without a row: so its clients have a model loaded.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from vecmill.mill import Mill
from vecmill.models import Task
from vecmill.operations.tasks import require_task
from vecmill.reading import Reading
from vecmill.types import JsonValue
from vecmill_server.calls import NO_TIME, EmbedCall, Embedded
from vecmill_server.dialects import Asked, Dialect, DialectOptions, Document
from vecmill_server.dialects.fields import read_dimensions, read_inputs, read_truncation
from vecmill_server.documents import Envelope, read_required, read_string
from vecmill_server.problems import ollama_response


@dataclass(frozen=True, slots=True)
class LoadCall:
    """No texts, for a model that embeds."""

    tasks: ClassVar[tuple[Task, ...]] = (Task.EMBED,)
    sizes: ClassVar[tuple[int, ...]] = ()

    model: str | None

    async def run(self, mill: Mill, timeout_s: float | None) -> Embedded:
        """No rows. Raises `NotReady` while the model loads, and `UnsupportedTask` if it embeds nothing."""
        require_task(mill.description, Task.EMBED, asked="embed texts")
        return Embedded(np.empty((0, mill.info.dim), np.float32), (), NO_TIME)


def read_embed(document: Document, options: DialectOptions) -> Asked:
    """`/api/embed`: rows of one text or several, of length 1 whatever the model."""
    model = read_string(document, "model")
    reading, dimensions = Reading(truncation=read_truncation(document)), read_dimensions(document)
    write = partial(_write_rows, model)
    if document.get("input") in (None, []):
        return Asked(LoadCall(model), write)
    inputs = read_inputs(document, "input", options.read_ids)
    return Asked(EmbedCall(model, inputs, reading, dimensions, normalize=True), write)


def read_embedding(document: Document, options: DialectOptions) -> Asked:
    """`/api/embeddings`, the older one: a single row, as the model gives it."""
    model = read_string(document, "model")
    if document.get("prompt") is None:
        return Asked(LoadCall(model), _write_row)
    return Asked(EmbedCall(model, (read_required(document, "prompt"),), field="prompt"), _write_row)


def _write_rows(model: str | None, result: Embedded, envelope: Envelope) -> JsonValue:
    return {
        "model": model or envelope.model,
        "embeddings": result.rows,
        "total_duration": round(result.timings.total_s * 1e9),
        "load_duration": 0,
        "prompt_eval_count": result.token_count,
    }


def _write_row(result: Embedded, _envelope: Envelope) -> JsonValue:
    return {"embedding": result.rows[0] if len(result.rows) else []}


EMBED = Dialect(read_embed, ollama_response)
EMBEDDINGS = Dialect(read_embedding, ollama_response)
