"""Text Embeddings Inference: its routes, its errors, and its headers of where the time went.

Source: its router and its client packages. `/predict` has a module of its own.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from vecmill.errors import InvalidRequest
from vecmill.models.heads import Similarity
from vecmill.reading import Purpose, Reading
from vecmill.scores import similarity_scores
from vecmill.types import (
    FloatArray,
    JsonValue,
    MultiVectorResult,
    RerankResult,
    SparseResult,
    Token,
)
from vecmill_server.calls import (
    Call,
    DetokenizeCall,
    Detokenized,
    EmbedCall,
    Embedded,
    MultiVectorCall,
    RerankCall,
    Result,
    SparseCall,
    TokenizeCall,
    Tokenized,
)
from vecmill_server.dialects import Asked, Dialect, DialectOptions, Document
from vecmill_server.dialects.fields import (
    best_first,
    read_dimensions,
    read_inputs,
    read_normalize,
    read_output,
    read_reading,
    read_token_ids,
    read_truncation,
)
from vecmill_server.documents import (
    Envelope,
    kind_of,
    read_count,
    read_flag,
    read_items,
    read_raw_scores,
    read_required,
    read_string,
    read_text,
    read_texts,
)
from vecmill_server.exchange import HeaderList
from vecmill_server.problems import tei_response

INPUTS = "inputs"
PARAMETERS = "parameters"
INSTANCES = "instances"
# What a body is about; all else may stand in its `parameters`.
NO_OPTIONS = frozenset({"model", INPUTS, "query", "texts", "ids", INSTANCES, PARAMETERS})


def read_embed(document: Document, options: DialectOptions) -> Asked:
    """`/embed`: a row for each text, also for a single one."""
    output = read_output(document)
    call = EmbedCall(
        model=read_string(document, "model"),
        inputs=read_inputs(document, INPUTS, options.read_ids),
        reading=read_reading(document),
        dimensions=read_dimensions(document),
        # Unless it is told otherwise, TEI normalises whatever the model.
        normalize=read_normalize(document) is not False,
        kinds=(output.kind,),
        field=INPUTS,
    )

    def write(result: Embedded, _envelope: Envelope) -> JsonValue:
        return output.encode(result.rows_as(output.kind))

    return Asked(call, write)


def read_rerank(document: Document, options: DialectOptions) -> Asked:
    """`/rerank` with `texts`: places and scores, best first."""
    call = RerankCall(
        model=read_string(document, "model"),
        queries=(read_required(document, "query"),),
        documents=read_list(document, "texts"),
        raw_scores=read_raw_scores(document),
        reading=Reading(read_string(document, "prompt_name"), truncation=read_truncation(document)),
    )
    top_n = read_count(document, "top_n")
    with_text = read_flag(document, "return_text", default=False)
    return Asked(call, partial(_write_ranked, call.documents, top_n, with_text))


def read_similarity(document: Document, options: DialectOptions) -> Asked:
    """`/similarity`: the cosine of one sentence with others."""
    inputs = document.get(INPUTS)
    if not isinstance(inputs, dict):
        raise InvalidRequest(
            '`inputs` is required: {"source_sentence": a string, "sentences": a list of strings}.',
            field=INPUTS,
        )
    source = read_required(inputs, "source_sentence", field=f"{INPUTS}.source_sentence")
    call = EmbedCall(
        model=read_string(document, "model"),
        inputs=(source, *read_list(inputs, "sentences", f"{INPUTS}.sentences")),
        reading=read_reading(document),
        normalize=True,
        field=INPUTS,
    )

    def write(result: Embedded, _envelope: Envelope) -> JsonValue:
        return _cosines(result.rows)

    return Asked(call, write)


def read_sparse(document: Document, options: DialectOptions) -> Asked:
    """`/embed_sparse`: each row as its columns and their values."""
    call = SparseCall(
        model=read_string(document, "model"),
        texts=read_texts(document, INPUTS),
        reading=read_reading(document),
        field=INPUTS,
    )
    return Asked(call, _write_sparse)


def read_embed_all(document: Document, options: DialectOptions) -> Asked:
    """`/embed_all`: a row for each token; a prompt's name says on which side the texts are."""
    call = MultiVectorCall(
        model=read_string(document, "model"),
        texts=read_texts(document, INPUTS),
        reading=_read_sided(document),
        field=INPUTS,
    )
    return Asked(call, _write_all)


def read_tokenize(document: Document, options: DialectOptions) -> Asked:
    """`/tokenize` with `inputs`: the tokens of each text and where they stand."""
    call = TokenizeCall(
        model=read_string(document, "model"),
        texts=read_texts(document, INPUTS),
        special=read_flag(document, "add_special_tokens", default=True),
        field=INPUTS,
    )
    return Asked(call, partial(_write_tokens, call.texts))


