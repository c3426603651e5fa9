"""vLLM's `/pooling`, whose result depends on `task`, by default the task of the model.

Source: vLLM's protocol classes and its examples.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from vecmill.errors import InvalidRequest
from vecmill.requests import Classify, Embed, EmbedTokens, ScoreTokens
from vecmill.results import ClassifyResult, EmbedResult, EmbedTokensResult, ScoreTokensResult
from vecmill.values.aliases import JsonValue
from vecmill.values.embeddings import OutputDtype
from vecmill.values.task import Task
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Schema
from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects import fields, text_fields
from vecmill_server.dialects.dialect import Asked, Envelope, InferenceBody, InferenceRoute
from vecmill_server.dialects.embedding_encodings import EMBEDDING, ENCODING, EmbeddingEncoding
from vecmill_server.dialects.fields import DialectOptions, Field, Json, RequestBody
from vecmill_server.dialects.known_fields import InputBody
from vecmill_server.dialects.vllm import describe_list, write_list

_POOLED = describe_list(
    "PoolingResponse",
    {"index": int, "object": "pooling", "data": json_schema.any_of(EMBEDDING, [[float]])},
)


def _write_pooled(values: Iterable[Any], tokens: int, envelope: Envelope) -> JsonValue:
    data = [{"index": index, "object": "pooling", "data": value} for index, value in enumerate(values)]
    return write_list("pool", data, tokens, envelope)


def _write_embeddings(encoding: EmbeddingEncoding, result: EmbedResult, envelope: Envelope) -> JsonValue:
    return _write_pooled(encoding.encode_result(result), result.token_count, envelope)


def _write_token_embeddings(
    encoding: EmbeddingEncoding, result: EmbedTokensResult, envelope: Envelope
) -> JsonValue:
    """Write the token embeddings of each text. In base64, the embeddings are concatenated."""
    return _write_pooled(encoding.encode(result.embeddings), result.token_count, envelope)


def _write_probabilities(
    encoding: EmbeddingEncoding, result: ClassifyResult, envelope: Envelope
) -> JsonValue:
    return _write_pooled(encoding.encode(result.scores), result.token_count, envelope)


def _write_token_scores(
    encoding: EmbeddingEncoding, result: ScoreTokensResult, envelope: Envelope
) -> JsonValue:
    """Write the scores of each token of each text. In base64, the scores are concatenated."""
    return _write_pooled(encoding.encode(result.scores), result.token_count, envelope)


def _task(name: str) -> Field[str | None]:
    return fields.optional(
        ("task",),
        json_schema.one_of_words((name,)),
        fields.choice_of((name,)),
        "The result for each text; by default what the model is for.",
        depends_on_model=True,
    )


def _describe_inputs(settings: ServerSettings) -> Schema:
    return json_schema.of_the_model(
        text_fields.describe_inputs(settings), "A text, or several: strings only, unless the task is embed."
    )


class PoolingEmbedRequest(InputBody):
    """The body of `/pooling` for embeddings."""

    task = _task("embed")
    encoding = ENCODING
    inputs = Field(
        {"input": _describe_inputs}, lambda body: text_fields.read_inputs(body, "input"), ("input",)
    )
    options = text_fields.TEXT_OPTIONS
    dimensions = text_fields.DIMENSIONS
    normalize = text_fields.NORMALIZE
    rules = json_schema.not_both("prompt", "prompt_name")
    responses = (_POOLED,)

    def read(self) -> Asked:
        encoding, inputs, options = self.encoding, self.inputs, self.options
        dtypes = (encoding.dtype,)
        request = Embed(inputs, self.dimensions, self.normalize, dtypes, options=options)
        return self.asked(request, partial(_write_embeddings, encoding))


def _read_plain_encoding(body: RequestBody) -> EmbeddingEncoding:
    encoding = ENCODING.read(body)
    if encoding.dtype is not OutputDtype.FLOAT:
        raise InvalidRequest(
            "This `task` has only float results: leave out the field that asks for another dtype.",
            field="task",
        )
    return encoding


def _reason(name: str) -> str:
    return f"`{name}` is only for embeddings, not for the other values of `task`."


_NOTE = "Only for embeddings."


def _refused(name: str) -> Field[None]:
    return fields.refused(name, _reason(name), _NOTE)


def _unset(name: str) -> Field[None]:
    """Return a count that must be absent, or 0, which some clients write for no limit."""
    schema = {"type": "integer", "nullable": True, "enum": [0, None]}
    return fields.fixed(
        name, schema, lambda value, field: fields.to_count(value, field) is None, _reason(name), _NOTE
    )


class _PlainPoolingBody(InputBody):
    """A body of `/pooling` whose results cannot be quantised or shortened."""

    # `PoolingEmbedRequest` describes the fields of the encoding.
    also_read = frozenset(ENCODING.properties)
    encoding = Field({}, _read_plain_encoding)
    texts = fields.text_or_texts("input")
    dimensions = _unset("dimensions")
    output_dimension = _unset("output_dimension")
    normalize = _refused("normalize")
    normalized = _refused("normalized")


class PoolingTokenEmbedRequest(_PlainPoolingBody):
    """The body of `/pooling` for an embedding of each token."""

    task = _task("token_embed")
    use_activation = _refused("use_activation")
    options = text_fields.TEXT_OPTIONS
    rules = json_schema.not_both("prompt", "prompt_name")

    def read(self) -> Asked:
        encoding = self.encoding
        request = EmbedTokens(self.texts, options=self.options)
        return self.asked(request, partial(_write_token_embeddings, encoding))


class PoolingClassifyRequest(_PlainPoolingBody):
    """The body of `/pooling` for the scores of labels."""

    task = _task("classify")
    options = text_fields.TRUNCATION_OPTIONS
    raw_scores = text_fields.RAW_SCORES

    def read(self) -> Asked:
        encoding = self.encoding
        request = Classify(self.texts, self.raw_scores, options=self.options)
        return self.asked(request, partial(_write_probabilities, encoding))


class PoolingTokenClassifyRequest(_PlainPoolingBody):
    """The body of `/pooling` for the scores of labels of each token, special tokens included."""

    task = _task("token_classify")
    options = text_fields.TRUNCATION_OPTIONS
    raw_scores = text_fields.RAW_SCORES

    def read(self) -> Asked:
        encoding = self.encoding
        request = ScoreTokens(self.texts, self.raw_scores, options=self.options)
        return self.asked(request, partial(_write_token_scores, encoding))


_BY_NAME: Mapping[str, type[InferenceBody]] = MappingProxyType(
    {
        "embed": PoolingEmbedRequest,
        "token_embed": PoolingTokenEmbedRequest,
        "classify": PoolingClassifyRequest,
        "token_classify": PoolingTokenClassifyRequest,
    }
)
# A sparse model has no such result, and refuses to embed.
_BY_TASK: Mapping[Task, type[InferenceBody]] = MappingProxyType(
    {
        Task.EMBED: PoolingEmbedRequest,
        Task.SPARSE: PoolingEmbedRequest,
        Task.MULTI_VECTOR: PoolingTokenEmbedRequest,
        Task.RERANK: PoolingClassifyRequest,
        Task.CLASSIFY: PoolingClassifyRequest,
        Task.CLASSIFY_TOKENS: PoolingTokenClassifyRequest,
    }
)


def _choose(json: Json, options: DialectOptions) -> type[InferenceBody]:
    name, model = json.get("task"), json.get("model")
    if name is not None:
        return _BY_NAME[fields.choice_of(tuple(_BY_NAME))(name, "task")]
    task = options.task_of(None if model is None else fields.to_string(model, "model"))
    return PoolingEmbedRequest if task is None else _BY_TASK[task]


ROUTES = (
    InferenceRoute(
        "pooling",
        ("/pooling", "/v1/pooling"),
        "Pooled output of the model",
        tuple(_BY_NAME.values()),
        choose=_choose,
    ),
)
