"""Bodies without a route of their own: Hugging Face's and SageMaker's endpoints, and Vertex AI.

The operation follows from the keys of the body, or else from the task of the model. Bodies with `input`, with
`query` and `documents` or with `queries` are those of OpenAI and vLLM.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from vecmill.errors import InvalidRequest, RequestError
from vecmill.mill import Mill
from vecmill.requests import Caller, Request, Rerank
from vecmill.results import NO_TIME, EmbedResult, Result, Truncated
from vecmill.values.aliases import JsonValue
from vecmill.values.task import Task
from vecmill_server.base.json_io import kind_of
from vecmill_server.base.json_schema import Component, any_of, of_the_model
from vecmill_server.dialects import fields
from vecmill_server.dialects.dialect import (
    Asked,
    CompositeRequest,
    CompositeResult,
    Envelope,
    InferenceBody,
    InferenceRoute,
    Marks,
)
from vecmill_server.dialects.embeddings_body import EmbeddingsRequest
from vecmill_server.dialects.fields import DialectOptions, Field, Json
from vecmill_server.dialects.label_bodies import ClassifyByLabelsRequest, ZeroShotRequest, asks_for_labels
from vecmill_server.dialects.message_fields import MESSAGES
from vecmill_server.dialects.parameters import INPUTS, INSTANCES, PARAMETERS, read_parameters, with_parameters
from vecmill_server.dialects.predict_body import PredictRequest
from vecmill_server.dialects.rerank_body import RerankRequest
from vecmill_server.dialects.score_and_classify_bodies import SCORE_KEYS, ClassifyRequest, ScoreRequest
from vecmill_server.dialects.tei_bodies import (
    EmbedAllRequest,
    SimilarityRequest,
    SparseRequest,
    TeiBody,
    TeiEmbedRequest,
    TeiRerankRequest,
)
from vecmill_server.dialects.truncated_inputs import with_truncated


class NestedRerankRequest(TeiBody):
    """The body `{"inputs": {"query": ..., "texts": ...}}`, the rerank of Hugging Face's endpoints."""

    inputs: Field[Json] = Field(
        {INPUTS: TeiRerankRequest.component()}, lambda body: body.json[INPUTS], (INPUTS,)
    )
    responses = TeiRerankRequest.responses

    def read(self) -> Asked:
        # The parameters are among the fields already.
        outer = {name: value for name, value in self.json.items() if name != PARAMETERS}
        return TeiRerankRequest.parse({**outer, **self.inputs}, self.dialect_options)

    @classmethod
    def unknown_fields(cls, json: Json) -> list[str]:
        outer = {name: value for name, value in json.items() if name != INPUTS}
        inputs = json.get(INPUTS)
        inner = TeiRerankRequest.unknown_fields(inputs) if isinstance(inputs, dict) else []
        return [*TeiRerankRequest.unknown_fields(outer), *(f"{INPUTS}.{name}" for name in inner)]


_BY_TASK: Mapping[Task, type[InferenceBody]] = {
    Task.EMBED: TeiEmbedRequest,
    Task.CLASSIFY: PredictRequest,
    Task.CLASSIFY_TOKENS: PredictRequest,
    Task.RERANK: PredictRequest,
    Task.SPARSE: SparseRequest,
    Task.MULTI_VECTOR: EmbedAllRequest,
}


def choose_by_task(json: Json, task: Task | None) -> type[InferenceBody]:
    """Return the body class, for a model with this task, of a body that has no route of its own."""
    inputs = json.get(INPUTS)
    if asks_for_labels(json):
        return ZeroShotRequest
    if isinstance(inputs, dict) and "source_sentence" in inputs:
        return SimilarityRequest
    if "texts" in json or (isinstance(inputs, dict) and "texts" in inputs):
        return NestedRerankRequest if isinstance(inputs, dict) else TeiRerankRequest
    return TeiEmbedRequest if task is None else _BY_TASK[task]


class InvokedRerankRequest(RerankRequest):
    """The body of `/rerank` of Cohere's and vLLM's clients; its keys distinguish no other clients here."""

    marks = Marks(none_of=(INPUTS, "texts"))


# OpenAI's and vLLM's bodies with `input`, which SageMaker's clients send to `/invocations`.
_BY_TASK_WITH_INPUT: Mapping[Task, type[InferenceBody]] = {
    Task.CLASSIFY: ClassifyRequest,
    Task.RERANK: ClassifyRequest,
}


def _choose(json: Json, options: DialectOptions) -> type[InferenceBody]:
    is_of_vllm = json.keys().isdisjoint((INPUTS, "texts"))
    if is_of_vllm and "query" in json and "documents" in json:
        return InvokedRerankRequest
    if is_of_vllm and not json.keys().isdisjoint(SCORE_KEYS):
        return ScoreRequest
    if is_of_vllm and "input" in json and asks_for_labels(json):
        return ClassifyByLabelsRequest
    task = options.task_of_body(json)
    if is_of_vllm and ("input" in json or MESSAGES in json):
        return EmbeddingsRequest if task is None else _BY_TASK_WITH_INPUT.get(task, EmbeddingsRequest)
    return choose_by_task(json, task)


