"""What `dialects.tei` and `dialects.predict` read and write."""

from typing import Any

from vecmill_server.dialects.tei import NO_OPTIONS
from vecmill_server.openapi.fields import (
    DIMENSIONS,
    LABEL,
    MODEL,
    NORMALIZE,
    OUTPUT,
    PROMPTS,
    RAW_SCORES,
    READING,
    ROW,
    TRUNCATION,
    Properties,
    inputs,
)
from vecmill_server.openapi.operations import TEI_PROBLEM, post
from vecmill_server.openapi.vocabulary import (
    COUNT,
    FLAG,
    NUMBER,
    OPTIONAL_COUNT,
    STRING,
    TEXT_OR_TEXTS,
    TEXTS,
    TOKEN_IDS,
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
)
from vecmill_server.settings import ServerSettings, TokenIds


def describe_tei(settings: ServerSettings) -> Family:
    """TEI's own paths; those that it shares with others are described there."""
    table = (
        ("/embed", "Embed texts", "TeiEmbedRequest", "RowsResponse"),
        ("/embed_all", "Embed each token of texts", "EmbedAllRequest", "MultiVectorResponse"),
        ("/embed_sparse", "Embed texts as weights of columns", "SparseRequest", "SparseResponse"),
        ("/similarity", "Compare a sentence with others", "SimilarityRequest", "SimilarityResponse"),
        ("/predict", "Classify texts, pairs or tokens", "PredictRequest", "PredictResponse"),
        ("/decode", "Texts of token ids", "DecodeRequest", "DecodeResponse"),
    )
    paths = {
        path: {"post": post(summary, reference(request), reference(response), problems=(TEI_PROBLEM,))}
        for path, summary, request, response in table
    }
    return Family(paths, {**_rows(settings.token_ids), **_scores(), **_predict(), **_tokens()})


def _rows(token_ids: TokenIds) -> dict[str, Schema]:
    exclusive = not_both("prompt", "prompt_name")
    sides = described(one_of_words(("query", "document")), "On which side of a search the texts are.")
    entry = an_object(("index", "value"), {"index": COUNT, "value": NUMBER})
    embed = {"inputs": inputs(token_ids), **MODEL, **OUTPUT, **READING, **DIMENSIONS, **NORMALIZE}
    texts = {"inputs": TEXT_OR_TEXTS, **MODEL, **READING}
    return {
        "TeiEmbedRequest": _request(("inputs",), embed, **exclusive),
        "RowsResponse": list_of(ROW),
        "EmbedAllRequest": _request(("inputs",), {**texts, "prompt_name": sides}),
        "MultiVectorResponse": list_of(list_of(list_of(NUMBER))),
        "SparseRequest": _request(("inputs",), texts, **exclusive),
        "SparseResponse": list_of(list_of(entry)),
    }


def _scores() -> dict[str, Schema]:
    asked = {"query": STRING, "texts": TEXTS}
    options = {
        **MODEL,
        **RAW_SCORES,
        **TRUNCATION,
        "prompt_name": PROMPTS["prompt_name"],
        "top_n": described(OPTIONAL_COUNT, "How many results, the best first; 0 gives all."),
        "return_text": described(FLAG, "Whether results show their texts."),
    }
    entry = an_object(("index", "score"), {"index": COUNT, "score": NUMBER, "text": STRING})
    sentences = {"source_sentence": STRING, "sentences": TEXTS}
    similarity = {"inputs": an_object(tuple(sentences), sentences), **MODEL, **READING}
    return {
        "TeiRerankRequest": _request(tuple(asked), {**asked, **options}),
        "TeiRerankResponse": list_of(entry),
        "SimilarityRequest": _request(("inputs",), similarity, **not_both("prompt", "prompt_name")),
        "SimilarityResponse": list_of(NUMBER),
    }


def _predict() -> dict[str, Schema]:
    of_texts = "Not for models that classify tokens."
    options = {
        **{
            name: of_the_model(schema, f"{schema['description']} {of_texts}")
            for name, schema in RAW_SCORES.items()
        },
        **TRUNCATION,
        "aggregation_strategy": described(
            one_of_words(("none", "simple")), "Of tokens: one entry for each, or for each group."
        ),
        "top_k": described(OPTIONAL_COUNT, "How many labels of a text, the best first; 0 gives all."),
        "function_to_apply": of_the_model(
            one_of_words(("none",)), f"Leaves the activation out, as `raw_scores` does. {of_texts}"
        ),
    }
    pair = {"type": "array", "minItems": 1, "maxItems": 2, "items": STRING}
    batch = {"type": "array", "minItems": 1, "items": any_of(STRING, pair)}
    entity = {"score": NUMBER, "word": STRING, "start": COUNT, "end": COUNT}
    names = {"entity": STRING, "entity_group": STRING, "index": COUNT}
    answer = any_of(list_of(reference("Label")), list_of(reference("Entity")))
    return {
        "PredictRequest": _request(
            ("inputs",),
            {
                "inputs": of_the_model(
                    any_of(STRING, pair, batch),
                    "A text, a pair (a list of two) or a list of such lists; for tokens a list of texts.",
                ),
                **MODEL,
                **options,
            },
        ),
        "PredictResponse": any_of(answer, list_of(answer)),
        "Label": LABEL,
        "Entity": an_object(tuple(entity), {**entity, **names}),
    }


def _tokens() -> dict[str, Schema]:
    place = {**COUNT, "nullable": True}
    token = {"id": COUNT, "text": STRING, "special": {"type": "boolean"}, "start": place, "stop": place}
    ids = of_the_model(
        any_of(TOKEN_IDS, {"type": "array", "minItems": 1, "items": TOKEN_IDS}),
        "The model's own ids, of one text or of several.",
    )
    special = {"add_special_tokens": described(FLAG, "Whether to add what the model adds; unasked, yes.")}
    skipped = {"skip_special_tokens": described(FLAG, "Whether to leave special tokens out; unasked, yes.")}
    return {
        "TeiTokenizeRequest": _request(("inputs",), {"inputs": TEXT_OR_TEXTS, **MODEL, **special}),
        "TeiTokenizeResponse": list_of(list_of(an_object(tuple(token), token))),
        "DecodeRequest": _request(("ids",), {"ids": ids, **MODEL, **skipped}),
        "DecodeResponse": list_of(STRING),
    }


def _request(required: tuple[str, ...], properties: Properties, **conditions: Any) -> Schema:
    """A body whose options may stand in `parameters` too."""
    options = {name: schema for name, schema in properties.items() if name not in NO_OPTIONS}
    text = "Where Hugging Face's clients put the same options; the body's own go before them."
    parameters = of_the_model(an_object((), options, nullable=True), text)
    return an_object(required, {**properties, "parameters": parameters}, **conditions)
