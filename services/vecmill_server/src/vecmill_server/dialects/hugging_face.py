"""Bodies without a route of their own: Hugging Face's and SageMaker's endpoints, and Vertex AI.

What such a body asks is told by its keys, and where they do not say it, by what the model is for.
"""

from functools import partial

from vecmill.errors import InvalidRequest
from vecmill.models import Task
from vecmill.types import JsonValue
from vecmill_server.calls import Together, TogetherCall
from vecmill_server.dialects import Asked, Dialect, DialectOptions, Document
from vecmill_server.dialects.predict import PREDICT
from vecmill_server.dialects.tei import (
    INPUTS,
    TEI_EMBED,
    TEI_EMBED_ALL,
    TEI_RERANK,
    TEI_SIMILARITY,
    TEI_SPARSE,
    in_tei,
    read_parameters,
    read_rerank,
)
from vecmill_server.documents import Envelope, kind_of, read_string


def choose_by_task(document: Document, task: Task | None) -> Dialect:
    """The dialect of a body that came without a route of its own, for a model with this task."""
    inputs = document.get(INPUTS)
    if isinstance(inputs, dict) and "source_sentence" in inputs:
        return TEI_SIMILARITY
    if "texts" in document or (isinstance(inputs, dict) and "texts" in inputs):
        return NESTED_RERANK if isinstance(inputs, dict) else TEI_RERANK
    return TEI_EMBED if task is None else _BY_TASK[task]


def read_nested_rerank(document: Document, options: DialectOptions) -> Asked:
    """`{"inputs": {"query": ..., "texts": ...}}`, as Hugging Face's endpoints take a rerank."""
    inputs = document[INPUTS]
    return read_rerank({**document, **inputs}, options)


def read_instances(task: Task | None, document: Document, options: DialectOptions) -> Asked:
    """Vertex AI: `{"instances": [...]}`, each a body of its own, to `{"predictions": [...]}`."""
    instances = document.get("instances")
    if not isinstance(instances, list) or not instances:
        raise InvalidRequest("`instances` is required: a list of at least one object.", field="instances")
    asked = [_read_instance(item, index, document, task, options) for index, item in enumerate(instances)]
    call = TogetherCall(read_string(document, "model"), tuple(one.call for one in asked))

    def write(result: Together, envelope: Envelope) -> JsonValue:
        answers = zip(asked, result.results, strict=True)
        return {"predictions": [one.write(found, envelope) for one, found in answers]}

    return Asked(call, write)


def _read_instance(
    item: JsonValue, index: int, document: Document, task: Task | None, options: DialectOptions
) -> Asked:
    if not isinstance(item, dict):
        raise InvalidRequest(
            f"`instances[{index}]` must be an object, not {kind_of(item)}.", field=f"instances[{index}]"
        )
    whole = {**read_parameters(document), **item}
    return choose_by_task(whole, task).read(whole, options)


NESTED_RERANK = in_tei(read_nested_rerank)

_BY_TASK = {
    Task.EMBED: TEI_EMBED,
    Task.CLASSIFY: PREDICT,
    Task.CLASSIFY_TOKENS: PREDICT,
    Task.RERANK: PREDICT,
    Task.SPARSE: TEI_SPARSE,
    Task.MULTI_VECTOR: TEI_EMBED_ALL,
}


def vertex_dialect(task: Task | None) -> Dialect:
    """The dialect of Vertex AI, for a model with this task."""
    return in_tei(partial(read_instances, task))
