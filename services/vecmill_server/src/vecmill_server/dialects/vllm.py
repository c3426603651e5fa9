"""vLLM's `/score`, `/pooling`, `/classify`, `/tokenize` and `/detokenize`.

Source: vLLM's protocol classes. `/classify` is shared with Infinity, whose body always has `raw_scores`.
"""

from functools import partial
from typing import Any

from vecmill.errors import InvalidRequest
from vecmill.reading import Reading
from vecmill.rows import RowKind
from vecmill.types import ClassifyResult, JsonValue, MultiVectorResult, RerankResult
from vecmill_server.calls import (
    ClassifyCall,
    DetokenizeCall,
    Detokenized,
    EmbedCall,
    Embedded,
    MultiVectorCall,
    RerankCall,
    TokenizeCall,
    Tokenized,
)
from vecmill_server.dialects import Asked, Dialect, DialectOptions, Document
from vecmill_server.dialects.fields import (
    Output,
    base64_rows,
    read_choice,
    read_dimensions,
    read_inputs,
    read_normalize,
    read_output,
    read_reading,
    read_token_ids,
    read_truncation,
    usage,
    write_labels,
)
from vecmill_server.documents import (
    Envelope,
    read_count,
    read_flag,
    read_items,
    read_raw_scores,
    read_required,
    read_string,
    read_texts,
    refuse_other_modalities,
)

# The fields of the two sides of a score, in the order in which vLLM looks for them.
_FIRST = ("queries", "text_1", "data_1")
_SECOND = ("documents", "items", "text_2", "data_2")


def read_score(document: Document, options: DialectOptions) -> Asked:
    """`/score`: pairs to scores, in input order: one with one, one with many, or each with its own."""
    call = RerankCall(
        model=read_string(document, "model"),
        queries=_read_side(document, _FIRST),
        documents=_read_side(document, _SECOND),
        raw_scores=read_raw_scores(document),
        reading=Reading(
            truncation=read_truncation(document),
            query_tokens=read_count(document, "max_tokens_per_query"),
            document_tokens=read_count(document, "max_tokens_per_doc"),
        ),
        instruction=read_string(document, "instruction"),
    )
    return Asked(call, _write_scores)


def read_pooling(document: Document, options: DialectOptions) -> Asked:
    """`/pooling`: what the model makes of texts, as it is."""
    tasks = ("embed", "token_embed", "classify")
    task = read_choice(document, "task", tasks) or "embed"
    model = read_string(document, "model")
    output = read_output(document)
    if task != "embed" and output.kind is not RowKind.FLOAT:
        raise InvalidRequest(
            "Of this `task` only floats are written: leave out the field that asks for fewer bits.",
            field="task",
        )
    if task == "token_embed":
        rows = MultiVectorCall(model, read_texts(document, "input"), read_reading(document))
        return Asked(rows, partial(_write_token_rows, output))
    if task == "classify":
        texts, reading = read_texts(document, "input"), Reading(truncation=read_truncation(document))
        scores = ClassifyCall(model, texts, read_raw_scores(document), reading)
        return Asked(scores, partial(_write_probabilities, output))
    call = EmbedCall(
        model=model,
        inputs=read_inputs(document, "input", options.read_ids),
        reading=read_reading(document),
        dimensions=read_dimensions(document),
        normalize=read_normalize(document),
        kinds=(output.kind,),
    )
    return Asked(call, partial(_write_rows, output))


def read_classify(document: Document, options: DialectOptions) -> Asked:
    """`/classify`: labels of texts, in Infinity's shape where `raw_scores` is there, else in vLLM's."""
    refuse_other_modalities(document)
    call = ClassifyCall(
        model=read_string(document, "model"),
        inputs=read_texts(document, "input"),
        raw_scores=read_raw_scores(document),
        reading=Reading(truncation=read_truncation(document)),
    )
    return Asked(call, _write_as_infinity if "raw_scores" in document else _write_classified)


def read_tokenize(document: Document, options: DialectOptions) -> Asked:
    """`/tokenize` with `prompt`."""
    prompt = read_required(document, "prompt")
    special = read_flag(document, "add_special_tokens", default=True)
    with_pieces = read_flag(document, "return_token_strs", default=False)
    call = TokenizeCall(read_string(document, "model"), (prompt,), special, "prompt")
    return Asked(call, partial(_write_tokens, with_pieces))


def read_detokenize(document: Document, options: DialectOptions) -> Asked:
    """`/detokenize`."""
    ids = read_token_ids(read_items(document, "tokens", "a list of token ids"), "tokens")
    call = DetokenizeCall(read_string(document, "model"), (ids,), skip_special=False)

    def write(result: Detokenized, _envelope: Envelope) -> JsonValue:
        return {"prompt": result.texts[0]}

    return Asked(call, write)


def _read_side(document: Document, names: tuple[str, ...]) -> tuple[str, ...]:
    given = [name for name in names if document.get(name) is not None] or names[:1]
    texts = [read_texts(document, name) for name in given]
    return texts[0]


def _envelope_of(kind: str, result: Any, envelope: Envelope) -> dict[str, Any]:
    return {
        "id": f"{kind}-{envelope.request_id}",
        "object": "list",
        "created": envelope.created,
        "model": envelope.model,
        "usage": usage(result.token_count),
    }


def _write_scores(result: RerankResult, envelope: Envelope) -> JsonValue:
    data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(result.scores)]
    return {**_envelope_of("score", result, envelope), "data": data}


def _write_pooled(rows: Any, result: Any, envelope: Envelope) -> JsonValue:
    data = [{"index": index, "object": "pooling", "data": row} for index, row in enumerate(rows)]
    return {**_envelope_of("pool", result, envelope), "data": data}


def _write_rows(output: Output, result: Embedded, envelope: Envelope) -> JsonValue:
    return _write_pooled(output.encode(result.rows_as(output.kind)), result, envelope)


def _write_token_rows(output: Output, result: MultiVectorResult, envelope: Envelope) -> JsonValue:
    """The rows of each text; in base64 they are all laid end to end."""
    rows = base64_rows(result.rows) if output.base64 else result.rows
    return _write_pooled(rows, result, envelope)


def _write_probabilities(output: Output, result: ClassifyResult, envelope: Envelope) -> JsonValue:
    return _write_pooled(output.encode(result.scores), result, envelope)


def _write_classified(result: ClassifyResult, envelope: Envelope) -> JsonValue:
    """The best label of each input, and the scores of all in the model's order."""
    data = [
        {
            "index": index,
            "label": result.ranked(index)[0][0],
            "probs": scores,
            "num_classes": len(result.labels),
        }
        for index, scores in enumerate(result.scores)
    ]
    return {**_envelope_of("classify", result, envelope), "data": data}


def _write_as_infinity(result: ClassifyResult, envelope: Envelope) -> JsonValue:
    answer = _envelope_of("classify", result, envelope)
    return {**answer, "object": "classify", "data": write_labels(result)}


def _write_tokens(with_pieces: bool, result: Tokenized, _envelope: Envelope) -> JsonValue:
    (tokens,) = result.result.tokens
    return {
        "count": len(tokens),
        "max_model_len": result.max_tokens,
        "tokens": [token.token_id for token in tokens],
        "token_strs": [token.piece for token in tokens] if with_pieces else None,
    }


SCORE = Dialect(read_score)
POOLING = Dialect(read_pooling)
CLASSIFY = Dialect(read_classify)
TOKENIZE = Dialect(read_tokenize)
DETOKENIZE = Dialect(read_detokenize)
