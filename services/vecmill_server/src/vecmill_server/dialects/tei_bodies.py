"""The errors of Text Embeddings Inference, and its bodies that Hugging Face's endpoints have too.

Source: TEI's router and client packages.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from vecmill.errors import InputTooLong, InvalidRequest
from vecmill.models.heads import Similarity
from vecmill.requests import (
    DEFAULT_TEXT_OPTIONS,
    Embed,
    EmbedSparse,
    EmbedTokens,
    Purpose,
    Rerank,
    TextOptions,
)
from vecmill.results import EmbedResult, EmbedSparseResult, EmbedTokensResult, RerankResult
from vecmill.values.aliases import JsonValue
from vecmill.vectors import similarity_scores
from vecmill_server.base import json_schema
from vecmill_server.base.error_responses import ErrorResponse, ErrorSpec, make_response, message_of, spec_of
from vecmill_server.base.errors import EmptyInput
from vecmill_server.base.json_schema import Component, Schema, an_object, of_the_model
from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects import fields, text_fields
from vecmill_server.dialects.dialect import (
    TEI_HEADERS,
    TEI_RERANK,
    Asked,
    Envelope,
    InferenceBody,
    ResponseStyle,
    write_tei_headers,
)
from vecmill_server.dialects.embedding_encodings import EMBEDDING, ENCODING, EmbeddingEncoding
from vecmill_server.dialects.fields import DialectOptions, Field, Json, RequestBody
from vecmill_server.dialects.known_fields import HUGGING_FACE
from vecmill_server.dialects.parameters import (
    INPUTS,
    NO_OPTIONS,
    PARAMETERS,
    read_parameters,
    with_parameters,
)
from vecmill_server.dialects.rerank_body import result_limit

# TEI's statuses where they differ, by `code`: 422 for fields that cannot be read, 424 for what the model
# cannot do or failed at.
_STATUSES: Mapping[str | None, int] = {
    "invalid_value": 422,
    "context_length_exceeded": 422,
    "model_not_supported": 424,
    "internal_error": 424,
}
_ERROR_TYPES: Mapping[int, str] = {424: "Backend", 429: "Overloaded", 503: "Unhealthy"}


def tei_status(spec: ErrorSpec) -> int:
    """Return the status of an error on TEI's routes."""
    return _STATUSES.get(spec.code, spec.status)


def tei_response(error: BaseException) -> ErrorResponse:
    """Return the response for `error` on TEI's routes."""
    message = message_of(error)
    if isinstance(error, InputTooLong):
        # TEI calls the texts `inputs` on every route. Before the dot is the place of an instance.
        place, dot, _ = (error.field or "").rpartition(".")
        message = (
            f"`{place}{dot}inputs` must have less than {error.max_tokens} tokens. "
            f"Given: {error.token_count}. The text is {error.where}."
        )
    spec = spec_of(error)
    if isinstance(error, EmptyInput):
        return make_response(error, spec.status, {"error": message, "error_type": "Empty"})
    status = tei_status(spec)
    kind = _ERROR_TYPES.get(status, "Validation" if status < 500 else "Backend")
    return make_response(error, status, {"error": message, "error_type": kind})


TEI_STYLE = ResponseStyle(
    Component("TeiProblem", {"error": str, "error_type": str}),
    tei_response,
    tei_status,
    write_tei_headers,
    TEI_HEADERS,
)


class TeiBody(InferenceBody):
    """A body on one of TEI's routes.

    Options may also be in `parameters`, where Hugging Face's clients put them.
    """

    style = TEI_STYLE
    harmless = HUGGING_FACE
    also_read = frozenset({PARAMETERS})

    @classmethod
    def parse(cls, json: Json, options: DialectOptions) -> Asked:
        parameters = read_parameters(json)
        if parameters:
            if any(json.get(name) is not None for name in parameters):
                cls({**json, **parameters}, options).read()  # checks parameters that the body overrides too
            json = with_parameters(json, parameters)
        return super().parse(json, options)

    @classmethod
    def unknown_fields(cls, json: Json) -> list[str]:
        unknown, parameters = super().unknown_fields(json), json.get(PARAMETERS)
        if isinstance(parameters, dict):
            options = cls.known - NO_OPTIONS
            unknown += [f"{PARAMETERS}.{name}" for name in parameters if name not in options]
        return unknown

    @classmethod
    def schema(cls, settings: ServerSettings) -> Schema:
        schema = dict(super().schema(settings))
        options = {name: each for name, each in schema["properties"].items() if name not in NO_OPTIONS}
        if not options:
            return schema
        text = "The place of the same options in Hugging Face's clients. Those of the body take precedence."
        parameters = of_the_model(an_object((), options, nullable=True), text)
        return {**schema, "properties": {**schema["properties"], PARAMETERS: parameters}}


def _write_embeddings(encoding: EmbeddingEncoding, result: EmbedResult, _envelope: Envelope) -> JsonValue:
    return encoding.encode_result(result)


class TeiEmbedRequest(TeiBody):
    """The body of `/embed`."""

    encoding = ENCODING
    inputs = text_fields.embed_inputs(INPUTS)
    options = text_fields.TEXT_OPTIONS
    dimensions = text_fields.DIMENSIONS
    normalize = text_fields.NORMALIZE
    rules = json_schema.not_both("prompt", "prompt_name")
    responses = (Component("RowsResponse", [EMBEDDING]),)

    def read(self) -> Asked:
        encoding, inputs, options = self.encoding, self.inputs, self.options
        normalize = self.normalize is not False  # TEI normalises by default, whatever the model does
        request = Embed(inputs, self.dimensions, normalize, (encoding.dtype,), options=options)
        return self.asked(request, partial(_write_embeddings, encoding), input=INPUTS)


