"""What `dialects.vllm` reads and writes."""

from vecmill_server.openapi.fields import (
    DIMENSIONS,
    MODALITY,
    MODEL,
    NORMALIZE,
    OUTPUT,
    PAIR_LIMITS,
    RAW_SCORES,
    READING,
    ROW,
    TRUNCATION,
    envelope,
    inputs,
)
from vecmill_server.openapi.operations import PROBLEM, TEI_PROBLEM, at, post
from vecmill_server.openapi.vocabulary import (
    COUNT,
    FLAG,
    NUMBER,
    OPTIONAL_STRING,
    STRING,
    TEXT_OR_TEXTS,
    Family,
    Schema,
    an_object,
    any_of,
    described,
    list_of,
    not_both,
    of_the_model,
    one_of_words,
    reference,
    without,
)
from vecmill_server.settings import ServerSettings, TokenIds

# The names of the two sides of a score, in the order in which they are looked for.
_QUERIES = ("queries", "text_1", "data_1")
_DOCUMENTS = ("documents", "items", "text_2", "data_2")


def describe_vllm(settings: ServerSettings) -> Family:
    """vLLM's paths, Infinity's `/classify`, and `/tokenize` in every shape."""
    score = post("Score pairs, in their order", reference("ScoreRequest"), reference("ScoreResponse"))
    pooling = post(
        "What a model makes of texts",
        any_of(*(reference(f"Pooling{task}Request") for task in ("Embed", "TokenEmbed", "Classify"))),
        reference("PoolingResponse"),
    )
    classify = post(
        "Classify texts",
        reference("ClassifyRequest"),
        any_of(reference("ClassifyResponse"), reference("InfinityClassifyResponse")),
    )
    tokenize = post(
        "Tokens of texts",
        any_of(*map(reference, ("TokenizeRequest", "TeiTokenizeRequest", "CohereTokenizeRequest"))),
        any_of(*map(reference, ("TokenizeResponse", "TeiTokenizeResponse", "CohereTokenizeResponse"))),
        problems=(PROBLEM, TEI_PROBLEM),
    )
    detokenize = post("Text of token ids", reference("DetokenizeRequest"), reference("DetokenizeResponse"))
    return Family(
        {
            **at("/score", "/v1/score", post=score),
            **at("/pooling", "/v1/pooling", post=pooling),
            **at("/classify", "/v1/classify", post=classify),
            **at("/tokenize", "/v1/tokenize", post=tokenize),
            "/detokenize": {"post": detokenize},
        },
        {**_score(), **_pooling(settings.token_ids), **_classify(), **_tokens()},
    )


def _score() -> dict[str, Schema]:
    instruction = of_the_model(OPTIONAL_STRING, "What to look for, for rerankers that are language models.")
    sides = {
        name: of_the_model(_or_null(TEXT_OR_TEXTS), f"A text or several. Names of this: {', '.join(names)}.")
        for names in (_QUERIES, _DOCUMENTS)
        for name in names
    }
    entry = {"index": COUNT, "object": {"type": "string", "enum": ["score"]}, "score": NUMBER}
    return {
        "ScoreRequest": an_object(
            (),
            {**sides, **MODEL, **RAW_SCORES, **TRUNCATION, **PAIR_LIMITS, "instruction": instruction},
            allOf=[_one_is_there(_QUERIES), _one_is_there(_DOCUMENTS)],
        ),
        "ScoreResponse": envelope("list", data=list_of(an_object(tuple(entry), entry))),
    }


def _one_is_there(names: tuple[str, ...]) -> Schema:
    return any_of(*({"required": [name], "properties": {name: TEXT_OR_TEXTS}} for name in names))


def _or_null(schema: Schema) -> Schema:
    first, *others = schema["anyOf"]
    return {"anyOf": [{**first, "nullable": True}, *others]}


def _pooling(token_ids: TokenIds) -> dict[str, Schema]:
    exclusive = not_both("prompt", "prompt_name")
    embed = {"input": inputs(token_ids), **MODEL, **READING, **DIMENSIONS, **NORMALIZE, **OUTPUT}
    token_embed = {"input": TEXT_OR_TEXTS, **MODEL, **READING}
    classify = {"input": TEXT_OR_TEXTS, **MODEL, **TRUNCATION, **RAW_SCORES}
    numbers = list_of(NUMBER)
    entry = {
        "index": COUNT,
        "object": {"type": "string", "enum": ["pooling"]},
        "data": any_of(ROW, list_of(numbers)),
    }
    return {
        "PoolingEmbedRequest": an_object(
            ("input",), {**embed, "task": one_of_words(("embed",))}, **exclusive
        ),
        "PoolingTokenEmbedRequest": an_object(
            ("input", "task"), {**token_embed, "task": _word("token_embed")}, **exclusive
        ),
        "PoolingClassifyRequest": an_object(("input", "task"), {**classify, "task": _word("classify")}),
        "PoolingResponse": envelope("list", data=list_of(an_object(tuple(entry), entry))),
    }


def _word(word: str) -> Schema:
    return {"type": "string", "enum": [word]}


def _classify() -> dict[str, Schema]:
    vllm = {"index": COUNT, "label": STRING, "probs": list_of(NUMBER), "num_classes": COUNT}
    presence = "Its presence asks for Infinity's shape of answer; else it is vLLM's."
    properties = {"input": TEXT_OR_TEXTS, **MODEL, **MODALITY, **RAW_SCORES, **TRUNCATION}
    return {
        "ClassifyRequest": an_object(
            ("input",), {**properties, "raw_scores": described(RAW_SCORES["raw_scores"], presence)}
        ),
        "ClassifyResponse": envelope("list", data=list_of(an_object(tuple(vllm), vllm))),
        "InfinityClassifyResponse": envelope("classify", data=list_of(list_of(reference("Label")))),
    }


def _tokens() -> dict[str, Schema]:
    pieces = {"type": "array", "items": STRING, "nullable": True}
    answer = {"count": COUNT, "max_model_len": COUNT, "tokens": list_of(COUNT), "token_strs": pieces}
    return {
        "TokenizeRequest": an_object(
            ("prompt",),
            {
                "prompt": STRING,
                **MODEL,
                "add_special_tokens": described(FLAG, "Whether to add what the model adds; unasked, yes."),
                "return_token_strs": described(FLAG, "Whether to give the tokens as text too."),
            },
            **without("inputs", "text"),
        ),
        "TokenizeResponse": an_object(tuple(answer), answer),
        "DetokenizeResponse": an_object(("prompt",), {"prompt": STRING}),
    }