def read_decode(document: Document, options: DialectOptions) -> Asked:
    """`/decode`: what lists of token ids spell."""
    items = read_items(document, "ids", "a list of token ids, or of such lists")
    lists = [items] if type(items[0]) is int else items
    call = DetokenizeCall(
        model=read_string(document, "model"),
        ids=tuple(_read_ids(one, f"ids[{index}]") for index, one in enumerate(lists)),
        skip_special=read_flag(document, "skip_special_tokens", default=True),
        field="ids",
    )

    def write(result: Detokenized, _envelope: Envelope) -> JsonValue:
        return list(result.texts)

    return Asked(call, write)


def tei_headers(call: Call, result: Result, device: str) -> HeaderList:
    """Where the time went, in whole milliseconds, and on which `device`, under TEI's names."""
    timings = result.timings
    parts = (
        (b"x-compute-time", timings.total_s),
        (b"x-total-time", timings.total_s),
        (b"x-tokenization-time", timings.tokenize_s),
        (b"x-queue-time", timings.queue_s),
        (b"x-inference-time", timings.inference_s),
    )
    return [
        (b"x-compute-type", device.encode("ascii")),
        (b"x-compute-characters", b"%d" % sum(call.sizes)),
        (b"x-compute-tokens", b"%d" % result.token_count),
        *((name, b"%d" % round(seconds * 1000)) for name, seconds in parts),
    ]


def read_list(document: Document, name: str, field: str | None = None) -> tuple[str, ...]:
    """A list of at least one string; `field` is what errors call it. Raises `InvalidRequest`."""
    items = read_items(document, name, "a list of strings", field=field)
    return tuple(read_text(item, f"{field or name}[{index}]") for index, item in enumerate(items))


def with_parameters(document: Document, parameters: Document) -> Document:
    """The document with those of `parameters` that it does not have itself."""
    return {**parameters, **{name: value for name, value in document.items() if value is not None}}


def read_parameters(document: Document) -> Document:
    """The options in the object `parameters`; none if it is absent. Raises `InvalidRequest`."""
    parameters = document.get(PARAMETERS)
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise InvalidRequest(
            f"`parameters` must be an object, not {kind_of(parameters)}.", field="parameters"
        )
    return {name: value for name, value in parameters.items() if name not in NO_OPTIONS}


def _read_sided(document: Document) -> Reading:
    reading = read_reading(document)
    name = reading.prompt_name
    if name is None:
        return reading
    if name not in (Purpose.QUERY, Purpose.DOCUMENT):
        raise InvalidRequest("`prompt_name` must be query or document.", field="prompt_name")
    return replace(reading, prompt_name=None, purpose=Purpose(name))


def _read_ids(value: JsonValue, field: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise InvalidRequest(f"`{field}` must be a list of token ids, not {kind_of(value)}.", field=field)
    return read_token_ids(value, field)


def _cosines(rows: FloatArray) -> JsonValue:
    return np.ascontiguousarray(similarity_scores(rows[0], rows[1:], Similarity.COSINE))


def _write_ranked(
    texts: tuple[str, ...], top_n: int | None, with_text: bool, result: RerankResult, _envelope: Envelope
) -> JsonValue:
    entries: list[dict[str, Any]] = [
        {"index": index, "score": result.scores[index]} for index in best_first(result, top_n)
    ]
    return [{**entry, "text": texts[entry["index"]]} for entry in entries] if with_text else entries


def _write_sparse(result: SparseResult, _envelope: Envelope) -> JsonValue:
    return [
        [
            {"index": index, "value": value}
            for index, value in zip(row.columns.tolist(), row.values.tolist(), strict=True)
        ]
        for row in result.rows
    ]


def _write_all(result: MultiVectorResult, _envelope: Envelope) -> JsonValue:
    return [list(rows) for rows in result.rows]


def _write_tokens(texts: tuple[str, ...], result: Tokenized, _envelope: Envelope) -> JsonValue:
    return [
        [_token(token, text) for token in tokens]
        for text, tokens in zip(texts, result.result.tokens, strict=True)
    ]


def _token(token: Token, text: str) -> dict[str, Any]:
    is_whole = token.start is None or token.end is None
    return {
        "id": token.token_id,
        "text": token.piece if is_whole else text[token.start : token.end],
        "special": token.is_special,
        "start": token.start,
        "stop": token.end,
    }


def in_tei(read: Callable[[Document, DialectOptions], Asked]) -> Dialect:
    """What `read` reads, with TEI's errors and headers.

    Options may also stand in `parameters`, where Hugging Face's clients put them.
    """

    def read_with_parameters(document: Document, options: DialectOptions) -> Asked:
        parameters = read_parameters(document)
        if not parameters:
            return read(document, options)
        read({**document, **parameters}, options)  # what is wrong in them is said, heeded or not
        return read(with_parameters(document, parameters), options)

    return Dialect(read_with_parameters, tei_response, tei_headers)


TEI_EMBED = in_tei(read_embed)
TEI_RERANK = in_tei(read_rerank)
TEI_SIMILARITY = in_tei(read_similarity)
TEI_SPARSE = in_tei(read_sparse)
TEI_EMBED_ALL = in_tei(read_embed_all)
TEI_TOKENIZE = in_tei(read_tokenize)
TEI_DECODE = in_tei(read_decode)
