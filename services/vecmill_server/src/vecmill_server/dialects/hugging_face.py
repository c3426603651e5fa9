"""Bodies without a route of their own: Hugging Face's and SageMaker's endpoints, and Vertex AI.

What such a body asks is told by its keys, and where they do not say it, by what the model is for.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from vecmill.errors import InvalidRequest, RequestError
from vecmill.mill import Mill
from vecmill.models import Task
from vecmill.types import JsonValue, Timings
from vecmill_server.calls import NO_TIME, Call
from vecmill_server.dialects import Asked, Dialect, DialectOptions, Document
from vecmill_server.dialects.predict import PREDICT
from vecmill_server.dialects.tei import (
    INPUTS,
    INSTANCES,
    PARAMETERS,
    TEI_EMBED,
    TEI_EMBED_ALL,
    TEI_RERANK,
    TEI_SIMILARITY,
    TEI_SPARSE,
    in_tei,
    read_parameters,
    with_parameters,
)
from vecmill_server.documents import Envelope, kind_of, read_items, read_string

# What the model of a name is for, where it has been read already. Raises `UnknownModel`.
TaskOf = Callable[[str | None], Task | None]


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
    outer = {name: value for name, value in document.items() if name != PARAMETERS}  # they are in it already
    return TEI_RERANK.read({**outer, **document[INPUTS]}, options)


def read_instances(task_of: TaskOf, document: Document, options: DialectOptions) -> Asked:
    """Vertex AI: `{"instances": [...]}`, each a body of its own, to `{"predictions": [...]}`."""
    instances = read_items(document, INSTANCES, "a list of objects")
    model = _read_one_model(document, instances)
    task = task_of(model)
    asked = [_read_instance(item, index, document, task, options) for index, item in enumerate(instances)]
    call = TogetherCall(model, tuple(one.call for one in asked), INSTANCES)

    def write(result: Together, envelope: Envelope) -> JsonValue:
        answers = zip(asked, result.results, strict=True)
        return {"predictions": [one.write(found, envelope) for one, found in answers]}

    return Asked(call, write)


def _read_one_model(document: Document, instances: Sequence[JsonValue]) -> str | None:
    """The model that is named beside the instances or in them. Raises `InvalidRequest` for several."""
    objects = (item for item in instances if isinstance(item, dict))
    names = {read_string(one, "model") for one in (document, *objects)} - {None}
    if len(names) > 1:
        raise InvalidRequest(
            "`instances` name several models, and one request asks one. Send a request for each model.",
            field=INSTANCES,
        )
    return next(iter(names), None)


def _read_instance(
    item: JsonValue, index: int, document: Document, task: Task | None, options: DialectOptions
) -> Asked:
    place = f"{INSTANCES}[{index}]"
    if not isinstance(item, dict):
        raise InvalidRequest(f"`{place}` must be an object, not {kind_of(item)}.", field=place)
    whole = with_parameters(item, read_parameters(document))
    with _placed(place):
        return choose_by_task(whole, task).read(whole, options)


@contextmanager
def _placed(place: str) -> Iterator[None]:
    """Errors about a request that are raised inside say where in the body it stands."""
    try:
        yield
    except RequestError as error:
        error.message = f"`{place}`: {error.message}"
        error.field = place if error.field is None else f"{place}.{error.field}"
        raise


@dataclass(frozen=True, slots=True)
class Together:
    """What several calls gave."""

    results: tuple[Any, ...]

    @property
    def token_count(self) -> int:
        """Tokens of all of them."""
        return sum(result.token_count for result in self.results)

    @property
    def timings(self) -> Timings:
        """Those of the one that took longest."""
        timings: Timings = max(
            (result.timings for result in self.results), key=lambda one: one.total_s, default=NO_TIME
        )
        return timings


@dataclass(frozen=True, slots=True)
class TogetherCall:
    """Several calls of one model, from the list `field`; the first that fails cancels the others."""

    tasks: ClassVar[tuple[Task, ...]] = ()

    model: str | None
    calls: tuple[Call, ...]
    field: str

    @property
    def sizes(self) -> list[int]:
        """The characters of each input of each call."""
        return [size for call in self.calls for size in call.sizes]

    async def run(self, mill: Mill, timeout_s: float | None) -> Together:
        """Ask the model. Raises as the calls do, and `InvalidRequest` for more inputs than one may have."""
        count, most = len(self.sizes), mill.config.inputs.max_inputs
        if count > most:
            raise InvalidRequest(
                f"`{self.field}` has {count} inputs in all; at most {most} are accepted. Send it in parts.",
                field=self.field,
            )
        tasks = [
            asyncio.ensure_future(self._run_one(index, mill, timeout_s)) for index in range(len(self.calls))
        ]
        try:
            return Together(tuple(await asyncio.gather(*tasks)))
        finally:
            for task in tasks:
                task.cancel()

    async def _run_one(self, index: int, mill: Mill, timeout_s: float | None) -> Any:
        with _placed(f"{self.field}[{index}]"):
            return await self.calls[index].run(mill, timeout_s)


NESTED_RERANK = in_tei(read_nested_rerank)

_BY_TASK = {
    Task.EMBED: TEI_EMBED,
    Task.CLASSIFY: PREDICT,
    Task.CLASSIFY_TOKENS: PREDICT,
    Task.RERANK: PREDICT,
    Task.SPARSE: TEI_SPARSE,
    Task.MULTI_VECTOR: TEI_EMBED_ALL,
}


def vertex_dialect(task_of: TaskOf) -> Dialect:
    """The dialect of Vertex AI, for models with these tasks."""
    return in_tei(partial(read_instances, task_of))
