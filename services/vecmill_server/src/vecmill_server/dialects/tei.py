"""Text Embeddings Inference's routes.

Source: TEI's router and client packages.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from vecmill.requests import Detokenize, Tokenize
from vecmill.results import DetokenizeResult, TokenizeResult, Tokens
from vecmill.values.aliases import JsonValue
from vecmill_server.base import json_schema
from vecmill_server.base.json_schema import Component
from vecmill_server.dialects import fields, text_fields
from vecmill_server.dialects.dialect import (
    RERANK_PATHS,
    TEI_TOKENIZE,
    TOKENIZE_PATHS,
    Asked,
    Envelope,
    InferenceRoute,
)
from vecmill_server.dialects.parameters import INPUTS
from vecmill_server.dialects.predict_body import PredictRequest
from vecmill_server.dialects.response_parts import Written, utf8_places
from vecmill_server.dialects.tei_bodies import (
    EmbedAllRequest,
    SimilarityRequest,
    SparseRequest,
    TeiBody,
    TeiEmbedRequest,
    TeiRerankRequest,
)


def _write_tokens(texts: tuple[str, ...], result: TokenizeResult, _envelope: Envelope) -> JsonValue:
    return [_token_objects(*pair) for pair in zip(texts, result.tokens, strict=True)]


def _token_objects(text: str, tokens: Tokens) -> Sequence[dict[str, Any]]:
    """Return the tokens of a text as objects, with their places in bytes of UTF-8."""
    starts, stops = (utf8_places(text, np.maximum(places, 0)) for places in (tokens.starts, tokens.ends))

    def write(index: int) -> dict[str, Any]:
        token = tokens[index]
        place = (None, None) if token.is_special else (int(starts[index]), int(stops[index]))
        return {
            "id": token.token_id,
            "text": token.piece if token.is_special else text[token.start : token.end],
            "special": token.is_special,
            "start": place[0],
            "stop": place[1],
        }

    return Written(len(tokens), write)


_PLACE = json_schema.described(json_schema.nullable(int), "The place in the UTF-8 bytes of the text.")


class TeiTokenizeRequest(TeiBody):
    """The body of `/tokenize`, recognised by the key `inputs`."""

    needs_engine = False
    prompt_name = fields.refused(
        "prompt_name",
        "`prompt_name` is not for this route: put the prompt before each text.",
        "Put the prompt before each text.",
    )
    marks = TEI_TOKENIZE
    texts = fields.text_or_texts(INPUTS)
    special = text_fields.ADD_SPECIAL_TOKENS
    responses = (
        Component(
            "TeiTokenizeResponse",
            [[{"id": int, "text": str, "special": bool, "start": _PLACE, "stop": _PLACE}]],
        ),
    )

    def read(self) -> Asked:
        texts = self.texts
        return self.asked(Tokenize(texts, self.special), partial(_write_tokens, texts), input=INPUTS)


def _to_id_lists(value: JsonValue, field: str) -> tuple[tuple[int, ...], ...]:
    items = fields.to_items(value, field, "a list of token ids, or of such lists")
    lists = [items] if type(items[0]) is int else items
    return tuple(fields.to_token_ids(each, f"{field}[{index}]") for index, each in enumerate(lists))


def _write_texts(result: DetokenizeResult, _envelope: Envelope) -> JsonValue:
    return list(result.texts)


class DecodeRequest(TeiBody):
    """The body of `/decode`."""

    needs_engine = False
    ids = fields.required(
        "ids",
        json_schema.any_of(
            json_schema.TOKEN_IDS, {"type": "array", "minItems": 1, "items": json_schema.TOKEN_IDS}
        ),
        _to_id_lists,
        "a list of token ids, or of such lists",
        "Token ids of the model, of one text or of several.",
        depends_on_model=True,
    )
    skip_special = fields.flag(
        "skip_special_tokens", note="Whether to leave out special tokens; true by default."
    ).otherwise(True)
    responses = (Component("DecodeResponse", [str]),)

    def read(self) -> Asked:
        return self.asked(Detokenize(self.ids, self.skip_special), _write_texts, tokens="ids")


ROUTES = (
    InferenceRoute("rerank", RERANK_PATHS, "", (TeiRerankRequest,)),
    InferenceRoute("embed", ("/embed",), "Embed texts", (TeiEmbedRequest,)),
    InferenceRoute("similarity", ("/similarity",), "Compare a sentence with others", (SimilarityRequest,)),
    InferenceRoute("embed_sparse", ("/embed_sparse",), "Sparse embeddings of texts", (SparseRequest,)),
    InferenceRoute("embed_all", ("/embed_all",), "Embed each token of texts", (EmbedAllRequest,)),
    InferenceRoute("tokenize", TOKENIZE_PATHS, "", (TeiTokenizeRequest,)),
    InferenceRoute("decode", ("/decode",), "Texts of token ids", (DecodeRequest,)),
    InferenceRoute("predict", ("/predict",), "Classify texts, pairs or tokens", (PredictRequest,)),
)
