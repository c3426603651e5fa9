"""What `dialects.rerank` reads and writes: four shapes, told apart by keys."""

from vecmill_server.openapi.fields import (
    MODEL,
    PAIR_LIMITS,
    PROMPTS,
    RAW_SCORES,
    TEXT_OBJECT,
    TRUNCATION,
    envelope,
)
from vecmill_server.openapi.operations import OLLAMA_PROBLEM, PROBLEM, TEI_PROBLEM, at, post
from vecmill_server.openapi.vocabulary import (
    COUNT,
    FLAG,
    NUMBER,
    OPTIONAL_COUNT,
    OPTIONAL_STRING,
    STRING,
    Family,
    Schema,
    an_object,
    any_of,
    described,
    list_of,
    not_both,
    of_the_model,
    reference,
    without,
)
from vecmill_server.settings import RerankDocument, ServerSettings

_SHAPES = ("", "Voyage", "Weaviate", "Tei")


def describe_rerank(settings: ServerSettings) -> Family:
    """`/rerank` in all its versions; its TEI shape is described with TEI."""
    operation = post(
        "Score documents against a query",
        any_of(*(reference(f"{name}RerankRequest") for name in _SHAPES)),
        any_of(*(reference(f"{name}RerankResponse") for name in _SHAPES)),
        problems=(PROBLEM, TEI_PROBLEM, OLLAMA_PROBLEM),
    )
    return Family(
        at("/rerank", "/v1/rerank", "/v2/rerank", post=operation),
        {**_requests(), **_responses(settings.rerank_document)},
    )


def _requests() -> dict[str, Schema]:
    best = described(OPTIONAL_COUNT, "How many results, the best first; 0 gives all.")
    with_documents = described(FLAG, "Whether results show their documents.")
    exclusive = [not_both("prompt", "prompt_name"), not_both("instruction", "prompt_name")]

    def request(conditions: list[Schema], **more: Schema) -> Schema:
        properties = {**_properties(), **more}
        return an_object(("query", "documents"), properties, allOf=[*exclusive, *conditions])

    names_voyage = any_of({"required": ["truncation"]}, {"required": ["top_k"]})
    return {
        "RerankRequest": request(
            [without("texts", "truncation", "top_k", "property")], top_n=best, return_documents=with_documents
        ),
        "VoyageRerankRequest": described(
            request([without("texts"), names_voyage], top_k=best, return_documents=with_documents),
            "Voyage's, known by `truncation` or `top_k`.",
        ),
        "WeaviateRerankRequest": described(
            request(
                [without("texts", "truncation", "top_k"), {"required": ["property"]}],
                property=described({}, "Its presence says whose shape this is."),
            ),
            "That of Weaviate's reranker-transformers, known by `property`.",
        ),
    }


def _properties() -> dict[str, Schema]:
    content = any_of(STRING, list_of(TEXT_OBJECT))
    of_parts = an_object(("content",), {"content": content}, **without("text"))
    document = any_of(STRING, TEXT_OBJECT, of_parts)
    return {
        "query": document,
        "documents": {"type": "array", "minItems": 1, "items": document},
        **MODEL,
        **RAW_SCORES,
        **TRUNCATION,
        **PROMPTS,
        **PAIR_LIMITS,
        "rank_fields": described(
            {"type": "array", "nullable": True, "items": STRING},
            "Which fields of documents that are objects are read; one of them must be there.",
            **{"x-depends-on-model": True},
        ),
        "instruction": of_the_model(
            OPTIONAL_STRING, "What to look for, for rerankers that are language models."
        ),
    }


def _responses(written_as: RerankDocument) -> dict[str, Schema]:
    score = {"index": COUNT, "relevance_score": NUMBER}
    keys = tuple(score)
    # As it was sent, whatever else it has.
    as_object = an_object(("text",), {"text": STRING}, additionalProperties=True)
    document = as_object if written_as is RerankDocument.OBJECT else STRING
    tokens = an_object(("input_tokens", "output_tokens"), {"input_tokens": COUNT, "output_tokens": COUNT})
    units = an_object(("search_units", "input_tokens"), {"search_units": COUNT, "input_tokens": COUNT})
    version = an_object(("version",), {"version": STRING})
    meta = {"api_version": version, "billed_units": units, "tokens": tokens}
    scored = {"document": STRING, "score": NUMBER}
    return {
        "RerankResponse": envelope(
            "rerank",
            results=list_of(an_object(keys, {**score, "document": document})),
            meta=an_object(tuple(meta), meta),
        ),
        "VoyageRerankResponse": an_object(
            ("object", "data", "model", "usage"),
            {
                "object": {"type": "string", "enum": ["list"]},
                "data": list_of(an_object(keys, {**score, "document": STRING})),
                "model": STRING,
                "usage": an_object(("total_tokens",), {"total_tokens": COUNT}),
            },
        ),
        "WeaviateRerankResponse": an_object(
            ("scores",), {"scores": list_of(an_object(tuple(scored), scored))}
        ),
    }
