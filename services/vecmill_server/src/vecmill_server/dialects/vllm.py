"""vLLM's `/score`, `/classify`, `/pooling`, `/tokenize` and `/detokenize`.

Of Infinity, `/classify` and the older `/embeddings_image`. Bodies of `/classify` with labels are in
`label_bodies`.

The result of `/pooling` depends on `task`, by default the task of the model. Source: vLLM's protocol classes
and its examples.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, cast

from vecmill.errors import InvalidRequest
from vecmill.requests import Classify, Detokenize, EmbedPictures, EmbedTokens, ScoreTokens, Tokenize
from vecmill.results import (
    ClassifyResult,
    DetokenizeResult,
    EmbedTokensResult,
    Result,
    ScoreTokensResult,
    TokenizeResult,
)
from vecmill.values.aliases import JsonValue
from vecmill.values.embeddings import OutputDtype
from vecmill.values.task import Task
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component, Schema
from vecmill_server.base.settings import ServerSettings
from vecmill_server.dialects import fields, picture_fields, text_fields
from vecmill_server.dialects.dialect import (
    OTHER_TOKENIZE,
    TOKENIZE_PATHS,
    Asked,
    Envelope,
    InferenceBody,
    InferenceRoute,
)
from vecmill_server.dialects.embedding_encodings import EMBEDDING, ENCODING, EmbeddingEncoding
from vecmill_server.dialects.embeddings_body import ImageEmbeddingsRequest
from vecmill_server.dialects.fields import DialectOptions, Field, Json, RequestBody
from vecmill_server.dialects.known_fields import InputBody
from vecmill_server.dialects.label_bodies import (
    ClassifyByLabelsRequest,
    JinaClassifyRequest,
    ZeroShotRequest,
)
from vecmill_server.dialects.message_fields import (
    INPUT_OR_MESSAGES,
    NEEDS_INPUT,
    EmbedMessage,
    has_messages,
    refuse_picture_settings,
)
from vecmill_server.dialects.picture_fields import request_for
from vecmill_server.dialects.score_and_classify_bodies import ClassifyRequest, ScoreRequest, describe_list


def _write_tokens(with_pieces: bool, result: TokenizeResult, _envelope: Envelope) -> JsonValue:
    (tokens,) = result.tokens
    return {
        "count": len(tokens),
        "max_model_len": result.max_tokens,
        "tokens": tokens.ids,
        "token_strs": tokens.pieces if with_pieces else None,
    }


class TokenizeRequest(InferenceBody):
    """The body of `/tokenize`."""

    needs_engine = False
    prompt = fields.required_string("prompt")
    special = text_fields.ADD_SPECIAL_TOKENS
    with_pieces = fields.flag(
        "return_token_strs", note="Whether to return the tokens as text too."
    ).otherwise(False)
    marks = OTHER_TOKENIZE
    responses = (
        Component(
            "TokenizeResponse",
            {"count": int, "max_model_len": int, "tokens": [int], "token_strs": json_schema.nullable([str])},
        ),
    )

    def read(self) -> Asked:
        prompt, special, write = self.prompt, self.special, partial(_write_tokens, self.with_pieces)
        return self.asked(Tokenize((prompt,), special), write, input="prompt")


def _write_text(result: DetokenizeResult, _envelope: Envelope) -> JsonValue:
    return {"prompt": result.texts[0], "content": result.texts[0]}


class VllmDetokenizeRequest(InferenceBody):
    """The body of `/detokenize`, of llama.cpp too. The returned text includes special tokens."""

    needs_engine = False
    tokens = text_fields.token_ids("tokens")
    schema_name = "DetokenizeRequest"
    responses = (
        Component(
            "DetokenizeResponse",
            {"prompt": str, "content": json_schema.described(str, "The same, for clients of llama.cpp.")},
        ),
    )

    def read(self) -> Asked:
        return self.asked(Detokenize((self.tokens,), skip_special=False), _write_text)


_POOLED = describe_list(
    "PoolingResponse",
    {"index": int, "object": "pooling", "data": json_schema.any_of(EMBEDDING, [[float]])},
)


def _encode_tokens(encoding: EmbeddingEncoding, result: EmbedTokensResult) -> Iterable[Any]:
    return encoding.encode(result.embeddings)


def _encode_scores(encoding: EmbeddingEncoding, result: ClassifyResult | ScoreTokensResult) -> Iterable[Any]:
    return encoding.encode(result.scores)


def _write_pooled(
    encode: Callable[[EmbeddingEncoding, Any], Iterable[Any]],
    encoding: EmbeddingEncoding,
    result: Result,
    envelope: Envelope,
) -> JsonValue:
    """Write what `encode` returns for each text. In base64, the values of its tokens are concatenated."""
    values = enumerate(encode(encoding, result))
    data = [{"index": index, "object": "pooling", "data": value} for index, value in values]
    return envelope.around("list", "pool", result.token_count, data=data)


def _task(name: str) -> Field[str | None]:
    note = "The result for each text; by default what the model is for."
    return fields.choice("task", choices=(name,), note=note, depends_on_model=True)


def _describe_inputs(settings: ServerSettings) -> Schema:
    return json_schema.of_the_model(
        text_fields.describe_inputs(settings),
        "A text, or several: strings only for the scores of each token.",
    )


_TEXTS: Field[Any] = Field(
    {"input": _describe_inputs}, lambda body: text_fields.read_inputs(body, "input"), ("input",)
)


class PoolingEmbedRequest(InputBody):
    """The body of `/pooling` for embeddings."""

    task = _task("embed")
    encoding = ENCODING
    modality = picture_fields.MODALITY
    messages = None  # `inputs` reads them
    inputs = INPUT_OR_MESSAGES
    options = text_fields.TEXT_OPTIONS
    dimensions = text_fields.DIMENSIONS
    normalize = text_fields.NORMALIZE
    rules = NEEDS_INPUT
    responses = (_POOLED,)

    def read(self) -> Asked:
        encoding, inputs, options = self.encoding, self.inputs, self.options
        dimensions, normalize, dtypes = self.dimensions, self.normalize, (encoding.dtype,)
        write = partial(_write_pooled, EmbeddingEncoding.encode_result, encoding)
        if has_messages(self):
            refuse_picture_settings(self)
            content = EmbedPictures(cast(Any, inputs), dimensions, normalize, dtypes, options=options)
            return self.asked(EmbedMessage(content, options=options), write, dtypes="output_dtype")
        request = request_for(inputs, dimensions, normalize, dtypes, options=options)
        if isinstance(request, EmbedPictures):
            refuse_picture_settings(self)
        return self.asked(request, write, dtypes="output_dtype")


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
    texts: ClassVar[Field[Any]] = fields.text_or_texts("input")
    dimensions = _unset("dimensions")
    output_dimension = _unset("output_dimension")
    normalize = _refused("normalize")
    normalized = _refused("normalized")


class PoolingTokenEmbedRequest(_PlainPoolingBody):
    """The body of `/pooling` for an embedding of each token."""

    task = _task("token_embed")
    texts: ClassVar[Field[Any]] = _TEXTS
    use_activation = fields.flag(
        "use_activation",
        note="Whether the embeddings of tokens have length 1; true by default. Only models that embed whole "
        "texts take false.",
        depends_on_model=True,
    ).otherwise(True)
    options = text_fields.TEXT_OPTIONS
    rules = json_schema.not_both("prompt", "prompt_name")

    def read(self) -> Asked:
        request = EmbedTokens(
            self.texts, hidden_states=True, normalize=self.use_activation, options=self.options
        )
        write = partial(_write_pooled, _encode_tokens, self.encoding)
        return self.asked(request, write, normalize="use_activation")


class PoolingClassifyRequest(_PlainPoolingBody):
    """The body of `/pooling` for the scores of labels."""

    request_class: ClassVar[type[Classify | ScoreTokens]] = Classify
    task = _task("classify")
    texts: ClassVar[Field[Any]] = _TEXTS
    options = text_fields.TRUNCATION_OPTIONS
    raw_scores = text_fields.RAW_SCORES

    def read(self) -> Asked:
        request = self.request_class(self.texts, self.raw_scores, options=self.options)
        return self.asked(request, partial(_write_pooled, _encode_scores, self.encoding))


class PoolingTokenClassifyRequest(PoolingClassifyRequest):
    """The body of `/pooling` for the scores of labels of each token, special tokens included."""

    request_class = ScoreTokens
    task = _task("token_classify")
    texts: ClassVar[Field[Any]] = fields.text_or_texts("input")


_BY_NAME: Mapping[str, type[InferenceBody]] = {
    "embed": PoolingEmbedRequest,
    "token_embed": PoolingTokenEmbedRequest,
    "classify": PoolingClassifyRequest,
    "token_classify": PoolingTokenClassifyRequest,
}
# A sparse model has no such result, and refuses to embed.
_BY_TASK: Mapping[Task, type[InferenceBody]] = {
    Task.EMBED: PoolingEmbedRequest,
    Task.SPARSE: PoolingEmbedRequest,
    Task.MULTI_VECTOR: PoolingTokenEmbedRequest,
    Task.RERANK: PoolingClassifyRequest,
    Task.CLASSIFY: PoolingClassifyRequest,
    Task.CLASSIFY_TOKENS: PoolingTokenClassifyRequest,
}


def _choose(json: Json, options: DialectOptions) -> type[InferenceBody]:
    name = json.get("task")
    if name is not None:
        return _BY_NAME[fields.choice_of(tuple(_BY_NAME))(name, "task")]
    task = options.task_of_body(json)
    return PoolingEmbedRequest if task is None else _BY_TASK[task]


CLASSIFY_PATHS = ("/classify", "/v1/classify")
ROUTES = (
    InferenceRoute("score", ("/score", "/v1/score"), "Score pairs, in their order", (ScoreRequest,)),
    InferenceRoute(
        "embeddings",
        ("/embeddings_image", "/v1/embeddings_image"),
        "Embed pictures",
        (ImageEmbeddingsRequest,),
    ),
    InferenceRoute("classify", CLASSIFY_PATHS, "Classify texts and pictures", (ClassifyRequest,)),
    *(
        InferenceRoute("classify", CLASSIFY_PATHS, "", (body,))
        for body in (ClassifyByLabelsRequest, JinaClassifyRequest, ZeroShotRequest)
    ),
    InferenceRoute("tokenize", TOKENIZE_PATHS, "Tokens of texts", (TokenizeRequest,)),
    InferenceRoute("detokenize", ("/detokenize",), "Text of token ids", (VllmDetokenizeRequest,)),
    InferenceRoute(
        "pooling",
        ("/pooling", "/v1/pooling"),
        "Pooled output of the model",
        tuple(_BY_NAME.values()),
        choose=_choose,
    ),
)
