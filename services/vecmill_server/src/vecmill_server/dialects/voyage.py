"""Voyage's `/multimodalembeddings`. Its rerank is in `other_rerankers`, its `/embeddings` is OpenAI's.

Source: the API reference, and the package `voyageai`, which sends pictures as data URIs and asks for base64.
One embedding of a text and a picture together, which Voyage's own models give, is refused.
"""

from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any

from vecmill.requests import Embed, EmbedPictures, Picture
from vecmill.results import EmbedResult
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component
from vecmill_server.dialects import fields, text_fields
from vecmill_server.dialects.dialect import Asked, Envelope, InferenceBody, InferenceRoute
from vecmill_server.dialects.embedding_encodings import EMBEDDING, ENCODING, EmbeddingEncoding
from vecmill_server.dialects.parameters import INPUTS
from vecmill_server.dialects.picture_fields import CONTENT, request_for, to_contents
from vecmill_server.dialects.truncated_inputs import with_truncated


def _write(
    encoding: EmbeddingEncoding, request: Embed | EmbedPictures, result: EmbedResult, envelope: Envelope
) -> JsonValue:
    rows = encoding.encode_result(result)
    texts = (not isinstance(each, Picture) for each in request.inputs)
    return {
        "object": "list",
        "data": [{"object": "embedding", "embedding": row, "index": index} for index, row in enumerate(rows)],
        "model": envelope.model,
        "usage": {
            "text_tokens": sum(compress(result.token_counts, texts)),
            "image_pixels": result.pixel_count,
            "video_pixels": 0,
            "total_tokens": result.token_count,
        },
    }


class VoyageMultimodalRequest(InferenceBody):
    """The body of `/multimodalembeddings`: texts and pictures, each input in parts."""

    inputs: Any = fields.required(
        INPUTS,
        {"type": "array", "minItems": 1, "items": json_schema.like({"content": CONTENT})},
        to_contents,
        "a list of inputs",
        "A text or a picture each.",
        depends_on_model=True,
    )
    encoding = ENCODING
    output_encoding = fields.choice(
        "output_encoding", choices=("base64",), note="Another name of `encoding_format` base64."
    )
    dimensions = text_fields.DIMENSIONS
    options = text_fields.text_options(
        purpose=text_fields.purpose("input_type"), truncation=text_fields.TRUNCATION
    )
    responses = (
        Component(
            "VoyageMultimodalResponse",
            with_truncated(
                {
                    "object": "list",
                    "data": [{"object": "embedding", "embedding": EMBEDDING, "index": int}],
                    "model": str,
                    "usage": {
                        "text_tokens": int,
                        "image_pixels": json_schema.described(int, "The pixels after resizing."),
                        "video_pixels": json_schema.described(int, "Always 0."),
                        "total_tokens": int,
                    },
                }
            ),
        ),
    )

    def read(self) -> Asked:
        encoding = replace(self.encoding, is_base64=True) if self.output_encoding else self.encoding
        request = request_for(self.inputs, self.dimensions, dtypes=(encoding.dtype,), options=self.options)
        return self.asked(request, partial(_write, encoding, request), input=INPUTS, dtypes="output_dtype")


ROUTES = (
    InferenceRoute(
        "embeddings",
        ("/v1/multimodalembeddings", "/multimodalembeddings", "/voyage/v1/multimodalembeddings"),
        "Embed texts and pictures, as Voyage",
        (VoyageMultimodalRequest,),
    ),
)