BODIES = (
    TeiEmbedRequest,
    EmbedAllRequest,
    SparseRequest,
    PredictRequest,
    SimilarityRequest,
    TeiRerankRequest,
    NestedRerankRequest,
    ZeroShotRequest,
)


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Add `place` to the fields of request errors that are raised inside."""
    try:
        yield
    except RequestError as error:
        error.message = f"`{place}`: {error.message}"
        error.field = place if error.field is None else f"{place}.{error.field}"
        raise


@dataclass(frozen=True, slots=True)
class PredictInstances(CompositeRequest[CompositeResult]):
    """The requests of Vertex AI's `instances`. The first failed request cancels the others."""

    instances: tuple[Asked, ...]

    @property
    def sizes(self) -> list[int]:
        """The sizes of the inputs of all instances."""
        return [size for asked in self.instances for size in asked.request.sizes]

    @property
    def parts(self) -> tuple[Request[Any], ...]:
        """The requests of all instances."""
        return tuple(asked.request for asked in self.instances)

    async def run(self, mill: Mill, caller: Caller) -> CompositeResult:
        """Return the results. Raises the errors of the requests, and `InvalidRequest` for too many inputs."""
        size, most = len(self.sizes), mill.config.inputs.max_inputs
        if size > most:
            raise fields.invalid(
                INSTANCES, f"has {size} inputs in all; at most {most} are accepted. Send it in parts."
            )
        tasks = [
            asyncio.ensure_future(self._run_one(index, mill, caller)) for index in range(len(self.instances))
        ]
        try:
            results = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        slowest = max(results, key=lambda result: result.timings.total_s, default=None)
        return CompositeResult(
            results,
            sum(result.token_count for result in results),
            _renumber(self.instances, results),
            NO_TIME if slowest is None else slowest.timings,
            sum(result.cached_count for result in results if isinstance(result, EmbedResult)),
        )

    async def _run_one(self, index: int, mill: Mill, caller: Caller) -> Any:
        with _at(f"{INSTANCES}[{index}]"):
            asked = self.instances[index]
            caller = replace(caller, priority=caller.priority or asked.request.priority)
            return await asked.run(mill, caller)


def _renumber(instances: Sequence[Asked], results: Sequence[Result]) -> tuple[Truncated, ...]:
    """Return the inputs that were cut, numbered through all instances.

    The queries of a rerank follow its documents.
    """
    found, before = [], 0
    for asked, result in zip(instances, results, strict=True):
        found += [replace(each, index=before + each.index) for each in result.truncated]
        request = asked.request
        before += len(request.sizes) + (len(request.queries) if isinstance(request, Rerank) else 0)
    return tuple(found)


def _read_one_model(json: Json, instances: Sequence[JsonValue]) -> str | None:
    """Return the model that the body or its instances name. Raises `InvalidRequest` for several models."""
    objects = (item for item in instances if isinstance(item, dict))
    given = (each.get("model") for each in (json, *objects))
    names = {fields.to_string(name, "model") for name in given if name is not None}
    if len(names) > 1:
        raise InvalidRequest(
            "`instances` name several models, and one request asks one. Send a request for each model.",
            field=INSTANCES,
        )
    return next(iter(names), None)


_PREDICTIONS = any_of(*dict.fromkeys(response for body in BODIES for response in body.responses))


class VertexRequest(TeiBody):
    """Vertex AI's body `{"instances": [...]}`.

    Each instance is a body; the response is `{"predictions": [...]}`.
    """

    instances = fields.required(
        INSTANCES,
        {"type": "array", "minItems": 1, "items": any_of(*(body.component() for body in BODIES))},
        lambda value, field: fields.to_items(value, field, "a list of objects"),
        "a list of objects",
        "Each as the body of `POST /`.",
        depends_on_model=True,
    )
    parameters: Field[Json] = Field(
        {
            PARAMETERS: of_the_model(
                {"type": "object", "nullable": True}, "Fields of all instances that do not have them."
            )
        },
        lambda body: read_parameters(body.json),
    )
    responses = (Component("VertexResponse", with_truncated({"predictions": [_PREDICTIONS]})),)

    def read(self) -> Asked:
        instances = self.instances
        model = _read_one_model(self.json, instances)
        task = self.dialect_options.task_of(model)
        asked = tuple(self._read_instance(item, index, task) for index, item in enumerate(instances))

        def write(result: CompositeResult, envelope: Envelope) -> JsonValue:
            answers = zip(asked, result.value, strict=True)
            return {"predictions": [each.write(found, envelope) for each, found in answers]}

        return Asked(model, PredictInstances(asked), write)

    @classmethod
    def unknown_fields(cls, json: Json) -> list[str]:
        # The class of an instance depends on the model: a field is known if any of the classes has it.
        known = cls.known.union(*(body.known for body in BODIES))
        instances = json.get(INSTANCES)
        inner = [(INSTANCES, each) for each in instances] if isinstance(instances, list) else []
        found = {
            f"{place}.{name}": None
            for place, fields_inside in [(PARAMETERS, json.get(PARAMETERS)), *inner]
            if isinstance(fields_inside, dict)
            for name in fields_inside
            if name not in known
        }
        return [*(name for name in json if name not in cls.known), *found]

    def _read_instance(self, item: JsonValue, index: int, task: Task | None) -> Asked:
        place = f"{INSTANCES}[{index}]"
        if not isinstance(item, dict):
            raise fields.invalid(place, f"must be an object, not {kind_of(item)}.")
        whole_body = with_parameters(item, self.parameters)
        with _at(place):
            return choose_by_task(whole_body, task).parse(whole_body, self.dialect_options)


ROUTES = (
    InferenceRoute(
        "any",
        ("/", "/invocations"),
        "The operation that the model is for",
        (
            *BODIES,
            EmbeddingsRequest,
            ClassifyRequest,
            ClassifyByLabelsRequest,
            ScoreRequest,
            InvokedRerankRequest,
        ),
        _choose,
    ),
    InferenceRoute("vertex", ("/vertex",), "The same, several times", (VertexRequest,)),
)