def _write_ranked(
    texts: tuple[str, ...], top_n: int | None, with_text: bool, result: RerankResult, _envelope: Envelope
) -> JsonValue:
    # As in TEI, of equal scores the last text comes first.
    positions = result.scores.argsort(kind="stable")[::-1][:top_n].tolist()
    entries: list[dict[str, Any]] = [{"index": index, "score": result.scores[index]} for index in positions]
    return [{**entry, "text": texts[entry["index"]]} for entry in entries] if with_text else entries


class TeiRerankRequest(TeiBody):
    """The body of `/rerank`, recognised by the key `texts`."""

    marks = TEI_RERANK
    query = fields.required_string("query")
    texts = fields.text_list("texts")
    raw_scores = text_fields.RAW_SCORES
    options = text_fields.text_options(prompt_name=text_fields.PROMPT_NAME, truncation=text_fields.TRUNCATION)
    top_n = result_limit("top_n", "top_k")
    return_text = fields.flag("return_text", note="Whether results have their texts.").otherwise(False)
    responses = (
        Component(
            "TeiRerankResponse",
            [json_schema.an_object(("index", "score"), {"index": int, "score": float, "text": str})],
        ),
    )

    def read(self) -> Asked:
        query, texts = self.query, self.texts
        request = Rerank((query,), texts, self.raw_scores, options=self.options)
        write = partial(_write_ranked, texts, self.top_n, self.return_text)
        return self.asked(request, write)


def _read_sentences(body: RequestBody) -> tuple[str, ...]:
    """Return a sentence, and the sentences to compare with it."""
    inputs = body.json.get(INPUTS)
    if not isinstance(inputs, dict):
        raise InvalidRequest(
            '`inputs` is required: {"source_sentence": a string, "sentences": a list of strings}.',
            field=INPUTS,
        )
    source, others = f"{INPUTS}.source_sentence", f"{INPUTS}.sentences"
    for field, wanted in ((source, "a string"), (others, "a list of strings")):
        if inputs.get(field.removeprefix(f"{INPUTS}.")) is None:
            raise fields.invalid(field, f"is required: {wanted}.")
    sentence = fields.to_string(inputs["source_sentence"], source)
    return (sentence, *fields.to_text_list(inputs["sentences"], others))


def _write_cosines(result: EmbedResult, _envelope: Envelope) -> JsonValue:
    source, others = result.embeddings[0], result.embeddings[1:]
    return np.ascontiguousarray(similarity_scores(source, others, Similarity.COSINE))


class SimilarityRequest(TeiBody):
    """The body of `/similarity`: a sentence, and the sentences to compare with it."""

    sentences = Field(
        {INPUTS: json_schema.like({"source_sentence": str, "sentences": json_schema.TEXTS})},
        _read_sentences,
        (INPUTS,),
    )
    options = text_fields.TEXT_OPTIONS
    rules = json_schema.not_both("prompt", "prompt_name")
    responses = (Component("SimilarityResponse", [float]),)

    def read(self) -> Asked:
        request = Embed(self.sentences, normalize=True, options=self.options)
        return self.asked(request, _write_cosines, input=INPUTS)


def _write_sparse(result: EmbedSparseResult, _envelope: Envelope) -> JsonValue:
    return [
        [
            {"index": index, "value": value}
            for index, value in zip(each.columns.tolist(), each.values.tolist(), strict=True)
        ]
        for each in result.embeddings
    ]


class SparseRequest(TeiBody):
    """The body of `/embed_sparse`."""

    inputs = text_fields.embed_inputs(INPUTS)
    options = text_fields.TEXT_OPTIONS
    rules = json_schema.not_both("prompt", "prompt_name")
    responses = (Component("SparseResponse", [[{"index": int, "value": float}]]),)

    def read(self) -> Asked:
        return self.asked(EmbedSparse(self.inputs, options=self.options), _write_sparse, input=INPUTS)


def _read_sided_options(body: RequestBody) -> TextOptions:
    options = text_fields.TEXT_OPTIONS.read(body)
    if options.prompt_name not in (Purpose.QUERY, Purpose.DOCUMENT):
        return options
    return replace(options, prompt_name=None, purpose=Purpose(options.prompt_name))


def _write_token_embeddings(result: EmbedTokensResult, _envelope: Envelope) -> JsonValue:
    return [list(each) for each in result.embeddings]


class EmbedAllRequest(TeiBody):
    """The body of `/embed_all`. The prompts `query` and `document` distinguish queries from documents.

    An embedding model gives the last hidden state of each token.
    """

    inputs = text_fields.embed_inputs(INPUTS)
    options = Field(
        {
            **text_fields.TEXT_OPTIONS.properties,
            "prompt_name": json_schema.of_the_model(
                json_schema.OPTIONAL_STRING,
                "`query` or `document`, which a multi-vector model distinguishes, or another prompt of the "
                "model.",
            ),
        },
        _read_sided_options,
        absent=DEFAULT_TEXT_OPTIONS,
    )
    responses = (Component("MultiVectorResponse", [[[float]]]),)

    def read(self) -> Asked:
        return self.asked(
            EmbedTokens(self.inputs, hidden_states=True, options=self.options),
            _write_token_embeddings,
            input=INPUTS,
        )
