"""The body of `/embeddings`, for the clients of OpenAI, Azure, Jina, Voyage, Mistral, Infinity and vLLM.

The APIs differ only in optional fields, and no field name has two meanings, so one body class has the fields
of all APIs. Source: the clients' code, and the API references.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from vecmill.requests import ChunkingMode, Embed, EmbedPictures, EmbedTokens
from vecmill.results import EmbedResult, EmbedTokensResult
from vecmill.values.aliases import JsonValue
from vecmill.values.embeddings import OutputDtype
from vecmill.values.task import Task
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component, Schema
from vecmill_server.dialects import fields, picture_fields, text_fields
from vecmill_server.dialects.chunk_fields import CHUNK, CHUNKING, write_chunk
from vecmill_server.dialects.dialect import ALL_HEADERS, USUAL_STYLE, Asked, Envelope, write_all_headers
from vecmill_server.dialects.embedding_encodings import (
    EMBEDDING,
    ENCODING_NAMES,
    ENCODINGS,
    ONE_TYPE_IN_RAW_BYTES,
    EmbeddingEncoding,
    RawFormat,
    join_encodings,
)
from vecmill_server.dialects.fields import Field, RequestBody
from vecmill_server.dialects.known_fields import PICTURE_SETTINGS, VLLM, InputBody
from vecmill_server.dialects.message_fields import (
    INPUT_OR_MESSAGES,
    MESSAGES,
    NEEDS_INPUT,
    EmbedMessage,
    has_messages,
    refuse_picture_settings,
    refused_setting,
)
from vecmill_server.dialects.raw_bytes import RawEmbeddings
from vecmill_server.dialects.response_parts import describe_envelope

_RESPONSE = Component(
    "EmbeddingsResponse",
    describe_envelope(
        "list",
        data=[
            Component(
                "Embedding",
                json_schema.an_object(
                    ("object", "index", "embedding"),
                    {
                        "object": "embedding",
                        "index": int,
                        "embedding": json_schema.any_of(
                            *EMBEDDING["anyOf"],
                            json_schema.described([[float]], "Of a multi-vector model: each token's."),
                            json_schema.an_object((), dict.fromkeys(ENCODING_NAMES, EMBEDDING)),
                        ),
                        "chunk": CHUNK,
                    },
                ),
            )
        ],
    ),
)


def write_embeddings(
    encode: Callable[[EmbedResult], Iterable[Any]], result: EmbedResult, envelope: Envelope
) -> JsonValue:
    """Write the embeddings in input order. The embedding of a chunk has the `index` of its input."""
    data: list[dict[str, Any]] = []
    for index, embedding in enumerate(encode(result)):
        data.append({"object": "embedding", "index": index, "embedding": embedding})
    if result.chunks is not None:
        for entry, chunk in zip(data, result.chunks, strict=True):
            entry.update(index=chunk.text, chunk=write_chunk(chunk))
    return envelope.around("list", "embd", result.token_count, data=data)


def _write_matrices(
    encodings: Mapping[str, EmbeddingEncoding], result: EmbedTokensResult, envelope: Envelope
) -> JsonValue:
    """Write the token embeddings of each text as a matrix, in base64 as one string, as Infinity does."""
    values = join_encodings({name: each.encode(result.embeddings) for name, each in encodings.items()})
    data = [{"object": "embedding", "index": index, "embedding": value} for index, value in enumerate(values)]
    return envelope.around("list", "embd", result.token_count, data=data)


# TEI's own `/v1/embeddings` has the same headers as its other routes.
_STYLE = replace(USUAL_STYLE, write_headers=write_all_headers, header_names=ALL_HEADERS)


def _refuse_multivector(body: RequestBody) -> None:
    value = body.json.get("return_multivector")
    if value is not None and fields.to_flag(value, "return_multivector"):
        raise fields.invalid(
            "return_multivector", "is not for this route: /embed_all returns an embedding for each token."
        )


class EmbeddingsRequest(InputBody):
    """The body of `/embeddings`. Jina names the purpose `task`; the other APIs name it `input_type`."""

    modality: ClassVar[Field[Any]] = picture_fields.MODALITY
    messages: ClassVar[Any] = None  # `inputs` reads them
    return_multivector: Field[None] = Field(
        {
            "return_multivector": json_schema.described(
                json_schema.NEVER, "/embed_all returns an embedding for each token."
            )
        },
        _refuse_multivector,
        is_refusal=True,
    )
    prompt_template = fields.refused(
        "prompt_template",
        "`prompt_template` is not applied: send `prompt`, a text to put before each text.",
        "See `prompt`.",
    )
    encodings = ENCODINGS
    dimensions = text_fields.DIMENSIONS
    normalize = text_fields.NORMALIZE
    embd_normalize = text_fields.EMBD_NORMALIZE
    options = text_fields.text_options(
        prompt_name=text_fields.PROMPT_NAME,
        prompt=text_fields.PROMPT,
        purpose=text_fields.purpose("task", "input_type"),
        truncation=text_fields.TRUNCATION,
    )
    late_chunking = fields.flag(
        "late_chunking",
        note="Whether the texts are encoded together, as chunks of one text, by a multi-vector model or one "
        "that takes the mean over tokens. Each needs a token then, and the encoding must be float, binary or "
        "ubinary.",
        depends_on_model=True,
    ).otherwise(False)
    chunking = CHUNKING
    inputs: ClassVar[Field[Any]] = INPUT_OR_MESSAGES
    style = _STYLE
    rules: ClassVar[Schema] = json_schema.all_of(*NEEDS_INPUT["allOf"], ONE_TYPE_IN_RAW_BYTES)
    responses = (_RESPONSE,)
    may_be_raw = True

    def read(self) -> Asked:
        encodings, late_chunking = self.encodings, self.late_chunking
        raw = encodings.raw
        if late_chunking and any(dtype.needs_ranges for dtype in encodings.dtypes):
            raise fields.invalid(
                "late_chunking", "gives no int8 or uint8 embeddings. Ask for float, binary or ubinary."
            )
        normalize, embd_normalize = self.normalize, self.embd_normalize
        if normalize is None:
            normalize = embd_normalize
        inputs, options, chunking = self.inputs, self.options, self.chunking
        dimensions, dtypes = self.dimensions, encodings.dtypes
        if (MESSAGES in self.json and has_messages(self)) or picture_fields.has_pictures(inputs):
            pictures = EmbedPictures(inputs, dimensions, normalize, dtypes, options=options)
            return self._ask_for_pictures(pictures)
        request = Embed(inputs, dimensions, normalize, dtypes, late_chunking, chunking, options=options)
        if raw is not None and chunking is not None and chunking.mode is not ChunkingMode.POOLED:
            raise fields.invalid(
                "chunking.mode",
                f"must be pooled with `encoding_format` {raw}, whose bytes do not name a chunk.",
            )
        # Late chunking gives a multi-vector model's chunks an embedding each. Without a name, such a model
        # answers if no model embeds whole texts.
        task = None
        if not late_chunking and chunking is None:
            task = self.dialect_options.task_of(self.model, _EMBEDDING_TASKS)
        if task is Task.MULTI_VECTOR:
            return self.asked(_ask_for_tokens(request, raw), partial(_write_matrices, encodings.by_name))
        asked = self.asked(request, partial(write_embeddings, encodings.encode))
        if raw is None:
            return asked
        return replace(asked, write_raw=RawEmbeddings.of(raw, encodings.by_name, len(inputs)))

    def _ask_for_pictures(self, request: EmbedPictures) -> Asked:
        encodings = self.encodings
        for field, is_asked in (
            ("late_chunking", self.late_chunking),
            ("chunking", self.chunking is not None),
        ):
            if is_asked:
                raise fields.invalid(field, "is for texts alone, and `input` has a picture.")
        refuse_picture_settings(self)
        if any(dtype.needs_ranges for dtype in request.dtypes):
            raise fields.invalid(
                "output_dtype", "must be float, binary or ubinary: int8 and uint8 need texts."
            )
        asked = self.asked(
            EmbedMessage(request, options=request.options) if has_messages(self) else request,
            partial(write_embeddings, encodings.encode),
        )
        if encodings.raw is None:
            return asked
        return replace(
            asked, write_raw=RawEmbeddings.of(encodings.raw, encodings.by_name, len(request.inputs))
        )


class ImageEmbeddingsRequest(EmbeddingsRequest):
    """The body of `/embeddings_image` and Azure's `/images/embeddings`, whose strings are pictures."""

    modality = fields.fixed(
        "modality",
        json_schema.one_of_words(("image",)),
        lambda value, name: fields.to_string(value, name) == "image",
        "`modality` must be image on this route: /embeddings reads texts too.",
        "The strings are pictures.",
    )
    messages = fields.refused(
        "messages",
        "`messages` are not read on this route: send them to /v1/embeddings.",
        "See /v1/embeddings.",
    )
    inputs: ClassVar[Field[Any]] = fields.required(
        "input",
        picture_fields.PICTURES,
        picture_fields.to_pictures,
        "a picture, or a list of pictures",
        "Pictures, as strings or objects.",
    )
    mm_processor_kwargs = refused_setting("mm_processor_kwargs")
    media_io_kwargs = refused_setting("media_io_kwargs")
    harmless: ClassVar[Mapping[str, str]] = {
        name: reason for name, reason in VLLM.items() if name not in PICTURE_SETTINGS
    }
    rules = json_schema.not_both("prompt", "prompt_name")


# Of the models that answer requests without a name, the preferred task first.
_EMBEDDING_TASKS = (Task.EMBED, Task.MULTI_VECTOR)


def _ask_for_tokens(request: Embed, raw: RawFormat | None) -> EmbedTokens:
    """Return the request for an embedding of each token. Raises `InvalidRequest` for what these cannot be."""
    if any(dtype is not OutputDtype.FLOAT for dtype in request.dtypes):
        raise fields.invalid("model", "has an embedding for each token, as float only.")
    for name, value in (("dimensions", request.dimensions), ("encoding_format", raw)):
        if value is not None:
            raise fields.invalid(name, "is not for this model, which has an embedding for each token.")
    texts = tuple(each for each in request.inputs if isinstance(each, str))
    if len(texts) < len(request.inputs):
        raise fields.invalid("input", "must be texts for this model, which embeds each token.")
    return EmbedTokens(texts, normalize=request.normalize, options=request.options)
